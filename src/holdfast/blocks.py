"""Blocks: the tuples of a frame as a process keeps them, in memory or in its log.

The protocols keep the frames of every stream that somebody may still ask for, and know
nothing of what is inside. A block that the log has need not stay in memory: ``Memory`` lets
the oldest ones go when they exceed its limit, and they are read again when somebody asks.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from holdfast.core.frame import Kind
from holdfast.log import LogReader, StreamLog, Trimmed

Load = Callable[[], pa.RecordBatch]


class Block:
    """The tuples of one frame: the columns stime, tmax and the stream's own."""

    __slots__ = ("__weakref__", "_batch", "_load", "nbytes")

    def __init__(
        self, batch: pa.RecordBatch | None, load: Load | None = None, nbytes: int = 0
    ) -> None:
        """``nbytes`` says how large the tuples are of which only the log knows."""
        self._batch = batch
        self._load = load
        self.nbytes: int = nbytes if batch is None else batch.nbytes

    def batch(self) -> pa.RecordBatch:
        """The tuples, read from the log if they are not in memory."""
        batch = self._batch
        if batch is None:
            assert self._load is not None
            batch = self._load()
        return batch

    def can_load(self, load: Load) -> None:
        """The log has the tuples now."""
        self._load = load

    @property
    def is_elsewhere(self) -> bool:
        """Whether it can be read again, from a log or a file."""
        return self._load is not None

    def forget(self) -> None:
        """Let the memory go, if the log has the tuples."""
        if self._load is not None:
            self._batch = None


class Memory:
    """Bounds the memory of blocks that are in a log, too.

    It keeps none of them: one that nobody asks for any more is gone at once, and what it took is
    there for the next.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        # By when they came, the oldest first; and their bytes.
        self._blocks: dict[int, tuple[weakref.ref[Block], int]] = {}
        self._bytes = 0
        self._numbers = itertools.count()
        # A block may go at any moment, also in the middle of what is done here.
        self._lock = threading.RLock()

    @property
    def size_bytes(self) -> int:
        """How much is in memory."""
        return self._bytes

    def add(self, block: Block) -> None:
        """A block that can be loaded; older ones go from memory to make room."""
        number = next(self._numbers)
        with self._lock:
            self._blocks[number] = (
                weakref.ref(block, lambda _: self._remove(number)),
                block.nbytes,
            )
            self._bytes += block.nbytes
            while self._bytes > self._limit:
                oldest = self._remove(next(iter(self._blocks)))
                if oldest is not None:
                    oldest.forget()

    def _remove(self, number: int) -> Block | None:
        with self._lock:
            known, size = self._blocks.pop(number, (None, 0))
            self._bytes -= size
        return None if known is None else known()


class Loader:
    """Reads blocks back from a log; the next one after the last without searching for it."""

    def __init__(self, log: StreamLog) -> None:
        self._log = log
        self._lock = threading.Lock()
        self._reader: LogReader | None = None
        self._read: deque[pa.RecordBatch] = deque()
        self._next_id = -1

    def load(self, first_id: int, count: int) -> pa.RecordBatch:
        """The stable tuples ``first_id`` to ``first_id + count``, as one batch."""
        with self._lock:
            if first_id != self._next_id:
                self._open(first_id)
            found = self._take(count)
            if sum(part.num_rows for part in found) < count:
                # At the end the reader had; the log may have grown since.
                self._open(first_id)
                found = self._take(count)
        have = sum(part.num_rows for part in found)
        if have < count:
            raise Trimmed(
                f"{self._log.directory}: of tuples {first_id} to {first_id + count} only {have} "
                f"are there"
            )
        return one_batch(pa.Table.from_batches(found))

    def close(self) -> None:
        with self._lock:
            self._close()

    def _open(self, first_id: int) -> None:
        self._close()
        self._reader = self._log.replay(from_id=first_id)
        self._next_id = first_id

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._read.clear()
        self._next_id = -1

    def _take(self, count: int) -> list[pa.RecordBatch]:
        found: list[pa.RecordBatch] = []
        missing = count
        while missing:
            if not self._read and not self._read_more():
                break
            part = self._read.popleft()
            if part.num_rows > missing:
                self._read.appendleft(part.slice(missing))
                part = part.slice(0, missing)
            found.append(part)
            missing -= part.num_rows
        self._next_id += count - missing
        return found

    def _read_more(self) -> bool:
        assert self._reader is not None
        entries = self._reader.read()
        for _, frame in entries:
            if frame.kind is Kind.STABLE:
                self._read.append(frame.batch)
        return bool(entries)


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table with at least one row as one record batch; no copy if it is one chunk."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    return table.combine_chunks().to_batches()[0]
