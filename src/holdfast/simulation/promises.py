"""What each kind of delivery promises under which failures: the table of docs/design/shards.md.

The table is here once more, as something that can be looked up. Each of its cells is a kind of
scenario, in which nothing happens but that failure, to a fragment of that kind; what a run of it
lost and doubled is counted against the oracle. The tests hold that the two tables are one, that no
run breaks a promise, and that what is not promised does happen: else the table could promise more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from random import Random

from holdfast.core.settings import SECOND_US, Delivery, Protection
from holdfast.simulation.checkers import consistency
from holdfast.simulation.deliveries import fragment_of
from holdfast.simulation.executor import Computation, Union
from holdfast.simulation.faults import Fault, FaultKind, Schedule, Targets
from holdfast.simulation.layout import layout_of, place
from holdfast.simulation.networks import build, generate_timing
from holdfast.simulation.run import Scenario
from holdfast.simulation.shards import in_shards
from holdfast.simulation.world import World


class Failure(Enum):
    """The columns of the table."""

    PROCESS = "a process is lost and back"
    READERS = "readers are away"
    DISKS = "disks are lost, too"


@dataclass(frozen=True)
class Promise:
    """What may come of it: tuples lost, tuples that come again, or an end that is said."""

    may_lose: bool = False
    may_double: bool = False
    may_end: bool = False

    def __str__(self) -> str:
        """As the table says it."""
        said = ["may lose" if self.may_lose else "never loses"]
        said += [] if self.may_double else ["never doubles"]
        said += ["or says so"] if self.may_end else []
        return ", ".join(said)


_MOST = Promise(may_lose=True)
_LEAST = Promise(may_double=True)
_EXACTLY = Promise()

PROMISES = {
    (Delivery.AT_MOST_ONCE, Failure.PROCESS): _MOST,
    (Delivery.AT_MOST_ONCE, Failure.READERS): _MOST,
    (Delivery.AT_MOST_ONCE, Failure.DISKS): _MOST,
    (Delivery.AT_LEAST_ONCE, Failure.PROCESS): _LEAST,
    (Delivery.AT_LEAST_ONCE, Failure.READERS): _LEAST,
    (Delivery.AT_LEAST_ONCE, Failure.DISKS): Promise(may_double=True, may_end=True),
    (Delivery.EXACTLY_ONCE, Failure.PROCESS): _EXACTLY,
    (Delivery.EXACTLY_ONCE, Failure.READERS): _EXACTLY,
    (Delivery.EXACTLY_ONCE, Failure.DISKS): Promise(may_end=True),
}


@dataclass(frozen=True)
class Outcome:
    """What a run came to: tuples that clients hold, lack and have twice; whether it was the end."""

    held: int
    lost: int
    doubled: int
    ended: bool

    def keeps(self, promise: Promise) -> bool:
        """Where it was the end, it has said so, and what came after that is not promised."""
        if self.ended:
            return promise.may_end
        return (promise.may_lose or not self.lost) and (promise.may_double or not self.doubled)


def cell(delivery: Delivery, failure: Failure, seed: int) -> Scenario:
    """A fragment of a kind, in shards or not, to which nothing happens but one failure."""
    random = Random(seed)
    timing = generate_timing(random)
    # Rows are handed on with their numbers, so that each can be told from all others.
    fragment = fragment_of(random, "f00", Computation((("f00.0", Union(("s0",))),)), delivery)
    if fragment.standby is not None:
        # States in memory only are lost with their processes, as with their disks.
        persist = fragment.standby.persist or delivery is not Delivery.AT_MOST_ONCE
        fragment = replace(fragment, standby=replace(fragment.standby, persist=persist))
    job_us = int(timing.bucket_us * random.choice([0.02, 0.1, 0.35]))
    spec = build(timing, ("s0",), (fragment,), ("f00.0",), job_us)
    if random.random() < 0.5:
        spec = in_shards(spec, {0: random.choice([2, 3])})
    server_of = place(spec, random)
    faults = _FAULTS[failure](random, layout_of(spec, server_of))
    end = max(one.end for one in faults) + spec.calm_us
    return Scenario(seed, spec, server_of, Schedule(tuple(faults), end, failure.name.lower()))


def _spells(random: Random, count: int) -> list[tuple[int, int]]:
    """Times at which something begins, and is over."""
    time, found = 5 * SECOND_US, []
    for _ in range(count):
        end = time + int(random.choice([0.3, 2, 6]) * random.uniform(0.5, 1.5) * SECOND_US)
        found.append((time, end))
        time = end + int(random.choice([0.5, 4, 8]) * random.uniform(0.5, 1.5) * SECOND_US)
    return found


def _processes(random: Random, layout: Targets) -> list[Fault]:
    """Those of one fragment, or shard, one by one, and now and then all of them."""
    faults = []
    for begin, end in _spells(random, random.randint(2, 5)):
        group = random.choice(layout.groups)
        servers = group if random.random() < 0.3 else (random.choice(group),)
        faults += [Fault(FaultKind.CRASH, begin, end, (server,)) for server in servers]
    return faults


def _readers(random: Random, layout: Targets) -> list[Fault]:
    """Nobody can be reached by the client; what merges shards reads, too, and may be cut off."""
    ends = [link for link in layout.links if link[1].startswith("c")]
    between = [link for link in layout.links if not link[0].startswith("e") and link not in ends]
    faults = []
    for begin, end in _spells(random, random.randint(2, 5)):
        links = between if between and random.random() < 0.3 else ends
        faults += [Fault(FaultKind.CUT, begin, end, link) for link in links]
    return faults


def _disks(random: Random, layout: Targets) -> list[Fault]:
    """A server is lost with its disk, once; a replica that is left has time to help it."""
    ((begin, end),) = _spells(random, 1)
    server = random.choice(random.choice(layout.groups))
    return [Fault(FaultKind.DISK_LOST, begin + 10 * SECOND_US, end + 10 * SECOND_US, (server,))]


_FAULTS: dict[Failure, Callable[[Random, Targets], list[Fault]]] = {
    Failure.PROCESS: _processes,
    Failure.READERS: _readers,
    Failure.DISKS: _disks,
}


def outcome(scenario: Scenario) -> Outcome:
    """Run a scenario; raises what any checker of the simulator finds."""
    world = World(scenario.spec, scenario.schedule, Random(scenario.seed), scenario.server_of)
    world.run()
    streams = consistency.oracle(world)
    held = lost = doubled = 0
    for client in world.clients.values():
        # At most once, what comes before everybody is there is lost without any failure.
        since = scenario.schedule.faults[0].start if client.settings.input.lossy else 0
        expected = {row for row in streams[client.stream] if since <= row[0] < client.boundary}
        found = [row for row in client.stable if row[0] < client.boundary]
        held += len(found)
        lost += len(expected - set(found))
        doubled += len(found) - len(set(found))
    return Outcome(held, lost, doubled, world.standby.void)


def has_another(scenario: Scenario) -> bool:
    """Whether of everything that has results there is a second replica, which runs."""
    return all(
        one.protection is Protection.ACTIVE and len(one.addresses) > 1
        for one in scenario.spec.fragments
    )
