"""Results as a file with one JSON object a line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast import disk
from holdfast.connect.json_values import json_lines
from holdfast.connect.sink import Position, Sink, Writer
from holdfast.errors import StateError


@dataclass(frozen=True)
class JsonLinesSink(Sink):
    """A JSON lines file."""

    path: str

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        return JsonLinesWriter(Path(self.path), (position or {}).get("size", 0))

    def __str__(self) -> str:
        return f"JSON lines file {self.path}"


def write_jsonl(path: str | Path) -> JsonLinesSink:
    """Write each tuple as a JSON object on a line of its own."""
    return JsonLinesSink(str(path))


class JsonLinesWriter(Writer):
    """Appends to the file; its size is the position."""

    def __init__(self, path: Path, size: int) -> None:
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

    def write(self, table: pa.Table) -> None:
        data = json_lines(table).encode()
        self._file.write(data)
        self._size += len(data)

    def flush(self) -> Position:
        disk.sync(self._file)
        return {"size": self._size}

    def close(self) -> None:
        self._file.close()
