"""Virtual time: a queue of things to do, taken in order; nothing happens in between."""

from __future__ import annotations

import heapq
from collections.abc import Callable


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
