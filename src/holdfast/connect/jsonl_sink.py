"""Results as a file with one JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast import disk
from holdfast.connect.changes import Changes
from holdfast.connect.json_values import json_lines
from holdfast.connect.sink import Position, Sink, Writer
from holdfast.core.frame import Why
from holdfast.errors import StateError


@dataclass(frozen=True)
class JsonLinesSink(Sink):
    """A JSON lines file."""

    path: str
    tentative: bool = False

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        changes = Changes(output, schema, position) if self.tentative else None
        return JsonLinesWriter(Path(self.path), (position or {}).get("size", 0), changes)

    def __str__(self) -> str:
        return f"JSON lines file {self.path}"


def write_jsonl(path: str | Path, tentative: bool = False) -> JsonLinesSink:
    """Write each tuple as a JSON object on a line of its own.

    With ``tentative`` every change is a line, and its ``change`` says which: ``stable``,
    ``tentative`` (``why`` says what it lacks) or ``undo``, which takes back the tentative lines
    above it that are older than its ``stime``.
    """
    return JsonLinesSink(str(path), tentative)


class JsonLinesWriter(Writer):
    """Appends to the file; its size is the position."""

    def __init__(self, path: Path, size: int, changes: Changes | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        have = path.stat().st_size if path.exists() else 0
        if have < size:
            raise StateError(
                f"{str(path)!r} has {have} bytes, but {size} were written before: it was "
                f"replaced or cut; put it back, or start over with a new state directory"
            )
        self._file = disk.open_file(path, "ab", private=False)
        disk.truncate(self._file, size)
        self._size = size
        self._changes = changes
        told_before = None if changes is None else changes.begin()
        if told_before is not None:
            self._append(told_before)

    def write(self, table: pa.Table) -> None:
        self._append(table if self._changes is None else self._changes.stable(table))

    def write_tentative(self, table: pa.Table, why: Why | None) -> None:
        if self._changes is not None:
            self._append(self._changes.tentative(table, why))

    def undo(self, below_stime: int) -> None:
        if self._changes is not None:
            self._append(self._changes.undo(below_stime))

    def _append(self, table: pa.Table) -> None:
        data = json_lines(table).encode()
        self._file.write(data)
        self._size += len(data)

    def flush(self) -> Position:
        disk.sync(self._file)
        position: Position = {"size": self._size}
        if self._changes is not None:
            position["tentative_until"] = self._changes.tentative_until
        return position

    def close(self) -> None:
        self._file.close()
