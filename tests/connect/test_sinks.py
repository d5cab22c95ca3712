"""Every sink writes tuples, and file sinks go back to a position."""

from __future__ import annotations

import datetime
import decimal
import json
import math
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.connect.callback_sink import call
from holdfast.connect.console_sink import write_console
from holdfast.connect.json_values import json_lines
from holdfast.connect.jsonl_sink import write_jsonl
from holdfast.connect.parquet_sink import write_parquet
from holdfast.errors import InputError, StateError

START = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)


def tuples(first: int, count: int) -> pa.Table:
    times = [START + datetime.timedelta(seconds=i) for i in range(first, first + count)]
    return pa.table(
        {
            "seq": range(first, first + count),
            "stime": pa.array(times, pa.timestamp("us", "UTC")),
            "server": [f"s{i}" for i in range(first, first + count)],
        }
    )


SCHEMA = tuples(0, 1).schema


def test_json_lines_are_cut_back_and_continued(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "busy.jsonl"
    writer = write_jsonl(path).open("busy", SCHEMA, None)
    writer.write(tuples(0, 3))
    position = writer.flush()
    writer.write(tuples(3, 5))
    writer.close()
    assert len(path.read_text().splitlines()) == 8
    writer = write_jsonl(path).open("busy", SCHEMA, position)
    writer.write(tuples(3, 1))
    writer.close()
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [row["seq"] for row in rows] == [0, 1, 2, 3]
    assert rows[1] == {"seq": 1, "stime": "2024-01-01T00:00:01.000000Z", "server": "s1"}


def test_a_new_run_replaces_an_old_file(tmp_path: Path) -> None:
    path = tmp_path / "busy.jsonl"
    path.write_text("old\n")
    write_jsonl(path).open("busy", SCHEMA, None).close()
    assert path.read_text() == ""


def test_an_output_that_lost_data_is_not_continued(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="has 0 bytes, but 10 were written before"):
        write_jsonl(tmp_path / "busy.jsonl").open("busy", SCHEMA, {"size": 10})
    with pytest.raises(StateError, match="lacks part 0"):
        write_parquet(tmp_path / "busy").open("busy", SCHEMA, {"parts": 1})


def test_json_has_a_text_for_everything() -> None:
    table = pa.table(
        {
            "x": [math.nan, 1.5],
            "d": [decimal.Decimal("1.20"), None],
            "b": [b"\x00\xff", None],
            "day": [datetime.date(2024, 1, 2), None],
            "l": [[math.inf], []],
            "w": [{"start": START}, None],
        }
    )
    rows = [json.loads(line) for line in json_lines(table).splitlines()]
    assert rows[0] == {
        "x": "NaN",
        "d": "1.20",
        "b": "AP8=",
        "day": "2024-01-02",
        "l": ["Infinity"],
        "w": {"start": "2024-01-01T00:00:00.000000Z"},
    }
    assert rows[1]["x"] == 1.5
    assert rows[1]["d"] is None


def test_doubles_keep_every_bit_in_json() -> None:
    numbers = [0.1 + 0.2, 1e-320, 2.0**53 + 2, 1 / 3]
    lines = json_lines(pa.table({"x": numbers})).splitlines()
    assert [json.loads(line)["x"] for line in lines] == numbers


def test_parquet_parts_are_whole_and_cut_back(tmp_path: Path) -> None:
    directory = tmp_path / "busy"
    writer = write_parquet(directory).open("busy", SCHEMA, None)
    writer.write(tuples(0, 2))
    writer.write(tuples(2, 1))
    assert list(directory.iterdir()) == []
    position = writer.flush()
    assert writer.flush() == position
    writer.write(tuples(3, 4))
    writer.flush()
    (directory / "notes.txt").write_text("not ours")
    assert pq.read_table(directory / "part-000000.parquet")["seq"].to_pylist() == [0, 1, 2]
    writer = write_parquet(directory).open("busy", SCHEMA, position)
    writer.write(tuples(3, 1))
    writer.flush()
    names = sorted(path.name for path in directory.iterdir())
    assert names == ["notes.txt", "part-000000.parquet", "part-000001.parquet"]
    assert pq.read_table(directory / "part-000001.parquet")["seq"].to_pylist() == [3]


def test_parquet_wants_a_directory(tmp_path: Path) -> None:
    (tmp_path / "busy").write_text("")
    with pytest.raises(InputError, match="is a file; a Parquet output is a directory"):
        write_parquet(tmp_path / "busy").open("busy", SCHEMA, None)


def test_the_console_gets_a_line_for_each_tuple(capsys: pytest.CaptureFixture[str]) -> None:
    writer = write_console(lines=2).open("busy", SCHEMA, None)
    writer.write(tuples(0, 5))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "2024-01-01 00:00:00.000 busy  server=s0",
        "2024-01-01 00:00:01.000 busy  server=s1",
        "  … and 3 more tuples of busy",
    ]


def test_a_callback_gets_tables() -> None:
    got: list[pa.Table] = []
    writer = call(got.append).open("busy", SCHEMA, None)
    writer.write(tuples(0, 0))
    writer.write(tuples(0, 2))
    assert [table.num_rows for table in got] == [2]
