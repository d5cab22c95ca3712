"""The frames a consumer holds of one stream: stable ones, found by time, and tentative ones.

Stable ones are kept in the order of their ids, which is nearly that of their times: tuples of one
frame may be older than those of the frame before, but never older than the stream's boundary when
the frame came. So two rising numbers stand beside every frame: the newest time of it and all before
it, and the boundary it came after. Between them a stretch of time is found by bisection, whatever
else is held: through a long failure everything since its beginning is, and each job must cost what
its own stretch holds.

Of tentative ones a client wants to know the oldest tuple with each frame that comes, as many as it
may hold. So those frames are noted that begin no later than any that came after them: the first of
these is the answer, a frame that is let go was that one or is not noted, and one that comes is
noted in place of those that begin after it, so each is noted and struck out once.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from holdfast.core.frame import Header

# Frames that are gone leave their places when they are this many, and more than those held.
COMPACT_FROM = 256


@dataclass(slots=True)
class Held:
    """A received frame: the rows from ``skip`` on, of stime ``stime_from`` on, are ours."""

    header: Header
    block: object
    skip: int
    stime_from: int
    arrived: int


class HeldFrames:
    """Frames in the order of their ids."""

    def __init__(self) -> None:
        self._frames: list[Held | None] = []
        self._newest: list[int] = []
        self._floors: list[int] = []
        self._start = 0

    def __len__(self) -> int:
        return len(self._frames) - self._start

    def __iter__(self) -> Iterator[Held]:
        for index in range(self._start, len(self._frames)):
            yield self._at(index)

    def _at(self, index: int) -> Held:
        frame = self._frames[index]
        assert frame is not None, "what was dropped is not asked for"
        return frame

    def append(self, frame: Held, boundary: int) -> None:
        """``boundary``: neither this frame nor a later one has an older tuple."""
        newest = frame.header.stime_max
        if self._newest and self._newest[-1] > newest:
            newest = self._newest[-1]
        self._frames.append(frame)
        self._newest.append(newest)
        self._floors.append(boundary)

    def clear(self) -> None:
        del self._frames[:], self._newest[:], self._floors[:]
        self._start = 0

    def drop_below(self, stime: int) -> None:
        """Forget frames, from the oldest on, all of whose tuples are older."""
        frames, start = self._frames, self._start
        while start < len(frames) and self._at(start).header.stime_max < stime:
            frames[start] = None
            start += 1
        if start >= COMPACT_FROM and 2 * start > len(frames):
            del frames[:start], self._newest[:start], self._floors[:start]
            start = 0
        self._start = start

    def between(self, start: int, stop: int) -> list[Held]:
        """The frames with a tuple from ``start`` on and one before ``stop``."""
        first = bisect_left(self._newest, start, self._start)
        last = bisect_left(self._floors, stop, first)
        found = []
        for index in range(first, last):
            frame = self._at(index)
            if frame.header.stime_min < stop and frame.header.stime_max >= start:
                found.append(frame)
        return found

    def oldest_from(self, stime: int) -> int | None:
        """The oldest tuple of the frames that reach up to ``stime``; None if none does."""
        oldest = None
        for index in range(bisect_left(self._newest, stime, self._start), len(self._frames)):
            if oldest is not None and self._floors[index] >= oldest:
                break
            header = self._at(index).header
            if header.stime_max >= stime and (oldest is None or header.stime_min < oldest):
                oldest = header.stime_min
        return oldest


class TentativeFrames:
    """Tentative frames in the order in which they came."""

    def __init__(self) -> None:
        self._frames: deque[Held] = deque()
        self._oldest: deque[int] = deque()

    def __len__(self) -> int:
        return len(self._frames)

    def __iter__(self) -> Iterator[Held]:
        return iter(self._frames)

    @property
    def oldest(self) -> int | None:
        """The oldest time of all; None if there are none."""
        return self._oldest[0] if self._oldest else None

    def append(self, frame: Held) -> None:
        begins = frame.header.stime_min
        while self._oldest and self._oldest[-1] > begins:
            self._oldest.pop()
        self._oldest.append(begins)
        self._frames.append(frame)

    def drop_below(self, stime: int) -> None:
        """Forget frames, from the first on, all of whose tuples are older."""
        while self._frames and self._frames[0].header.stime_max < stime:
            begins = self._frames.popleft().header.stime_min
            if begins == self._oldest[0]:
                self._oldest.popleft()
