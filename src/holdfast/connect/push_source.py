"""A source that is not read: producers push tables into its inlet."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.connect.source import Chunk, Position, Reader, Source


@dataclass(frozen=True)
class PushSource(Source):
    """Somebody pushes tables into it."""

    @property
    def is_pushed(self) -> bool:
        return True

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return _Nothing()

    def __str__(self) -> str:
        return "producers"


class _Nothing(Reader):
    """There is nothing to read: rows are handed to the inlet (``Inlet.push``)."""

    def read(self) -> Chunk | None:
        return None

    @property
    def position(self) -> Position:
        return {}
