"""Shapes of schedules for streams with a bound on the tentative tuples that are kept of them."""

from __future__ import annotations

from random import Random

from holdfast.core.settings import SECOND_US
from holdfast.simulation.faults import Fault, FaultKind, Targets


def _bounded(random: Random, layout: Targets) -> list[Fault]:
    """An input is missing for longer than the bound lasts, while readers and replicas come and go.

    Who comes back meanwhile is given what is left of the tentative tuples, and then all that is
    stable.
    """
    time = 5 * SECOND_US
    faults = []
    clients = [server for server in layout.servers if server.startswith("c")]
    for _ in range(random.randint(1, 2)):
        end = time + int(random.uniform(12, 30) * SECOND_US)
        faults.append(Fault(FaultKind.PARTITION, time, end, (random.choice(layout.entries),)))
        for _ in range(random.randint(1, 3)):
            start = time - 2 * SECOND_US + int(random.random() * (end - time))
            until = start + int(random.uniform(1, 15) * SECOND_US)
            hit = random.choice(clients * 2 + [one for group in layout.groups for one in group])
            kinds = [FaultKind.PARTITION, FaultKind.PARTITION, FaultKind.CRASH, FaultKind.PAUSE]
            faults.append(Fault(random.choice(kinds), start, until, (hit,)))
        time = max(one.end for one in faults) + int(random.uniform(5, 15) * SECOND_US)
    return faults
