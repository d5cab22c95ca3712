"""Arrivals: since when things are kept that are numbered as they come, and go from the front.

Theory of operation. Whoever looks now and then notes how many had come by then. So for each it is
known between which two notes it came, whatever time is written on it; it counts as come at the
later of the two. What was there at the first look counts from then on. A note is made only after a
hundredth of the time since the oldest: that is how exactly it is known when something came, and the
notes stay few, however long things are kept.
"""

from __future__ import annotations

from collections import deque

PARTS = 100


class Arrivals:
    """When the members of one queue came."""

    def __init__(self) -> None:
        # (how many had come, by when), each later than the one before.
        self._notes: deque[tuple[int, int]] = deque()

    def look(self, first: int, come: int, now: int) -> None:
        """So many have come, and those before ``first`` are gone."""
        notes = self._notes
        while notes and notes[0][0] <= first:
            notes.popleft()
        if not notes:
            if come > first:
                notes.append((come, now))
        elif come > notes[-1][0] and PARTS * (now - notes[-1][1]) >= now - notes[0][1]:
            notes.append((come, now))

    @property
    def since(self) -> int | None:
        """When the oldest that is kept had come; None if none is."""
        return self._notes[0][1] if self._notes else None

    def before(self, moment: int) -> int:
        """How many of all had come before a moment."""
        return max((come for come, at in self._notes if at < moment), default=0)
