"""Commits tuples to PostgreSQL, in one transaction with the id after the last."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.connect.changes import why_value
from holdfast.connect.committing_writer import (
    CommittingWriter,
    StableRows,
    Step,
    TakeBack,
    TentativeRows,
)
from holdfast.connect.extras import library
from holdfast.connect.json_values import jsonable
from holdfast.connect.sink import Position
from holdfast.errors import InputError
from holdfast.frames import TIME
from holdfast.gained import table_gains

if TYPE_CHECKING:
    from holdfast.connect.postgres_sink import PostgresSink

POSITIONS = "holdfast_positions"
# Nothing waits without end: for the server, for a lock, for a statement.
_OPTIONS = "-c lock_timeout=10000 -c statement_timeout=60000"
_CONNECT_SECONDS = 10


class PostgresWriter(CommittingWriter):
    """One connection at a time."""

    def __init__(
        self, sink: PostgresSink, table: str, own: pa.Schema, position: Position | None
    ) -> None:
        super().__init__(f"PostgreSQL table {table}", position, sink.tentative)
        self._library = library("psycopg", "postgresql")
        self._sql = library("psycopg.sql", "postgresql")
        self._sink_options = sink
        *schema, name = table.split(".")
        self._schema_name = schema[0] if schema else None
        self._table = f"{name}_stable" if sink.tentative else name
        self._tentative = f"{name}_tentative"
        self._view = name
        self._owner = f"{name} {sink.writer}"
        self._key = sink.key
        self._own = own
        self._names = ["seq", "stime", *own.names]
        self._connection: Any = None

    def committed(self) -> int:
        """Locks the writer's position until the transaction ends."""
        with self._as_passing():
            if self._connection is None:
                self._connect()
            self._connection.rollback()
            found = self._run(
                "SELECT next_id FROM {} WHERE writer = %s FOR UPDATE",
                [self._name(POSITIONS)],
                [self._owner],
            ).fetchone()
        return int(found[0])

    def commit(self, steps: list[Step], next_id: int) -> None:
        with self._as_passing():
            for step in steps:
                self._do(step)
            self._run(
                "UPDATE {} SET next_id = %s WHERE writer = %s",
                [self._name(POSITIONS)],
                [next_id, self._owner],
            )
            self._connection.commit()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _do(self, step: Step) -> None:
        match step:
            case StableRows(table):
                self._upsert(self._table, self._names, table, self._key)
            case TentativeRows(table, why):
                told = None if why is None else json.dumps(jsonable(why_value(why)))
                names = [*self._names[1:], "why"]
                reasons = pa.array([told] * table.num_rows, pa.string())
                by_id = self._key == ("seq",)
                rows = table.append_column("why", reasons)
                self._upsert(self._tentative, names, rows, () if by_id else self._key)
            case TakeBack(below_stime):
                moment = pa.scalar(below_stime).cast(TIME).as_py()
                self._run(
                    "DELETE FROM {} WHERE stime < %s", [self._name(self._tentative)], [moment]
                )

    def _upsert(
        self, table: str, names: Sequence[str], rows: pa.Table, key: tuple[str, ...]
    ) -> None:
        """COPY into a temporary table, then one statement: however many rows there are."""
        passing = f"passing_{len(names)}_{abs(hash(table)) % 10_000}"
        fields = [self._name(table), self._sql.Identifier(passing)]
        self._run(
            "CREATE TEMPORARY TABLE IF NOT EXISTS {1} (LIKE {0}) ON COMMIT DELETE ROWS", fields
        )
        self._run("DELETE FROM {1}", fields)
        listed = self._listed(names)
        copy = self._sql.SQL("COPY {} ({}) FROM STDIN").format(fields[1], listed)
        columns = [[_value(each) for each in rows[name].to_pylist()] for name in names]
        with self._connection.cursor() as cursor, cursor.copy(copy) as copying:
            for row in zip(*columns, strict=True):
                copying.write_row(row)
        if not key:
            self._run("INSERT INTO {0} ({2}) SELECT {2} FROM {1}", [*fields, listed])
            return
        newest = "seq" if "seq" in names else "stime"
        rest = [name for name in names if name not in key]
        updates = self._sql.SQL(", ").join(
            self._sql.SQL("{0} = EXCLUDED.{0}").format(self._sql.Identifier(name)) for name in rest
        )
        self._run(
            "INSERT INTO {0} ({2}) SELECT DISTINCT ON ({3}) {2} FROM {1} ORDER BY {3}, {4} DESC "
            "ON CONFLICT ({3}) DO UPDATE SET {5}",
            [*fields, listed, self._listed(key), self._sql.Identifier(newest), updates],
        )

    # -- opening ------------------------------------------------------------------------

    def _connect(self) -> None:
        self._connection = self._library.connect(
            self._sink_options.connection,
            connect_timeout=_CONNECT_SECONDS,
            options=_OPTIONS,
            application_name="holdfast",
        )
        self._run(
            "CREATE TABLE IF NOT EXISTS {} (writer text PRIMARY KEY, next_id bigint NOT NULL)",
            [self._name(POSITIONS)],
        )
        self._run(
            "INSERT INTO {} VALUES (%s, 0) ON CONFLICT DO NOTHING",
            [self._name(POSITIONS)],
            [self._owner],
        )
        columns = [*self._declared(), self._sql.SQL("PRIMARY KEY ({})").format(self._keys())]
        self._make(self._table, columns)
        if self._sink_options.tentative:
            self._make_tentative()
        self._connection.commit()

    def _make_tentative(self) -> None:
        by_id = self._key == ("seq",)
        columns = [*self._declared()[1:], self._sql.SQL("why jsonb")]
        if not by_id:
            columns.append(self._sql.SQL("PRIMARY KEY ({})").format(self._keys()))
        self._make(self._tentative, columns)
        hidden = self._sql.SQL("true")
        if not by_id:
            same = self._sql.SQL(" AND ").join(
                self._sql.SQL("t.{0} = s.{0}").format(self._sql.Identifier(each))
                for each in self._key
            )
            hidden = self._sql.SQL("NOT EXISTS (SELECT 1 FROM {} t WHERE {})").format(
                self._name(self._tentative), same
            )
        self._run(
            "CREATE OR REPLACE VIEW {} AS SELECT {}, true AS is_stable, NULL::jsonb AS why "
            "FROM {} s WHERE {} UNION ALL SELECT NULL, {}, false, why FROM {}",
            [
                self._name(self._view),
                self._listed(self._names),
                self._name(self._table),
                hidden,
                self._listed(self._names[1:]),
                self._name(self._tentative),
            ],
        )

    def _make(self, table: str, columns: list[Any]) -> None:
        listed = self._sql.SQL(", ").join(columns)
        self._run("CREATE TABLE IF NOT EXISTS {} ({})", [self._name(table), listed])
        self._gain(table)

    def _gain(self, table: str) -> None:
        """A table that is there gets the columns that the output has gained."""
        found = self._run("SELECT * FROM {} LIMIT 0", [self._name(table)])
        there = [each.name for each in found.description]
        for field in table_gains(there, self._own):
            if self._sink_options.tentative:  # the view cannot change the order of its columns
                self._run("DROP VIEW IF EXISTS {}", [self._name(self._view)])
            added = self._sql.Identifier(field.name)
            kind = _kind(field.type)
            self._run(f"ALTER TABLE {{}} ADD COLUMN {{}} {kind}", [self._name(table), added])

    def _declared(self) -> list[Any]:
        kinds = {"seq": "bigint NOT NULL", "stime": "timestamptz NOT NULL"}
        kinds |= {each.name: _kind(each.type) for each in self._own}
        return [
            self._sql.SQL("{} " + kinds[name]).format(self._sql.Identifier(name))
            for name in self._names
        ]

    # -- statements ---------------------------------------------------------------------

    def _run(self, text: str, parts: Sequence[Any] = (), values: Sequence[Any] = ()) -> Any:
        return self._connection.execute(self._sql.SQL(text).format(*parts), values or None)

    def _name(self, table: str) -> Any:
        places = [self._schema_name, table] if self._schema_name else [table]
        return self._sql.Identifier(*places)

    def _listed(self, names: Sequence[str]) -> Any:
        return self._sql.SQL(", ").join(map(self._sql.Identifier, names))

    def _keys(self) -> Any:
        return self._listed(self._key)

    @contextmanager
    def _as_passing(self) -> Iterator[None]:
        """A server that is away or busy passes; a table that does not fit does not."""
        errors = self._library.errors
        try:
            yield
        except (errors.OperationalError, errors.InterfaceError, errors.InternalError) as error:
            self.close()
            raise ConnectionError(f"PostgreSQL: {str(error).strip()}") from error
        except errors.Error as error:
            self.close()
            raise InputError(
                f"{self._sink} does not take the tuples: {str(error).strip()}. If it was made by "
                f"something else, name another table"
            ) from error


def _kind(kind: pa.DataType) -> str:
    """The type of a column in a table that is made."""
    if pa.types.is_boolean(kind):
        return "boolean"
    if pa.types.is_integer(kind):
        return "bigint"
    if pa.types.is_floating(kind):
        return "double precision"
    if pa.types.is_decimal(kind):
        return f"numeric({kind.precision}, {kind.scale})"
    if pa.types.is_timestamp(kind):
        return "timestamptz" if kind.tz else "timestamp"
    if pa.types.is_date(kind):
        return "date"
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        return "bytea"
    return "jsonb" if pa.types.is_nested(kind) else "text"


def _value(value: object) -> object:
    """What COPY takes: nested values as JSON."""
    return json.dumps(jsonable(value)) if isinstance(value, dict | list) else value
