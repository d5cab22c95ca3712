"""Virtual time: a queue of things to do, taken in order; nothing happens in between.

Servers have clocks of their own, which differ, drift and may be set. The time of a process is as
the product's (``holdfast.clock``): it begins with its server's clock, never jumps, and follows
that clock by running a little faster or slower.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.clock import FOLLOW


class Clock:
    """The time, and what is to happen at which time."""

    def __init__(self) -> None:
        self.now = 0
        self.steps = 0
        self._queue: list[tuple[int, int, Callable[..., None], tuple[object, ...]]] = []
        self._count = 0

    def at(self, time: int, action: Callable[..., None], *args: object) -> None:
        """Do something at a time; in the order of scheduling when times are equal."""
        if time < self.now:
            time = self.now
        self._count += 1
        heapq.heappush(self._queue, (time, self._count, action, args))

    def after(self, delay: int, action: Callable[..., None], *args: object) -> None:
        """Do something after a while."""
        self.at(self.now + delay, action, *args)

    def run_until(self, end: int) -> None:
        """Let time pass up to ``end``."""
        queue, pop = self._queue, heapq.heappop
        while queue and queue[0][0] <= end:
            self.now, _, action, args = pop(queue)
            self.steps += 1
            action(*args)
        self.now = end


@dataclass(slots=True)
class ServerClock:
    """How far the clock of a server is ahead of the true time, and what it gains in a second."""

    ahead_us: int
    gains_ppm: int = 0

    def drift(self, passed_us: int) -> None:
        self.ahead_us += passed_us * self.gains_ppm // 1_000_000

    def set_by(self, by_us: int) -> None:
        """Somebody sets it."""
        self.ahead_us += by_us


def follow(ahead_us: int, clock: ServerClock, passed_us: int) -> int:
    """How far a process is ahead that has followed its server's clock for a while."""
    most = int(passed_us * FOLLOW)
    return ahead_us + min(max(clock.ahead_us - ahead_us, -most), most)
