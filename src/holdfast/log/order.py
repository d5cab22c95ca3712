"""What a stream looks like at a place in the log, and what may follow there.

``Tail`` is the little that must be known of everything before a place: which ids come next,
what has been promised about time. Each block takes one tail to the next, and a block that
does not continue the stream is refused before anything is written:

    STABLE      starts at the next id; no tentative tuple may be standing before it
    TENTATIVE   starts at the next id
    BOUNDARY    names the next id
    REC_DONE    names the next id
    SKIP        names the next id or a later one, which is the next id then; no tentative tuple
                may be standing before it
    UNDO        names an id from the first tentative one up to the next; it is the next id then
    WINDOW_*    anything; they are the owner's notes and no part of the stream

``Undone`` answers the one question a reader has about blocks it has not reached: which of the
tuples written at this place still stand? Those below every later UNDO's id. As only the lowest
of the later ones counts, an UNDO makes every earlier one with the same or a higher id
irrelevant; what is left rises in lsn and in id, and one bisection answers.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass

from holdfast.core.frame import Header, Kind
from holdfast.log.errors import OutOfOrder


@dataclass(frozen=True, slots=True)
class Tail:
    """The state of the stream just before a place in the log.

    lsn             the place.
    next_id         the id of the next tuple.
    stable_next_id  the id after the last stable tuple; tentative tuples stand from here up to
                    next_id.
    boundary        the newest promise that still holds: a boundary with no tentative tuple
                    before it. One written after tentative tuples may be as wrong as they are.
    reach           the largest stime of any tuple or boundary so far, undone ones included.
    stable_reach    the largest stime of any stable tuple so far.
    """

    lsn: int = 0
    next_id: int = 0
    stable_next_id: int = 0
    boundary: int | None = None
    reach: int | None = None
    stable_reach: int | None = None

    @property
    def has_tentative(self) -> bool:
        return self.next_id > self.stable_next_id

    def after(self, header: Header, blocks: int = 1) -> Tail:
        """The tail after a frame with this header; OutOfOrder if it does not fit here."""
        kind, lsn = header.kind, self.lsn + blocks
        next_id, stable_next_id = self.next_id, self.stable_next_id
        boundary, reach, stable_reach = self.boundary, self.reach, self.stable_reach
        if kind in (Kind.STABLE, Kind.TENTATIVE):
            self._check_next(header)
            reach = _later(reach, header.stime_max)
            next_id = header.next_id
            if kind is Kind.STABLE:
                stable_next_id = next_id
                stable_reach = _later(stable_reach, header.stime_max)
        elif kind is Kind.BOUNDARY:
            self._check_next(header)
            reach = _later(reach, header.stime_max)
            if next_id == stable_next_id:
                boundary = header.stime_min
        elif kind is Kind.UNDO:
            self._check_undo(header)
            next_id = header.first_id
        elif kind is Kind.REC_DONE:
            self._check_next(header)
        elif kind is Kind.SKIP:
            self._check_skip(header)
            next_id = stable_next_id = header.first_id
        return Tail(lsn, next_id, stable_next_id, boundary, reach, stable_reach)

    def _check_next(self, header: Header) -> None:
        if header.first_id != self.next_id:
            raise OutOfOrder(
                f"a {header.kind.name} frame must come at id {self.next_id}, the next of this "
                f"log; it has {header.first_id}. Continue from StreamLog.next_id"
            )
        if header.kind is Kind.STABLE and self.has_tentative:
            raise OutOfOrder(
                f"a STABLE frame cannot follow the tentative tuples {self.stable_next_id} to "
                f"{self.next_id - 1}; append an UNDO of {self.stable_next_id} first"
            )

    def _check_skip(self, header: Header) -> None:
        if self.has_tentative or header.first_id < self.next_id:
            raise OutOfOrder(
                f"a SKIP to id {header.first_id} cannot follow id {self.next_id}, stable up to "
                f"{self.stable_next_id}"
            )

    def _check_undo(self, header: Header) -> None:
        if not self.stable_next_id <= header.first_id <= self.next_id:
            raise OutOfOrder(
                f"an UNDO takes back tentative tuples, here from {self.stable_next_id} up to "
                f"{self.next_id} (exclusive); it names {header.first_id}, and stable tuples are "
                f"never taken back"
            )


def _later(known: int | None, time: int) -> int:
    return time if known is None else max(known, time)


class Undone:
    """Which tuples still stand, for every place in the log."""

    def __init__(self) -> None:
        self._lsns: list[int] = []
        self._ids: list[int] = []

    def add(self, lsn: int, first_undone_id: int) -> None:
        """An UNDO was written at ``lsn``; later than all before it."""
        while self._ids and self._ids[-1] >= first_undone_id:
            self._lsns.pop()
            self._ids.pop()
        self._lsns.append(lsn)
        self._ids.append(first_undone_id)

    def stands_to(self, lsn: int) -> int | None:
        """Of what is written at ``lsn``, ids below this stand; None if all do."""
        at = bisect_right(self._lsns, lsn)
        return self._ids[at] if at < len(self._ids) else None

    def forget_before(self, lsn: int) -> None:
        """Blocks below ``lsn`` are gone."""
        at = bisect_right(self._lsns, lsn - 1)
        del self._lsns[:at], self._ids[:at]
