"""Parquet in an object store: names from ids, and what was begun is done first, with the same rows.

The store is a directory that Arrow shows as one; ``tests/servers`` has a real one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq
import pytest

from holdfast.connect import parquet_store
from holdfast.connect.parquet_sink import write_parquet
from holdfast.connect.sink import Position
from holdfast.errors import InputError, StateError
from tests.connect.test_sinks import SCHEMA, tuples

S3, AZURE = "s3://bucket/busy", "abfss://account@bucket/busy"


class Store(fs.FileSystemHandler):  # type: ignore[misc]
    """Objects in a directory; fails before or after a part is there, when told to."""

    def __init__(self, directory: Path) -> None:
        self._below = fs.SubTreeFileSystem(str(directory), fs.LocalFileSystem())
        self.fails: str | None = None
        self.listed = self.copied = 0

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        if self.fails == "before":
            raise OSError("the store is away")
        if self.fails == "after":
            stream = self._below.open_output_stream(path)
            return pa.PythonFile(_Unanswered(stream), mode="w")
        return self._below.open_output_stream(path)

    def get_file_info(self, paths: list[str]) -> Any:
        return self._below.get_file_info(paths)

    def get_file_info_selector(self, selector: Any) -> Any:
        self.listed += 1
        return self._below.get_file_info(selector)

    def get_type_name(self) -> str:
        return "store"

    def normalize_path(self, path: str) -> str:
        return path

    def copy_file(self, path: str, to: str) -> None:
        self.copied += 1
        if self.fails == "in between":
            raise OSError("no answer")
        self._below.copy_file(path, to)

    def delete_file(self, path: str) -> None:
        self._below.delete_file(path)

    def _unused(self, *_: Any, **__: Any) -> Any:
        raise AssertionError("a store is not asked for that")

    create_dir = delete_dir = delete_dir_contents = delete_root_dir_contents = _unused
    move = open_input_file = open_input_stream = open_append_stream = _unused


class _Unanswered:
    """Takes everything, and the answer is lost."""

    closed = False

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, data: Any) -> int:
        return int(self._stream.write(data) or len(data))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True
        self._stream.close()
        raise OSError("no answer")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    (tmp_path / "bucket" / "busy").mkdir(parents=True)
    made = Store(tmp_path)
    system = fs.PyFileSystem(made)
    monkeypatch.setattr(parquet_store, "file_system_of", lambda address: (system, "bucket/busy"))
    return made


def opened(
    tmp_path: Path, position: Position | None = None, address: str = S3, **options: Any
) -> Any:
    sink = write_parquet(address, **options).known_as("me", tmp_path / "sink.json")
    return sink.open("busy", SCHEMA, position)


def names(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "bucket" / "busy").iterdir())


def ids(tmp_path: Path) -> list[int]:
    found: list[int] = pq.read_table(tmp_path / "bucket" / "busy")["seq"].to_pylist()
    return sorted(found)


def test_parts_are_named_by_their_ids_and_nothing_is_listed(tmp_path: Path, store: Store) -> None:
    writer = opened(tmp_path)
    writer.write(tuples(0, 2))
    writer.write(tuples(2, 1))
    position = writer.flush()
    assert writer.flush() == position == {"next_id": 3, "tentative_until": 0}
    again = opened(tmp_path, position)
    again.write(tuples(3, 4))
    again.flush()
    assert names(tmp_path) == [
        "part-me-000000000000000-000000000000003.parquet",
        "part-me-000000000000003-000000000000007.parquet",
    ]
    assert ids(tmp_path) == list(range(7))
    assert store.listed == store.copied == 0


@pytest.mark.parametrize("fails", ["before", "after"])
@pytest.mark.parametrize("is_killed", [False, True])
def test_what_was_begun_is_done_first_with_the_same_rows(
    tmp_path: Path, store: Store, fails: str, is_killed: bool
) -> None:
    """Whether it had arrived or not, and whoever goes on: with other flushes no row is twice."""
    writer = opened(tmp_path)
    writer.write(tuples(0, 3))
    position = writer.flush()
    writer.write(tuples(3, 5))
    store.fails = fails
    with pytest.raises(OSError, match=r"the store is away|no answer"):
        writer.flush()
    store.fails = None
    again = opened(tmp_path, position)
    if is_killed:
        # It hears of fewer at first: they might arrive, in the part that was begun, so it waits.
        again.write(tuples(3, 2))
        assert not again.ready
        again.write(tuples(5, 6))
    else:
        again.write(tuples(3, 8))
    assert again.ready
    assert again.flush()["next_id"] == 11
    assert names(tmp_path)[1:] == [
        "part-me-000000000000003-000000000000008.parquet",
        "part-me-000000000000008-000000000000011.parquet",
    ]
    assert ids(tmp_path) == list(range(11))


def test_what_was_written_but_not_noted_in_the_position_is_written_the_same(
    tmp_path: Path, store: Store
) -> None:
    writer = opened(tmp_path)
    writer.write(tuples(0, 3))
    writer.flush()  # the client dies before the position is saved
    again = opened(tmp_path)
    again.write(tuples(0, 5))
    again.flush()
    assert ids(tmp_path) == list(range(5))
    assert len(names(tmp_path)) == 2


def test_where_arrow_begins_objects_empty_a_part_is_whole_or_not_there(
    tmp_path: Path, store: Store
) -> None:
    busy = tmp_path / "bucket" / "busy"
    (busy / "_begun").mkdir()
    writer = opened(tmp_path, address=AZURE)
    writer.write(tuples(0, 3))
    position = writer.flush()
    assert [*(busy / "_begun").iterdir()] == []
    writer.write(tuples(3, 2))
    store.fails = "in between"
    for _ in range(2):
        with pytest.raises(OSError, match="no answer"):
            writer.flush()
        assert ids(tmp_path) == [0, 1, 2]
    # Never under the same name: a request of the first that arrives late must not empty it.
    begun = {*(busy / "_begun").iterdir()}
    assert len(begun) == 2
    store.fails = None
    again = opened(tmp_path, position, address=AZURE)
    again.write(tuples(3, 2))
    again.flush()
    assert {*(busy / "_begun").iterdir()} == begun
    assert ids(tmp_path) == list(range(5))


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("gs://bucket/busy", "gs://bucket/busy?retry_limit_seconds=10"),
        ("gs://bucket/busy?scheme=http", "gs://bucket/busy?scheme=http&retry_limit_seconds=10"),
        ("gs://bucket/busy?retry_limit_seconds=3", "gs://bucket/busy?retry_limit_seconds=3"),
        ("s3://bucket/busy", "s3://bucket/busy"),
    ],
)
def test_no_store_is_tried_in_silence_for_minutes(
    monkeypatch: pytest.MonkeyPatch, address: str, reached: str
) -> None:
    asked: list[str] = []

    class FileSystem:
        @staticmethod
        def from_uri(uri: str) -> tuple[None, str]:
            asked.append(uri)
            return None, "bucket/busy"

    monkeypatch.setattr(fs, "FileSystem", FileSystem)
    parquet_store.file_system_of(address)
    assert asked == [reached]


def test_a_store_that_lost_a_part_is_refused(tmp_path: Path, store: Store) -> None:
    writer = opened(tmp_path)
    writer.write(tuples(0, 3))
    position = writer.flush()
    (tmp_path / "bucket" / "busy" / names(tmp_path)[0]).unlink()
    again = opened(tmp_path, position)
    again.write(tuples(3, 1))
    with pytest.raises(StateError, match=r"lacks part-me-0.*which was written before"):
        again.flush()


def test_tentative_rows_are_objects_of_their_own_in_the_order_of_names(
    tmp_path: Path, store: Store
) -> None:
    writer = opened(tmp_path, tentative=True)
    writer.write(tuples(0, 2))
    writer.write_tentative(tuples(2, 2).drop_columns(["seq"]), None)
    position = writer.flush()
    again = opened(tmp_path, position, tentative=True)
    again.write(tuples(2, 2))
    again.flush()
    tables = [pq.read_table(tmp_path / "bucket" / "busy" / name) for name in names(tmp_path)]
    changes = [set(table["change"].to_pylist()) for table in tables]
    assert {"undo"} in changes
    assert changes.index({"tentative"}) < changes.index({"undo"})
    rows = pa.concat_tables(tables)
    stable = rows.filter(pa.compute.equal(rows["change"], "stable"))
    assert stable["seq"].to_pylist() == [0, 1, 2, 3]


def test_tentative_rows_of_which_the_position_does_not_know_are_taken_back(
    tmp_path: Path, store: Store
) -> None:
    writer = opened(tmp_path, tentative=True)
    writer.write(tuples(0, 2))
    position = writer.flush()
    writer.write_tentative(tuples(2, 2).drop_columns(["seq"]), None)
    writer.flush()  # the client dies before the position is saved
    again = opened(tmp_path, position, tentative=True)
    again.write(tuples(2, 1))
    again.flush()
    found = [pq.read_table(tmp_path / "bucket" / "busy" / name) for name in names(tmp_path)]
    rows = pa.concat_tables(found).to_pylist()
    undone = [row["stime"] for row in rows if row["change"] == "undo"]
    assert len(undone) == 1
    assert all(row["stime"] < undone[0] for row in rows if row["change"] == "tentative")


def test_an_address_that_arrow_does_not_know_is_refused() -> None:
    with pytest.raises(InputError, match="no address of an object store"):
        write_parquet("nowhere://bucket/busy").open("busy", SCHEMA, None)
