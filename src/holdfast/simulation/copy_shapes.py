"""Shapes of schedules for two copies of a fragment of which one stands by."""

from __future__ import annotations

from random import Random

from holdfast.core.settings import SECOND_US
from holdfast.simulation.faults import Fault, FaultKind, Moment, Targets


def _overtaken(random: Random, layout: Targets) -> list[Fault]:
    """A copy that took over is lost just when its word reaches the other, over a slow link.

    It comes back and has forgotten, and what it hears first was said before that word.
    """
    first, second = pair = random.choice(layout.pairs)[:2]
    apart = 5 * SECOND_US
    together = apart + int(random.choice([5, 10]) * random.uniform(0.8, 1.2) * SECOND_US)
    crash = together + int(random.uniform(0.72, 1.0) * SECOND_US)
    back = crash + int(random.uniform(0.1, 0.5) * SECOND_US)
    faults = [
        Fault(FaultKind.CUT, apart, together, pair),
        Fault(FaultKind.SLOW_LINK, together - SECOND_US, back + 3 * SECOND_US, pair),
        Fault(FaultKind.CRASH, crash, back, (random.choice([second, second, first]),)),
    ]
    if random.random() < 0.5:
        lost = back + int(random.uniform(0.05, 0.7) * SECOND_US)
        faults.append(Fault(FaultKind.LOSE_CONNECTION, lost, lost + 50_000, pair))
    return faults


def _relay(random: Random, layout: Targets) -> list[Fault]:
    """Two copies are lost in turn, each soon after the other is back, some in a full disk."""
    first, second = random.choice(layout.pairs)[:2]
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(2, 4)):
        back = time + int(random.choice([1, 8]) * random.uniform(0.3, 1) * SECOND_US)
        faults.append(Fault(FaultKind.CRASH, time, back, (first,)))
        if random.random() < 0.5:
            again = back + int(random.uniform(0.01, 1.5) * SECOND_US)
            ends = again + int(random.uniform(0.1, 1) * SECOND_US)
            faults.append(Fault(FaultKind.CRASH, again, ends, (first,)))
        if random.random() < 0.3:
            room = back + int(random.uniform(0.3, 2) * SECOND_US)
            faults.append(Fault(FaultKind.DISK_FULL, back, room, (first,)))
        lost = back + int(random.uniform(0.05, 3) * SECOND_US)
        time = lost + int(random.uniform(0.5, 7) * SECOND_US)
        faults.append(Fault(FaultKind.CRASH, lost, time, (second,)))
        first, second = second, first
        time += int(random.uniform(0.2, 3) * SECOND_US)
    return faults


def _around(random: Random, layout: Targets) -> list[Fault]:
    """The servers of a ring of shards are lost in turn, some before the last one is back."""
    time = 5 * SECOND_US
    faults = []
    servers = list(dict.fromkeys(server for group in layout.groups for server in group))
    for server in (servers * 2)[: random.randint(3, 8)]:
        end = time + int(random.choice([0.5, 3, 10]) * random.uniform(0.5, 1.5) * SECOND_US)
        kinds = [FaultKind.CRASH, FaultKind.CRASH, FaultKind.PAUSE, FaultKind.PARTITION]
        faults.append(Fault(random.choice(kinds), time, end, (server,)))
        time = end + int(random.uniform(-2, 5) * SECOND_US)
    return faults


def _losses(random: Random, layout: Targets) -> list[Fault]:
    """Several neighbours of a ring of shards are lost at once, or nearly so, again and again.

    Now and then more than there are copies, so that something waits for a disk.
    """
    time = 5 * SECOND_US
    faults = []
    ring = list(dict.fromkeys(server for group in layout.pairs for server in group))
    copies = len(random.choice(layout.pairs))
    for _ in range(random.randint(2, 5)):
        lost = min(len(ring), random.choice([1, copies - 1, copies - 1, copies]))
        first = random.randrange(len(ring))
        longest = time
        for server in (ring * 2)[first : first + lost]:
            begins = time + int(random.choice([0, 0, 0.02, 0.3]) * random.random() * SECOND_US)
            end = begins + int(random.choice([0.5, 3, 10]) * random.uniform(0.5, 1.5) * SECOND_US)
            kinds = [FaultKind.CRASH, FaultKind.CRASH, FaultKind.CRASH, FaultKind.PAUSE]
            faults.append(Fault(random.choice(kinds), begins, end, (server,)))
            longest = max(longest, end)
        if random.random() < 0.3:
            end = time + int(random.uniform(0.5, 8) * SECOND_US)
            faults.append(Fault(FaultKind.CUT, time, end, random.choice(layout.links)))
        time = longest + int(random.choice([1, 12]) * random.uniform(0.2, 1) * SECOND_US)
    return faults


def _deliveries(random: Random, layout: Targets) -> list[Fault]:
    """Servers are lost one by one and several at once, with connections that break between them."""
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(4, 10)):
        end = time + int(random.choice([0.3, 2, 6]) * random.uniform(0.5, 1.5) * SECOND_US)
        if random.random() < 0.7:
            kinds = [FaultKind.CRASH, FaultKind.CRASH, FaultKind.CRASH, FaultKind.PAUSE]
            server = random.choice(random.choice(layout.groups))
            faults.append(Fault(random.choice(kinds), time, end, (server,)))
            if random.random() < 0.5:
                # Whoever reads from it, or it reads from, begins anew where others are behind.
                server = random.choice(random.choice(layout.groups))
                back = time + int(random.uniform(0.2, 0.6) * SECOND_US)
                faults.append(Fault(FaultKind.CRASH, time + 10_000, back, (server,)))
        else:
            kinds = [FaultKind.CUT, FaultKind.LOSE_CONNECTION, FaultKind.SLOW_LINK]
            faults.append(Fault(random.choice(kinds), time, end, random.choice(layout.links)))
        time += int(random.choice([0.05, 1, 6]) * random.uniform(0.5, 1.5) * SECOND_US)
    if random.random() < 0.25:
        # At most once that is no more than a crash; at least once it may be the end of it.
        server = random.choice(random.choice(layout.groups))
        end = time + int(random.uniform(0.3, 6) * SECOND_US)
        faults.append(Fault(FaultKind.DISK_LOST, time, end, (server,)))
    return faults


def _overload(random: Random, layout: Targets) -> list[Fault]:
    """Copies that time themselves are slow in turn."""
    time = 5 * SECOND_US
    faults = []
    for server in random.choice(layout.judged) * 2:
        end = time + int(random.uniform(1, 6) * SECOND_US)
        faults.append(Fault(FaultKind.SLOW, time, end, (server,)))
        time = end + int(random.uniform(-1, 4) * SECOND_US)
    return faults


def _cut_short(random: Random, layout: Targets) -> list[Fault]:
    """A copy that comes back is lost again while it takes the other's state, or just after that.

    Then the other is lost too, so that somebody must go on from what the first has by now.
    """
    first, second = random.choice(layout.pairs)[:2]
    time = 5 * SECOND_US
    faults = []
    for _ in range(random.randint(2, 4)):
        back = time + int(random.uniform(1.2, 7) * SECOND_US)
        faults.append(Fault(FaultKind.CRASH, time, back, (first,)))
        again = back + 1_000
        ends = again + int(random.uniform(1, 3) * SECOND_US)
        if random.random() < 0.25:
            faults.append(Fault(FaultKind.DISK_FULL, again, ends, (first,)))
            lost = again + int(random.uniform(0.2, 1) * SECOND_US)
        else:
            moment = random.choice([Moment.TAKING, Moment.JUMPED])
            faults.append(Fault(FaultKind.CRASH, again, ends, (first,), moment=moment))
            lost = again + int(random.choice([0.05, 0.5, 2]) * random.random() * SECOND_US)
        time = max(lost, ends) + int(random.uniform(1, 6) * SECOND_US)
        if random.random() < 0.7:
            faults.append(Fault(FaultKind.CRASH, lost, time, (second,)))
        if random.random() < 0.5:
            first, second = second, first
        time += int(random.uniform(0.5, 4) * SECOND_US)
    return faults


def _bulky(random: Random, layout: Targets) -> list[Fault]:
    """Copies whose state is so large that a whole checkpoint is under way for seconds; all else
    is quick, and little befalls them.

    While whole ones are under way a disk is full, at times until its copy ends in order, or a copy
    stands in for a moment because it does not hear the other.
    """
    copies = random.choice(layout.pairs)[:2]
    time = int(random.uniform(15, 30) * SECOND_US)
    faults = []
    faults += _while_under_way(random, SECOND_US, copies)
    for _ in range(random.choice([1, 1, 2])):
        end = time + int(random.choice([0.3, 2, 12]) * random.uniform(0.5, 1.5) * SECOND_US)
        kind = random.choice([FaultKind.CRASH, FaultKind.CRASH, FaultKind.PAUSE])
        faults.append(Fault(kind, time, end, (random.choice(copies),)))
        faults += _while_under_way(random, end, copies)
        time = end + int(random.uniform(15, 40) * SECOND_US)
    return [*faults, Fault(FaultKind.LOSE_CONNECTION, time, time + 1, copies)]


def _while_under_way(random: Random, time: int, copies: tuple[str, ...]) -> list[Fault]:
    """What befalls copies of which one has begun to send the other whole checkpoints.

    The first of them comes after some seconds, and soon after it one that was sent meanwhile.
    """
    hit = random.choice([*copies, copies[-1]])
    faults = []
    begins = time + int(random.uniform(5, 11) * SECOND_US)
    end = begins + int(random.uniform(1.5, 6) * SECOND_US)
    match random.choice(["full", "full", "full", "stopped", "stopped", "apart"]):
        case "full":
            faults.append(Fault(FaultKind.DISK_FULL, begins, end, (hit,)))
        case "stopped":
            back = end + int(random.uniform(0.3, 3) * SECOND_US)
            faults.append(Fault(FaultKind.DISK_FULL, begins, end, (hit,)))
            faults.append(Fault(FaultKind.STOPPED, end - 1_000, back, (hit,)))
        case "apart":
            end = begins + int(random.uniform(0.3, 3) * SECOND_US)
            faults.append(Fault(FaultKind.CUT, begins, end, copies))
    return faults
