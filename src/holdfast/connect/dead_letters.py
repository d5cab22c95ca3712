"""The file for rows that cannot become tuples: JSON lines with source, reason and row."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from holdfast.connect.json_values import jsonable
from holdfast.connect.source import Reject


class DeadLetters:
    """Appends to the dead-letter file and counts; the file appears with the first letter."""

    def __init__(self, path: Path, size: int = 0, count: int = 0) -> None:
        """Continue a file of ``size`` bytes with ``count`` letters; what follows is cut off."""
        self.path = path
        self.count = count
        self._size = size
        self._file: BinaryIO | None = None
        if path.exists():
            os.truncate(path, min(size, path.stat().st_size))

    def add(self, source: str, rejects: Sequence[Reject]) -> None:
        """Write these rows down."""
        if not rejects:
            return
        if self._file is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self.path.open("ab")
        lines = [
            json.dumps({"source": source, "reason": each.reason, "row": jsonable(each.row)})
            for each in rejects
        ]
        data = ("\n".join(lines) + "\n").encode()
        self._file.write(data)
        self._size += len(data)
        self.count += len(rejects)

    def flush(self) -> dict[str, int]:
        """Make the file durable; its size and count, for the checkpoint."""
        if self._file is not None:
            self._file.flush()
            os.fsync(self._file.fileno())
        return {"size": self._size, "count": self.count}

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
