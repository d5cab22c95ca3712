"""Results as a directory of Parquet files; in object stores ``parquet_store`` has them.

Each flush makes one part file, of which a reader sees the whole or nothing (``parquet_parts``). The
number of the next part is the position.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.connect.changes import Changes
from holdfast.connect.parquet_parts import Parts
from holdfast.connect.parquet_store import ParquetStoreSink
from holdfast.connect.sink import Position, Sink, Writer
from holdfast.core.frame import Why
from holdfast.errors import StateError
from holdfast.times import Duration

_PART = re.compile(r"part-(\d{6,})\.parquet")
_MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class ParquetSink(Sink):
    """A directory of Parquet files."""

    path: str
    tentative: bool = False

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        changes = Changes(output, schema, position) if self.tentative else None
        return ParquetWriter(self.path, (position or {}).get("parts", 0), changes)

    def __str__(self) -> str:
        return f"Parquet directory {self.path}"


def write_parquet(
    path: str | Path, tentative: bool = False, commit_interval: Duration = "10 seconds"
) -> ParquetSink | ParquetStoreSink:
    """Write tuples into part files of a directory, one for each checkpoint that has any.

    path             a directory, or an address of an object store that Arrow knows: ``s3://``,
                     ``gs://``, ``abfss://``. How it is reached is in the environment, or in the
                     address, as Arrow's documentation says.
    tentative        every change is a row, and its column ``change`` says which: ``stable``,
                     ``tentative`` (``why`` says what it lacks) or ``undo``, which takes back the
                     tentative rows above it, and in earlier parts, that are older than its
                     ``stime``.
    commit_interval  how often a client adds an object to a store; a directory gets a part twice
                     a second.
    """
    if "://" in str(path):
        return ParquetStoreSink(str(path), commit_interval=commit_interval, tentative=tentative)
    return ParquetSink(str(path), tentative)


class ParquetWriter(Writer):
    """Collects tuples until a flush."""

    def __init__(self, path: str, parts: int, changes: Changes | None = None) -> None:
        self._place = Parts(Path(path))
        self._parts = parts
        self._tables: list[pa.Table] = []
        self._rows = 0
        names = map(_PART.fullmatch, self._place.names())
        found = {int(match[1]): match[0] for match in names if match}
        missing = [number for number in range(parts) if number not in found]
        if missing:
            raise StateError(
                f"{path!r} lacks part {missing[0]}, which was written before; put it "
                f"back, or start over with a new state directory"
            )
        for number, name in found.items():
            if number >= parts:
                self._place.remove(name)
        self._changes = changes
        told_before = None if changes is None else changes.begin()
        if told_before is not None:
            self._add(told_before)

    def write(self, table: pa.Table) -> None:
        self._add(table if self._changes is None else self._changes.stable(table))

    def write_tentative(self, table: pa.Table, why: Why | None) -> None:
        if self._changes is not None:
            self._add(self._changes.tentative(table, why))

    def undo(self, below_stime: int) -> None:
        if self._changes is not None:
            self._add(self._changes.undo(below_stime))

    def _add(self, table: pa.Table) -> None:
        if table.num_rows:
            self._tables.append(table)
            self._rows += table.num_rows
        if self._rows >= _MOST_ROWS:
            self.flush()

    def flush(self) -> Position:
        if self._tables:
            self._place.put(f"part-{self._parts:06}.parquet", pa.concat_tables(self._tables))
            self._tables, self._rows = [], 0
            self._parts += 1
        position: Position = {"parts": self._parts}
        if self._changes is not None:
            position["tentative_until"] = self._changes.tentative_until
        return position
