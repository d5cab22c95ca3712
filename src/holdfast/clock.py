"""The time of a node: it never stops, never jumps, and follows the machine's clock slowly.

A machine's clock may be set: by a minute, by hand; by hours, when a virtual machine is moved.
Timers that ran on it would stand still or fire all at once, and tuples would be promised that
cannot come. So a node's time starts where the machine's clock is and goes on with the machine's
steady counter. What the clock is off by it makes up for by running up to ``follow`` faster or
slower, 5 % unless told: a minute takes twenty.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

FOLLOW = 0.05
# How often the rate is chosen anew, and within which time a small difference is made up for.
_LOOK_US = 100_000
_WITHIN_US = 1_000_000

Microseconds = Callable[[], int]


def machine_clock() -> int:
    """What the machine's clock says, which may be set."""
    return time.time_ns() // 1000


def steady_counter() -> int:
    """Microseconds that passed since the machine was started, also while it slept."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Clock:
    """The time of one node, in microseconds since the epoch; any thread may ask."""

    def __init__(
        self,
        follow: float = FOLLOW,
        machine: Microseconds = machine_clock,
        steady: Microseconds = steady_counter,
    ) -> None:
        if not 0 <= follow < 1:
            raise ValueError(f"follow is from 0 to below 1; got {follow}")
        self._follow = follow
        self._machine = machine
        self._steady = steady
        self._stepped_us = 0
        self._rate = 0.0
        self._lock = threading.Lock()
        # Both belong to the same moment.
        self._counted, self._base = steady(), machine()

    def now(self) -> int:
        with self._lock:
            counted = self._steady()
            passed = max(0, counted - self._counted)
            now = self._base + passed + int(self._rate * passed)
            if passed >= _LOOK_US:
                self._counted, self._base = counted, now
                wanted = (self._machine() + self._stepped_us - now) / _WITHIN_US
                self._rate = min(max(wanted, -self._follow), self._follow)
            return now

    def at_least(self, time_us: int) -> None:
        """Go on from ``time_us`` if that is later: a life before this one has been there."""
        now = self.now()
        with self._lock:
            self._base += max(0, time_us - now)

    def step(self, by_us: int) -> None:
        """Take it that the machine's clock was set; for those who try out what happens then."""
        self._stepped_us += by_us

    @property
    def off_us(self) -> int:
        """How far the machine's clock is ahead."""
        return self._machine() + self._stepped_us - self.now()
