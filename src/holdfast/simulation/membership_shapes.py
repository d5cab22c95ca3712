"""Shapes of schedules for those who come to a network that runs, and those who leave it."""

from __future__ import annotations

from random import Random

from holdfast.core.settings import SECOND_US
from holdfast.simulation.faults import Fault, FaultKind, Targets


def _departures(random: Random, layout: Targets) -> list[Fault]:
    """Clients and replicas are removed while others are away, and come back not knowing of it."""
    time = 5 * SECOND_US
    faults = []
    several = [server for group in layout.groups if len(group) > 1 for server in group]
    clients = [server for server in layout.servers if server.startswith("c")]
    for _ in range(random.randint(1, 3)):
        hit = random.choice(clients + several)
        away = time - int(random.uniform(0.1, 3) * SECOND_US)
        back = time + int(random.uniform(0.5, 10) * SECOND_US)
        if random.random() < 0.6:
            # What was kept for it while it was away is what it is removed for.
            kind = random.choice([FaultKind.CRASH, FaultKind.PARTITION])
            faults.append(Fault(kind, away, back, (hit,)))
        for _ in range(random.randint(0, 2)):
            other = random.choice(layout.servers)
            kinds = [FaultKind.CRASH, FaultKind.PARTITION, FaultKind.DISK_FULL, FaultKind.PAUSE]
            end = time + int(random.uniform(0.2, 6) * SECOND_US)
            faults.append(Fault(random.choice(kinds), away, end, (other,)))
        near = [one for one, two in layout.links if two == hit]
        if near and random.random() < 0.3:
            # Whoever keeps something for it cannot write down that it need not any more.
            end = time + int(random.uniform(0.5, 6) * SECOND_US)
            faults.append(Fault(FaultKind.DISK_FULL, away, end, (random.choice(near),)))
        faults.append(Fault(FaultKind.REMOVED, time, time + 1, (hit,)))
        time = max(one.end for one in faults) + int(random.uniform(3, 10) * SECOND_US)
    return faults


def _moves(random: Random, layout: Targets) -> list[Fault]:
    """Copies move elsewhere while they, and those they have to do with, are lost."""
    time = 8 * SECOND_US
    faults = []
    kinds = [FaultKind.CRASH, FaultKind.CRASH, FaultKind.PARTITION, FaultKind.DISK_FULL]
    kinds += [FaultKind.PAUSE, FaultKind.SLOW]
    for _ in range(random.randint(1, 3)):
        pair = list(random.choice(layout.pairs))
        random.shuffle(pair)
        faults.append(Fault(FaultKind.MOVED, time, time + 1, (pair[0],)))
        for _ in range(random.randint(0, 3)):
            near = random.random() < 0.5
            hit = random.choice(pair if near else layout.servers)
            start = time + int(random.uniform(-1, 4) * SECOND_US)
            end = start + int(random.choice([0.3, 2, 6]) * random.uniform(0.5, 1.5) * SECOND_US)
            faults.append(Fault(random.choice(kinds), start, end, (hit,)))
        time = max(one.end for one in faults) + int(random.uniform(4, 15) * SECOND_US)
    return faults


def _rescalings(random: Random, layout: Targets) -> list[Fault]:
    """A fragment gets another number of shards, once or twice, while servers are lost."""
    time = 8 * SECOND_US
    faults = []
    for _ in range(random.randint(1, 2)):
        faults.append(Fault(FaultKind.RESCALED, time, time + 1, (random.choice(layout.servers),)))
        kinds = [FaultKind.CRASH, FaultKind.PARTITION, FaultKind.DISK_FULL, FaultKind.PAUSE]
        for _ in range(random.randint(0, 3)):
            start = time + int(random.uniform(-1, 3) * SECOND_US)
            end = start + int(random.choice([0.3, 2, 6]) * random.uniform(0.5, 1.5) * SECOND_US)
            faults.append(Fault(random.choice(kinds), start, end, (random.choice(layout.servers),)))
        if random.random() < 0.3:
            start = time + int(random.uniform(0, 1.5) * SECOND_US)
            end = start + int(random.uniform(0.3, 4) * SECOND_US)
            faults.append(Fault(FaultKind.CUT, start, end, random.choice(layout.links)))
        time = max(one.end for one in faults) + int(random.uniform(8, 20) * SECOND_US)
    return faults


def _rescaled_copies(random: Random, layout: Targets) -> list[Fault]:
    """The same with shards whose copies stand by."""
    return _rescalings(random, layout)


def _rescaled_parts(random: Random, layout: Targets) -> list[Fault]:
    """The same with shards that are spread over those that are left; one is lost afterwards."""
    faults = _rescalings(random, layout)
    if random.random() < 0.6:
        lost = max(one.end for one in faults) + int(random.uniform(4, 12) * SECOND_US)
        back = lost + int(random.uniform(2, 8) * SECOND_US)
        server = random.choice(random.choice(layout.pairs))
        faults.append(Fault(FaultKind.CRASH, lost, back, (server,)))
    return faults


def _called_off(random: Random, layout: Targets) -> list[Fault]:
    """The same; the change is called off on the way, and sometimes there is another one then."""
    faults = _rescalings(random, layout)
    for time in [one.start for one in faults if one.kind is FaultKind.RESCALED]:
        off = time + int(random.choice([0.5, 2, 5]) * random.uniform(0.1, 1.5) * SECOND_US)
        faults.append(Fault(FaultKind.CALLED_OFF, off, off + 1, (layout.servers[0],)))
        if random.random() < 0.5:
            again = off + int(random.uniform(0.2, 4) * SECOND_US)
            faults.append(Fault(FaultKind.RESCALED, again, again + 1, (layout.servers[0],)))
    return faults


def _rescaled_windows(random: Random, layout: Targets) -> list[Fault]:
    """The same with shards whose checkpoints are continuous."""
    return _rescalings(random, layout)


def _rescaled_deliveries(random: Random, layout: Targets) -> list[Fault]:
    """The same with shards that deliver at least once.

    Clients are away meanwhile, and what merges the new shards is lost before they are back: what
    they have not confirmed is with nobody else then.
    """
    faults = _rescalings(random, layout)
    begins = [one.start for one in faults if one.kind is FaultKind.RESCALED]
    ends = [link for link in layout.links if link[1].startswith("c")]
    for time in begins:
        if random.random() < 0.3:
            continue
        merging, client = random.choice(ends)
        away = time - int(random.uniform(-0.5, 1.5) * SECOND_US)
        lost = time + int(random.uniform(4, 9) * SECOND_US)
        back = lost + int(random.uniform(0.5, 2) * SECOND_US)
        faults.append(Fault(FaultKind.CRASH, lost, back, (merging,)))
        kind = random.choice([FaultKind.PAUSE, FaultKind.PARTITION])
        end = back + int(random.uniform(0.1, 2) * SECOND_US)
        faults.append(Fault(kind, away, end, (client,)))
    return faults


def _rescaled_at_most_once(random: Random, layout: Targets) -> list[Fault]:
    """The same with shards that deliver at most once; connections break, too."""
    faults = _rescalings(random, layout)
    for time in [one.start for one in faults if one.kind is FaultKind.RESCALED]:
        for _ in range(random.randint(0, 3)):
            start = time + int(random.uniform(0, 8) * SECOND_US)
            kind = random.choice([FaultKind.LOSE_CONNECTION, FaultKind.CUT, FaultKind.SLOW_LINK])
            end = start + int(random.uniform(0.2, 3) * SECOND_US)
            faults.append(Fault(kind, start, end, random.choice(layout.links)))
        if random.random() < 0.4:
            start = time + int(random.uniform(0, 4) * SECOND_US)
            end = start + int(random.uniform(2, 6) * SECOND_US)
            faults.append(Fault(FaultKind.SLOW, start, end, (random.choice(layout.servers),)))
    return faults
