"""What a consumer holds of one stream: its stable tuples, and tentative ones laid over them.

Theory of operation. Stable tuples are the same on every replica that provides the stream, so
a copy needs only the next id to know which are new: it takes each once, from whichever feed
brings it first, and a gap means that messages were lost. A frame may hold tuples the copy
already has (replicas cut their streams into frames differently); the copy then notes how many
rows to skip, because it cannot look inside.

Tentative tuples differ between replicas, so ids say nothing about them. They are placed by
time: a copy takes a tentative tuple only if its stime is at or after both the stable boundary
and the tentative boundary, that is, only about times about which nothing was said before.
Tentative tuples are therefore never corrected by other tentative tuples, and never doubled by
changing to another replica. Stable tuples replace the tentative ones of their times as the
stable boundary passes over them.

The ids of a *lossy* stream belong to one life of its producer (``core.delivery``). On a new feed
they say nothing, so there it goes by time, too: rows older than any it has are left out.
"""

from __future__ import annotations

from collections import deque

from holdfast.core.effects import InputSlice
from holdfast.core.frame import Header, Kind, Why
from holdfast.core.held import Held, HeldFrames, TentativeFrames
from holdfast.core.machine import ProtocolError
from holdfast.core.messages import StreamFrame

FAR_FUTURE = 1 << 62
# Instead of an id: wherever the stream is now.
ANYWHERE = -1


class GapFound(Exception):
    """A frame is not the next one: something before it was lost."""


class StreamCopy:
    """The received part of one stream."""

    def __init__(self, stream: str, next_id: int = 0, lossy: bool = False, since: int = 0) -> None:
        """``since``: everything older than this time is here already, or is not wanted."""
        self.stream = stream
        self.next_id = next_id
        self.lossy = lossy
        # Of what came since the ids were last unknown: older rows are here already, or lost.
        self._stime_from = 0
        self.boundary = 0
        self.tentative_boundary = 0
        self.cut = since
        # What the newest tentative frame says that it lacks.
        self.why: Why | None = None
        self.progressed_at = 0
        self.stable = HeldFrames()
        self.tentative = TentativeFrames()
        # (arrival, stime_max) of everything not yet processed, for the deadline of buckets.
        self.ages: deque[tuple[int, int]] = deque()
        # (first id, stime_max) of stable frames, to say from which id on a time is covered.
        self._ids_by_stime: deque[tuple[int, int]] = deque()

    @property
    def live_boundary(self) -> int:
        """How far in time the stream has been heard of, stable or tentative."""
        return max(self.boundary, self.tentative_boundary)

    def take(self, frame: StreamFrame, now: int) -> Held | None:
        """Take a frame; returns what was new in it, if it held tuples and any were."""
        header = frame.header
        kind = header.kind
        if self.next_id == ANYWHERE and kind in (Kind.BOUNDARY, Kind.STABLE):
            self.next_id, self._stime_from = header.first_id, self._newer_than()
        if kind is Kind.BOUNDARY:
            self._take_boundary(header, now)
        elif kind is Kind.STABLE:
            return self._take_stable(header, frame.block, now)
        elif kind is Kind.TENTATIVE:
            return self._take_tentative(header, frame.block, now)
        elif kind is Kind.TENTATIVE_BOUNDARY and header.stime_min > self.tentative_boundary:
            if header.stime_min > self.live_boundary:
                self.progressed_at = now
            self.tentative_boundary = header.stime_min
            self.why = frame.why
        return None

    def _take_boundary(self, header: Header, now: int) -> None:
        if header.first_id > self.next_id:
            raise GapFound(f"{self.stream}: boundary at id {header.first_id}, have {self.next_id}")
        if header.stime_min > self.boundary:
            if header.stime_min > self.live_boundary:
                self.progressed_at = now
            self.boundary = header.stime_min
            self._raise_cut(header.stime_min)

    def _take_stable(self, header: Header, block: object, now: int) -> Held | None:
        if header.first_id > self.next_id:
            raise GapFound(f"{self.stream}: tuple {header.first_id} came, {self.next_id} is next")
        if header.next_id <= self.next_id:
            return None
        skip = self.next_id - header.first_id
        held = Held(header, block, skip, self._stime_from, now)
        self._ids_by_stime.append((self.next_id, header.stime_max))
        self.next_id = header.next_id
        if header.stime_max < self._stime_from:
            return None
        self.stable.append(held, self.boundary)
        self.ages.append((now, header.stime_max))
        self._raise_cut(header.stime_max + 1)
        return held

    def _take_tentative(self, header: Header, block: object, now: int) -> Held | None:
        stime_from = max(self.cut, self.tentative_boundary)
        if header.stime_max < stime_from:
            return None
        held = Held(header, block, 0, stime_from, now)
        self.tentative.append(held)
        self.ages.append((now, header.stime_max))
        return held

    def _newer_than(self) -> int:
        """From which time on a stream is taken whose ids are not known."""
        return self.cut

    def forget_ids(self) -> None:
        """Take the stream up wherever it is now, and go on by time."""
        self.next_id = ANYWHERE

    def _raise_cut(self, stime: int) -> None:
        """Stable tuples now stand for everything older than ``stime``."""
        if stime > self.cut:
            self.cut = stime
        self.tentative.drop_below(self.cut)

    def slices(self, start: int, stop: int) -> tuple[InputSlice, ...]:
        """The stable tuples of [start, stop) that are held."""
        return tuple(
            [
                InputSlice(
                    self.stream, one.header, one.block, one.skip, max(start, one.stime_from), stop
                )
                for one in self.stable.between(start, stop)
            ]
        )

    def drop_stable_below(self, stime: int) -> None:
        """Forget stable tuples that no version will read again."""
        self.stable.drop_below(stime)

    def drop_tentative_below(self, stime: int) -> None:
        """Forget tentative tuples that the live version has processed."""
        self.tentative.drop_below(stime)

    def forget_delivered(self) -> None:
        """Somebody else has everything now; of tentative tuples their places are still needed."""
        self.stable.clear()
        self.ages.clear()
        self._ids_by_stime.clear()

    def forget_ages_below(self, stime: int) -> None:
        """Tuples older than ``stime`` have been processed: no deadline waits for them."""
        while self.ages and self.ages[0][1] < stime:
            self.ages.popleft()

    def first_id_needed(self, stime: int) -> int:
        """The first id whose tuple may be as new as ``stime``; forgets what is older."""
        while self._ids_by_stime and self._ids_by_stime[0][1] < stime:
            self._ids_by_stime.popleft()
        return self._ids_by_stime[0][0] if self._ids_by_stime else self.next_id

    def validate(self) -> None:
        end = None
        for held in self.stable:
            start = held.header.first_id + held.skip
            if end is not None and start != end and not self.lossy:
                raise ProtocolError(f"{self.stream}: held ids jump from {end} to {start}")
            end = held.header.next_id
        if end is not None and end != self.next_id and not self.lossy:
            raise ProtocolError(f"{self.stream}: holds ids up to {end}, next is {self.next_id}")
        if self.boundary > self.cut:
            raise ProtocolError(f"{self.stream}: boundary {self.boundary} above cut {self.cut}")
