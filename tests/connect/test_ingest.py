"""Rows become tuples; rows that cannot go to the dead-letter file, each with its reason."""

from __future__ import annotations

import datetime
import itertools
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.connect.csv_source import read_csv
from holdfast.connect.generator_source import generate
from holdfast.connect.ingest import FOREVER, Inlet
from holdfast.connect.jsonl_source import read_jsonl
from holdfast.errors import InputError
from tests.connect.support import SECOND, inlet, letters

HEADER = "at,server,cpu\n"


def take_all(taken: Inlet) -> pa.Table:
    while not taken.ended:
        if taken.take() == 0:
            time.sleep(0.001)
    taken._dead_letters.flush()
    taken._dead_letters.close()
    taken.close()
    return taken.waiting()


def from_csv(directory: Path, text: str, **options: object) -> pa.Table:
    (directory / "load.csv").write_bytes(text.encode("latin-1"))
    return take_all(inlet(read_csv(directory / "load.csv", **options), directory))  # type: ignore[arg-type]


def test_tuples_have_ids_and_times(tmp_path: Path) -> None:
    rows = "2024-01-01 00:00:01,a,1\n2024-01-01T00:00:00Z,b,\n2024-01-01 02:00:02+02:00,c,3\n"
    table = from_csv(tmp_path, HEADER + rows)
    assert table["seq"].to_pylist() == [0, 1, 2]
    start = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    times = [(each - start).total_seconds() for each in table["stime"].to_pylist()]
    assert times == [1, 0, 2]
    assert table["stime"] == table["tmax"] == table["at"]
    assert table["cpu"].to_pylist() == [1.0, None, 3.0]
    assert letters(tmp_path) == []


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("2024-01-01,a,much", "column 'cpu': 'much' is not of type double"),
        ("yesterday,a,1", "column 'at': 'yesterday' is not of type timestamp[us, tz=UTC]"),
        ("2024-01-01,,1", "column 'server' is null"),
        (",a,1", "column 'at' is null"),
        ("2024-01-01,a", "2 fields where 3 were expected"),
        ("2024-01-01,\xff,1", "column 'server': '\ufffd' is not of type string"),
        ("2020-01-01,a,1", "older than a boundary already sent (lateness 1 min)"),
    ],
)
def test_a_bad_csv_row_is_a_dead_letter_and_the_rest_goes_on(
    tmp_path: Path, row: str, reason: str
) -> None:
    text = HEADER + f"2024-01-01,before,1\n{row}\n2024-01-01,after,2\n"
    table = from_csv(tmp_path, text)
    assert table["server"].to_pylist() == ["before", "after"]
    assert table["seq"].to_pylist() == [0, 1]
    (letter,) = letters(tmp_path)
    assert letter["source"] == "load"
    assert letter["reason"] == reason


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("no JSON", "not JSON as declared: Invalid value."),
        ('{"at": "2024-01-01", "server": "x", "cpu": "high"}', "not JSON as declared"),
        ('{"at": "2024-01-01", "server": 7}', "not JSON as declared"),
        ('{"at": "2024-01-01"}', "column 'server' is null"),
        ('{"server": "x"}', "column 'at' is null"),
        ("[1, 2]", "not JSON as declared"),
        ('{"at": "2024-01-01", "server": "x"', "not JSON as declared"),
        ('{"at": "2023-01-01", "server": "x"}', "older than a boundary already sent"),
    ],
)
def test_a_bad_json_line_is_a_dead_letter_and_the_rest_goes_on(
    tmp_path: Path, line: str, reason: str
) -> None:
    good = '{"at": "2024-01-01", "server": "good", "cpu": 1}\n'
    (tmp_path / "load.jsonl").write_text(good * 3 + line + "\n" + good * 4)
    table = take_all(inlet(read_jsonl(tmp_path / "load.jsonl"), tmp_path))
    assert table["server"].to_pylist() == ["good"] * 7
    (letter,) = letters(tmp_path)
    assert letter["reason"].startswith(reason)


def test_tables_of_other_types_are_made_to_fit(tmp_path: Path) -> None:
    columns = pa.schema(
        [pa.field("at", pa.int64()), pa.field("server", pa.string()), pa.field("n", pa.int32())]
    )
    table = pa.table(
        {
            "server": pa.array(["a", "b", "c", "d"]).dictionary_encode(),
            "n": [1.0, 2.5, 3.0, 2.0**40],
            "at": pa.array([5, 6, 7, 8], pa.int16()),
        }
    )
    taken = take_all(inlet(generate([table]), tmp_path, columns=columns))
    assert taken["server"].to_pylist() == ["a", "c"]
    assert [letter["row"]["server"] for letter in letters(tmp_path)] == ["b", "d"]


def test_times_nobody_can_show_are_dead_letters(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("at", pa.int64()), pa.field("server", pa.string())])
    table = pa.table({"at": [0, 2**62, -(2**62), 1], "server": list("abcd")})
    taken = take_all(inlet(generate([table]), tmp_path, columns=columns))
    assert taken["server"].to_pylist() == ["a", "d"]
    assert len(letters(tmp_path)) == 2


def test_types_that_can_never_fit_are_an_error(tmp_path: Path) -> None:
    table = pa.table({"at": [[1]], "server": ["a"], "cpu": [1.0]})
    with pytest.raises(InputError, match=r"column 'at' is declared timestamp.*list<"):
        take_all(inlet(generate([table]), tmp_path))
    with pytest.raises(InputError, match="there is no column 'at'"):
        take_all(inlet(generate([table.drop_columns(["at"])]), tmp_path))


def test_the_boundary_follows_the_newest_tuple_less_the_lateness(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("at", pa.int64()), pa.field("server", pa.string())])
    tables = [pa.table({"at": [at * SECOND], "server": ["a"]}) for at in (10, 17, 12, 30)]
    taken = inlet(generate(tables, lateness="5 seconds"), tmp_path, columns=columns)
    boundaries = []
    while not taken.ended:
        if taken.take():
            boundaries.append(taken.boundary // SECOND)
    assert boundaries == [5, 12, 12, 25]
    assert taken.boundary == FOREVER
    assert taken.own_boundary == 25 * SECOND
    released = taken.release(17 * SECOND)
    assert sum(each.table.num_rows for each in released) == 2
    assert taken.waiting_tuples == 2
    taken.close()


def test_without_a_time_column_tuples_take_the_time_of_arrival(tmp_path: Path) -> None:
    columns = pa.schema([pa.field("server", pa.string())])
    before = time.time_ns() // 1000
    taken = inlet(
        generate([pa.table({"server": ["a", "b"]})]), tmp_path, stime=None, columns=columns
    )
    while not taken.ended:
        taken.take()
    stime = taken.waiting()["stime"].cast(pa.int64()).to_pylist()
    assert before <= stime[0] == stime[1] <= time.time_ns() // 1000
    assert taken.own_boundary <= stime[0] + SECOND
    taken.close()


times = st.lists(st.integers(0, 60), min_size=1, max_size=40)


@settings(max_examples=40, deadline=None)
@given(times=times, cuts=st.lists(st.integers(1, 39), max_size=5), lateness=st.integers(0, 20))
def test_dead_letters_do_not_depend_on_how_the_input_was_read(
    times: list[int], cuts: list[int], lateness: int
) -> None:
    columns = pa.schema([pa.field("at", pa.int64()), pa.field("server", pa.string())])
    whole = pa.table({"at": np.array(times) * SECOND, "server": ["a"] * len(times)})
    edges = sorted({0, *(cut for cut in cuts if cut < len(times)), len(times)})
    parts = [whole.slice(low, high - low) for low, high in itertools.pairwise(edges)]
    outcomes = []
    for tables in ([whole], parts):
        with TemporaryDirectory() as name:
            source = generate(tables, lateness=lateness * SECOND)
            taken = take_all(inlet(source, Path(name), columns=columns))
            outcomes.append((taken.to_pylist(), letters(Path(name))))
    assert outcomes[0] == outcomes[1]
    assert taken.num_rows + len(outcomes[0][1]) == len(times)


def test_a_saved_inlet_goes_on(tmp_path: Path) -> None:
    text = HEADER + "".join(f"2024-01-01 00:00:{i:02},s{i},1\n" for i in range(30))
    (tmp_path / "load.csv").write_text(text)
    source = read_csv(tmp_path / "load.csv", block_bytes=200)
    first = inlet(source, tmp_path)
    first.take()
    first.take()
    saved, waiting = json.loads(json.dumps(first.save())), first.waiting()
    first.close()
    second = inlet(source, tmp_path, saved=saved)
    second.restore_waiting(waiting)
    table = take_all(second)
    assert table["server"].to_pylist() == [f"s{i}" for i in range(30)]
    assert table["seq"].to_pylist() == list(range(30))
