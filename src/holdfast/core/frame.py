"""What the protocols know of a frame: its kind, its ids and its times.

A stream is an ordered sequence of frames. A frame is a block of tuples of one kind, or a
control mark. The tuples themselves are opaque here: a header says how many there are, which
ids they have and which times they cover, and that is all any protocol decides by.

Tuple ids are positions in the stream. Stable tuples are numbered 0, 1, 2, ... alike on every
replica of a fragment; tentative tuples continue the count after the last stable one; an UNDO
names the first id that is taken back, and the tuples after it take the undone ids again. An id
together with the kind STABLE therefore names a tuple for ever; with TENTATIVE only until the
next UNDO. The tuples of an EARLY frame have no id yet: they are stable, and will be appended under
one each when the order has come so far; until then they are known by where they come from
(provenance.py).

Times are microseconds since the epoch.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from holdfast.core.provenance import Claim


class Kind(IntEnum):
    """The kinds of frames; the numbers are part of the log and wire formats."""

    STABLE = 1
    TENTATIVE = 2
    BOUNDARY = 3
    UNDO = 4
    REC_DONE = 5
    WINDOW_OPEN = 6
    WINDOW_CHECK = 7
    TENTATIVE_BOUNDARY = 8
    SKIP = 9  # in logs only
    EARLY = 10  # never in logs

    @property
    def is_data(self) -> bool:
        """Whether frames of this kind carry tuples of the stream."""
        return self <= Kind.TENTATIVE or self is Kind.EARLY


@dataclass(frozen=True, slots=True)
class Header:
    """Everything about a frame except its tuples.

    first_id   data: the id of the first tuple. BOUNDARY, REC_DONE: the id the next tuple
               will have. UNDO: the id of the first tuple taken back, so that everything
               below it stays. SKIP: the id the log goes on with; everyone who ever needs the
               tuples between has them. EARLY: 0.
    count      how many tuples (or, for WINDOW_* frames, window states) the block holds.
    stime_min  data: the smallest tuple time. BOUNDARY: no later tuple is older than this.
               TENTATIVE_BOUNDARY: the replica has processed what it had of everything older;
               later frames may still correct it, as stable tuples, never as tentative ones.
    stime_max  data: the largest tuple time. Marks: equal to stime_min.
    tmax       the newest input tuple time that shaped any tuple of the block.
    """

    kind: Kind
    first_id: int
    count: int = 0
    stime_min: int = 0
    stime_max: int = 0
    tmax: int = 0

    def __post_init__(self) -> None:
        if self.count < 0 or self.first_id < 0:
            raise ValueError(f"a frame's ids and count are not negative; got {self!r}")
        if self.stime_max < self.stime_min:
            raise ValueError(f"stime_max is at least stime_min; got {self!r}")
        if self.count == 0 and self.kind.is_data:
            raise ValueError(f"a {self.kind.name} frame holds at least one tuple; got {self!r}")

    @property
    def next_id(self) -> int:
        """The id of the tuple that follows this frame."""
        return self.first_id + (self.count if self.kind.is_data else 0)


@dataclass(frozen=True, slots=True)
class Missing:
    """A stream that something had to be said without.

    since  the tuple time up to which it was complete.
    """

    stream: str
    since: int


@dataclass(frozen=True, slots=True)
class Why:
    """Why tuples are tentative (why.py).

    missing  the streams they lack, by name.
    share    of the tuples that usually come since the oldest of them is missing, the share they
             rest on, about; None if nobody knows what is usual.
    """

    missing: tuple[Missing, ...]
    share: float | None = None

    def __post_init__(self) -> None:
        if self.share is not None and not 0.0 <= self.share <= 1.0:
            raise ValueError(f"a share is from 0 to 1; got {self.share}")


@dataclass(frozen=True, slots=True)
class StreamFrame:
    """A frame whose tuples are opaque: ``block`` is whatever the runtime keeps them in.

    why     of frames of the kinds TENTATIVE and TENTATIVE_BOUNDARY: what they lack.
    claims  of EARLY frames: what they are all the results of.
    """

    header: Header
    block: object = None
    why: Why | None = None
    claims: tuple[Claim, ...] = ()

    @property
    def nbytes(self) -> int:
        """The bytes of its tuples, if what has them says so."""
        return int(getattr(self.block, "nbytes", 0))
