"""Three replicas that race: two are lost at the same moment, or one is cut off without a word."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.simulation import networks
from holdfast.simulation.executor import Computation, Union, Window
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.networks import Fragment, NetworkSpec
from holdfast.simulation.world import World

BUCKET_US, STEP_US = SECOND_US // 4, SECOND_US // 50
FAILS, HEALS, END = 15 * SECOND_US, 25 * SECOND_US, 50 * SECOND_US
# Whoever has to notice first that a replica is gone takes three seconds for it.
TIMING = Timing(
    bucket_us=BUCKET_US,
    delay_us=10 * SECOND_US,
    heartbeat_interval_us=SECOND_US,
    misses_until_down=3,
)


def network(race: bool) -> NetworkSpec:
    def fragment(name: str, operator: Union | Window) -> Fragment:
        copies = tuple(f"{name}{letter}" for letter in "abc")
        plan = Computation(((f"{name}.0", operator),))
        keeps = Reconcile.RESTORE
        return Fragment(name, plan, copies, Policy.PROCESS, Policy.PROCESS, keeps, race=race)

    fragments = (fragment("f00", Union(("s0", "s1"))), fragment("f10", Window(("f00.0",), 250_000)))
    return networks.build(TIMING, ("s0", "s1"), fragments, ("f10.0",), BUCKET_US // 20)


def longest_pause(spec: NetworkSpec, faults: list[Fault]) -> int:
    """How long a client's stable stream stood still, with all checks of the simulator."""
    everybody = [one.address for one in spec.entries] + [one.address for one in spec.clients]
    everybody += [name for fragment in spec.fragments for name in fragment.addresses]
    world = World(spec, Schedule(tuple(faults), END), Random(4), {one: one for one in everybody})
    (client,) = world.clients.values()
    world.begin()
    moved = [FAILS - SECOND_US]
    before = 0
    for now in range(0, HEALS, STEP_US):
        world.clock.run_until(now)
        if client.boundary > before and now >= moved[0]:
            moved.append(now)
        before = client.boundary
    world.clock.run_until(END)
    world.finish()
    assert client.stable
    return max(later - earlier for earlier, later in pairwise([*moved, HEALS]))


def lost(*servers: str) -> list[Fault]:
    return [Fault(FaultKind.CRASH, FAILS, HEALS, (server,)) for server in servers]


FAILURES = {
    "two of the first": lost("f00a", "f00b"),
    "two of the last": lost("f10b", "f10c"),
    "two of each": lost("f00b", "f00c", "f10a", "f10c"),
    "one is cut off": [Fault(FaultKind.PARTITION, FAILS, HEALS, ("f00a",))],
    "another is cut off": [Fault(FaultKind.PARTITION, FAILS, HEALS, ("f10a",))],
}


@pytest.mark.parametrize("name", FAILURES)
def test_results_go_on_as_if_nothing_had_happened(name: str) -> None:
    assert longest_pause(network(race=True), FAILURES[name]) < 4 * BUCKET_US


def test_who_follows_one_replica_must_notice_first() -> None:
    """So the test above can fail."""
    pauses = [longest_pause(network(race=False), FAILURES[name]) for name in FAILURES]
    assert max(pauses) > 2 * SECOND_US
