"""Bounds the memory of blocks that no log has: what comes beyond the limit waits on disk.

A replica that is slower than its input, or that keeps what it will redo after a failure, holds
blocks it will read later; and it keeps its tentative results until they are corrected, for whoever
subscribes, and those that stand until they are acknowledged, where no log has them. The newest go
to disk, because they are read last, and in the thread that brings them, which slows down whoever
sends: never in the one that answers heartbeats. A file goes when its block is dropped. What a log
has by the time that room is needed counts no more: its memory is bounded with that of the log.
"""

from __future__ import annotations

import contextlib
import itertools
import shutil
import threading
import weakref
from pathlib import Path

import pyarrow as pa

from holdfast import disk
from holdfast.blocks import Block
from holdfast.durable import make_private
from holdfast.kept.stream_store import OnProblem

MEMORY_BYTES = 256 << 20
_AGAIN_SECONDS = 0.2


class Spill:
    """Blocks of one replica: what it received, or what it has to say."""

    def __init__(
        self,
        directory: Path,
        on_problem: OnProblem,
        what: str = "received tuples",
        limit_bytes: int = MEMORY_BYTES,
    ) -> None:
        """``on_problem`` is told why blocks cannot be put on disk, and None when they can again.

        It knows the problem by the directory's name; ``what`` they are, for the text.
        """
        shutil.rmtree(directory, ignore_errors=True)  # worthless once the process has ended
        make_private(directory)
        self._directory = directory
        self._limit = limit_bytes
        self._on_problem = on_problem
        self._what = what
        # How much is in memory now, and of which blocks.
        self.memory_bytes = 0
        self._counted: dict[int, tuple[weakref.ref[Block], int]] = {}
        self._numbers = itertools.count()
        # A block may go at any moment, also in the middle of what is done here.
        self._lock = threading.RLock()
        self._closed = threading.Event()

    def take(self, block: Block) -> None:
        """A block came in. Without room on disk, whoever brings it waits until there is some."""
        failed = False
        while not self._fits(block):
            try:
                self._to_disk(block)
                break
            except OSError as error:
                failed = True
                self._on_problem(
                    self._directory.name,
                    f"{self._what} cannot be put on disk: {error}. No more are taken until they "
                    f"can be, or until there is room in memory",
                )
                if self._closed.wait(_AGAIN_SECONDS):
                    return
        if failed:
            self._on_problem(self._directory.name, None)

    def close(self) -> None:
        """Whoever waits for room does so no more."""
        self._closed.set()

    def _fits(self, block: Block) -> bool:
        """Whether it may stay in memory; it counts from now on if it may."""
        with self._lock:
            if self.memory_bytes + block.nbytes > self._limit:
                self._leave_out_what_a_log_has()
            fits = self.memory_bytes + block.nbytes <= self._limit
            if fits:
                number = next(self._numbers)
                gone = weakref.ref(block, lambda _: self._dropped(number))
                self._counted[number] = gone, block.nbytes
                self.memory_bytes += block.nbytes
        return fits

    def _leave_out_what_a_log_has(self) -> None:
        for number, (known, _) in list(self._counted.items()):
            block = known()
            if block is not None and block.is_elsewhere:
                self._dropped(number)

    def _to_disk(self, block: Block) -> None:
        path = self._directory / f"{next(self._numbers)}.arrow"
        batch = block.batch()
        try:
            with (
                disk.open_file(path, "wb") as file,
                pa.ipc.new_file(file, batch.schema) as writer,
            ):
                writer.write_batch(batch)
        except BaseException:
            _unlink(path)
            raise
        weakref.finalize(block, _unlink, path)
        block.can_load(lambda: _read(path))
        block.forget()

    def _dropped(self, number: int) -> None:
        with self._lock:
            _, size = self._counted.pop(number, (None, 0))
            self.memory_bytes -= size


def _read(path: Path) -> pa.RecordBatch:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_file(source).get_batch(0)


def _unlink(path: Path) -> None:
    with contextlib.suppress(OSError):
        path.unlink()
