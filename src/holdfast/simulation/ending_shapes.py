"""Shapes of schedules for replicas that are stopped in order, all of a fragment together."""

from __future__ import annotations

from random import Random

from holdfast.core.settings import SECOND_US
from holdfast.simulation.faults import Fault, FaultKind, Targets


def _stopped(random: Random, layout: Targets) -> list[Fault]:
    """All replicas of a fragment are stopped one after the other, and started again.

    Often one of them is killed instead, or was before, or so was a replica that they read from,
    which leaves another one, further behind; or a disk is full.
    """
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(2, 4)):
        group = list(random.choice(layout.groups))
        random.shuffle(group)
        stop = time + int(random.uniform(0.5, 6) * SECOND_US)
        end = stop + int(random.uniform(2, 6) * SECOND_US)
        for hit in random.sample(group, random.randint(0, len(group))):
            # Soon before: it has not come again to where it was when it is stopped.
            crash = stop - int(random.choice([0.2, 0.4, 2]) * random.uniform(0.5, 1) * SECOND_US)
            back = crash + int(random.choice([0.05, 0.5]) * random.uniform(0.5, 1.5) * SECOND_US)
            faults.append(Fault(FaultKind.CRASH, crash, back, (hit,)))
        if random.random() < 0.3:
            hit = random.choice(layout.producers[group[0]] or (group[0],))
            faults.append(Fault(FaultKind.CRASH, time, time + 2 * SECOND_US, (hit,)))
        if random.random() < 0.3:
            full = stop - int(random.random() * 2 * SECOND_US)
            until = full + int(random.uniform(0.5, 5) * SECOND_US)
            faults.append(Fault(FaultKind.DISK_FULL, full, until, (random.choice(group),)))
        for hit in group:
            kind = FaultKind.CRASH if random.random() < 0.2 else FaultKind.STOPPED
            faults.append(Fault(kind, stop, end, (hit,)))
            stop += int(random.choice([0.01, 0.3, 1.0]) * random.random() * SECOND_US)
        time = end + int(random.uniform(3, 15) * SECOND_US)
    return faults
