"""How many messages two operators in shards send beside data and pings, as Table 1 of the paper.

The paper on DADSTORM gives two operators as many replicas each and counts what they tell each other
about 3,000 tuples a second. Here both run in shards with a hybrid copy each, in the simulator, on
the product's drivers: eight drivers of Spark would not fit on a small machine, and messages are
the same whatever an operator computes. A ring of real processes is counted beside (shards_ring.py).
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from benchmarks.shards_scale import PINGS, Busy, ring_of
from holdfast.core.messages import FeedFrames, Message
from holdfast.core.settings import (
    SECOND_US,
    Policy,
    Protection,
    Reconcile,
    StandbySettings,
    Timing,
)
from holdfast.simulation.checkers import consistency, progress
from holdfast.simulation.conditions import Conditions
from holdfast.simulation.executor import Computation, Union, Window
from holdfast.simulation.faults import Schedule
from holdfast.simulation.main import collected_afterwards
from holdfast.simulation.networks import Fragment, NetworkSpec, build
from holdfast.simulation.shards import in_shards
from holdfast.simulation.world import World

RATE = 3_000
INTERVAL_US = 500_000
COUNT_FROM = 5 * SECOND_US


def count_messages(shards: int, tuples: int) -> dict[str, Any]:
    """Messages for each 1,000 tuples, in all and by their kinds."""
    spec = in_shards(_two_operators(), {0: shards, 1: shards})
    until = COUNT_FROM + tuples * SECOND_US // RATE
    longest = until + until
    conditions = Conditions(longest_append_us=10_000, skew_us=0, sample_us=10 * SECOND_US)
    schedule = Schedule((), longest + 10 * SECOND_US)
    world = World(spec, schedule, Random(1), ring_of(spec, shards), conditions=conditions)
    (entry,) = world.entries.values()
    entry.source = Busy(Random(2), shards, RATE * INTERVAL_US // SECOND_US)
    counts: Counter[str] = Counter()
    deliver = world.network.deliver

    def count(source: str, target: str, message: Message) -> None:
        if not isinstance(message, (FeedFrames, *PINGS)):
            counts[type(message).__name__] += 1
        deliver(source, target, message)

    world.network.deliver = count
    with collected_afterwards():
        world.begin()
        world.clock.run_until(COUNT_FROM)
        counts.clear()
        before = len(entry.source.made)
        while len(entry.source.made) - before < tuples and world.clock.now < longest:
            world.clock.run_until(world.clock.now + INTERVAL_US)
        made = len(entry.source.made) - before
        rate = made * SECOND_US / (world.clock.now - COUNT_FROM)
        told = dict(counts)
        world.source_stop = world.clock.now
        world.clock.run_until(world.clock.now + 10 * SECOND_US)
    consistency.check(world)
    progress.check(world)
    kinds = {kind: round(1_000 * number / made, 2) for kind, number in sorted(told.items())}
    return {
        "all": round(1_000 * sum(told.values()) / made, 2),
        **kinds,
        "tuples": made,
        "rate": round(rate),
    }


def _two_operators() -> NetworkSpec:
    timing = Timing(bucket_us=500_000, heartbeat_interval_us=500_000)
    process = Policy.PROCESS

    def pair(name: str, operator: Union | Window) -> Fragment:
        copies = (f"{name}a", f"{name}b")
        standby = StandbySettings(copies, Protection.HYBRID, heartbeat_interval_us=200_000)
        plan = Computation(((f"{name}.0", operator),))
        return Fragment(name, plan, copies, process, process, Reconcile.RESTORE, standby)

    first = pair("f00", Union(("s0",)))
    second = pair("f10", Window(("f00.0",), SECOND_US))
    return build(timing, ("s0",), (first, second), ("f10.0",))
