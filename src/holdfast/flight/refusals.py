"""Calls that were refused, as a log can take them: whoever calls may not fill a disk.

The first call of a caller that is refused for a reason is told at once; those that follow are
counted, and the count is told once a minute at most. Beyond so many different callers, the rest
count as one.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

AGAIN_SECONDS = 60.0
MOST_CALLERS = 64
# Names come from outside: what is longer is cut.
LONGEST_NAME = 80

# (caller, address, reason, how many calls)
Tell = Callable[[str, str, str, int], None]


class Refusals:
    """Counts refused calls and tells of them, seldom."""

    def __init__(self, tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        # When a caller was last told of, and its calls since.
        self._known: dict[tuple[str, str, str], tuple[float, int]] = {}
        self.total = 0

    def note(self, caller: str, address: str, reason: str) -> None:
        """A call was refused. ``address`` is gRPC's: "ipv4:10.0.0.7:41234"."""
        host = address.rpartition(":")[0] or address  # every connection has a port of its own
        now = self._clock()
        with self._lock:
            self.total += 1
            key = (caller[:LONGEST_NAME], host, reason)
            if key not in self._known and len(self._known) >= MOST_CALLERS:
                key = ("others", "many addresses", "refused as well")
            told_at, calls = self._known.get(key, (-AGAIN_SECONDS, 0))
            is_due = now - told_at >= AGAIN_SECONDS
            self._known[key] = (now, 0) if is_due else (told_at, calls + 1)
        if is_due:
            self._tell(*key, calls + 1)
