"""How a ring of shards grows, in the simulator: the product's drivers with up to 200 shards.

Everything is well for a while, and messages are counted; then one server in fifty is lost, with the
shard that runs and the one that stands by there, and back. In the end the client must hold what the
fragment computes in one piece. The source has a tuple for every shard twice a second, of keys that
fall to all of them.

Then the same without copies, and half as many shards more while it runs: how many messages that
needs beside data and pings, more than there are as long without it, and how long it takes.
"""

from __future__ import annotations

import time
from collections import Counter
from random import Random
from typing import Any

from holdfast.core.messages import (
    CheckpointShipped,
    CheckpointTaken,
    CopyReply,
    CopyRequest,
    FeedFrames,
    HeartbeatReply,
    HeartbeatRequest,
    Message,
)
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
from holdfast.simulation.executor import Computation, Window
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.main import collected_afterwards
from holdfast.simulation.networks import Fragment, NetworkSpec, build
from holdfast.simulation.shards import in_shards
from holdfast.simulation.source import Source
from holdfast.simulation.world import World

PINGS = (HeartbeatRequest, HeartbeatReply, CopyRequest, CopyReply)
KINDS = {
    "pings": PINGS,
    "records": (CheckpointShipped, CheckpointTaken),
    "data": (FeedFrames,),
}
RESCALED_AT, RESCALE_US = 8 * SECOND_US, 60 * SECOND_US
COUNT_FROM, LOST_AT, BACK_AT, END = (second * SECOND_US for second in (5, 9, 15, 40))


class Busy(Source):
    """A source with something for every shard."""

    def __init__(self, random: Random, shards: int, tuples: int) -> None:
        """``tuples`` are made at a time."""
        super().__init__(random)
        self._counts = [tuples]
        self.KEYS = 4 * shards


def grow(shards: int) -> dict[str, Any]:
    """One ring: messages a second of each kind, in all and for each shard."""
    began = time.process_time()
    spec = in_shards(_one_fragment(), {0: shards})
    server_of = ring_of(spec, shards)
    lost = [f"m{number}" for number in range(0, shards, 50)]
    faults = tuple(Fault(FaultKind.CRASH, LOST_AT, BACK_AT, (one,)) for one in lost)
    conditions = Conditions(longest_append_us=10_000, skew_us=0, sample_us=10 * SECOND_US)
    world = World(spec, Schedule(faults, END), Random(1), server_of, conditions=conditions)
    for entry in world.entries.values():
        entry.source = Busy(Random(2), shards, shards)
    counts: Counter[str] = Counter()
    deliver = world.network.deliver

    def count(source: str, target: str, message: Message) -> None:
        counts.update(kind for kind, types in KINDS.items() if isinstance(message, types))
        deliver(source, target, message)

    world.network.deliver = count
    with collected_afterwards():
        world.begin()
        world.clock.run_until(COUNT_FROM)
        counts.clear()
        world.clock.run_until(LOST_AT)
        seconds = (LOST_AT - COUNT_FROM) / SECOND_US
        usual = {kind: counts[kind] / seconds for kind in KINDS}
        world.clock.run_until(END)
    consistency.check(world)
    progress.check(world)
    return {
        "shards": shards,
        **{f"{kind}_per_second": round(rate) for kind, rate in usual.items()},
        **{f"{kind}_per_second_and_shard": round(rate / shards, 1) for kind, rate in usual.items()},
        "servers_lost": len(lost),
        "results": sum(len(client.stable) for client in world.clients.values()),
        "cpu_s": round(time.process_time() - began, 1),
    }


def rescale(shards: int) -> dict[str, Any]:
    """Half as many shards more, while it runs: what the new ones say, and how long it takes."""
    began = time.process_time()
    spec = in_shards(_one_fragment(alone=True), {0: shards})
    conditions = Conditions(longest_append_us=10_000, skew_us=0, sample_us=10 * SECOND_US)
    schedule = Schedule((), RESCALED_AT + 2 * RESCALE_US)
    world = World(spec, schedule, Random(1), ring_of(spec, shards), conditions=conditions)
    for entry in world.entries.values():
        entry.source = Busy(Random(2), shards, shards)
    counts: Counter[str] = Counter()
    deliver = world.network.deliver

    def count(source: str, target: str, message: Message) -> None:
        if not isinstance(message, (FeedFrames, *PINGS)):
            counts[type(message).__name__] += 1
        deliver(source, target, message)

    world.network.deliver = count
    wanted = shards + shards // 2
    with collected_afterwards():
        world.begin()
        world.clock.run_until(COUNT_FROM)
        counts.clear()
        world.clock.run_until(RESCALED_AT)
        usual = counts.total() / (RESCALED_AT - COUNT_FROM)
        counts.clear()
        assert world.authority.rescaling.begin(wanted)
        while not world.rescaled and world.clock.now < RESCALED_AT + RESCALE_US:
            world.clock.run_until(world.clock.now + SECOND_US // 10)
        took = (world.clock.now - RESCALED_AT) / SECOND_US
        messages = max(0, counts.total() - round(usual * (world.clock.now - RESCALED_AT)))
        kinds = dict(sorted(counts.items()))
        assert world.rescaled, f"{shards} shards have not become {wanted} in {took:g} s"
        world.clock.run_until(world.clock.now + 10 * SECOND_US)
    consistency.check(world)
    return {
        "rescaled_to": wanted,
        "rescale_messages": messages,
        "rescale_messages_per_new_shard": round(messages / wanted, 1),
        "rescale_messages_by_kind": kinds,
        "rescale_s": round(took, 1),
        "rescale_cpu_s": round(time.process_time() - began, 1),
    }


def _one_fragment(alone: bool = False) -> NetworkSpec:
    timing = Timing(bucket_us=500_000, heartbeat_interval_us=500_000)
    pair = StandbySettings(("f00a", "f00b"), Protection.HYBRID, heartbeat_interval_us=200_000)
    process = Policy.PROCESS
    fragment = Fragment(
        "f00",
        Computation((("f00.0", Window(("s0",), SECOND_US)),)),
        pair.copies[:1] if alone else pair.copies,
        process,
        process,
        Reconcile.RESTORE,
        None if alone else pair,
    )
    return build(timing, ("s0",), (fragment,), ("f00.0",))


def ring_of(spec: NetworkSpec, shards: int) -> dict[str, str]:
    """Each shard on a server, with the second copy of the one before it."""
    found = {}
    for fragment in spec.fragments:
        for copy, address in enumerate(fragment.addresses):
            number = 0 if fragment.plan.shard is None else fragment.plan.shard[0] - 1
            merges = "merge" if fragment.plan.shard is None else "m"
            found[address] = f"{merges}{(number + copy) % max(shards, 2)}"
    found |= {one.address: "e0" for one in spec.entries}
    return found | {one.address: "c0" for one in spec.clients}
