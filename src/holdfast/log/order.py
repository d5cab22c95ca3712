"""What a stream looks like at a place in the log, and what may follow there.

``Tail`` is the little that must be known of everything before a place: which id comes next, what
has been promised about time. Each block takes one tail to the next, and a block that does not
continue the stream is refused before anything is written:

    STABLE      starts at the next id
    BOUNDARY    names the next id
    SKIP        names the next id or a later one, which is the next id then
    WINDOW_*    anything; they are the owner's notes and no part of the stream

Nothing else is kept: what is tentative is computed again by whoever needs it.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.frame import Header, Kind
from holdfast.log.errors import OutOfOrder
from holdfast.log.payload import is_window


@dataclass(frozen=True, slots=True)
class Tail:
    """The state of the stream just before a place in the log.

    lsn       the place.
    next_id   the id of the next tuple.
    boundary  the newest promise about time.
    """

    lsn: int = 0
    next_id: int = 0
    boundary: int | None = None

    def after(self, header: Header) -> Tail:
        """The tail after a frame with this header; OutOfOrder if it does not fit here."""
        kind, next_id, boundary = header.kind, self.next_id, self.boundary
        if kind is Kind.STABLE:
            self._check_next(header)
            next_id = header.next_id
        elif kind is Kind.BOUNDARY:
            self._check_next(header)
            boundary = header.stime_min
        elif kind is Kind.SKIP:
            if header.first_id < next_id:
                raise OutOfOrder(f"a SKIP to id {header.first_id} cannot follow id {next_id}")
            next_id = header.first_id
        elif not is_window(kind):
            raise OutOfOrder(
                f"a log keeps what is stable; a {kind.name} frame of id {header.first_id} is not"
            )
        return Tail(self.lsn + 1, next_id, boundary)

    def _check_next(self, header: Header) -> None:
        if header.first_id != self.next_id:
            raise OutOfOrder(
                f"a {header.kind.name} frame must come at id {self.next_id}, the next of this "
                f"log; it has {header.first_id}. Continue from StreamLog.next_id"
            )
