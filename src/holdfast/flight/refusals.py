"""Calls that were refused, as a log can take them: whoever calls may not fill a disk.

The first call of a caller that is refused for a reason is told at once; those that follow are
counted, and the count is told once a minute at most. Beyond so many different callers, the rest
count as one, until those before them have been away for a minute.
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
_Key = tuple[str, str, str]


class Refusals:
    """Counts refused calls and tells of them, seldom."""

    def __init__(self, tell: Tell, clock: Callable[[], float] = time.monotonic) -> None:
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()
        # When a caller was last told of, and its calls since.
        self._known: dict[_Key, tuple[float, int]] = {}
        self.total = 0

    def note(self, caller: str, address: str, reason: str) -> None:
        """A call was refused. ``address`` is gRPC's: "ipv4:10.0.0.7:41234"."""
        host = address.rpartition(":")[0] or address  # every connection has a port of its own
        now = self._clock()
        with self._lock:
            self.total += 1
            key = (caller[:LONGEST_NAME], host, reason)
            over = []
            if key not in self._known and len(self._known) >= MOST_CALLERS:
                over = self._forget(now)
            if key not in self._known and len(self._known) >= MOST_CALLERS:
                key = ("others", "many addresses", "refused as well")
            told_at, calls = self._known.get(key, (-AGAIN_SECONDS, 0))
            is_due = now - told_at >= AGAIN_SECONDS
            self._known[key] = (now, 0) if is_due else (told_at, calls + 1)
        for earlier, count in over:
            self._tell(*earlier, count)
        if is_due:
            self._tell(*key, calls + 1)

    def _forget(self, now: float) -> list[tuple[_Key, int]]:
        """Make room: those told of a minute ago are known no more; their calls not yet told of."""
        due = [key for key, (told_at, _) in self._known.items() if now - told_at >= AGAIN_SECONDS]
        found = [(key, self._known.pop(key)[1]) for key in due]
        return [(key, calls) for key, calls in found if calls]
