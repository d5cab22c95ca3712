"""Shapes of schedules for replicas that race while inputs are missing."""

from __future__ import annotations

from random import Random

from holdfast.core.settings import SECOND_US
from holdfast.simulation.faults import Fault, FaultKind, Targets


def _missing_input(random: Random, layout: Targets) -> list[Fault]:
    """Entry points are away in turn, for long, while replicas are lost and connections break."""
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(2, 3)):
        end = time + int(random.uniform(6, 20) * SECOND_US)
        faults.append(Fault(FaultKind.PARTITION, time, end, (random.choice(layout.entries),)))
        for _ in range(random.randint(0, 3)):
            start = time + int(random.random() * (end - time))
            until = start + int(random.choice([0.3, 2, 5]) * random.uniform(0.5, 1.5) * SECOND_US)
            if random.random() < 0.5:
                kinds = [FaultKind.CRASH, FaultKind.CRASH, FaultKind.PAUSE, FaultKind.SLOW]
                hit = random.choice(random.choice(layout.groups))
                faults.append(Fault(random.choice(kinds), start, until, (hit,)))
            else:
                kinds = [FaultKind.CUT, FaultKind.LOSE_CONNECTION, FaultKind.SLOW_LINK]
                link = random.choice(layout.links)
                faults.append(Fault(random.choice(kinds), start, until, link))
        time = max(one.end for one in faults) + int(random.uniform(1, 6) * SECOND_US)
    return faults


def _own_inputs(random: Random, layout: Targets) -> list[Fault]:
    """The same, where some results rest on some of the inputs."""
    return _missing_input(random, layout)


def _failing_jobs(random: Random, layout: Targets) -> list[Fault]:
    """The same, and one job in twenty fails: now and then at every replica that has a tuple."""
    return _missing_input(random, layout)
