"""Failure schedules: what breaks when, and when it is whole again.

A schedule has a shape, which says what kind of trouble it is; the seed draws the rest. Shapes of
what befalls two copies of which one stands by are in copy_shapes.py, of who joins in
joining_shapes.py, of who is removed in membership_shapes.py, of bounds on what is kept in
bound_shapes.py, of minutes in which little happens in quiet_shapes.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations
from random import Random
from typing import TypeAlias

from holdfast.core.settings import SECOND_US
from holdfast.simulation import special_networks
from holdfast.simulation.bound_shapes import _bounded, _withheld
from holdfast.simulation.busy_shapes import _busy, busy_unions
from holdfast.simulation.collecting import _collections
from holdfast.simulation.copy_shapes import (
    _around,
    _bulky,
    _cut_short,
    _deliveries,
    _losses,
    _overload,
    _overtaken,
    _relay,
)
from holdfast.simulation.deliveries import (
    deliveries,
    rescaled_at_most_once,
    rescaled_deliveries,
    rescaled_somehow,
)
from holdfast.simulation.ending_shapes import _stopped
from holdfast.simulation.faults import PAIRWISE, Fault, FaultKind, Schedule, Targets
from holdfast.simulation.joining_shapes import _rejoin, _remote, _spared, _stranded
from holdfast.simulation.membership_shapes import (
    _called_off,
    _departures,
    _moves,
    _rescaled_at_most_once,
    _rescaled_copies,
    _rescaled_deliveries,
    _rescaled_parts,
    _rescaled_windows,
    _rescalings,
)
from holdfast.simulation.networks import NetworkSpec
from holdfast.simulation.quiet_shapes import _sparse, _steady, sparse_windows
from holdfast.simulation.race_shapes import _failing_jobs, _missing_input, _own_inputs

WEIGHTS = {
    FaultKind.CRASH: 4,
    FaultKind.PAUSE: 5,
    FaultKind.SLOW: 5,
    FaultKind.HANG: 2,
    FaultKind.CUT: 5,
    FaultKind.CUT_ONE_WAY: 6,
    FaultKind.PARTITION: 6,
    FaultKind.SLOW_LINK: 2,
    FaultKind.LOSE_CONNECTION: 2,
    FaultKind.DISK_FULL: 2,
    FaultKind.SILENCE: 1,
    FaultKind.CLOCK_STEP: 5,
}
# A clock that is wrong by a minute, and how long it may be: a process follows it by a twentieth.
LONGEST_STEP_US = 60 * SECOND_US
STEPPED_US = 5 * SECOND_US
# In such a share of the schedules clients are lost besides.
_RETURNING = 0.25


def choose(random: Random, layout: Targets, wanted: str | None = None) -> Shape | None:
    """One of several shapes; None if the one that is wanted needs another network."""
    shapes = SHAPES | {
        shape: weight for shape, weight in SHAPES_OF_PAIRS.items() if _pairs_for(shape, layout)
    }
    shape = random.choices(list(shapes), list(shapes.values()))[0]
    if wanted is not None:
        return next((one for one in shapes if one.__name__ == f"_{wanted}"), None)
    return shape


def network_for(shape: Shape, random: Random) -> NetworkSpec | None:
    """The network that a shape is about, if any other would do little for it."""
    make = NETWORKS.get(shape)
    return None if make is None else make(random)


def generate(
    random: Random, shape: Shape, layout: Targets, alpha_x_us: int, calm_us: int
) -> Schedule:
    """A random schedule of a shape."""
    if shape is _gentle:
        faults = _gentle(random, layout, alpha_x_us)
        calm_us += 10 * SECOND_US
    else:
        faults = shape(random, layout)
    if shape is _deserted:
        calm_us += 200 * SECOND_US  # what minutes left to redo takes minutes
    end = max(fault.end for fault in faults) + calm_us
    return Schedule(tuple(faults), end, shape.__name__.removeprefix("_"))


def with_returning_clients(random: Random, schedule: Schedule, layout: Targets) -> Schedule:
    """The same schedule; in some, clients are lost and come back again and again besides."""
    clients = [server for server in layout.servers if server.startswith("c")]
    if random.random() >= _RETURNING:
        return schedule
    faults = []
    time = 5 * SECOND_US
    while (end := time + int(random.uniform(0.1, 4) * SECOND_US)) < schedule.healed_at:
        faults.append(Fault(FaultKind.CRASH, time, end, (random.choice(clients),)))
        time = end + int(random.choice([0.5, 3, 15]) * random.uniform(0.5, 1.5) * SECOND_US)
    return replace(schedule, faults=(*schedule.faults, *faults))


def _bursts(random: Random, layout: Targets) -> list[Fault]:
    """Mostly bursts of overlapping faults; now and then a calm that lets things heal."""
    faults = []
    time = 5 * SECOND_US
    for _ in range(random.randint(1, 10)):
        time += int(random.expovariate(1) * random.choice([1, 3, 3, 15]) * SECOND_US)
        faults.append(fault(random, time, layout))
        if random.random() < 0.3:
            faults.append(_aftershock(random, faults[-1], layout))
    return faults


def _duration(random: Random) -> int:
    """Most failures are short; most of the downtime is in long ones."""
    seconds = random.choice([0.2, 1, 3, 3, 6, 6, 12, 25]) * (0.5 + random.random())
    return int(seconds * SECOND_US)


def fault(random: Random, time: int, layout: Targets) -> Fault:
    """Any fault, anywhere."""
    servers, entries = layout.servers, layout.entries
    kind = random.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    end = time + _duration(random)
    if kind in PAIRWISE:
        return Fault(kind, time, end, random.choice(layout.links))
    if kind is FaultKind.SILENCE:
        return Fault(kind, time, end, (random.choice(entries),))
    # What hits an entry point hits everyone downstream, and no replica can stand in.
    hit = random.choice(entries if random.random() < 0.4 else servers)
    if kind is FaultKind.CLOCK_STEP:
        return Fault(kind, time, min(end, time + STEPPED_US), (hit,), _step(random, time))
    if kind is FaultKind.PARTITION and random.random() < 0.4:
        size = random.randint(1, max(1, len(servers) // 2))
        return Fault(kind, time, end, tuple(sorted(random.sample(servers, size))))
    return Fault(kind, time, end, (hit,))


def _step(random: Random, time: int) -> int:
    """How far a clock is set: forward or back, but not to before the beginning of the world."""
    return int(random.uniform(-min(LONGEST_STEP_US, time - SECOND_US), LONGEST_STEP_US))


def _aftershock(random: Random, before: Fault, layout: Targets) -> Fault:
    """A fault while the system recovers from another, often in the same place."""
    time = before.end + int(random.random() * 1.5 * SECOND_US)
    if len(before.servers) == 1 and random.random() < 0.4:
        kind = random.choice([FaultKind.CRASH, FaultKind.PAUSE, FaultKind.PARTITION])
        return Fault(kind, time, time + _duration(random), before.servers)
    return fault(random, time, layout)


def _half_open(random: Random, layout: Targets) -> list[Fault]:
    """Connections are lost without a word: who provides them is gone and back behind a cut.

    That is over before anybody has given it up, and nobody could hear that it knows them no more.
    Entry points are: a replica that is back says that it recovers, and is left.
    """
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(2, 5)):
        hit = (random.choice(layout.entries),)
        crash = time + int(random.uniform(0.02, 0.1) * SECOND_US)
        back = crash + int(random.uniform(0.05, 0.2) * SECOND_US)
        end = back + int(random.uniform(0.2, 0.4) * SECOND_US)
        faults.append(Fault(FaultKind.PARTITION, time, end, hit))
        faults.append(Fault(FaultKind.CRASH, crash, back, hit))
        time = end + int(random.uniform(2, 10) * SECOND_US)
    return faults


def _swizzled(random: Random, layout: Targets) -> list[Fault]:
    """Links are cut one by one and healed in another order."""
    chosen = random.sample(layout.links, min(len(layout.links), random.randint(2, 10)))
    start = 5 * SECOND_US
    cuts = []
    for link in chosen:
        start += int(random.random() * 3 * SECOND_US)
        cuts.append((link, start))
    random.shuffle(cuts)
    heal = start
    faults = []
    for link, began in cuts:
        heal += int(random.random() * 4 * SECOND_US) + 1
        faults.append(Fault(FaultKind.CUT, began, heal, link))
    return faults


def _storm(random: Random, layout: Targets) -> list[Fault]:
    """The same few servers crash again and again, with full disks in between."""
    hit = random.sample([one for one in layout.servers if not one.startswith("c")], 2)
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(6, 12)):
        kind = FaultKind.DISK_FULL if random.random() < 0.25 else FaultKind.CRASH
        end = time + int(random.uniform(0.3, 3) * SECOND_US)
        faults.append(Fault(kind, time, end, (random.choice(hit),)))
        time = end + int(random.choice([0.4, 1, 4]) * random.uniform(0.5, 1.5) * SECOND_US)
    return faults


def _rolling(random: Random, layout: Targets) -> list[Fault]:
    """Entry points are away in turn: the next is gone before one is back, or soon after.

    Often partners cannot reach each other meanwhile, so that nobody answers when one asks; or
    replicas are hit while they reconcile.
    """
    entries = layout.entries
    gap_s = random.choice([(-3.0, 1.0), (0.2, 2.5)])
    time = 5 * SECOND_US
    faults = []
    for turn in range(random.randint(3, 7)):
        end = time + int(random.uniform(4, 12) * SECOND_US)
        faults.append(Fault(FaultKind.PARTITION, time, end, (entries[turn % len(entries)],)))
        time = end + int(random.uniform(*gap_s) * SECOND_US)
    if random.random() < 0.5:
        last = max(one.end for one in faults)
        cuts = [Fault(FaultKind.CUT, 5 * SECOND_US, last, pair) for pair in _partners(layout)]
        return faults + cuts
    hit = max(layout.groups, key=len)
    kinds = [FaultKind.CRASH, FaultKind.PARTITION, FaultKind.PAUSE]
    for one in faults[:]:
        time = one.end + int(random.uniform(0.1, 1.5) * SECOND_US)
        end = time + int(random.uniform(1, 6) * SECOND_US)
        faults.append(Fault(random.choice(kinds), time, end, (random.choice(hit),)))
    return faults


def _flicker(random: Random, layout: Targets) -> list[Fault]:
    """An entry point is away, back for a moment, and away again, a few times.

    Partners cannot ask each other meanwhile, or one is lost that has just asked.
    """
    away = random.choice(layout.entries)
    group = max(layout.groups, key=len)
    start = time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(3, 5)):
        end = time + int(random.uniform(3, 8) * SECOND_US)
        faults.append(Fault(FaultKind.PARTITION, time, end, (away,)))
        time = end + int(random.uniform(0.1, 1.2) * SECOND_US)
    if random.random() < 0.6:
        return faults + [Fault(FaultKind.CUT, start, time, pair) for pair in _partners(layout)]
    for one in faults[:]:
        crash = one.end + int(random.uniform(0.1, 1.0) * SECOND_US)
        back = crash + int(random.uniform(3, 9) * SECOND_US)
        faults.append(Fault(FaultKind.CRASH, crash, back, (random.choice(group),)))
    return faults


def _partners(layout: Targets) -> list[tuple[str, str]]:
    return sorted({pair for group in layout.groups for pair in combinations(group, 2)})


def _eclipse(random: Random, layout: Targets) -> list[Fault]:
    """One replica is ahead of its partners, which are cut off from their producers; it crashes.

    It comes back and finds its producers cut off, too, so that for a while the one that is
    furthest is of no use and the others are far behind.
    """
    most = max(len(one) for one in layout.groups)
    group = list(random.choice([one for one in layout.groups if len(one) == most]))
    random.shuffle(group)
    ahead, *behind = group
    start = 5 * SECOND_US
    crash = start + int(random.uniform(4, 10) * SECOND_US)
    back = crash + int(random.uniform(0.2, 3) * SECOND_US)
    faults = [Fault(FaultKind.CRASH, crash, back, (ahead,))]
    for server in group:
        began = crash if server == ahead else start + int(random.random() * 2 * SECOND_US)
        end = back + int(random.uniform(1, 10) * SECOND_US)
        faults += [
            Fault(FaultKind.CUT, began, end, (producer, server))
            for producer in layout.producers[server]
        ]
    faults += [fault(random, back, layout) for _ in behind if random.random() < 0.5]
    return faults


def _lull(random: Random, layout: Targets) -> list[Fault]:
    """A replica loses one of its producers, and its partners lose all: silence, not failure."""
    running = [one for one in layout.groups if one not in layout.pairs] or layout.groups
    several = [one for one in running if len(layout.producers[one[0]]) > 1] or running
    most = max(len(one) for one in several)
    group = list(random.choice([one for one in several if len(one) == most]))
    random.shuffle(group)
    start = 5 * SECOND_US
    end = start + int(random.uniform(10, 40) * SECOND_US)
    faults = []
    for server in group:
        producers = layout.producers[server]
        if server == group[0]:
            producers = producers[: random.randint(1, max(len(producers) - 1, 1))]
        faults += [Fault(FaultKind.CUT, start, end, (name, server)) for name in producers]
    return faults or [fault(random, start, layout)]


def _gentle(random: Random, layout: Targets, alpha_x_us: int = SECOND_US) -> list[Fault]:
    """Single short cuts, far apart: short enough that nothing may become tentative."""
    faults = []
    time = 5 * SECOND_US
    longest = alpha_x_us - int(0.9 * SECOND_US)
    for _ in range(random.randint(1, 4)):
        duration = int(longest * random.uniform(0.3, 1.0)) if longest > 0 else 1_000
        kind = random.choice([FaultKind.CUT, FaultKind.CUT_ONE_WAY, FaultKind.PARTITION])
        alone = kind is FaultKind.PARTITION
        target = (random.choice(layout.entries),) if alone else random.choice(layout.links)
        faults.append(Fault(kind, time, time + duration, target))
        time += duration + 10 * SECOND_US
    return faults


def _deserted(random: Random, layout: Targets) -> list[Fault]:
    """After minutes without its producers one replica has them back, and its partners have not.

    They would agree to go on with new tuples, but they get none.
    """
    group = list(random.choice(layout.groups))
    random.shuffle(group)
    start = 5 * SECOND_US
    heal = start + int(random.uniform(220, 250) * SECOND_US)
    faults = []
    for server in group:
        end = heal if server == group[0] else heal + 180 * SECOND_US
        for name in layout.producers[server][: 1 if server == group[0] else None]:
            faults.append(Fault(FaultKind.CUT, start, end, (name, server)))
    return faults


def _ruin(random: Random, layout: Targets) -> list[Fault]:
    """A server comes back with an empty disk, mostly one whose work another can do."""
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.choice([1, 1, 2])):
        pair = random.choice(layout.pairs) if layout.pairs and random.random() < 0.7 else ()
        most = [server for group in layout.groups for server in group if len(group) > 1]
        hit = random.choice(pair or most or [one for one in layout.servers if one[0] != "c"])
        end = time + int(random.uniform(0.3, 8) * SECOND_US)
        if random.random() < 0.15:
            hit = random.choice(layout.entries)
            # Somebody has not taken everything yet.
            link = random.choice([one for one in layout.links if hit in one])
            faults.append(Fault(FaultKind.CUT, time - 3 * SECOND_US, end + SECOND_US, link))
        faults.append(Fault(FaultKind.DISK_LOST, time, end, (hit,)))
        if random.random() < 0.5:
            faults.append(_aftershock(random, faults[-1], layout))
        time = end + int(random.uniform(2, 15) * SECOND_US)
    return faults


def _arrivals(random: Random, layout: Targets) -> list[Fault]:
    """Replicas are added while others are away, and one of those that were there goes.

    One that has lost its disk joins meanwhile, and cannot reach who was its partner so far.
    """
    time = 8 * SECOND_US
    faults = []
    for _ in range(random.randint(1, 2)):
        group = random.choice([one for one in layout.groups if one not in layout.pairs] or [()])
        if not group:
            return [fault(random, time, layout)]
        like = random.choice(group)
        for _ in range(random.randint(0, 2)):
            other = random.choice(layout.servers)
            kinds = [FaultKind.CRASH, FaultKind.PARTITION, FaultKind.DISK_FULL, FaultKind.PAUSE]
            start = time + int(random.uniform(-1, 1) * SECOND_US)
            end = start + int(random.uniform(0.2, 6) * SECOND_US)
            faults.append(Fault(random.choice(kinds), start, end, (other,)))
        faults.append(Fault(FaultKind.ADDED, time, time + 1, (like,)))
        began, goes = time, random.choice(group)
        time = max(one.end for one in faults) + int(random.uniform(3, 10) * SECOND_US)
        if random.random() < 0.5:
            faults.append(Fault(FaultKind.REMOVED, time, time + 1, (goes,)))
            time += 2 * SECOND_US
        lost = [one for one in group if one not in (like, goes)]
        if lost and random.random() < 0.5:
            start = began + int(random.uniform(0.5, 3) * SECOND_US)
            end = start + int(random.uniform(0.3, 2) * SECOND_US)
            faults.append(Fault(FaultKind.DISK_LOST, start, end, (lost[0],)))
            cut = (start - SECOND_US, time + 15 * SECOND_US)
            faults += [Fault(FaultKind.CUT, *cut, (one, lost[0])) for one in sorted({like, goes})]
    return faults


def _wrong_clocks(random: Random, layout: Targets) -> list[Fault]:
    """Clocks are set, by up to a minute and back; processes that start meanwhile believe them."""
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(2, 5)):
        hit = random.choice(layout.servers)
        end = time + int(random.uniform(0.5, 1) * STEPPED_US)
        faults.append(Fault(FaultKind.CLOCK_STEP, time, end, (hit,), _step(random, time)))
        if hit not in layout.entries and random.random() < 0.5:
            crash = time + int(random.uniform(0.1, 2) * SECOND_US)
            faults.append(Fault(FaultKind.CRASH, crash, crash + SECOND_US, (hit,)))
        if random.random() < 0.4:
            faults.append(fault(random, time, layout))
        time = end + int(random.uniform(1, 6) * SECOND_US)
    return faults


Shape: TypeAlias = Callable[[Random, Targets], list[Fault]]
SHAPES: dict[Shape, float] = {
    _bursts: 0.28,
    _half_open: 0.04,
    _gentle: 0.12,
    _swizzled: 0.1,
    _storm: 0.12,
    _rolling: 0.15,
    _flicker: 0.1,
    _eclipse: 0.1,
    _lull: 0.05,
    _ruin: 0.16,
    _wrong_clocks: 0.08,
    _deserted: 0.01,
    _rejoin: 0.08,
    _cut_short: 0.06,
    _steady: 0.015,
    # Only by their names: with a weight, every seed would stand for something else.
    _around: 0.0,
    _losses: 0.0,
    _deliveries: 0.0,
    _departures: 0.0,
    _arrivals: 0.0,
    _missing_input: 0.0,
    _own_inputs: 0.0,
    _failing_jobs: 0.0,
    _busy: 0.0,
    _collections: 0.0,
    _bounded: 0.0,
    _withheld: 0.0,
    _rescalings: 0.0,
    _rescaled_copies: 0.0,
    _rescaled_parts: 0.0,
    _rescaled_windows: 0.0,
    _rescaled_deliveries: 0.0,
    _rescaled_at_most_once: 0.0,
    _called_off: 0.0,
    _stranded: 0.0,
    _remote: 0.0,
    _bulky: 0.0,
    _stopped: 0.0,
    _sparse: 0.0,
}
# Shapes that bring their network.
NETWORKS: dict[Shape, Callable[[Random], NetworkSpec]] = {
    _around: special_networks.ring,
    _losses: special_networks.ring_of_copies,
    _deliveries: deliveries,
    _deserted: special_networks.slow_redo,
    _cut_short: special_networks.two_copies,
    _steady: special_networks.long_windows,
    _missing_input: special_networks.racing_unions,
    _own_inputs: special_networks.racing_memories,
    _failing_jobs: special_networks.racing_unions,
    _busy: busy_unions,
    _collections: special_networks.racing_chain,
    _bounded: special_networks.bounded_unions,
    _withheld: special_networks.bounded_streams,
    _rescalings: special_networks.rescaled_ring,
    _rescaled_copies: special_networks.rescaled_copies,
    _rescaled_parts: special_networks.rescaled_parts,
    _rescaled_windows: special_networks.rescaled_windows,
    _rescaled_deliveries: rescaled_deliveries,
    _rescaled_at_most_once: rescaled_at_most_once,
    _called_off: rescaled_somehow,
    _stranded: special_networks.chain,
    _remote: special_networks.chain,
    _bulky: special_networks.two_copies,
    _sparse: sparse_windows,
}
# Shapes that need a pair of copies of a certain kind.
SHAPES_OF_PAIRS: dict[Shape, float] = {
    _overtaken: 0.2,
    _overload: 0.3,
    _relay: 0.25,
    _moves: 0.0,
    _spared: 0.0,
}


def _pairs_for(shape: Shape, layout: Targets) -> list[tuple[str, ...]]:
    return layout.judged if shape is _overload else layout.pairs
