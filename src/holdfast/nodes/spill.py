"""Bounds the memory of received blocks: what comes beyond the limit waits on disk.

A replica that is slower than its input, or that keeps what it will redo after a failure, holds
blocks it will read later. The newest go to disk, because they are read last, and in the thread
that receives them, which slows down whoever sends. A file goes when its block is dropped.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
import weakref
from pathlib import Path

import pyarrow as pa

from holdfast.blocks import Block
from holdfast.durable import make_private

MEMORY_BYTES = 256 << 20


class Spill:
    """The received blocks of one replica."""

    def __init__(self, directory: Path, limit_bytes: int = MEMORY_BYTES) -> None:
        shutil.rmtree(directory, ignore_errors=True)  # worthless once the process has ended
        make_private(directory)
        self._directory = directory
        self._limit = limit_bytes
        self._in_memory = 0
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    @property
    def memory_bytes(self) -> int:
        """How much is in memory now."""
        return self._in_memory

    def take(self, block: Block) -> None:
        """A block came in."""
        with self._lock:
            over = self._in_memory + block.nbytes > self._limit
            if not over:
                self._in_memory += block.nbytes
        if not over:
            weakref.finalize(block, self._dropped, block.nbytes)
            return
        path = self._directory / f"{next(self._numbers)}.arrow"
        batch = block.batch()
        with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
            writer.write_batch(batch)
        weakref.finalize(block, _unlink, path)
        block.can_load(lambda: _read(path))
        block.forget()

    def _dropped(self, size: int) -> None:
        with self._lock:
            self._in_memory -= size


def _read(path: Path) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
