"""Sinks that take tentative tuples: every change is told, and only stable ones count once."""

from __future__ import annotations

import io
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast import disk
from holdfast.connect.callback_sink import call
from holdfast.connect.console_sink import write_console
from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.connect.parquet_sink import write_parquet
from holdfast.connect.sink import Sink, Writer
from holdfast.connect.specs import parse_sink
from holdfast.connect.upsert_sink import write_sqlite
from holdfast.core.frame import Missing, Why
from holdfast.disk import Fault
from holdfast.errors import InputError, StateError
from holdfast.frames import TIME
from holdfast.nodes.lasting_writer import LastingWriter
from holdfast.stream_events import Boundary, Tuples, Undo, View

SCHEMA = pa.schema([("server", pa.string()), ("mean", pa.float64())])
WHY = Why((Missing("load", 1_000_000),), 0.5)
Rows = list[tuple[object, ...]]


def tuples(stimes: list[int], servers: str, first_id: int | None = None) -> pa.Table:
    count = len(stimes)
    columns: dict[str, Any] = {
        "stime": pa.array([each * 1_000_000 for each in stimes]).cast(TIME),
        "server": list(servers),
        "mean": [float(each) for each in stimes],
    }
    if first_id is not None:
        columns = {"seq": list(range(first_id, first_id + count)), **columns}
    return pa.table(columns)


def tell_a_failure(writer: Writer | LastingWriter) -> None:
    """Stable at 1, tentative at 2 and 3; 2 is corrected."""
    writer.write(tuples([1, 1], "ab", 0))
    writer.write_tentative(tuples([2], "a"), WHY)
    writer.write_tentative(tuples([3], "b"), WHY)
    writer.undo(3_000_000)
    writer.write(tuples([2, 2], "ab", 2))
    writer.boundary(3_000_000)


def json_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def parquet_rows(path: Path) -> list[dict[str, Any]]:
    parts = sorted(path.glob("part-*.parquet"))
    return [row for part in parts for row in pq.read_table(part).to_pylist()]


Read = Callable[[Path], list[dict[str, Any]]]
FILES: list[tuple[Callable[..., Sink], Read]] = [
    (write_jsonl, json_rows),
    (write_parquet, parquet_rows),
]


@pytest.mark.parametrize(("make", "read"), FILES)
def test_files_tell_every_change(make: Callable[..., Sink], read: Read, tmp_path: Path) -> None:
    path = tmp_path / "busy"
    writer = make(path, tentative=True).open("busy", SCHEMA, None)
    tell_a_failure(writer)
    writer.flush()
    writer.close()
    found = read(path)
    assert [row["change"] for row in found] == [
        *("stable", "stable", "tentative", "tentative", "undo", "stable", "stable")
    ]
    assert [row["seq"] for row in found] == [0, 1, None, None, None, 2, 3]
    assert [row["server"] for row in found] == ["a", "b", "a", "b", None, "a", "b"]
    assert found[2]["why"]["share"] == 0.5
    assert found[2]["why"]["missing"][0]["stream"] == "load"
    assert all(found[index]["why"] is None for index in (0, 4, 5))


def standing(rows: list[dict[str, Any]]) -> Rows:
    """What stands when the rows are obeyed, as the pages say."""
    found: list[dict[str, Any]] = []
    for row in rows:
        if row["change"] == "undo":
            found = [
                one for one in found if one["change"] == "stable" or one["stime"] >= row["stime"]
            ]
        else:
            found.append(row)
    return [(row["change"], row["server"], row["mean"]) for row in found]


@pytest.mark.parametrize(("make", "read"), FILES)
def test_after_a_crash_what_was_tentative_is_taken_back_first(
    make: Callable[..., Sink], read: Read, tmp_path: Path
) -> None:
    sink = make(tmp_path / "busy", tentative=True)
    writer = sink.open("busy", SCHEMA, None)
    tell_a_failure(writer)
    position = writer.flush()
    writer.write(tuples([3], "a", 4))  # not in a position: it comes again
    writer.flush()
    writer.close()
    writer = sink.open("busy", SCHEMA, json.loads(json.dumps(position)))
    writer.write(tuples([3, 3], "ab", 4))
    position = writer.flush()
    writer.close()
    found = read(tmp_path / "busy")
    stable = [(row["change"], row["seq"]) for row in found if row["change"] == "stable"]
    assert stable == [("stable", each) for each in range(6)]
    assert [one[0] for one in standing(found)] == ["stable"] * 6
    writer = sink.open("busy", SCHEMA, position)
    writer.flush()
    writer.close()
    assert read(tmp_path / "busy") == found, "nothing was tentative, so nothing is taken back"


@pytest.mark.parametrize(("make", "read"), FILES)
def test_a_sink_that_failed_shows_again_what_stood_tentatively(
    make: Callable[..., Sink], read: Read, tmp_path: Path
) -> None:
    sink = make(tmp_path / "busy", tentative=True)
    problems: list[str | None] = []
    writer = LastingWriter(
        lambda position: sink.open("busy", SCHEMA, position), None, problems.append
    )
    tell_a_failure(writer)
    assert writer.flush() is not None
    disk.plant(Fault.named("ENOSPC", f"{tmp_path}/*"))
    try:
        writer.write_tentative(tuples([4], "c"), WHY)
        writer.undo(3_500_000)
        writer.write(tuples([3], "b", 4))
        assert writer.flush() is None
    finally:
        disk.plant()
    assert writer.flush() is not None
    writer.close()
    assert problems[-2] is not None
    assert problems[-1] is None
    expected = [
        *(("stable", each, mean) for each, mean in zip("abab", (1.0, 1.0, 2.0, 2.0), strict=True))
    ]
    assert sorted(standing(read(tmp_path / "busy"))) == sorted(
        [*expected, ("stable", "b", 3.0), ("tentative", "c", 4.0)]
    )


def test_a_file_is_with_tentative_tuples_or_without(tmp_path: Path) -> None:
    writer = write_jsonl(tmp_path / "busy").open("busy", SCHEMA, None)
    position = writer.flush()
    writer.close()
    with pytest.raises(StateError, match="was without tentative tuples before"):
        write_jsonl(tmp_path / "busy", tentative=True).open("busy", SCHEMA, position)


def test_own_columns_of_these_names_are_refused(tmp_path: Path) -> None:
    for sink, name in (
        (write_jsonl(tmp_path / "a", tentative=True), "change"),
        (write_parquet(tmp_path / "b", tentative=True), "why"),
        (write_sqlite(tmp_path / "c", tentative=True), "is_stable"),
    ):
        with pytest.raises(InputError, match=f"column '{name}'.* rename it"):
            sink.open("busy", pa.schema([(name, pa.string())]), None)


def select(path: Path, query: str) -> Rows:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def test_sqlite_shows_the_tentative_row_of_a_key_until_it_is_taken_back(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = write_sqlite(path, key="server", tentative=True)
    query = "SELECT server, mean, is_stable FROM busy ORDER BY server"
    writer = sink.open("busy", SCHEMA, None)
    writer.write(tuples([1, 1], "ab", 0))
    writer.write_tentative(tuples([2], "a"), WHY)
    writer.flush()
    assert select(path, query) == [("a", 2.0, 0), ("b", 1.0, 1)]
    ((why,),) = select(path, "SELECT why FROM busy WHERE NOT is_stable")
    assert json.loads(str(why)) == {
        "missing": [{"stream": "load", "since": "1970-01-01T00:00:01.000000Z"}],
        "share": 0.5,
    }
    writer.undo(3_000_000)
    assert select(path, query) == [("a", 2.0, 0), ("b", 1.0, 1)], "not before what follows"
    writer.flush()
    assert select(path, query) == [("a", 1.0, 1), ("b", 1.0, 1)]
    writer.write(tuples([2, 2], "ab", 2))
    writer.flush()
    assert select(path, query) == [("a", 2.0, 1), ("b", 2.0, 1)]
    writer.close()


def test_sqlite_by_id_has_both_and_forgets_what_an_earlier_life_told(tmp_path: Path) -> None:
    path = tmp_path / "out.db"
    sink = write_sqlite(path, tentative=True)
    writer = sink.open("busy", SCHEMA, None)
    tell_a_failure(writer)
    writer.flush()
    writer.close()
    query = "SELECT seq, server, is_stable FROM busy ORDER BY stime, seq"
    stable = [(0, "a", 1), (1, "b", 1), (2, "a", 1), (3, "b", 1)]
    assert select(path, query) == [*stable, (None, "b", 0)]
    sink.open("busy", SCHEMA, {}).close()
    assert select(path, query) == stable


def test_a_table_of_that_name_is_refused(tmp_path: Path) -> None:
    write_sqlite(tmp_path / "out.db").open("busy", SCHEMA, None).close()
    with pytest.raises(InputError, match="Choose another name"):
        write_sqlite(tmp_path / "out.db", tentative=True).open("busy", SCHEMA, None)


def test_a_function_gets_every_event() -> None:
    events: list[Any] = []
    tell_a_failure(call(events.append, tentative=True).open("busy", SCHEMA, None))
    assert [type(event) for event in events] == [Tuples, Tuples, Tuples, Undo, Tuples, Boundary]
    assert events[1].why == WHY
    view = View()
    for event in events:
        view.apply(event)
    assert view.stable is not None
    assert view.stable["seq"].to_pylist() == [0, 1, 2, 3]
    assert view.why == WHY


def test_the_console_says_what_is_tentative_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    monkeypatch.setattr("sys.stdout", out)
    tell_a_failure(write_console(tentative=True).open("busy", SCHEMA, None))
    lines = out.getvalue().splitlines()
    assert len(lines) == 7
    assert "tentative: load missing since 1970-01-01T00:00:01.000Z, on 50 % of the" in lines[2]
    assert "taken back: what is tentative before 1970-01-01T00:00:03.000Z" in lines[4]


def test_the_option_is_there_in_text_too(tmp_path: Path) -> None:
    for text in ("jsonl:x", "parquet:x", "sqlite:x.db,key=server", "console"):
        assert not parse_sink(f"busy={text}")[1].takes_tentative
        assert parse_sink(f"busy={text},tentative=true")[1].takes_tentative


def test_a_function_of_a_file_can_be_named_in_text(tmp_path: Path) -> None:
    file = tmp_path / "alerts.py"
    file.write_text("seen = []\n\n\ndef show(event):\n    seen.append(event)\n")
    _, sink = parse_sink(f"busy=call:{file}:show,tentative=true")
    writer = sink.open("busy", SCHEMA, None)
    writer.boundary(5)
    assert writer._function.__globals__["seen"] == [Boundary(5)]  # type: ignore[attr-defined]
    for text, problem in (
        (f"{file}", "write it as FILE.py:FUNCTION"),
        (f"{file}:hide", "defines no function 'hide'"),
        (f"{tmp_path / 'none.py'}:show", "there is no file"),
    ):
        with pytest.raises(InputError, match=problem):
            parse_sink(f"busy=call:{text}")
