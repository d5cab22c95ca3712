"""Clients that are retired, replicas that are removed and added, simulated."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from holdfast.core.events import ConsumersNotKept
from holdfast.core.messages import JoinRequest
from holdfast.core.settings import SECOND_US, Bound, Policy, Reconcile, Then, Timing
from holdfast.simulation import networks
from holdfast.simulation.authority import known_to
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Computation, Union, Window
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.layout import place
from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.networks import Fragment
from holdfast.simulation.run import run, shaped
from holdfast.simulation.world import World

TIMING = Timing(bucket_us=250_000, delay_us=2 * SECOND_US)


def world_of(*faults: Fault) -> World:
    """Two fragments in a row of two replicas each; a client reads each of them."""
    fast = (Policy.PROCESS, Policy.PROCESS, Reconcile.RESTORE)
    first = Fragment("f00", Computation((("f00.0", Union(("s0",))),)), ("f00a", "f00b"), *fast)
    window = Window(("f00.0",), 5 * TIMING.bucket_us)
    second = Fragment("f10", Computation((("f10.0", window),)), ("f10a", "f10b"), *fast)
    spec = networks.build(TIMING, ("s0",), (first, second), ("f00.0", "f10.0"))
    servers = place(spec, Random(0)) | {
        name: f"x{name}" for one in (first, second) for name in one.addresses
    }
    end = max(one.end for one in faults)
    return World(spec, Schedule(faults, end + spec.calm_us), Random(1), servers)


def fault(kind: FaultKind, start_s: float, end_s: float, server: str) -> Fault:
    return Fault(kind, int(start_s * SECOND_US), int(end_s * SECOND_US), (server,))


def removed(start_s: float, server: str) -> Fault:
    return fault(FaultKind.REMOVED, start_s, start_s + 0.001, server)


def test_nothing_is_kept_for_a_client_that_is_retired_and_it_is_told_when_it_is_back() -> None:
    away = fault(FaultKind.PARTITION, 8, 30, "c1")
    world = world_of(away, removed(20, "c1"))
    client = world.clients["client1"]
    world.begin()
    world.clock.run_until(19 * SECOND_US)
    served = [world.replicas[name].driver.served["f10.0"] for name in ("f10a", "f10b")]
    needed = client.driver.copy.next_id
    assert [one.first_id for one in served] <= [needed, needed], "all is kept for it"
    world.clock.run_until(29 * SECOND_US)
    # It was the only one that the stream was kept for.
    assert all(one.first_id == one.next_id > needed for one in served)
    assert client.up, "nobody has told it yet"
    world.clock.run_until(32 * SECOND_US)
    assert not client.up
    world.clock.run_until(world.schedule.end)
    world.finish()


def test_a_replica_that_is_removed_and_comes_back_is_told_and_ends() -> None:
    away = fault(FaultKind.CRASH, 8, 30, "xf00b")
    world = world_of(away, removed(20, "xf00b"))
    process = world.replicas["f00b"]
    world.begin()
    world.clock.run_until(29 * SECOND_US)
    assert "f00b" not in world.entries["entry0"].driver.served.acknowledgements.needs()
    assert world.replicas["f00a"].driver.settings.partners == ()
    assert known_to(process).epoch == 0, "it was away"
    world.clock.run_until(world.schedule.end)
    world.finish()
    assert not process.up
    assert known_to(process).epoch == 1, "it is on its disk, too, that it is gone"


def test_whoever_was_away_hears_of_it_from_the_others() -> None:
    away = [fault(FaultKind.CRASH, 8, 30, name) for name in ("e0", "xf10a")]
    world = world_of(*away, removed(20, "xf00b"))
    world.run()
    everybody = [one for name, one in world.processes.items() if name != "f00b"]
    assert {known_to(one).epoch for one in everybody} == {1}


@pytest.mark.parametrize("seed", [0, 3])
def test_clients_and_replicas_leave_while_others_are_away(seed: int) -> None:
    scenario = shaped(seed, "departures")
    assert scenario is not None
    result = run(scenario)
    assert result.reason == ""
    assert result.faults["removed for good"]


def test_a_replica_that_is_added_joins_and_stands_in_for_the_others() -> None:
    away = fault(FaultKind.CRASH, 8, 14, "xf10a")
    gone = [fault(FaultKind.CRASH, 30, 40, name) for name in ("xf00a", "xf00b")]
    world = world_of(away, fault(FaultKind.ADDED, 12, 12.001, "xf00a"), *gone)
    world.begin()
    world.clock.run_until(29 * SECOND_US)
    assert world.joins.counts["joined"]
    added = world.replicas["f00a+1"]
    assert added.replica is not None
    # Whoever was there, and whoever was away, keeps for it, asks it, and may reconcile beside it.
    assert "f00a+1" in world.entries["entry0"].driver.served.acknowledgements.needs()
    assert world.replicas["f00b"].driver.settings.partners == ("f00a", "f00a+1")
    readers = (world.replicas["f10a"], world.replicas["f10b"], world.clients["client0"])
    assert all(one.consumer and "f00a+1" in one.consumer.detectors for one in readers)
    # Both of the others are down, and nothing is late.
    boundary = world.clients["client1"].boundary
    world.clock.run_until(39 * SECOND_US)
    assert world.clients["client1"].boundary > boundary + 8 * SECOND_US
    world.clock.run_until(world.schedule.end)
    world.finish()


@pytest.mark.parametrize("seed", [0, 2])
def test_replicas_are_added_while_others_are_away(seed: int) -> None:
    scenario = shaped(seed, "arrivals")
    assert scenario is not None
    result = run(scenario)
    assert result.reason == ""
    assert result.faults["another is added"]


def test_a_membership_is_obeyed_only_once_it_is_on_disk() -> None:
    def run_without_room() -> World:
        away = fault(FaultKind.CRASH, 8, 30, "xf00b")
        world = world_of(away, fault(FaultKind.DISK_FULL, 19, 25, "e0"), removed(20, "xf00b"))
        world.run()
        return world

    world = run_without_room()
    assert world.events[ConsumersNotKept]
    (mistake,) = [one for one in MUTATIONS if one.name == "obey a membership that is not on disk"]
    with mistake.applied(), pytest.raises(Violation, match="nothing says on disk"):
        run_without_room()


def test_one_that_was_added_is_listened_to_as_the_node_of_its_partner_would() -> None:
    added = fault(FaultKind.ADDED, 8, 8.001, "xf10a")
    world = world_of(added)
    world.run()
    assert not world.refusals
    name = "listen only to those who were there at first"
    (mistake,) = [one for one in MUTATIONS if one.name == name]
    world = world_of(added)
    with mistake.applied(), pytest.raises(Violation, match="could have joined"):
        world.run()
    assert world.refusals[JoinRequest]


def test_a_replica_that_was_away_for_longer_than_anything_is_kept_joins_anew() -> None:
    world = world_of(fault(FaultKind.CRASH, 8, 60, "xf10b"))
    fragments = (("f10a", "f10b"),)
    bound = Bound(None, 15 * SECOND_US, Then.RETIRE, 5 * SECOND_US, fragments)
    for name in ("f00a", "f00b"):
        process = world.replicas[name]
        process.settings = replace(process.settings, bounds=(("f00.0", bound),))
    world.begin()
    world.clock.run_until(58 * SECOND_US)
    for name in ("f00a", "f00b"):
        served = world.replicas[name].driver.served["f00.0"]
        assert served.acknowledgements.lapsed == {"f10b"}
        assert served.stable[0].header.stime_max > 40 * SECOND_US
    world.clock.run_until(world.schedule.end)
    world.finish()
    assert world.joins.counts["joined"] == 1
    assert not world.standby.void


def test_one_that_joins_asks_those_who_take_part_now() -> None:
    """Its disk is lost with what it knew of a partner that came, and the one it knows is cut off.

    That one is gone later.
    """
    added = fault(FaultKind.ADDED, 7, 7.001, "xf10a")
    lost = fault(FaultKind.DISK_LOST, 12, 13, "xf10b")
    cut = Fault(FaultKind.CUT, 11 * SECOND_US, 60 * SECOND_US, ("xf10a", "xf10b"))
    world = world_of(added, lost, cut, removed(20, "xf10a"))
    world.begin()
    world.clock.run_until(35 * SECOND_US)
    copy = world.replicas["f10b"].driver
    assert copy.joining is None
    assert copy.replica is not None
    assert copy.settings.partners == ("f10a+1",)
    world.clock.run_until(world.schedule.end)
    world.finish()
