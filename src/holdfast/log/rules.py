"""What a reader gets to see.

A log holds everything its owner ever said, including tuples it took back. A reader either wants
exactly that (``AsWritten``: from an lsn), or wants the stream (``Standing``: from an id or an
stime), as somebody does who subscribes, or switches over from another replica. Then:

1. *Ids.* Of the tuples, those with an id of at least ``from_id``, as the subscriber holds the ones
   below for good. A frame that the id falls into is sliced.
2. *Only what stands.* A tentative tuple is passed over if an UNDO of it is already in the log
   when the reader comes to it. So a reader that is behind skips whole failures that are healed,
   and one that is at the live end sees the tentative tuples, then the UNDO, then the corrections.
   Which of the two happens depends on how fast it reads; where it ends up does not.
3. *UNDO* is passed on if the subscriber holds a tuple that it takes back, and not otherwise. It
   never names an id below ``from_id``: those the subscriber has as stable from elsewhere.
4. *Marks.* BOUNDARY and REC_DONE are passed on if they stand (no tuple before them was taken back)
   and name at least ``from_id``. Window state only on request: it is the owner's.
5. *A subscriber with tentative tuples from another replica* says up to which id it has them
   (``tentative_to``). Those it must take back once this log knows better. With CORRECTED, an UNDO
   of ``from_id`` comes right before the first stable tuple, unless an UNDO of the log's own has
   come by then; tentative tuples that come before that are passed on with the ids they have
   here, and may repeat what the subscriber has: it keeps those whose tmax is above all it has
   seen. With AT_ONCE the UNDO comes first of all, for subscribers that would rather start over
   than compare.
6. *From an stime*: as from the id of the first standing tuple with at least that stime. As long
   as there is none, only boundaries of at least that stime come. If that tuple is tentative and
   is taken back, the search goes on where the corrections start.

Readers do not keep a log from being trimmed. One that is so far behind that its place is gone goes
on at the start of the log if it misses no stable tuple by that, and fails with Trimmed otherwise.

Where tentative tuples were dropped to make room, ids of tentative frames jump ahead.
Ids of stable tuples never do: from ``from_id`` on a reader sees each exactly once, in order.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto
from typing import Protocol

import numpy as np

from holdfast.core.frame import Kind
from holdfast.frames import Frame, data_frame, undo_frame
from holdfast.log.block import Block
from holdfast.log.errors import Trimmed
from holdfast.log.payload import is_window
from holdfast.log.store import Store

Decode = Callable[[], Frame]
_DATA = (Kind.STABLE, Kind.TENTATIVE)


class TakeBack(Enum):
    """When a subscriber is told to undo tentative tuples it has from another replica."""

    CORRECTED = auto()
    AT_ONCE = auto()


class Rule(Protocol):
    """Decides what of a block a reader sees."""

    def first(self) -> list[Frame]:
        """What comes before anything in the log."""

    def skip_to(self, store: Store) -> list[Frame]:
        """The reader's place was trimmed, and it would go on at the start of the log: what to
        deliver first. Raises Trimmed if something it needs is gone."""

    def frames(self, block: Block, stands_to: int | None, decode: Decode) -> list[Frame]:
        """The frames to deliver for ``block``, of whose ids those below ``stands_to`` stand."""


class AsWritten:
    """Everything, as it was written."""

    def first(self) -> list[Frame]:
        return []

    def skip_to(self, store: Store) -> list[Frame]:
        raise Trimmed(
            f"{store.directory}: the log was trimmed up to lsn {store.first_lsn}, past this "
            f"reader. Start again from an id; the log has those from {store.first_id} on"
        )

    def frames(self, block: Block, stands_to: int | None, decode: Decode) -> list[Frame]:
        return [decode()]


class Standing:
    """The stream from an id or an stime on, by the rules above."""

    def __init__(
        self,
        from_id: int,
        *,
        from_stime: int | None = None,
        tentative_to: int | None = None,
        take_back: TakeBack = TakeBack.CORRECTED,
        windows: bool = False,
    ) -> None:
        self._from_id = from_id
        self._stable_to = from_id  # one past what the subscriber holds for good
        self._held_to = max(from_id, tentative_to or 0)  # one past what the subscriber holds
        self._at_once = take_back is TakeBack.AT_ONCE
        self._windows = windows
        self._from_stime = from_stime
        self._is_searching = from_stime is not None
        self._found_id = 0

    def first(self) -> list[Frame]:
        return self._undo(self._from_id) if self._at_once else []

    def frames(self, block: Block, stands_to: int | None, decode: Decode) -> list[Frame]:
        if block.kind in _DATA:
            if self._is_plain(block):
                self._stable_to = self._held_to = block.first_id + block.tuples
                return [decode()]
            return self._tuples(block, stands_to, decode)
        if block.kind == Kind.UNDO:
            return self._undo(max(block.first_id, self._from_id))
        stands = stands_to is None or block.first_id <= stands_to
        if not stands or block.first_id < self._from_id:
            return []
        if is_window(block.kind) and not self._windows:
            return []
        if self._is_searching and not self._is_far_enough(block):
            return []
        return [decode()]

    def _is_plain(self, block: Block) -> bool:
        """Stable tuples that follow those before: the usual case, and nothing to decide."""
        return (
            block.kind == Kind.STABLE
            and block.first_id >= self._from_id
            and block.first_id >= self._held_to
            and self._from_stime is None
        )

    def skip_to(self, store: Store) -> list[Frame]:
        if self._is_searching and self._from_stime is not None:
            store.check_stime(self._from_stime)
            self._from_id = self._stable_to = max(self._stable_to, store.first_id)
        elif self._stable_to < store.first_id:
            raise Trimmed(
                f"{store.directory}: the log was trimmed up to id {store.first_id}, and this "
                f"reader had come to {self._stable_to} only. Take a checkpoint that is newer, "
                f"or another replica"
            )
        # What became of tentative tuples the subscriber holds cannot be read here any more.
        return self._undo(self._stable_to)

    def _tuples(self, block: Block, stands_to: int | None, decode: Decode) -> list[Frame]:
        start, stop = max(block.first_id, self._from_id), block.first_id + block.tuples
        if block.kind == Kind.TENTATIVE and stands_to is not None:
            stop = min(stop, stands_to)
        if start >= stop:
            return []
        if self._is_searching and not self._is_far_enough(block):
            return []
        frame = sliced(decode(), start, stop)
        if self._is_searching:
            found = self._search(frame)
            if found is None:
                return []
            frame = found
        first_id = frame.header.first_id
        undo: list[Frame] = []
        if block.kind == Kind.STABLE:
            self._from_stime = None  # what is found in stable tuples stays found
            self._stable_to = stop
            undo = self._undo(first_id)
        self._held_to = max(self._held_to, stop)
        return [*undo, frame]

    def _undo(self, first_id: int) -> list[Frame]:
        """An UNDO of ``first_id``, if the subscriber holds anything from there on."""
        if self._from_stime is not None and first_id <= self._found_id:
            self._is_searching = True
        if self._held_to <= first_id:
            return []
        self._held_to = first_id
        return [undo_frame(first_id)]

    def _is_far_enough(self, block: Block) -> bool:
        assert self._from_stime is not None
        return block.kind != Kind.REC_DONE and block.stime_max >= self._from_stime

    def _search(self, frame: Frame) -> Frame | None:
        """The part of ``frame`` from the first tuple with at least the stime that is sought."""
        assert frame.batch is not None
        stimes = frame.batch.column("stime").cast("int64").to_numpy(zero_copy_only=False)
        reached = stimes >= self._from_stime
        at = int(np.argmax(reached))
        if not reached[at]:
            return None
        self._is_searching = False
        self._found_id = frame.header.first_id + at
        return sliced(frame, self._found_id, frame.header.next_id)


def sliced(frame: Frame, start: int, stop: int) -> Frame:
    """The tuples of ``frame`` with ids from ``start`` up to ``stop``; no column is copied."""
    header = frame.header
    if start == header.first_id and stop == header.next_id:
        return frame
    assert frame.batch is not None
    return data_frame(header.kind, start, frame.batch.slice(start - header.first_id, stop - start))
