"""Shapes of schedules for replicas that lose their disks, and join."""

from __future__ import annotations

from random import Random

from holdfast.core.settings import SECOND_US
from holdfast.simulation.faults import PAIRWISE, Fault, FaultKind, Targets


def _rejoin(random: Random, layout: Targets) -> list[Fault]:
    """One of several replicas comes back with an empty disk, and is not left in peace.

    What it had sent before is still on its way, over links that were slow; a producer cannot be
    reached, or the partner it asks is lost, or it is lost again itself.
    """
    several = [one for one in layout.groups if len(one) > 1 and one not in layout.pairs]
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.choice([1, 1, 2])):
        group = list(random.choice(several or layout.groups))
        random.shuffle(group)
        hit, *others = group
        end = time + int(random.choice([0.3, 0.3, 2, 6]) * random.uniform(0.5, 1.5) * SECOND_US)
        faults.append(Fault(FaultKind.DISK_LOST, time, end, (hit,)))
        producers = layout.producers[hit]
        if random.random() < 0.5:
            # They are quick again just before it is back, and what it says overtakes the rest.
            fast = end - 50_000
            slow = FaultKind.SLOW_LINK
            faults += [Fault(slow, time - 2 * SECOND_US, fast, (one, hit)) for one in producers]
        again = end + int(random.choice([0.05, 0.3, 1.5]) * random.random() * SECOND_US) + 1
        back = again + int(random.choice([0.5, 5]) * random.uniform(0.5, 1.5) * SECOND_US)
        what = random.random()
        if what < 0.25 and producers:
            cut = (random.choice(producers), hit)
            faults.append(Fault(FaultKind.CUT, end - 200_000, back, cut))
        elif what < 0.6 and others:
            partner = random.choice(others)
            kinds = [FaultKind.CRASH, FaultKind.PAUSE, FaultKind.CUT, FaultKind.LOSE_CONNECTION]
            kind = random.choice(kinds)
            servers = (partner, hit) if kind in PAIRWISE else (partner,)
            faults.append(Fault(kind, again, back, servers))
        elif what < 0.85:
            kind = random.choice([FaultKind.CRASH, FaultKind.DISK_LOST, FaultKind.DISK_FULL])
            faults.append(Fault(kind, again, back, (hit,)))
        time = max(one.end for one in faults) + int(random.uniform(1, 12) * SECOND_US)
    return faults


def _stranded(random: Random, layout: Targets) -> list[Fault]:
    """A replica and one that reads from it come back with empty disks; the former cannot go on.

    It reaches no partner, or no producer. The other one hears it first, and has all it needs.
    """
    several = [one for one in layout.groups if len(one) > 1]
    found = [
        (hit, [one for one in group if one != hit], reader)
        for group in several
        for hit in group
        for reader in sorted({one for each in several for one in each} - set(group))
        if hit in layout.producers[reader]
    ]
    if not found:
        return _rejoin(random, layout)  # partners upstream and downstream share their servers
    hit, partners, reader = random.choice(found)
    start = int(random.uniform(5, 10) * SECOND_US)
    end = start + int(random.uniform(0.3, 3) * SECOND_US)
    late = end + int(random.uniform(0, 1) * SECOND_US)
    heard = late + int(random.uniform(0.2, 2) * SECOND_US)
    back = heard + int(random.uniform(5, 25) * SECOND_US)
    lacks = layout.producers[hit] if random.random() < 0.3 else partners
    return [
        Fault(FaultKind.DISK_LOST, start, end, (hit,)),
        Fault(FaultKind.DISK_LOST, start, late, (reader,)),
        *(Fault(FaultKind.CUT, start - SECOND_US, back, (one, hit)) for one in lacks),
        *(Fault(FaultKind.CUT, start - SECOND_US, heard, (one, reader)) for one in partners),
    ]


def _remote(random: Random, layout: Targets) -> list[Fault]:
    """A replica comes back with an empty disk, and answers of its partners take long all the time.

    They take longer than a partner may be silent at first, though nobody has failed.
    """
    several = [one for one in layout.groups if len(one) > 1] or layout.groups
    time = 5 * SECOND_US
    faults = []
    for _ in range(2):
        group = list(random.choice(several))
        random.shuffle(group)
        hit, *partners = group
        end = time + int(random.uniform(0.3, 3) * SECOND_US)
        near = end + int(random.uniform(25, 40) * SECOND_US)
        faults.append(Fault(FaultKind.DISK_LOST, time, end, (hit,)))
        faults += [
            Fault(FaultKind.SLOW_LINK, time - SECOND_US, near, (one, hit)) for one in partners
        ]
        time = near + int(random.uniform(2, 8) * SECOND_US)
    return faults


def _spared(random: Random, layout: Targets) -> list[Fault]:
    """Copies get other machines under their names, with nothing on their disks.

    What they said before is still on its way to the producers, over links that were slow; the
    other copy is lost soon after, so that the new one goes on from what it was lent.
    """
    time = 6 * SECOND_US
    faults = []
    for _ in range(random.choice([1, 2, 3])):
        pair = list(random.choice(layout.pairs)[:2])
        random.shuffle(pair)
        hit, other = pair
        end = time + int(random.choice([0.2, 0.4, 3]) * random.uniform(0.5, 1.5) * SECOND_US)
        faults.append(Fault(FaultKind.DISK_LOST, time, end, (hit,)))
        if random.random() < 0.6:
            slow = (time - 2 * SECOND_US, end - 50_000)
            producers = layout.producers[hit]
            faults += [Fault(FaultKind.SLOW_LINK, *slow, (one, hit)) for one in producers]
        lost = end + int(random.uniform(0.1, 8) * SECOND_US)
        back = lost + int(random.choice([0.5, 6]) * random.uniform(0.5, 1.5) * SECOND_US)
        if random.random() < 0.6:
            faults.append(Fault(FaultKind.CRASH, lost, back, (other,)))
        time = max(one.end for one in faults) + int(random.uniform(3, 15) * SECOND_US)
    return faults
