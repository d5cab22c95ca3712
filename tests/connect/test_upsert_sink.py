"""The SQLite sink: written twice, it holds everything once."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.connect.upsert_sink import write_sqlite
from holdfast.errors import InputError
from holdfast.frames import TIME

SCHEMA = pa.schema([("server", pa.string()), ("mean", pa.float64())])


def tuples(first: int, servers: list[str], means: list[float]) -> pa.Table:
    count = len(servers)
    return pa.table(
        {
            "seq": list(range(first, first + count)),
            "stime": pa.array(range(count)).cast(TIME),
            "server": servers,
            "mean": means,
        }
    )


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_by_id_every_tuple_is_there_once(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    for _ in range(2):
        writer = write_sqlite(path).open("busy", SCHEMA, None)
        writer.write(tuples(0, ["a", "b"], [1.0, 2.0]))
        writer.flush()
        writer.close()
    assert rows(path, "SELECT seq, server, mean FROM busy ORDER BY seq") == [
        (0, "a", 1.0),
        (1, "b", 2.0),
    ]


def test_by_key_the_newest_stands_whatever_comes_again(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    writer = write_sqlite(path, table="latest", key="server").open("busy", SCHEMA, None)
    writer.write(tuples(0, ["a", "b", "a"], [1.0, 2.0, 3.0]))
    writer.write(tuples(0, ["a"], [1.0]))
    writer.flush()
    writer.close()
    found = rows(path, "SELECT server, mean FROM latest ORDER BY server")
    assert found == [("a", 3.0), ("b", 2.0)]


def test_what_is_not_flushed_is_not_there(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    writer = write_sqlite(path).open("busy", SCHEMA, None)
    writer.write(tuples(0, ["a"], [1.0]))
    writer.close()
    assert rows(path, "SELECT * FROM busy") == []


def test_a_key_that_is_no_column_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no column 'host'"):
        write_sqlite(tmp_path / "out.db", key="host").open("busy", SCHEMA, None)


@pytest.mark.parametrize("tentative", [False, True])
def test_a_table_gains_the_column_that_the_output_has_gained(
    tmp_path: Path, tentative: bool
) -> None:
    path = tmp_path / "out.db"
    writer = write_sqlite(path, tentative=tentative).open("busy", SCHEMA, None)
    writer.write(tuples(0, ["a"], [1.0]))
    writer.flush()
    writer.close()
    wider = pa.schema([SCHEMA.field(0), pa.field("zone", pa.string()), SCHEMA.field(1)])
    writer = write_sqlite(path, tentative=tentative).open("busy", wider, {})
    writer.write(tuples(1, ["b"], [2.0]).append_column("zone", pa.array(["west"])))
    if tentative:
        unsure = tuples(2, ["c"], [3.0]).append_column("zone", pa.array(["east"]))
        writer.write_tentative(unsure.drop_columns(["seq"]), None)
    writer.flush()
    writer.close()
    found = rows(path, "SELECT seq, server, zone, mean FROM busy ORDER BY server")
    assert found[:2] == [(0, "a", None, 1.0), (1, "b", "west", 2.0)]
    assert found[2:] == ([(None, "c", "east", 3.0)] if tentative else [])


def test_a_table_of_something_else_gains_nothing(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE busy (seq, other, PRIMARY KEY (seq))")
    connection.close()
    writer = write_sqlite(path).open("busy", SCHEMA, None)
    with pytest.raises(OSError, match="no column named"):
        writer.write(tuples(0, ["a"], [1.0]))
    writer.close()
    assert [row[1] for row in rows(path, "PRAGMA table_info(busy)")] == ["seq", "other"]
