"""Tentative tuples beyond a bound are dropped, oldest first; what is stable in the end is whole."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from holdfast.core.serving import ServedStream
from holdfast.core.settings import SECOND_US, Bound, Policy, Reconcile, Then, Timing
from holdfast.simulation import networks
from holdfast.simulation.executor import Computation, Union
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.layout import place
from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.networks import Fragment
from holdfast.simulation.run import Verdict, shaped
from holdfast.simulation.run import run as simulated
from holdfast.simulation.world import World

TIMING = Timing(bucket_us=250_000, delay_us=2 * SECOND_US)
REPLICAS = ("f00a", "f00b")
# The simulator takes each block for a thousand bytes.
BLOCKS = 6


def world_of(bound: Bound) -> World:
    """A union of two sources, one of which is away for a minute; a client is away, too."""
    fast = (Policy.PROCESS, Policy.PROCESS, Reconcile.RESTORE)
    one = Fragment("f00", Computation((("f00.0", Union(("s0", "s1"))),)), REPLICAS, *fast)
    spec = networks.build(TIMING, ("s0", "s1"), (one,), ("f00.0",))
    servers = place(spec, Random(0))
    faults = (
        Fault(FaultKind.PARTITION, 8 * SECOND_US, 68 * SECOND_US, (servers["entry1"],)),
        Fault(FaultKind.PARTITION, 10 * SECOND_US, 60 * SECOND_US, (servers["client0"],)),
    )
    world = World(spec, Schedule(faults, 68 * SECOND_US + spec.calm_us), Random(1), servers)
    for name in REPLICAS:
        process = world.replicas[name]
        process.settings = replace(process.settings, bounds=(("f00.0", bound),))
    return world


def run(world: World) -> list[ServedStream]:
    """Run until late in the failure; the stream as its replicas keep it."""
    world.begin()
    world.clock.run_until(59 * SECOND_US)
    return [world.replicas[name].driver.served["f00.0"] for name in REPLICAS]


def finish(world: World) -> None:
    """Run to the end, with its checks: all of it is corrected."""
    world.clock.run_until(world.schedule.end)
    world.finish()
    assert all(world.replicas[name].driver.view().beyond == "" for name in REPLICAS)


def blocks(served: ServedStream) -> int:
    return sum(frame.block is not None for frame in served.tentative)


def test_the_oldest_tentative_tuples_go_beyond_so_many_bytes() -> None:
    world = world_of(Bound(BLOCKS * 1_000, None, Then.DROP))
    # What comes between two looks, a second apart, is kept beyond the bound.
    most = BLOCKS + SECOND_US // TIMING.bucket_us
    for served in run(world):
        assert 0 < blocks(served) <= most
        assert served.dropped == served.dropped_now > 0
    for name in REPLICAS:
        assert "tentative tuples were dropped" in world.replicas[name].driver.view().beyond
    finish(world)


def test_they_go_when_they_are_so_old() -> None:
    world = world_of(Bound(None, 10 * SECOND_US, Then.DROP))
    for served in run(world):
        assert served.tentative[0].header.stime_max >= (59 - 10 - 2) * SECOND_US
        assert served.dropped > 0
    finish(world)


def test_within_a_bound_they_are_kept() -> None:
    world = world_of(Bound(10**9, None, Then.DROP))
    for served in run(world):
        assert blocks(served) > 2 * BLOCKS
        assert served.dropped == 0
    finish(world)


def test_what_goes_without_a_bound_is_told_until_it_is_corrected() -> None:
    world = world_of(Bound())
    for name in REPLICAS:
        process = world.replicas[name]
        timing = replace(process.settings.timing, tentative_frames=40)
        process.settings = replace(process.settings, timing=timing, bounds=())
    for served in run(world):
        assert len(served.tentative) == 40
        assert served.dropped == served.crowded_out > 0
    for name in REPLICAS:
        view = world.replicas[name].driver.view()
        assert view.beyond == ""
        assert [one.crowded for one in view.outputs] == [one.dropped for one in view.outputs]
        assert any(one.crowded for one in view.outputs)
    finish(world)
    views = [world.replicas[name].driver.view() for name in REPLICAS]
    assert not any(one.crowded for view in views for one in view.outputs)


@pytest.mark.parametrize("seed", [8])
def test_whatever_goes_what_is_stable_is_whole(seed: int) -> None:
    scenario = shaped(seed, "bounded")
    assert scenario is not None
    result = simulated(scenario)
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.tentative > 100


@pytest.mark.parametrize(
    ("name", "seed", "said"),
    [
        ("keep tentative tuples beyond a bound", 0, "keeps tentative tuples beyond its bound"),
        ("drop stable tuples with the tentative ones", 3, "convergence"),
    ],
)
def test_mistakes_with_a_bound_are_found(name: str, seed: int, said: str) -> None:
    (mutation,) = [one for one in MUTATIONS if one.name == name]
    scenario = shaped(seed, "bounded")
    assert scenario is not None
    with mutation.applied():
        result = simulated(scenario)
    assert result.verdict is Verdict.WRONG
    assert said in result.reason
