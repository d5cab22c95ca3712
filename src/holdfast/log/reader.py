"""A reader: goes from a place in a log to where it ended when it was asked for.

From an lsn it delivers everything as it was written. From an id it delivers the stream, as somebody
needs it who holds what is below for good: the tuples from that id on (a frame that the id falls
into is sliced), and the marks that name at least that id. Window states are the owner's, and are
passed over then.

Any number of readers, fast or slow, cost the writer nothing, and a reader never has more in memory
than the pieces it read last. Readers do not keep a log from being trimmed. One whose place is gone
goes on at the start of the log if it misses no tuple by that, and fails with Trimmed otherwise.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from types import TracebackType
from typing import NamedTuple

from holdfast.core.frame import Kind
from holdfast.frames import Frame, data_frame
from holdfast.log.block import LogBlock
from holdfast.log.cursor import Cursor
from holdfast.log.errors import Trimmed
from holdfast.log.payload import decode, is_window
from holdfast.log.store import Store


class Entry(NamedTuple):
    """A frame and its place: reading ``from_lsn=entry.lsn + 1`` goes on after it."""

    lsn: int
    frame: Frame


class LogReader:
    """Delivers the frames of a log; see ``StreamLog.replay``. One thread reads."""

    def __init__(self, store: Store, lsn: int, from_id: int | None, until_lsn: int) -> None:
        self._store = store
        self._until_lsn = until_lsn
        self._cursor = Cursor(store, lsn)
        self._blocks: deque[LogBlock] = deque()
        # The first id that is still to come; None where everything is delivered.
        self._next_id = from_id

    def read(self) -> list[Entry]:
        """The next few frames; empty at the end, and once the log was closed."""
        entries: list[Entry] = []
        while not entries and self._fetch():
            found = [self._deliver(block) for block in self._blocks]
            entries = [entry for entry in found if entry is not None]
            self._blocks.clear()
        return entries

    def __iter__(self) -> Iterator[Entry]:
        while self._fetch():
            entry = self._deliver(self._blocks.popleft())
            if entry is not None:
                yield entry

    def close(self) -> None:
        """Gives back the open file."""
        self._until_lsn = 0
        self._blocks.clear()
        self._cursor.close()

    def __enter__(self) -> LogReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _fetch(self) -> bool:
        """Whether there are blocks at hand, reading some if there are not."""
        while not self._blocks:
            with self._store.lock:
                # A closed log may be trimmed by whoever opens it next.
                stop_lsn = 0 if self._store.closed else self._until_lsn
            if self._cursor.lsn >= stop_lsn:
                if self._store.damage is not None and stop_lsn >= self._store.tail.lsn:
                    raise self._store.damage
                return False
            try:
                self._blocks.extend(self._cursor.next_blocks(stop_lsn))
            except Trimmed:
                self._skip_trimmed()
        return True

    def _skip_trimmed(self) -> None:
        store = self._store
        with store.lock:
            if self._next_id is None:
                raise Trimmed(
                    f"{store.directory}: the log was trimmed up to lsn {store.first_lsn}, past "
                    f"this reader. Start again from an id; the log has those from "
                    f"{store.first_id} on"
                )
            if self._next_id < store.first_id:
                raise Trimmed(
                    f"{store.directory}: the log was trimmed up to id {store.first_id}, and this "
                    f"reader had come to {self._next_id} only. Take a checkpoint that is newer, "
                    f"or another replica"
                )
            self._cursor.lsn = store.first_lsn

    def _deliver(self, block: LogBlock) -> Entry | None:
        from_id = self._next_id
        if from_id is None:
            return Entry(block.lsn, self._decode(block))
        if block.kind != Kind.STABLE:
            passed_over = is_window(block.kind) or block.first_id < from_id
            return None if passed_over else Entry(block.lsn, self._decode(block))
        next_id = block.first_id + block.tuples
        if next_id <= from_id:
            return None
        self._next_id = next_id
        return Entry(block.lsn, _from(from_id, self._decode(block)))

    def _decode(self, block: LogBlock) -> Frame:
        return decode(block, self._store.written_schema(block.lsn), self._store.schema)


def _from(start: int, frame: Frame) -> Frame:
    """The tuples of ``frame`` with ids from ``start`` on; no column is copied."""
    skip = start - frame.header.first_id
    if skip <= 0:
        return frame
    assert frame.batch is not None
    return data_frame(frame.kind, start, frame.batch.slice(skip))
