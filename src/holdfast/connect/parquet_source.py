"""Parquet files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast.connect.source import Chunk, Position, Reader, Source, TimeOptions, existing_file
from holdfast.errors import InputError
from holdfast.times import Duration

BLOCK_ROWS = 131_072


@dataclass(frozen=True)
class ParquetSource(Source):
    """A Parquet file."""

    path: str
    block_rows: int

    @property
    def live(self) -> bool:
        return False

    def check(self) -> None:
        existing_file(self.path)

    def check_columns(self, schema: pa.Schema) -> None:
        self.open(schema, None, None).close()

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return ParquetReader(self, schema, position or {})

    def __str__(self) -> str:
        return f"Parquet file {self.path}"


def read_parquet(
    path: str | Path,
    *,
    lateness: Duration | int | None = None,
    block_rows: int = BLOCK_ROWS,
    **time: Unpack[TimeOptions],
) -> ParquetSource:
    """Rows of a Parquet file, in the file's order; columns are found by name."""
    return ParquetSource(lateness, str(path), block_rows, **time)


class ParquetReader(Reader):
    """Reads a row group at a time and hands it on in blocks."""

    def __init__(self, source: ParquetSource, schema: pa.Schema, position: Position) -> None:
        path = existing_file(source.path)
        try:
            self._file = pq.ParquetFile(path)
        except pa.ArrowInvalid as error:
            raise InputError(f"{source.path!r} is not a Parquet file ({error})") from None
        self._names = list(schema.names)
        have = self._file.schema_arrow.names
        missing = [name for name in self._names if name not in have]
        if missing:
            raise InputError(f"{source.path!r} has no column {missing[0]!r}; it has {have}")
        self._block_rows = source.block_rows
        self._group = position.get("row_group", 0)
        self._row = position.get("row", 0)
        self._table: pa.Table | None = None

    def read(self) -> Chunk | None:
        while self._group < self._file.num_row_groups:
            if self._table is None:
                self._table = self._file.read_row_group(self._group, columns=self._names)
            block = self._table.slice(self._row, self._block_rows)
            self._row += block.num_rows
            if self._row >= self._table.num_rows:
                self._group, self._row, self._table = self._group + 1, 0, None
            if block.num_rows:
                return Chunk(block)
        self.ended = True
        return None

    @property
    def position(self) -> Position:
        return {"row_group": self._group, "row": self._row}

    def close(self) -> None:
        self._file.close()
