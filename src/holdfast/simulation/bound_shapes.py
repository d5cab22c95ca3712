"""Shapes of schedules for streams with a bound on what is kept of them."""

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


def _withheld(random: Random, layout: Targets) -> list[Fault]:
    """For long somebody acknowledges nothing: it is away, has no room, or lacks another input.

    Meanwhile others are away for a while, too.
    """
    time = 5 * SECOND_US
    faults = []
    clients = [server for server in layout.servers if server.startswith("c")]
    replicas = [one for group in layout.groups for one in group]
    several = [group for group in layout.groups if len(group) > 1]
    away = [FaultKind.PARTITION, FaultKind.CRASH, FaultKind.PAUSE]
    for _ in range(random.randint(1, 2)):
        end = time + int(random.uniform(20, 60) * SECOND_US)
        others = [*replicas, *layout.entries]
        match random.choice(["client", "replica", "group", "full", "input"]):
            case "client":
                hit = [(random.choice(away), random.choice(clients))]
            case "replica":
                hit = [(random.choice(away), random.choice(replicas))]
            case "group":
                hit = [(random.choice(away), one) for one in random.choice(layout.groups)]
            case "full" if several:
                # Jobs need room, too: the other one gives results meanwhile.
                hit = [(FaultKind.DISK_FULL, random.choice(several)[-1])]
                others = layout.entries
            case _:
                hit = [(FaultKind.PARTITION, random.choice(layout.entries))]
        faults += [Fault(kind, time, end, (one,)) for kind, one in hit]
        for _ in range(random.randint(0, 2)):
            start = time + int(random.random() * (end - time))
            until = start + int(random.uniform(1, 10) * SECOND_US)
            faults.append(Fault(random.choice(away), start, until, (random.choice(others),)))
        time = max(one.end for one in faults) + int(random.uniform(5, 15) * SECOND_US)
    return faults
