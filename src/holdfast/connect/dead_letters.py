"""The file for rows that cannot become tuples: JSON lines with source, reason and row."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from holdfast import disk
from holdfast.connect.json_values import jsonable
from holdfast.connect.source import Reject


class DeadLetters:
    """Appends to the dead-letter file and counts; the file appears with the first letter."""

    def __init__(self, path: Path, size: int = 0, count: int = 0) -> None:
        """Continue a file of ``size`` bytes with ``count`` letters; what follows is cut off."""
        self.path = path
        self.count = count
        self._size = size
        self._waiting = bytearray()
        self._file: BinaryIO | None = None
        if path.exists():
            os.truncate(path, min(size, path.stat().st_size))

    @classmethod
    def reopened(cls, path: Path) -> DeadLetters:
        """Continue whatever file there is, after its last whole letter."""
        data = path.read_bytes() if path.exists() else b""
        return cls(path, data.rfind(b"\n") + 1, data.count(b"\n"))

    def add(self, source: str, rejects: Sequence[Reject]) -> None:
        """Write these rows down, with the next ``flush``."""
        if not rejects:
            return
        lines = [
            json.dumps({"source": source, "reason": each.reason, "row": jsonable(each.row)})
            for each in rejects
        ]
        self._waiting += ("\n".join(lines) + "\n").encode()
        self.count += len(rejects)

    def flush(self) -> dict[str, int]:
        """Make the file durable; its size and count, for the checkpoint.

        If it raises OSError nothing of what waits counts as written, and it may be tried again.
        """
        if self._waiting:
            try:
                self._write()
            except OSError:
                self.close()
                raise
        return {"size": self._size, "count": self.count}

    def forget(self, count: int) -> None:
        """Give up the letters that wait, ``count`` of them: they will come again."""
        self._waiting = bytearray()
        self.count -= count

    def _write(self) -> None:
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = disk.open_file(self.path, "ab")
            os.ftruncate(self._file.fileno(), self._size)  # what an attempt before has left
        self._file.write(self._waiting)
        disk.sync(self._file)
        self._size += len(self._waiting)
        self._waiting = bytearray()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # it cannot write what it has not written before
                file.close()
