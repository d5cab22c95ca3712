"""What each kind of delivery takes: bursts that are handed to all of them in turn.

The time until the client has a burst is compared within each round: the machine is not the same in
another one. A burst is complete when its last bucket is, so it is as long as ten buckets or more,
or the ratios would be those of the buckets' clock; and all begin with one. Beside the time is what
the processors had to do for it, in all processes. What the paper rejects without measuring it is
measured, too: the time of a burst each of whose batches waits until the one before has come out.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.machine import descendants_cpu_s
from benchmarks.shards_reader import MOST, Reader, now_us, numbered
from holdfast.deployment import Deployment
from holdfast.producer import Producer

SIZES = {"small": 16, "ten times": 160}
# Of small tuples there are so many times as many in a burst, for it to take as long.
MORE = {"small": 2, "ten times": 1}
BATCH = 10_000
BUCKET_US = 200_000
# So many batches wait for one another, and so many times.
WAITING, WAITING_ROUNDS = 4, 3


@dataclass(frozen=True)
class Took:
    """What a burst took: time, and that of the processors in all processes of the deployment."""

    seconds: float
    cpu_s: float


@dataclass(frozen=True)
class Ratios:
    """What a kind of delivery takes, over at most once, by the size of tuples.

    times   the median of those of each round; ``rounds`` has them all.
    cpu     the same of the processors' time.
    """

    times: dict[str, float]
    rounds: dict[str, list[float]]
    cpu: dict[str, float]


@dataclass(frozen=True)
class Cost:
    """What each kind takes with some number of shards.

    over_most  by kind, all but at most once itself.
    seconds    by the size of tuples and by kind: the median.
    """

    over_most: dict[str, Ratios]
    seconds: dict[str, dict[str, float]]


def cost_of(deployment: Deployment, readers: list[Reader], rounds: int, tuples: int) -> Cost:
    """Bursts for each of the readers, of whom one is at most once, in turn."""
    kinds = [reader.kind for reader in readers]
    taken: dict[str, dict[str, list[Took]]] = {size: {one: [] for one in kinds} for size in SIZES}
    # The first bursts are for the engine to get warm.
    for number in range(-1, rounds):
        for size, width in SIZES.items():
            for reader in readers if number % 2 else reversed(readers):
                whole = tuples * MORE[size]
                took = _burst(deployment, reader, width, whole if number >= 0 else whole // 4)
                if number >= 0:
                    taken[size][reader.kind].append(took)
    seconds = {
        size: {
            kind: round(statistics.median(one.seconds for one in found), 3)
            for kind, found in each.items()
        }
        for size, each in taken.items()
    }
    return Cost({kind: _over_most(taken, kind) for kind in kinds if kind != MOST}, seconds)


def _over_most(taken: dict[str, dict[str, list[Took]]], kind: str) -> Ratios:
    """A kind over at most once, round by round."""

    def ratios(what: Callable[[Took], float]) -> dict[str, list[float]]:
        return {
            size: [
                round(what(one) / what(other), 3)
                for one, other in zip(each[kind], each[MOST], strict=True)
            ]
            for size, each in taken.items()
        }

    rounds = ratios(lambda one: one.seconds)
    return Ratios(_medians(rounds), rounds, _medians(ratios(lambda one: one.cpu_s)))


def _medians(ratios: dict[str, list[float]]) -> dict[str, float]:
    return {size: round(statistics.median(each), 3) for size, each in ratios.items()}


def waiting_over_not(deployment: Deployment, reader: Reader) -> float:
    """How many times as long a burst takes each of whose batches waits for the one before."""
    width, tuples = SIZES["small"], WAITING * BATCH
    ratios = []
    for _ in range(WAITING_ROUNDS):
        waiting, at_once = (
            _burst(deployment, reader, width, tuples, waits=waits).seconds
            for waits in (True, False)
        )
        ratios.append(waiting / at_once)
    return round(statistics.median(ratios), 3)


def _burst(
    deployment: Deployment, reader: Reader, width: int, tuples: int, *, waits: bool = False
) -> Took:
    """How long a burst takes to come out; with ``waits``, one batch after the other."""
    rows = numbered(width, reader.next_number, tuples)
    with Producer.of(deployment.path, reader.source, name="burst") as producer:
        time.sleep((BUCKET_US - now_us() % BUCKET_US) / 1e6)
        began, used = time.monotonic(), descendants_cpu_s()
        for first in range(0, tuples, BATCH):
            producer.send(rows.slice(first, BATCH))
            if waits:
                reader.reach(now_us())
    reader.reach(now_us())
    took = Took(time.monotonic() - began, descendants_cpu_s() - used)
    reader.next_number += tuples
    return took
