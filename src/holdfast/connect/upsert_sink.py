"""Results as rows of an SQLite table, inserted or replaced by key: writing twice changes nothing.

Without key columns the key is the tuple id, and the table is the stream. With key columns the
table has the newest result of each key, as a screen or a service that looks things up wants it.

With tentative tuples the name is that of a view over two tables, ``NAME_stable`` and
``NAME_tentative``: a key has its tentative row where there is one and its stable row else, and the
columns ``is_stable`` and ``why`` say which. So the stable rows are the same whatever was tentative
beside them, and taking tentative rows back brings the stable ones to light again.
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
from holdfast.connect.changes import why_value
from holdfast.connect.json_values import jsonable
from holdfast.connect.sink import Position, Sink, Writer
from holdfast.core.frame import Why
from holdfast.disk import Operation
from holdfast.errors import InputError
from holdfast.frames import TIME
from holdfast.gained import table_gains

_OWN = ("is_stable", "why")


@dataclass(frozen=True)
class SqliteSink(Sink):
    """A table of an SQLite database."""

    path: str
    table: str
    key: tuple[str, ...]
    tentative: bool = False

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        names = ["seq", "stime", *(name for name in schema.names if name not in ("seq", "stime"))]
        self.check_columns(names)
        path, table = Path(self.path), self.table or output
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self.tentative:
            return SqliteWriter(path, table, names, self.key, schema)
        for each in _OWN:
            if each in names:
                raise InputError(
                    f"{output} has a column {each!r}, which is what a sink with tentative tuples "
                    f"calls its own; rename it in the query"
                )
        return TentativeSqliteWriter(path, table, names, self.key, schema)

    def __str__(self) -> str:
        return f"SQLite database {self.path}"


def write_sqlite(
    path: str | Path, table: str = "", key: str = "", tentative: bool = False
) -> SqliteSink:
    """Insert each tuple into a table, or replace the one with the same key.

    ``table`` defaults to the output's name. ``key`` are column names, separated by blanks; by
    default it is ``seq``, the tuple id. With ``tentative`` it is a view with two more columns:
    ``is_stable`` (1 or 0), and ``why``, JSON, of tentative rows. They vanish when they are taken
    back, in one transaction with the stable rows that follow.
    """
    return SqliteSink(str(path), table, tuple(key.split()) or ("seq",), tentative)


class SqliteWriter(Writer):
    """One transaction for each flush; a table that is there gains what the output has gained."""

    def __init__(
        self,
        path: Path,
        table: str,
        names: list[str],
        key: tuple[str, ...],
        schema: pa.Schema,
    ) -> None:
        disk.check(Operation.CREATE, path)
        self._path = path
        self._connection = sqlite3.connect(path, check_same_thread=False)
        self._names = names
        columns, keys = _listed(names), _listed(key)
        self._connection.execute(
            f"CREATE TABLE IF NOT EXISTS {_quoted(table)} ({columns}, PRIMARY KEY ({keys}))"
        )
        self._gain(table, schema)
        newer = "WHERE excluded.seq >= seq" if "seq" not in key else ""
        self._insert = f"{_insert(table, names)} {_or_replace(names, key)} {newer}"

    def _gain(self, table: str, schema: pa.Schema) -> None:
        found = self._connection.execute(f"PRAGMA table_info({_quoted(table)})")
        for field in table_gains({str(row[1]) for row in found}, schema):
            self._connection.execute(
                f"ALTER TABLE {_quoted(table)} ADD COLUMN {_quoted(field.name)}"
            )

    def write(self, table: pa.Table) -> None:
        self._execute(self._insert, self._rows(table, self._names))

    def flush(self) -> Position:
        disk.check(Operation.SYNC, self._path)
        with _as_disk():
            self._connection.commit()
        return {}

    def close(self) -> None:
        self._connection.close()

    def _execute(self, statement: str, rows: Any) -> None:
        disk.check(Operation.WRITE, self._path)
        with _as_disk():
            self._connection.executemany(statement, rows)

    @staticmethod
    def _rows(table: pa.Table, names: list[str]) -> Any:
        columns = [[_value(each) for each in table[name].to_pylist()] for name in names]
        return zip(*columns, strict=True)


class TentativeSqliteWriter(SqliteWriter):
    """Stable and tentative rows in a table each, and a view over both."""

    def __init__(
        self,
        path: Path,
        table: str,
        names: list[str],
        key: tuple[str, ...],
        schema: pa.Schema,
    ) -> None:
        stable, tentative = f"{table}_stable", f"{table}_tentative"
        super().__init__(path, stable, names, key, schema)
        by_id = key == ("seq",)
        self._told = [name for name in names if name != "seq"]
        columns = [*self._told, "why"]
        unique = "" if by_id else f", PRIMARY KEY ({_listed(key)})"
        self._tentative = _quoted(tentative)
        replaces = "" if by_id else _or_replace(columns, key)
        self._insert_tentative = f"{_insert(tentative, columns)} {replaces}"
        run = self._connection.execute
        run(f"CREATE TABLE IF NOT EXISTS {self._tentative} ({_listed(columns)}{unique})")
        self._gain(tentative, schema)
        run(f"DELETE FROM {self._tentative}")  # an earlier life's; the stream tells it again
        self._make_view(table, stable, () if by_id else key, names)
        self._connection.commit()

    def _make_view(self, name: str, stable: str, key: tuple[str, ...], names: list[str]) -> None:
        hidden = ""
        if key:
            same = " AND ".join(f"t.{_quoted(each)} IS s.{_quoted(each)}" for each in key)
            hidden = f"WHERE NOT EXISTS (SELECT 1 FROM {self._tentative} t WHERE {same})"
        told = ", ".join("NULL AS seq" if each == "seq" else _quoted(each) for each in names)
        try:
            self._connection.execute(f"DROP VIEW IF EXISTS {_quoted(name)}")
            self._connection.execute(
                f"CREATE VIEW {_quoted(name)} AS "
                f"SELECT {_listed(names)}, 1 AS is_stable, NULL AS why "
                f"FROM {_quoted(stable)} s {hidden} "
                f"UNION ALL SELECT {told}, 0, why FROM {self._tentative}"
            )
        except sqlite3.OperationalError as error:
            raise InputError(
                f"{name!r} cannot be a view in the database: {error}. With tentative tuples it is "
                f"one; a table of that name is of a sink without them. Choose another name"
            ) from None

    def write_tentative(self, table: pa.Table, why: Why | None) -> None:
        told = None if why is None else json.dumps(_why(why))
        rows = ((*row, told) for row in self._rows(table, self._told))
        self._execute(self._insert_tentative, rows)

    def undo(self, below_stime: int) -> None:
        older = f"DELETE FROM {self._tentative} WHERE stime < ?"
        self._execute(older, [(_moment(below_stime),)])


def _insert(table: str, names: list[str]) -> str:
    places = ", ".join("?" * len(names))
    return f"INSERT INTO {_quoted(table)} ({_listed(names)}) VALUES ({places})"


def _or_replace(names: list[str], key: tuple[str, ...]) -> str:
    rest = [name for name in names if name not in key]
    updates = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in rest)
    return f"ON CONFLICT ({_listed(key)}) DO UPDATE SET {updates}"


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(map(_quoted, names))


@contextmanager
def _as_disk() -> Iterator[None]:
    """A full disk, a broken one and a database that somebody locked are errors of the system."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OSError(errno.EIO, f"the SQLite database: {error}") from error


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _moment(stime: int) -> Any:
    """A tuple time as it stands in the tables; as texts they have the order of the times."""
    return _value(pa.scalar(stime).cast(TIME).as_py())


def _why(why: Why) -> dict[str, object]:
    missing = [{"stream": one.stream, "since": _moment(one.since)} for one in why.missing]
    return {**why_value(why), "missing": missing}


def _value(value: Any) -> Any:
    """What SQLite can hold; nested values and times as text."""
    if value is None or isinstance(value, int | float | str | bytes):
        return value
    plain = jsonable(value)
    return plain if isinstance(plain, str) else json.dumps(plain)
