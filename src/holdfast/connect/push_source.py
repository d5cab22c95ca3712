"""A source that producers push tables into."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.connect.source import Chunk, Position, Reader, Source


@dataclass(frozen=True)
class PushSource(Source):
    """A source that somebody pushes tables into."""

    @property
    def is_pushed(self) -> bool:
        return True

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return PushReader()

    def __str__(self) -> str:
        return "producers"


class PushReader(Reader):
    """Gives out what was pushed."""

    def __init__(self) -> None:
        self._tables: deque[pa.Table] = deque()

    def push(self, table: pa.Table) -> None:
        self._tables.append(table)

    def read(self) -> Chunk | None:
        return Chunk(self._tables.popleft()) if self._tables else None

    @property
    def position(self) -> Position:
        return {}
