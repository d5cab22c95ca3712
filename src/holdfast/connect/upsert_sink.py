"""Results as rows of an SQLite table, inserted or replaced by key: writing twice changes nothing.

Without key columns the key is the tuple id, and the table is the stream. With key columns the
table has the newest result of each key, as a screen or a service that looks things up wants it.
"""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast import disk
from holdfast.connect.json_values import jsonable
from holdfast.connect.sink import Position, Sink, Writer
from holdfast.disk import Operation
from holdfast.errors import InputError


@dataclass(frozen=True)
class SqliteSink(Sink):
    """A table of an SQLite database."""

    path: str
    table: str
    key: tuple[str, ...]

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        return SqliteWriter(Path(self.path), self.table or output, schema, self.key)

    def __str__(self) -> str:
        return f"SQLite database {self.path}"


def write_sqlite(path: str | Path, table: str = "", key: str = "") -> SqliteSink:
    """Insert each tuple into a table, or replace the one with the same key.

    ``table`` defaults to the output's name. ``key`` are column names, separated by blanks; by
    default it is ``seq``, the tuple id.
    """
    return SqliteSink(str(path), table, tuple(key.split()) or ("seq",))


class SqliteWriter(Writer):
    """One transaction for each flush."""

    def __init__(self, path: Path, table: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
        names = ["seq", "stime", *(name for name in schema.names if name not in ("seq", "stime"))]
        for each in key:
            if each not in names:
                raise InputError(f"there is no column {each!r} to be the key; there are {names}")
        path.parent.mkdir(parents=True, exist_ok=True)
        disk.check(Operation.CREATE, path)
        self._path = path
        self._connection = sqlite3.connect(path, check_same_thread=False)
        columns = ", ".join(map(_quoted, names))
        keys = ", ".join(map(_quoted, key))
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {_quoted(table)} ({columns}, PRIMARY KEY ({keys}))"
        )
        rest = [name for name in names if name not in key]
        updates = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in rest)
        newer = "WHERE excluded.seq >= seq" if "seq" in rest else ""
        self._names = names
        self._insert = (
            f"INSERT INTO {_quoted(table)} ({columns}) VALUES ({', '.join('?' * len(names))}) "
            f"ON CONFLICT ({keys}) DO UPDATE SET {updates} {newer}"
        )

    def write(self, table: pa.Table) -> None:
        disk.check(Operation.WRITE, self._path)
        columns = [[_value(each) for each in table[name].to_pylist()] for name in self._names]
        with _as_disk():
            self._connection.executemany(self._insert, zip(*columns, strict=True))

    def flush(self) -> Position:
        disk.check(Operation.SYNC, self._path)
        with _as_disk():
            self._connection.commit()
        return {}

    def close(self) -> None:
        self._connection.close()


@contextmanager
def _as_disk() -> Iterator[None]:
    """A full disk, a broken one and a database that somebody locked are errors of the system."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(errno.EIO, f"the SQLite database: {error}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _value(value: Any) -> Any:
    """What SQLite can hold; nested values and times as text."""
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    plain = jsonable(value)
    return plain if isinstance(plain, str) else json.dumps(plain)
