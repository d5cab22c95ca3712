"""The load and the client of benchmark failover, the same for every system.

3,000 tuples a second, 30 every 10 ms; each has a number and the time it was made, and the last
three of every 30 repeat the first three. The query drops the repetitions, so the right answer is
known without computing it: every other number once, in order.

A *new result* is one about a tuple made after the kill. It cannot have been on its way when the
driver died, so whoever sends it has taken over. The gap is the time from the kill to the first
new result at the client, by one clock.
"""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.streams_arrivals import TUPLES_PER_TURN

REPEATED = 3

Numbers = npt.NDArray[np.int64]
_NONE: Numbers = np.zeros(0, dtype=np.int64)


def numbers_of(first: int) -> Numbers:
    """The numbers of one turn of arrivals."""
    numbers = np.arange(first, first + TUPLES_PER_TURN, dtype=np.int64)
    numbers[-REPEATED:] = numbers[:REPEATED]
    return numbers


def right_answer(sent: int) -> Numbers:
    """Every number that is to come out, in order."""
    numbers = np.arange(sent, dtype=np.int64)
    return numbers[numbers % TUPLES_PER_TURN < TUPLES_PER_TURN - REPEATED]


class Received:
    """What came to the client, and when."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._arrived: list[tuple[int, int, Numbers]] = []
        self.tuples = 0

    def take(self, numbers: Numbers, made: Numbers) -> None:
        """Results that came now."""
        now = now_us()
        if len(numbers) == 0:
            return
        with self._changed:
            self._arrived.append((now, int(made.max()), numbers))
            self.tuples += len(numbers)
            self._changed.notify_all()

    def wait_new(self, made_after: int, timeout_s: float) -> int:
        """When the first result about a tuple made after this time came."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while True:
                fresh = [at for at, newest, _ in self._arrived if newest > made_after]
                if fresh:
                    return fresh[0]
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"no new result within {timeout_s:g} s")
                self._changed.wait(min(left, 0.5))

    def wait_tuples(self, count: int, timeout_s: float) -> None:
        """Until so many results came, counting those that came twice."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while self.tuples < count and time.monotonic() < deadline:
                self._changed.wait(0.5)

    def distinct(self) -> int:
        """How many results came, each counted once."""
        with self._changed:
            return len(np.unique(np.concatenate([each for *_, each in self._arrived] or [_NONE])))

    def compare(self, sent: int) -> dict[str, Any]:
        """What is lost, what came twice and whether the order is right."""
        have = np.concatenate([numbers for _, _, numbers in self._arrived] or [_NONE])
        wanted = right_answer(sent)
        distinct = np.unique(have)
        return {
            "wanted": len(wanted),
            "lost": len(np.setdiff1d(wanted, distinct)),
            "duplicated": int(len(have) - len(distinct)),
            "ordered": bool(np.array_equal(have, wanted)),
        }


def now_us() -> int:
    return time.time_ns() // 1000
