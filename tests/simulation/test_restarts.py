"""Copies that keep their checkpoints in memory are restarted, one after the other."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from holdfast.core.messages import CopyState
from holdfast.core.protected import ProtectedReplica
from holdfast.core.settings import SECOND_US
from holdfast.simulation.faults import Fault, FaultKind
from holdfast.simulation.run import Scenario
from holdfast.simulation.world import World
from tests.simulation.test_joining import scenario

RESTARTED = Fault(FaultKind.CRASH, 10 * SECOND_US, 11 * SECOND_US, ("xf10b",))


def in_memory(*faults: Fault) -> Scenario:
    one = scenario("hybrid", *faults, apart=("f00a", "f00b"))
    kept = tuple(
        replace(each, standby=each.standby and replace(each.standby, persist=False))
        for each in one.spec.fragments
    )
    return replace(one, spec=replace(one.spec, fragments=kept))


def begun(one: Scenario) -> tuple[World, ProtectedReplica]:
    """The world just after the secondary was restarted, and that copy."""
    world = World(one.spec, one.schedule, Random(one.seed), one.server_of)
    world.begin()
    world.clock.run_until(RESTARTED.end + 1)
    copy = world.replicas["f10b"].driver
    assert isinstance(copy, ProtectedReplica)
    return world, copy


@pytest.mark.parametrize("waits", [True, False])
def test_a_secondary_that_is_suspended_may_hold_nothing_yet(waits: bool) -> None:
    one = in_memory(RESTARTED)
    world, copy = begun(one)
    while copy.state is not CopyState.SUSPENDED or (waits and not copy.pair_view().holds):
        world.clock.run_until(world.clock.now + 1_000)
    world.replicas["f10a"].crash()
    assert world.standby.void is not waits


def test_a_secondary_is_sent_a_state_though_nothing_comes_in() -> None:
    """The primary knew of a copy that held all there is; the one that is back holds nothing."""
    quiet = [
        Fault(FaultKind.PARTITION, 9 * SECOND_US, 30 * SECOND_US, (name,))
        for name in ("xf00a", "xf00b")
    ]
    world, copy = begun(in_memory(RESTARTED, *quiet))
    world.clock.run_until(16 * SECOND_US)
    assert copy.state is CopyState.SUSPENDED
    assert copy.pair_view().holds
