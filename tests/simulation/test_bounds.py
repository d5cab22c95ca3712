"""What is kept for somebody who is away for a minute stays within its bound, whoever keeps it."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from holdfast.core.settings import (
    SECOND_US,
    Bound,
    Delivery,
    Policy,
    Protection,
    Reconcile,
    StandbySettings,
    Then,
    Timing,
)
from holdfast.simulation import networks
from holdfast.simulation.executor import Computation, Union
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.layout import place
from holdfast.simulation.networks import Fragment
from holdfast.simulation.world import World

TIMING = Timing(bucket_us=250_000, delay_us=2 * SECOND_US)
FAST = (Policy.PROCESS, Policy.PROCESS, Reconcile.RESTORE)
# The simulator takes each block for a thousand bytes.
BLOCKS = 20
# What comes between two looks, a second apart, and what is under way.
BETWEEN = 16
AWAY_US = 3 * SECOND_US
FROM_US, TO_US = 8 * SECOND_US, 68 * SECOND_US
RETIRE = Bound(BLOCKS * 1_000, None, Then.RETIRE, AWAY_US)
IN_MEMORY = StandbySettings(("f00a", "f00b"), Protection.PASSIVE, persist=False)


def world_of(one: Fragment, *away: str) -> World:
    """A union of a source and nothing else; some are away for a minute."""
    spec = networks.build(TIMING, ("s0",), (one,), ("f00.0",))
    servers = place(spec, Random(0))
    faults = tuple(
        Fault(FaultKind.PARTITION, FROM_US, TO_US, (servers[each],)) for each in sorted(set(away))
    )
    return World(spec, Schedule(faults, TO_US + spec.calm_us), Random(1), servers)


def fragment(*replicas: str) -> Fragment:
    return Fragment("f00", Computation((("f00.0", Union(("s0",))),)), replicas, *FAST)


@pytest.mark.parametrize(
    "made",
    [
        replace(fragment("f00a"), delivery=Delivery.AT_LEAST_ONCE),
        replace(fragment("f00a"), delivery=Delivery.AT_MOST_ONCE),
        replace(fragment("f00a", "f00b"), standby=IN_MEMORY),
        fragment("f00a"),
    ],
    ids=["at-least-once", "at-most-once", "in-memory", "exactly-once"],
)
def test_results_that_are_in_no_log_have_a_bound_too(made: Fragment) -> None:
    world = world_of(replace(made, bound=RETIRE), "client0")
    world.begin()
    world.clock.run_until(TO_US - SECOND_US)
    served = world.replicas["f00a"].driver.served["f00.0"]
    assert served.acknowledgements.lapsed == {"client0"}
    assert len(served.stable) <= BLOCKS + BETWEEN
    assert served.first_id > 0
