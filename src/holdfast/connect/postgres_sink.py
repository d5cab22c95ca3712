"""Results as rows of a PostgreSQL table, inserted or replaced by key, with ``is_stable``.

    write_postgres("dbname=results host=db", table="busy", key="window server")

One transaction has the rows and the id after the last, in the table ``holdfast_positions`` of the
same schema. That row is locked before every commit: of two writers one waits, and then sees what
the other has done. Without key columns the key is ``seq``, the tuple id, and the table is the
stream; with them it has the newest result of each key.

With ``tentative`` the rows that may be taken back are in a table of their own, and the name is that
of a view over both, as with SQLite: ``is_stable`` says which a row is.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from holdfast.connect.committing_sink import CommittingSink
from holdfast.connect.sink import Position, Writer
from holdfast.errors import InputError

OWN_COLUMNS = ("is_stable", "why")


@dataclass(frozen=True)
class PostgresSink(CommittingSink):
    """A table of a PostgreSQL database."""

    connection: str = field(repr=False)
    table: str
    key: tuple[str, ...]

    @property
    def identity(self) -> str:
        return f"PostgresSink {self.table}"

    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        from holdfast.connect.postgres_writer import PostgresWriter

        own = [each for each in schema if each.name not in ("seq", "stime", "tmax")]
        names = ["seq", "stime", *(each.name for each in own)]
        self.check_columns(names)
        for name in OWN_COLUMNS if self.tentative else ():
            if name in names:
                raise InputError(
                    f"{output} has a column {name!r}, which is what a sink with tentative tuples "
                    f"calls its own; rename it in the query"
                )
        return PostgresWriter(self, self.table or output, pa.schema(own), position)

    def __str__(self) -> str:
        return f"PostgreSQL table {self.table}" if self.table else "PostgreSQL database"


def write_postgres(
    connection: str, *, table: str = "", key: str = "", tentative: bool = False
) -> PostgresSink:
    """Insert each tuple into a table, or replace the one with the same key; exactly once.

    connection  how to reach the database, as libpq takes it: "dbname=results host=db" or
                "service=results". Passwords belong into its password file.
    table       defaults to the output's name; made if it is not there. May name its schema.
    key         column names, separated by blanks; by default ``seq``, the tuple id.
    tentative   also show tentative rows, in a view with ``is_stable`` and ``why``.
    """
    return PostgresSink(connection, table, tuple(key.split()) or ("seq",), tentative=tentative)
