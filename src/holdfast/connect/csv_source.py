"""CSV files."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import pyarrow as pa
import pyarrow.csv as arrow_csv

from holdfast.connect.lines import BLOCK_BYTES, LineFile, joined, parse_lines
from holdfast.connect.source import (
    Chunk,
    Position,
    Reader,
    Reject,
    Source,
    TimeOptions,
    existing_file,
)
from holdfast.errors import InputError
from holdfast.times import Duration


@dataclass(frozen=True)
class CsvSource(Source):
    """A CSV file."""

    path: str
    header: bool
    delimiter: str
    follow: bool
    block_bytes: int

    @property
    def live(self) -> bool:
        return self.follow

    def check(self) -> None:
        existing_file(self.path)

    def check_columns(self, schema: pa.Schema) -> None:
        self.open(schema, None, None).close()

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return CsvReader(self, schema, position or {})

    def __str__(self) -> str:
        return f"CSV file {self.path}"


def read_csv(
    path: str | Path,
    *,
    header: bool = True,
    delimiter: str = ",",
    follow: bool = False,
    lateness: Duration | int | None = None,
    block_bytes: int = BLOCK_BYTES,
    **time: Unpack[TimeOptions],
) -> CsvSource:
    """Rows of a CSV file. With a header, columns are found by name and others ignored.

    An empty field is null. ``follow`` waits for more at the end of the file.
    """
    return CsvSource(lateness, str(path), header, delimiter, follow, block_bytes, **time)


class CsvReader(Reader):
    """Reads every column as text; ``ingest`` makes values of it."""

    def __init__(self, source: CsvSource, schema: pa.Schema, position: Position) -> None:
        path = existing_file(source.path)
        self._delimiter = source.delimiter
        self._names = list(schema.names)
        self._columns, start = self._names, 0
        _refuse_nested(schema)
        if source.header:
            self._columns, start = self._read_header(path)
        offset = max(position.get("offset", 0), start)
        self._lines = LineFile(path, offset, source.block_bytes, source.follow, quoted=True)

    def read(self) -> Chunk | None:
        block = self._lines.read()
        self.ended = self._lines.ended
        return joined(parse_lines(block, self._parse, lambda message: f"not CSV: {message}"))

    @property
    def position(self) -> Position:
        return {"offset": self._lines.offset}

    def close(self) -> None:
        self._lines.close()

    def _read_header(self, path: Path) -> tuple[list[str], int]:
        with path.open("rb") as file:
            line = file.readline()
        if not line.strip():
            return self._names, len(line)
        table = arrow_csv.read_csv(
            pa.BufferReader(line.removeprefix(b"\xef\xbb\xbf")),
            parse_options=arrow_csv.ParseOptions(delimiter=self._delimiter),
        )
        columns = [name.strip() for name in table.column_names]
        missing = [name for name in self._names if name not in columns]
        if missing:
            raise InputError(
                f"{str(path)!r} has no column {missing[0]!r}; its header names {columns}. If it "
                f"has no header, read it with header=False"
            )
        return columns, len(line)

    def _parse(self, block: bytes) -> Chunk:
        rejects: list[Reject] = []

        def reject(row: arrow_csv.InvalidRow) -> str:
            reason = f"{row.actual_columns} fields where {row.expected_columns} were expected"
            rejects.append(Reject(reason, row.text))
            return "skip"

        table = arrow_csv.read_csv(
            pa.BufferReader(block),
            arrow_csv.ReadOptions(
                use_threads=False, block_size=len(block) + 1, column_names=self._columns
            ),
            arrow_csv.ParseOptions(
                delimiter=self._delimiter, newlines_in_values=True, invalid_row_handler=reject
            ),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(self._names, pa.binary()),
                include_columns=self._names,
                strings_can_be_null=True,
                null_values=[""],
                quoted_strings_can_be_null=False,
            ),
        )
        return Chunk(table, rejects)


def _refuse_nested(schema: pa.Schema) -> None:
    for field in schema:
        if pa.types.is_nested(field.type):
            raise InputError(
                f"a CSV file cannot hold column {field.name!r} of type {field.type}; use JSON "
                f"lines or Parquet"
            )
