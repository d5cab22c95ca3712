"""Replicas that race: one is far behind for long, or an input is missing; who pays for it."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import pytest

from holdfast.core.racing import RacingReplica
from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.core.unordered import UnorderedClient
from holdfast.simulation import networks
from holdfast.simulation.checkers.consistency import oracle
from holdfast.simulation.client_process import ClientProcess
from holdfast.simulation.executor import Computation, Join, Operator, Row, Union, Window
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.networks import Fragment, NetworkSpec
from holdfast.simulation.world import World

BUCKET_US, STEP_US = SECOND_US // 4, SECOND_US // 20
BEGINS, ENDS, END = 8 * SECOND_US, 32 * SECOND_US, 55 * SECOND_US
TIMING = Timing(bucket_us=BUCKET_US, delay_us=4 * SECOND_US)


def fragment(name: str, *operators: Operator) -> Fragment:
    plan = Computation(tuple((f"{name}.{at}", each) for at, each in enumerate(operators)))
    copies = tuple(f"{name}{letter}" for letter in "abc")
    policy = Policy.PROCESS
    return Fragment(name, plan, copies, policy, policy, Reconcile.RESTORE, race=True)


def network() -> NetworkSpec:
    """Single tuples, windows, and pairs, each read with and without an order."""
    first = fragment("f00", Union(("s0", "s1")))
    second = fragment(
        "f10", Union(("f00.0", "s2")), Window(("f00.0",), 500_000), Join(("s2", "f00.0"), 30_000)
    )
    watched = ("f10.0", "f10.1", "f10.2")
    sources = ("s0", "s1", "s2")
    return networks.build(
        TIMING, sources, (first, second), watched, BUCKET_US // 20, unordered=watched
    )


def begun(faults: list[Fault], seed: int = 7) -> World:
    spec = network()
    everybody = [one.address for one in spec.entries] + [one.address for one in spec.clients]
    everybody += [name for one in spec.fragments for name in one.addresses]
    world = World(spec, Schedule(tuple(faults), END), Random(seed), {one: one for one in everybody})
    world.begin()
    return world


def stuck(*servers: str) -> list[Fault]:
    """Their jobs hang: they are there, and get nowhere."""
    return [Fault(FaultKind.HANG, BEGINS, ENDS, (each,)) for each in servers]


def remembered(world: World) -> Iterator[int]:
    """How much each filter, and whoever notes who was early, keeps."""
    for client in world.clients.values():
        if isinstance(client.driver, UnorderedClient):
            yield client.driver.filter.size
    for process in world.replicas.values():
        replica = process.replica
        if isinstance(replica, RacingReplica):
            yield from (one.size for one in replica.lane.filters.values())
            yield from (one.size for one in replica.pairs.filters.values())
            yield from (one.ranks.size for one in replica.consumer.upstreams.values())


def most_remembered(world: World, begin: int, end: int) -> int:
    most = 0
    for now in range(begin, end, STEP_US):
        world.clock.run_until(now)
        most = max(most, *remembered(world))
    return most


def longest_pause(world: World, begin: int, end: int) -> tuple[int, int]:
    """How long the stream of any client with an order stood still, and what was remembered."""
    ordered = [one for one in world.clients.values() if not one.unordered]
    moved = {one.address: (one.boundary, begin) for one in ordered}
    longest = most = 0
    for now in range(begin, end, STEP_US):
        most = max(most, most_remembered(world, now, now + STEP_US))
        for one in ordered:
            boundary, when = moved[one.address]
            longest = max(longest, now - when)
            if one.boundary > boundary:
                moved[one.address] = (one.boundary, now)
    return longest, most


@pytest.mark.slow
def test_a_replica_far_behind_slows_nobody_and_is_not_remembered() -> None:
    world = begun(stuck("f00a", "f10a"))
    calm = most_remembered(world, 2 * SECOND_US, BEGINS)
    pause, most = longest_pause(world, BEGINS, ENDS)
    behind = {name: world.replicas[name].replica for name in ("f00a", "f00b", "f10a", "f10b")}
    positions = {name: one.versions.stable_position for name, one in behind.items() if one}
    assert positions["f00b"] - positions["f00a"] > 15 * SECOND_US, "it was far behind"
    assert pause < 4 * BUCKET_US
    # Some holes more, or fewer; none for each bucket that one is behind.
    assert most <= calm + 10
    world.clock.run_until(END)
    world.finish()


def tentative_once(client: ClientProcess, world: World, until: int) -> bool:
    while world.clock.now < until and not client.tentative:
        world.clock.run_until(world.clock.now + BUCKET_US)
    return bool(client.tentative)


@pytest.mark.slow
def test_windows_that_are_overdue_are_tentative_and_are_corrected() -> None:
    """Of who needs an order. Who does not never gets anything tentative."""
    servers = ("f00a", "f00b", "f00c")
    cut = [Fault(FaultKind.CUT, BEGINS, ENDS, ("entry1", each)) for each in servers]
    world = begun(cut)
    by_stream = {(one.stream, one.unordered): one for one in world.clients.values()}
    overdue = by_stream["f10.1", False]
    world.clock.run_until(BEGINS + TIMING.delay_us // 4)
    assert not overdue.tentative, "it waits for αX first"
    assert tentative_once(overdue, world, BEGINS + 3 * TIMING.delay_us)
    stood = overdue.boundary
    for _ in range(10):
        world.clock.run_until(world.clock.now + SECOND_US)
        assert overdue.boundary == stood
        assert not any(one.tentative for one in world.clients.values() if one.unordered)
    world.clock.run_until(END)
    world.finish()
    assert not overdue.tentative
    assert overdue.boundary > ENDS


def owed_early(world: World, stream: str) -> set[Row]:
    """What rests on no tuple of the source that is missing, and was there for some seconds."""
    rows = oracle(world, missing=frozenset({"s1"}))[stream]
    return {row for row in rows if BEGINS <= row[0] < ENDS - 3 * SECOND_US}


def early_counts(world: World) -> dict[str, int]:
    return {one.stream: one.early_count for one in world.clients.values() if one.unordered}


@pytest.mark.thorough
def test_who_joins_while_an_input_is_missing_names_early_results_as_the_others_do() -> None:
    """The simulator checks that none comes twice and that in the end they are the oracle's.

    While the input is missing every single tuple and every pair of the others comes all the same;
    no window is complete before it is back. With these seeds no source is quiet.
    """
    cut = [Fault(FaultKind.CUT, BEGINS, ENDS, ("entry1", f"f00{each}")) for each in "abc"]
    # In the end all of them have joined, so that nobody else is left to name anything.
    moments = ((5, "f00a"), (10, "f10a"), (13, "f00b"), (16, "f10b"), (20, "f00c"), (23, "f10c"))
    lost = [
        Fault(FaultKind.DISK_LOST, begin * SECOND_US, (begin + 2) * SECOND_US, (hit,))
        for begin, hit in moments
    ]
    pairs = 0
    for seed in (1, 5, 9, 10):
        world = begun([*cut, *lost], seed)
        unordered = {one.stream: one for one in world.clients.values() if one.unordered}
        world.clock.run_until(BEGINS + SECOND_US)
        before = early_counts(world)
        world.clock.run_until(ENDS)
        early = {name: count - before[name] for name, count in early_counts(world).items()}
        singles_owed, pairs_owed = (owed_early(world, name) for name in ("f10.0", "f10.2"))
        assert singles_owed <= unordered["f10.0"].seen
        assert pairs_owed <= unordered["f10.2"].seen
        assert len(singles_owed) > 100
        assert early["f10.0"] > 100
        pairs += min(early["f10.2"], len(pairs_owed))
        world.clock.run_until(END)
        world.finish()
        assert min(early_counts(world).values()) > 0
        for _, name in moments:
            replica = world.replicas[name].replica
            assert replica is not None
            assert replica.consumer.incarnation > 0, "it has joined"
    assert pairs > 10
