"""The promises on real processes: one deployment goes through one failure after another.

The readers of ``promises.World`` check all the while that nothing is lost, doubled or taken
back, and every test ends with what the clients hold being what an undisturbed run gives.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from holdfast.cluster import chaos
from tests.processes.promises import BUCKET_US, OUTPUTS, REPLICAS, X_US, World, running_world

pytestmark = [
    pytest.mark.long,
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def world(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with running_world(tmp_path_factory.mktemp("promises")) as made:
        yield made


@pytest.fixture(autouse=True)
def _healed(world: World) -> Iterator[None]:
    """What one test breaks is whole for the next, whatever happened."""
    yield
    chaos.heal(world.deployment)
    world.until_nodes("stable")
    world.until_stable()


def test_a_failure_shorter_than_alpha_x_gives_no_tentative_tuple(world: World) -> None:
    # On a busy machine to cut and to heal take their time, too.
    for wait_s in (0.3, 0.3, 0.2, 0.2, 0.1, 0.1, 0.0, 0.0, 0.0, 0.0):
        before = world.lacking("c")
        began = time.monotonic()
        world.cut("c")
        time.sleep(wait_s)
        world.heal("c")
        lasted_us = (time.monotonic() - began) * 1e6
        world.until_stable()
        if lasted_us < X_US / 2:
            world.check()
            assert world.lacking("c") == before
            return
    pytest.fail("this machine is too slow to make a short failure")


def test_a_source_that_stays_away_and_a_failure_while_that_is_corrected(world: World) -> None:
    sums, steady, matched = (world.readers[name] for name in OUTPUTS)
    before, rows_before = world.lacking("c"), steady.stable_rows
    world.cut("c")
    cut_at = time.time_ns() // 1000
    # For many X, every second of what is there is answered.
    world.until("answers all the while", lambda: sums.told_until > cut_at + 6 * X_US)
    world.until_stable("steady")
    assert sums.view.stable_until <= cut_at + X_US
    # A join without one of its inputs has nothing new to say.
    assert matched.told_until < cut_at + BUCKET_US
    assert matched.view.stable_until <= cut_at + X_US
    # What c does not reach stays stable.
    assert world.lacking("c")["steady"] == before["steady"]
    assert world.lacking("c")["sums"] > before["sums"]
    world.until_nodes("up_failure")
    # What all readers have is trimmed, failure or not; what corrections need is kept.
    for replica in REPLICAS:
        assert world.answered(replica)["trimmed_below"]["steady"] > rows_before
    for source in ("a", "b"):
        status = world.answered(f"entry-{source}")
        assert 0 < status["trimmed_below"] < status["next_id"]
    seen = {name: len(world.states(name)) for name in REPLICAS}
    world.heal("c")
    world.until(
        "a correction",
        lambda: any("stabilization" in world.states(name)[seen[name] :] for name in REPLICAS),
    )
    world.cut("b")
    world.until_tentative("sums")
    world.until_tentative("steady")
    world.heal("b")
    world.check()
    assert sums.view.undone > 0
    for name in REPLICAS:
        assert "stabilization" in world.states(name)[seen[name] :]


@pytest.mark.thorough
def test_failures_that_overlap(world: World) -> None:
    world.cut("c")
    world.until_tentative()
    world.kill("entry-a")
    world.cut("b")
    world.until_tentative("steady")
    world.heal("c")
    world.until_tentative()
    world.heal("b")
    world.check()


def test_a_partition_leaves_the_clients_with_one_replica(world: World) -> None:
    chaos.cut(world.deployment, "main-2", "entry-c")
    world.until_nodes("up_failure", "main-2")
    # A whole tree stands, through main-1. Who followed main-2 may hear its first tentative
    # tuples before it changes; from then on everything stays stable.
    world.until_stable()
    before = world.lacking("c")
    world.until_stable()
    assert world.lacking("c") == before
    # Nobody reaches main-1 any more: what main-2 has is better than nothing.
    for output in OUTPUTS:
        chaos.cut(world.deployment, "main-1", output)
    world.until_tentative()
    world.until_following("main-2")
    assert world.state("main-1") == "stable"
    chaos.heal(world.deployment)
    world.check()


@pytest.mark.thorough
def test_both_replicas_fail_in_turn(world: World) -> None:
    before = world.tentative()
    first = world.readers["sums"].client.following
    assert first is not None
    (second,) = set(REPLICAS) - {first}
    world.kill(first)
    # The other one has everything: nobody notices.
    world.until_following(second)
    world.until_stable()
    assert world.tentative() == before
    # Alone, it answers and corrects at the same time.
    world.cut("c")
    world.until_tentative()
    world.heal("c")
    world.until_stable()
    # Whoever comes back while he cannot catch up refuses clients.
    world.cut("c")
    world.until("a refusal", lambda: world.refusal(first) == "recovering", 120.0)
    world.heal("c")
    world.check()
    world.kill(second)
    world.until_following(first)
    world.check()
