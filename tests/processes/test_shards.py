"""Fragments with shards, on real nodes that are lost and come back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.generations import Rescaled
from holdfast.cluster.members import MembershipError
from holdfast.cluster.rescaling import rescale
from holdfast.commands.shard_lines import shard_views
from holdfast.deployment import load_deployment
from holdfast.errors import Removed
from holdfast.flight.distance import Distance
from holdfast.slots import SLOTS
from tests.processes.copies import COMMON, World

ALONE = f"""
{COMMON}
[fragments.main]
shards = 2
[fragments.best]
"""
RING = f"""
{COMMON}
[fragments.main]
shards = 2
protection = "hybrid"
[fragments.main.standby]
promote_after = "1500 ms"
[fragments.best]
"""
NODES = ("main.1-1", "main.1-2", "main.2-1", "main.2-2", "main-1", "main-2", "best-1")


@pytest.fixture
def worlds(spark: SparkSession, tmp_path: Path) -> Iterator[Callable[..., World]]:
    made = []

    def make(deployment: str, *names: str) -> World:
        made.append(World(spark, tmp_path, deployment, names))
        made[0].read(lambda: made[0].view.stable is not None)
        return made[0]

    try:
        yield make
    finally:
        for each in made:
            each.close()


@pytest.mark.thorough
def test_a_shard_that_is_lost_is_missing_by_name_until_it_is_back(
    worlds: Callable[..., World],
) -> None:
    world = worlds(ALONE, "main.1-1", "main.2-1", "main-1", "best-1")
    shown = world.copies["main.2-1"].status()["shard"]
    assert (shown["of"], shown["number"], shown["slots"]) == ("main", 2, [SLOTS // 2, SLOTS])
    assert shown["routing"] == {"load": ["k"]}
    assert shown["above"] == {"load": ["entry-load"]}
    assert shown["beside"] == ["main.1", "main.1"]
    assert shown["below"] == {"main.aggregate_1.2": ["main-1"]}
    world.stop("main.1-1")
    # What the other one has is there, tentatively.
    world.read(lambda: world.view.why is not None)
    assert world.view.why is not None
    assert [each.stream for each in world.view.why.missing] == ["main.aggregate_1.1"]
    world.start("main.1-1")
    world.go_on()
    # What merges has no state, and goes on where it was.
    world.stop("main-1")
    world.start("main-1")
    world.go_on()
    world.finish()


def delivered(kind: str) -> str:
    delivery = f'delivery = "{kind}"'
    return f"{COMMON}[fragments.main]\nshards = 2\n{delivery}\n[fragments.best]\n{delivery}\n"


@pytest.mark.thorough
def test_at_least_once_loses_nothing_without_a_log_of_results(
    worlds: Callable[..., World],
) -> None:
    world = worlds(delivered("at-least-once"), "main.1-1", "main.2-1", "main-1", "best-1")
    world.stop("main.1-1", "main-1")
    world.start("main.1-1", "main-1")
    world.go_on()
    world.stop("best-1")
    world.start("best-1")
    world.go_on()
    logs = (world.deployment.data / "processes").glob("[mb]*/streams/**/*.seg")
    assert sum(each.stat().st_size for each in logs) < 10_000
    world.finish()


def test_at_most_once_keeps_nothing_and_doubles_nothing(worlds: Callable[..., World]) -> None:
    world = worlds(delivered("at-most-once"), "main.1-1", "main.2-1", "main-1", "best-1")
    for names in (("main.1-1",), ("main.2-1", "main-1"), ("best-1",)):
        world.stop(*names)
        world.start(*names)
        world.go_on()
    assert not list((world.deployment.data / "processes").glob("[mb]*/state/manifest.json"))
    found = world.view.stable
    assert found is not None
    stimes = found["stime"].cast(pa.int64()).to_pylist()
    # One window every two seconds, none twice.
    assert stimes == sorted(set(stimes))


def test_at_most_once_another_copy_goes_on_from_now(worlds: Callable[..., World]) -> None:
    passive = delivered("at-most-once").replace("shards = 2", 'protection = "passive"')
    world = worlds(passive, "main-1", "main-2", "best-1")
    world.read(world.is_in("main-2", "suspended"))
    world.stop("main-1")
    world.read(world.is_in("main-2", "primary"))
    world.go_on()
    assert world.copies["main-2"].status()["checkpoints"]["taken"] == 0
    found = world.view.stable
    assert found is not None
    stimes = found["stime"].cast(pa.int64()).to_pylist()
    assert stimes == sorted(set(stimes))


def rescaling(
    world: World, shards: int, far: Mapping[str, str] = MappingProxyType({}), wait_s: float = 600.0
) -> Rescaled:
    """Another number of shards, with the test in the place of the supervisor.

    far  which new nodes are a long way from which.
    """
    with ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(rescale, world.deployment.path, "main", shards, wait_s=wait_s)
        while not under_way.done():
            world.deployment = load_deployment(world.deployment.path)
            missing = [
                name
                for name in world.deployment.endpoints
                if name.startswith("main") and name not in world.copies
            ]
            for name in missing:
                world.start(name)
                if name in far:
                    world.copies[name].links.set_distance(far[name], Distance(delay_ms=250))
            ended = [name for name in world.copies if name not in world.deployment.endpoints]
            world.stop(*ended)
            event = world.client.read(0.05)
            if event is not None:
                world.view.apply(event)
        # Those that took part no longer have said so, which ends a process.
        world.failures[:] = [one for one in world.failures if not isinstance(one, Removed)]
        return under_way.result()


@pytest.mark.thorough
def test_another_number_of_shards_takes_over_and_nobody_notices(
    worlds: Callable[..., World],
) -> None:
    world = worlds(ALONE, "main.1-1", "main.2-1", "main-1", "best-1")
    with pytest.raises(MembershipError, match="main has 2 shards already"):
        rescale(world.deployment.path, "main", 2)
    with pytest.raises(MembershipError, match="'best' is no fragment with shards"):
        rescale(world.deployment.path, "best", 2)
    for shards, generation in ((1, 2), (2, 3)):
        done = rescaling(world, shards)
        assert (done.shards, done.generation, done.unaware) == (shards, generation, ())
        names = [f"main.g{generation}.{number}-1" for number in range(1, shards + 1)]
        assert set(world.copies) == {*names, f"main-{generation}", "best-1"}
        world.go_on()
    # It starts again as it is, whatever the file said first.
    world.stop(*list(world.copies))
    world.start("main.g3.1-1", "main.g3.2-1", "main-3", "best-1")
    world.go_on()
    assert world.copies["main.g3.2-1"].status()["shard"]["slots"] == [SLOTS // 2, SLOTS]
    world.finish()


@pytest.mark.thorough
def test_a_ring_of_shards_loses_each_and_shows_no_trace(worlds: Callable[..., World]) -> None:
    ring = worlds(RING, *NODES)

    def settle() -> None:
        """Every shard does its own work; on a busy machine its neighbour may have done it."""
        for shard in ("main.1", "main.2"):
            ring.read(ring.is_in(f"{shard}-1", "primary"))
            ring.read(ring.is_protected(f"{shard}-2"))

    def beside_second() -> tuple[str, ...]:
        """Who is there for the first shard, beside the second one."""
        told = {name: node.status() for name, node in ring.copies.items()}
        return shard_views(ring.deployment, told)["main.2"].beside["main.1"]

    settle()
    # The process of the first shard, with the copy of the second: its neighbour does both.
    ring.stop("main.1-1", "main.2-2")
    ring.read(ring.is_in("main.1-2", "primary"))
    ring.go_on()
    assert beside_second() == ("main.1-2",)
    ring.start("main.1-1", "main.2-2")
    # It takes its work back.
    settle()
    assert beside_second() == ("main.1-1",)
    # One of those that merge, then the neighbour that did the work of two.
    ring.stop("main-1")
    ring.go_on()
    ring.start("main-1")
    ring.stop("main.1-2", "main.2-1")
    ring.read(ring.is_in("main.2-2", "primary"))
    ring.go_on()
    # All of them at once, and back from their disks.
    ring.stop("main.1-1", "main.2-2", "main-1", "main-2")
    ring.start("main.1-1", "main.1-2", "main.2-1", "main.2-2", "main-1", "main-2")
    ring.go_on()
    ring.finish()


@pytest.mark.thorough
def test_new_copies_join_though_every_answer_of_the_other_comes_late(
    worlds: Callable[..., World],
) -> None:
    """Later than silence may last at first, as on a machine with far too much to do.

    A call takes longer than the pause between two requests, too: they would wait in line.
    """
    ring = worlds(RING, *NODES)
    far = {"main.g2.1-1": "main.g2.1-2", "main-3": "main-4"}
    far |= {other: one for one, other in far.items()}
    done = rescaling(ring, 1, far, wait_s=120.0)
    assert (done.shards, done.generation, done.unaware) == (1, 2, ())
    ring.go_on()


@pytest.mark.thorough
def test_a_ring_gets_another_number_of_shards_and_goes_on_standing_by(
    worlds: Callable[..., World],
) -> None:
    ring = worlds(RING, *NODES)
    for shards, generation in ((1, 2), (2, 3)):
        done = rescaling(ring, shards)
        assert (done.shards, done.generation, done.unaware) == (shards, generation, ())
        own = {
            f"main.g{generation}.{number}-{copy}"
            for number in range(1, shards + 1)
            for copy in (1, 2)
        }
        merging = {f"main-{2 * generation - 1}", f"main-{2 * generation}"}
        assert set(ring.copies) == {*own, *merging, "best-1"}
        ring.go_on()
    # Who stands by took its state from the new shard, not from the old ones: it can go on alone.
    ring.read(ring.is_in("main.g3.1-1", "primary"))
    ring.read(ring.is_protected("main.g3.1-2"))
    ring.stop("main.g3.1-1", "main.g3.2-2")
    ring.read(ring.is_in("main.g3.1-2", "primary"))
    ring.go_on()
    ring.start("main.g3.1-1", "main.g3.2-2")
    ring.read(ring.is_in("main.g3.1-1", "primary"))
    ring.go_on()
    ring.finish()


def parts(prefix: str, shards: int, each: int) -> set[str]:
    """The copies of all parts of a ring."""
    return {
        f"{prefix}.{shard}.{part}-{copy}"
        for shard in range(1, shards + 1)
        for part in range(1, each + 1)
        for copy in (1, 2)
    }


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_ring_in_parts_gets_another_number_of_shards(worlds: Callable[..., World]) -> None:
    spread = RING.replace("shards = 2", 'shards = 3\nheirs = "spread"')
    others = ("main-1", "main-2", "best-1")
    ring = worlds(spread, *sorted(parts("main", 3, 2)), *others)
    done = rescaling(ring, 4)
    assert (done.shards, done.generation, done.unaware) == (4, 2, ())
    assert set(ring.copies) == {*parts("main.g2", 4, 3), "main-3", "main-4", "best-1"}
    ring.go_on()
    # The first shard's process: its neighbours have a part each of its work.
    hosted = ring.deployment.processes["main.g2.1"]
    for part in (1, 2, 3):
        ring.read(ring.is_in(f"main.g2.1.{part}-1", "primary"))
        ring.read(ring.is_protected(f"main.g2.1.{part}-2"))
    ring.stop(*hosted)
    for part in (1, 2, 3):
        ring.read(ring.is_in(f"main.g2.1.{part}-2", "primary"))
    ring.go_on()
    ring.start(*hosted)
    ring.go_on()
    ring.finish()


@pytest.mark.thorough
@pytest.mark.parametrize("protection", ["race", "active"])
def test_shards_whose_replicas_all_run_lose_each_and_show_no_trace(
    worlds: Callable[..., World], protection: str
) -> None:
    """Another replica of each shard has everything already: nobody waits for what is lost."""
    fragments = f'[fragments.main]\nshards = 2\nprotection = "{protection}"\n[fragments.best]\n'
    world = worlds(COMMON + fragments, *NODES)

    def settle() -> None:
        nodes = [world.copies[name] for name in NODES]
        world.read(lambda: all(each.status()["state"] == "stable" for each in nodes))

    settle()
    # One replica of each shard, and of what merges them, at the same moment.
    world.stop("main.1-1", "main.2-2", "main-1")
    world.go_on()
    assert world.view.tentative is None
    world.start("main.1-1", "main.2-2", "main-1")
    settle()
    # Then those that were left, one of them with its disk: it joins from the one that is back.
    world.lose("main.1-2")
    world.stop("main.2-1", "main-2")
    world.go_on()
    world.start("main.1-2", "main.2-1", "main-2")
    settle()
    world.stop("main.1-1")
    world.go_on()
    # All of a shard's replicas: its keys wait until one is back from its disk.
    world.stop("main.1-2")
    world.read(lambda: world.view.why is not None)
    world.start("main.1-1", "main.1-2")
    world.go_on()
    world.finish()
