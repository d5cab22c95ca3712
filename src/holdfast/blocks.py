"""Blocks: the tuples of a frame as a process keeps them, in memory or in its log.

The protocols keep the frames of every stream that somebody may still ask for, and know
nothing of what is inside. A block that the log has need not stay in memory: ``Memory`` lets
the oldest ones go when they exceed its limit, and they are read again when somebody asks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

import pyarrow as pa

from holdfast.core.frame import Kind
from holdfast.log import StreamLog, Trimmed

Load = Callable[[], pa.RecordBatch]


class Block:
    """The tuples of one frame: the columns stime, tmax and the stream's own."""

    __slots__ = ("_batch", "_load", "nbytes")

    def __init__(self, batch: pa.RecordBatch | None, load: Load | None = None) -> None:
        self._batch = batch
        self._load = load
        self.nbytes: int = 0 if batch is None else batch.nbytes

    @property
    def in_memory(self) -> bool:
        return self._batch is not None

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

    def forget(self) -> None:
        """Let the memory go, if the log has the tuples."""
        if self._load is not None:
            self._batch = None


class Memory:
    """Bounds the memory of blocks that are in a log, too."""

    def __init__(self, limit_bytes: int) -> None:
        self._limit = limit_bytes
        self._blocks: deque[Block] = deque()
        self._bytes = 0
        self._lock = threading.Lock()

    def add(self, block: Block) -> None:
        """Keep a block that can be loaded, and let older ones go to make room."""
        with self._lock:
            self._blocks.append(block)
            self._bytes += block.nbytes
            while self._bytes > self._limit:
                oldest = self._blocks.popleft()
                self._bytes -= oldest.nbytes
                oldest.forget()


def load_from(log: StreamLog, first_id: int, count: int) -> pa.RecordBatch:
    """The stable tuples ``first_id`` to ``first_id + count`` of a log, as one batch."""
    parts: list[pa.RecordBatch] = []
    found = 0
    with log.replay(from_id=first_id) as reader:
        while found < count:
            entries = reader.read(timeout_s=1.0)
            if not entries:
                break
            for _, frame in entries:
                if frame.batch is not None and frame.kind is Kind.STABLE and found < count:
                    part = frame.batch.slice(0, count - found)
                    parts.append(part)
                    found += part.num_rows
    if found < count:
        raise Trimmed(
            f"{log.directory}: tuples {first_id} to {first_id + count} are not all there any more"
        )
    return one_batch(pa.Table.from_batches(parts))


def one_batch(table: pa.Table) -> pa.RecordBatch:
    """A table with at least one row as one record batch; no copy if it is one chunk."""
    batches = table.to_batches()
    if len(batches) == 1:
        return batches[0]
    return table.combine_chunks().to_batches()[0]
