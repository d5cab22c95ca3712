"""Feeds and replicas that are collected, and feeds that are revived, simulated."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.simulation import networks
from holdfast.simulation.checkers import Violation
from holdfast.simulation.collecting import collect, running
from holdfast.simulation.executor import Computation, Union, Window
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.layout import place
from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.networks import Fragment
from holdfast.simulation.run import run, shaped
from holdfast.simulation.world import World

TIMING = Timing(bucket_us=250_000, delay_us=12 * SECOND_US)


def world_of(*faults: Fault) -> World:
    """Two racing fragments of three replicas each; the client reads the second."""
    fast = (Policy.PROCESS, Policy.PROCESS, Reconcile.RESTORE)
    first = Fragment(
        "f00", Computation((("f00.0", Union(("s0",))),)), ("f00a", "f00b", "f00c"), *fast, race=True
    )
    window = Window(("f00.0",), 4 * TIMING.bucket_us)
    second = Fragment("f10", Computation((("f10.0", window),)), ("f10a", "f10b"), *fast, race=True)
    spec = networks.build(TIMING, ("s0",), (first, second), ("f10.0",))
    servers = place(spec, Random(0)) | {
        name: f"x{name}" for one in (first, second) for name in one.addresses
    }
    end = max(one.end for one in faults)
    # With seeds 1 and 2 a feed breaks at 17 s, and others are revived before anything is late.
    return World(spec, Schedule(faults, end + spec.calm_us), Random(3), servers)


def late_kept() -> World:
    """The reader f10a keeps one feed, at f00a, which answers and gets no further for a while."""
    world = world_of(Fault(FaultKind.HANG, 20 * SECOND_US, 28 * SECOND_US, ("xf00a",)))
    world.begin()
    world.clock.run_until(12 * SECOND_US)
    authority = world.authority
    collected = [("f10a", "f00.0", name) for name in ("f00b", "f00c")]
    authority.membership = authority.membership.collecting(collected)
    authority._tell(authority.membership)
    return world


def feeds(world: World) -> set[str]:
    consumer = world.replicas["f10a"].consumer
    assert consumer is not None
    return {one.peer for one in consumer.upstreams["f00.0"].feeds()}


@pytest.mark.slow
def test_a_feed_that_was_collected_is_revived_when_the_one_that_was_kept_is_late() -> None:
    world = late_kept()
    assert feeds(world) == {"f00a", "f00b", "f00c"}
    world.clock.run_until(19 * SECOND_US)
    assert feeds(world) == {"f00a"}, "nothing is late"
    world.clock.run_until(24 * SECOND_US)
    assert len(feeds(world)) > 1
    world.clock.run_until(world.schedule.end)
    world.finish()


def test_the_checker_sees_when_it_is_not_revived() -> None:
    (mistake,) = [one for one in MUTATIONS if one.name == "never revive what was collected"]
    with mistake.applied():
        world = late_kept()
        with pytest.raises(Violation, match="revives no feed"):
            world.clock.run_until(world.schedule.end)


@pytest.mark.parametrize("seed", [8])
def test_what_is_worth_least_goes_and_nobody_notices(seed: int) -> None:
    """Collected, revived, added, removed, while links are slow and replicas crash."""
    scenario = shaped(seed, "collections")
    assert scenario is not None
    result = run(scenario)
    assert result.reason == ""
    assert result.faults["feeds and replicas are collected"]
    assert result.faults["another is added"]


@pytest.mark.parametrize(
    "name", ["collect the last feed of a reader", "collect more replicas than may go"]
)
def test_what_must_be_kept_is_checked(name: str) -> None:
    world = world_of(Fault(FaultKind.SLOW_LINK, 1, 2, ("xf00a", "xf10a")))
    world.begin()
    world.clock.run_until(10 * SECOND_US)
    found = running(world)
    assert len(found.used or ()) == 3 * 2 + 2
    kept = collect(found, 1, 0.0)
    assert {name: len(left) for name, left in kept.replicas.items()} == {"f00": 1, "f10": 1}
    (mistake,) = [one for one in MUTATIONS if one.name == name]
    with mistake.applied(), pytest.raises(Violation, match="is left with"):
        collect(found, 1, 0.0)
