"""Feeds and replicas of a simulated world that are collected, by what readers have seen of them.

What is worth how much is computed by the machine that coordinators use (``core.collection``), from
the ranks that the readers of this world have noted; what is collected reaches them as every change
of membership does, and they revive by themselves what they need (``core.revival``).
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from holdfast.core.collection import Collected, Collection, FeedFacts, Running, StreamReplica
from holdfast.core.settings import SECOND_US
from holdfast.simulation.checkers import Violation
from holdfast.simulation.faults import Fault, FaultKind, Targets

if TYPE_CHECKING:
    from holdfast.simulation.world import World


def running(world: World) -> Running:
    """The racing fragments of a world and who reads them, as it is now."""
    racing = {
        one.name: [name for name in _with_added(world, one.addresses) if name in world.replicas]
        for one in world.spec.fragments
        if one.race
    }
    streams = {
        stream: racing[one.name]
        for one in world.spec.fragments
        if one.race
        for stream, _ in one.plan.outputs
    }
    feeds: dict[StreamReplica, FeedFacts] = {}
    used: set[StreamReplica] = set()
    for reader, process in world.processes.items():
        if reader in world.authority.gone or process.consumer is None:
            continue
        for stream, upstream in process.consumer.upstreams.items():
            for producer in streams.get(stream, ()):
                feed = StreamReplica(stream, producer, reader)
                cost = 1.0 + world.random.random()
                feeds[feed] = FeedFacts(cost, upstream.ranks.weights.get(producer, 0.0))
                if producer not in upstream.revival.spared:
                    used.add(feed)
    zones = {name: world.server_of[name] for names in racing.values() for name in names}
    applications = {
        feed.consumer: 1.0
        for feed in feeds
        if not any(feed.consumer in one for one in racing.values())
    }
    return Running(racing, zones, applications, feeds, frozenset(used))


def _with_added(world: World, names: tuple[str, ...]) -> tuple[str, ...]:
    return world.authority.membership.applied_to(names)


def collect(found: Running, k_min: int, share: float) -> Collected:
    """Collect until a share of the cost is left, and check what must hold of what is kept."""
    collection = Collection(found, k_min)
    kept = collection.collect(share * collection.cost)
    for fragment, names in found.replicas.items():
        if len(kept.replicas[fragment]) < min(k_min, len(names)):
            raise Violation("collection", f"{fragment} is left with {kept.replicas[fragment]}")
    there = {name for names in kept.replicas.values() for name in names}
    there |= set(found.applications)
    for feed in found.feeds:
        if feed.consumer not in there:
            continue
        at = [
            one
            for one in found.feeds
            if (one.consumer, one.stream) == (feed.consumer, feed.stream) and one.producer in there
        ]
        left = [one for one in at if one in kept.feeds]
        if len(left) < min(k_min, len(at)):
            raise Violation("collection", f"{feed.consumer} is left with {left} of {at}")
    return kept


def _collections(random: Random, layout: Targets) -> list[Fault]:
    """Feeds and replicas are collected; those that are kept are late, lost or cut off then.

    Replicas are added meanwhile, and move: a new one comes before an old one goes.
    """
    time = 8 * SECOND_US
    faults = []
    for _ in range(random.randint(2, 4)):
        where = random.choice(random.choice(layout.groups))
        faults.append(Fault(FaultKind.COLLECTED, time, time + 1, (where,)))
        time += int(random.uniform(1, 4) * SECOND_US)
        hangs = random.choice(random.choice(layout.groups))
        until = time + int(random.uniform(3, 8) * SECOND_US)
        faults.append(Fault(FaultKind.HANG, time, until, (hangs,)))
        for _ in range(random.randint(0, 2)):
            start = time + int(random.uniform(0, 2) * SECOND_US)
            end = start + int(random.choice([0.5, 3, 6]) * random.uniform(0.5, 1.5) * SECOND_US)
            if random.random() < 0.5:
                kinds = [FaultKind.CRASH, FaultKind.PAUSE, FaultKind.SLOW]
                hit = random.choice(random.choice(layout.groups))
                faults.append(Fault(random.choice(kinds), start, end, (hit,)))
            else:
                kinds = [FaultKind.CUT, FaultKind.SLOW_LINK, FaultKind.LOSE_CONNECTION]
                link = random.choice(layout.links)
                faults.append(Fault(random.choice(kinds), start, end, link))
        time = max(one.end for one in faults) + int(random.uniform(2, 8) * SECOND_US)
        if random.random() < 0.4:
            group = random.choice(layout.groups)
            faults.append(Fault(FaultKind.ADDED, time, time + 1, (random.choice(group),)))
            time += int(random.uniform(4, 8) * SECOND_US)
            faults.append(Fault(FaultKind.REMOVED, time, time + 1, (random.choice(group),)))
            time += int(random.uniform(1, 4) * SECOND_US)
    return faults
