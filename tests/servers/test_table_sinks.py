"""PostgreSQL, Delta and Iceberg as sinks, the real ones: each tuple once, whoever else writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import deltalake
import psycopg
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog

from benchmarks.postgres_server import PostgresServer
from holdfast.connect.delta_sink import write_delta
from holdfast.connect.iceberg_sink import write_iceberg
from holdfast.connect.postgres_sink import write_postgres
from holdfast.connect.sink import Sink, Writer
from holdfast.errors import InputError, StateError
from holdfast.frames import SEQ, STIME, TIME
from tests.servers.support import topic_name

pytestmark = [pytest.mark.thorough]

WINDOW = pa.struct([("start", TIME), ("end", TIME)])
OWN = pa.schema(
    [pa.field("window", WINDOW), pa.field("server", pa.string()), pa.field("cpu", pa.float64())]
)


@dataclass(frozen=True)
class Place:
    """A sink, and what it has."""

    sink: Callable[..., Sink]
    rows: Callable[[], list[dict[str, Any]]]

    def open(self, position: Any = None, writer: str = "me", **options: Any) -> Writer:
        return self.sink(**options).known_as(writer).open("busy", OWN, position)

    def ids(self) -> list[int]:
        return sorted(each["seq"] for each in self.rows())


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer() as started:
        yield started


@pytest.fixture(params=["postgresql", "delta", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    match request.param:
        case "delta":
            path = tmp_path / "busy"
            return Place(
                lambda **options: write_delta(path, **options),
                lambda: deltalake.DeltaTable(path).to_pyarrow_table().to_pylist(),
            )
        case "iceberg":
            catalog, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}"
            return Place(
                lambda **options: write_iceberg(
                    "shop.busy", catalog=catalog, warehouse=warehouse, **options
                ),
                lambda: _iceberg(catalog, warehouse).scan().to_arrow().to_pylist(),
            )
        case _:
            started: PostgresServer = request.getfixturevalue("server")
            return postgres_place(started)


def postgres_place(started: PostgresServer) -> Place:
    table = topic_name("busy").replace("-", "_")
    return Place(
        lambda **options: write_postgres(started.connection, table=table, **options),
        lambda: _postgres(started, table),
    )


def _iceberg(catalog: str, warehouse: str) -> Any:
    return SqlCatalog("default", uri=catalog, warehouse=warehouse).load_table("shop.busy")


def _postgres(started: PostgresServer, table: str) -> list[dict[str, Any]]:
    with psycopg.connect(started.connection) as connection:
        cursor = connection.execute(f"SELECT * FROM {table} ORDER BY seq, stime")
        names = [each.name for each in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor]


def tuples(first: int, end: int, server: str = "s") -> pa.Table:
    ids = list(range(first, end))
    times = pa.array([1_700_000_000_000_000 + each for each in ids]).cast(TIME)
    windows = pa.StructArray.from_arrays([times, times], fields=list(WINDOW))
    columns = [pa.array(ids), times, windows, pa.array([server] * len(ids)), pa.array(ids)]
    columns[-1] = columns[-1].cast(pa.float64())
    return pa.table(columns, schema=pa.schema([SEQ, STIME, *OWN]))


def tentative(first: int, end: int, server: str = "s") -> pa.Table:
    return tuples(first, end, server).drop_columns(["seq"])


def test_what_was_committed_is_left_out_whatever_the_client_knows(place: Place) -> None:
    first = place.open()
    first.write(tuples(0, 10))
    assert first.flush()["next_id"] == 10
    first.write(tuples(10, 15))
    first.write(tuples(15, 20))  # the client dies before it has noted the next
    first.flush()
    first.close()
    again = place.open({"next_id": 10})
    again.write(tuples(10, 25))
    assert again.flush()["next_id"] == 25
    again.close()
    assert place.ids() == list(range(25))


def test_a_writer_that_is_behind_adds_nothing_twice(place: Place) -> None:
    """Two of one name, as after a cut: the one that was left for dead writes once more."""
    old, new = place.open(), place.open()
    old.write(tuples(0, 5))
    old.flush()
    new.write(tuples(0, 10))
    new.flush()
    old.write(tuples(5, 12))
    old.flush()
    for each in (old, new):
        each.close()
    assert place.ids() == list(range(12))


def test_a_sink_that_was_set_back_is_refused(place: Place) -> None:
    writer = place.open({"next_id": 7})
    writer.write(tuples(7, 9))
    with pytest.raises(StateError, match="has tuples up to id 0, but 7 were written"):
        writer.flush()
    writer.close()


def test_ids_are_of_who_writes(place: Place) -> None:
    first = place.open()
    first.write(tuples(0, 3))
    first.flush()
    first.close()
    other = place.open(writer="other")
    other.write(tuples(3, 5))
    assert other.flush()["next_id"] == 5
    other.close()
    assert place.ids() == [0, 1, 2, 3, 4]


def test_tentative_rows_and_what_takes_them_back(place: Place) -> None:
    writer = place.open(tentative=True)
    writer.write(tuples(0, 2))
    writer.write_tentative(tentative(2, 4), None)
    position = writer.flush()
    assert len(place.rows()) == 4
    writer.close()
    again = place.open(position, tentative=True)
    again.write(tuples(2, 5))
    assert again.flush()["tentative_until"] == 0
    again.close()
    rows = place.rows()
    if "change" in rows[0]:
        changes = [each["change"] for each in rows]
        assert sorted(changes) == ["stable"] * 5 + ["tentative"] * 2 + ["undo"]
    else:
        assert [each["is_stable"] for each in rows] == [True] * 5
        assert place.ids() == [0, 1, 2, 3, 4]


def test_between_reading_and_committing_somebody_else_wrote(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit fails or waits; nothing is appended on top of what was not seen."""
    old, new = place.open(), place.open()
    old.write(tuples(0, 5))
    old.flush()
    old.write(tuples(5, 10))
    if type(old).__name__ == "PostgresWriter":
        old.close()  # there a lock is held from reading on: nobody can come between
        new.close()
        return
    committed = old.committed  # type: ignore[attr-defined]

    def and_another_writes() -> int:
        found: int = committed()
        new.write(tuples(0, 8))
        new.flush()
        return found

    monkeypatch.setattr(old, "committed", and_another_writes)
    with pytest.raises(OSError, match="table"):
        old.flush()
    monkeypatch.undo()
    again = place.open({"next_id": 5})
    again.write(tuples(5, 10))
    again.flush()
    assert place.ids() == list(range(10))


@pytest.mark.parametrize("tentative", [False, True])
def test_the_table_gains_the_column_that_the_output_has_gained(
    place: Place, tentative: bool
) -> None:
    writer = place.open(tentative=tentative)
    writer.write(tuples(0, 2))
    position = writer.flush()
    writer.close()
    wider = pa.schema([*list(OWN)[:2], pa.field("zone", pa.string()), OWN.field(2)])
    sink = place.sink(tentative=tentative).known_as("me")
    for first in (2, 4):
        writer = sink.open("busy", wider, position)
        more = tuples(first, first + 2).add_column(4, "zone", pa.array(["west", None]))
        writer.write(more.select(["seq", "stime", *wider.names]))
        position = writer.flush()
        writer.close()
    # Each life of a sink with tentative tuples begins with a row that takes back what may stand.
    found = {each["seq"]: each["zone"] for each in place.rows() if each["seq"] is not None}
    assert found == {0: None, 1: None, 2: "west", 3: None, 4: "west", 5: None}


def test_a_key_has_its_newest_result(server: PostgresServer) -> None:
    place = postgres_place(server)
    writer = place.open(key="server", tentative=True)
    writer.write(tuples(0, 3, "a"))
    writer.write(tuples(3, 4, "b"))
    writer.flush()
    assert [(each["server"], each["cpu"]) for each in place.rows()] == [("a", 2.0), ("b", 3.0)]
    writer.write_tentative(tentative(9, 10, "a"), None)
    writer.flush()
    shown = {each["server"]: (each["cpu"], each["is_stable"]) for each in place.rows()}
    assert shown == {"a": (9.0, False), "b": (3.0, True)}
    writer.undo(1_800_000_000_000_000)
    writer.write(tuples(4, 5, "b"))
    writer.flush()
    shown = {each["server"]: (each["cpu"], each["is_stable"]) for each in place.rows()}
    assert shown == {"a": (2.0, True), "b": (4.0, True)}
    writer.close()


def test_a_server_that_was_killed(server: PostgresServer, tmp_path: Path) -> None:
    # So each run of pytest that starts leaves the directory of all of them.
    tmp_path.parents[1].chmod(0o700)
    place = postgres_place(server)
    writer = place.open()
    writer.write(tuples(0, 5))
    position = writer.flush()
    writer.write(tuples(5, 10))
    server.kill()
    with pytest.raises(OSError, match="PostgreSQL"):
        writer.flush()
    server.start()
    writer = place.open(position)
    writer.write(tuples(5, 10))
    writer.flush()
    writer.close()
    assert place.ids() == list(range(10))


def test_a_table_of_something_else_is_refused(server: PostgresServer) -> None:
    with psycopg.connect(server.connection) as connection:
        connection.execute("CREATE TABLE occupied (other text)")
    writer = write_postgres(server.connection, table="occupied").open("busy", OWN, None)
    writer.write(tuples(0, 1))
    with pytest.raises(InputError, match="occupied does not take the tuples"):
        writer.flush()
    writer.close()


def test_small_files_of_a_delta_table_are_put_together(tmp_path: Path) -> None:
    writer = write_delta(tmp_path / "busy", compact_after=5).known_as("me").open("busy", OWN, None)
    for number in range(5):
        writer.write(tuples(number, number + 1))
        writer.flush()
    table = deltalake.DeltaTable(tmp_path / "busy")
    assert len(table.file_uris()) == 1
    assert sorted(table.to_pyarrow_table()["seq"].to_pylist()) == list(range(5))
    writer.write(tuples(5, 6))
    assert writer.flush()["next_id"] == 6


def test_small_files_of_an_iceberg_table_are_put_together(tmp_path: Path) -> None:
    catalog, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}"
    sink = write_iceberg("shop.busy", catalog=catalog, warehouse=warehouse, compact_after=5)
    writer = sink.known_as("me").open("busy", OWN, None)
    for number in range(5):
        writer.write(tuples(number, number + 1))
        writer.flush()
    table = _iceberg(catalog, warehouse)
    assert len(list(table.scan().plan_files())) == 1
    assert sorted(table.scan().to_arrow()["seq"].to_pylist()) == list(range(5))
    writer.write(tuples(5, 6))
    assert writer.flush()["next_id"] == 6
    again = sink.known_as("me").open("busy", OWN, {"next_id": 5})
    again.write(tuples(5, 8))
    assert again.flush()["next_id"] == 8
    found = _iceberg(catalog, warehouse).scan().to_arrow()["seq"].to_pylist()
    assert sorted(found) == list(range(8))
