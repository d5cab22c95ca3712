"""Runs stay open in a worker, large ones only while their files are there, and are searched."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark import lookup_memory, lookups, open_runs
from holdfast.spark.bundles import Bundle
from holdfast.spark.compaction import divided, merge, merge_all
from holdfast.spark.hash_search import Directory, Sieve
from holdfast.spark.lookup_memory import LookupMemory
from holdfast.spark.lookups import Keys, lookup
from holdfast.spark.open_runs import (
    LargeRuns,
    OpenRun,
    SmallRuns,
    forget_gone_runs,
    from_words,
    keep_open,
    let_go,
    open_run,
)
from holdfast.spark.runs import sort_rows, write_run

# Few of each, so that many are equal.
KEYS = st.tuples(st.integers(0, 2), st.integers(-3, 3), st.integers(0, 4))


@pytest.fixture(autouse=True)
def _none_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_runs, "_large", LargeRuns())
    monkeypatch.setattr(open_runs, "_kept", SmallRuns())


def test_a_large_run_is_mapped_once_and_let_go_with_its_file(tmp_path: Path) -> None:
    large, other, small = (str(tmp_path / name) for name in ("large", "other", "small"))
    for path, rows in ((large, 1 << 18), (other, 1 << 18), (small, 10)):
        write_run(path, pa.table({"slot": np.arange(rows)}))
    first = open_run(large)
    assert open_run(large) is first
    let_go()
    Path(large).unlink()
    assert open_run(other).slot[-1] == (1 << 18) - 1
    let_go()
    assert list(open_runs._large) == [other]
    with pytest.raises(FileNotFoundError):
        open_run(large)
    open_run(other)
    Path(other).unlink()
    forget_gone_runs()
    assert not open_runs._large


def test_files_are_asked_for_once_a_task_and_not_those_it_has_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run that was written asked for all large ones: 25,000 times a bucket."""
    asked: list[Any] = []

    def exists(path: Any) -> bool:
        asked.append(path)
        return True

    monkeypatch.setattr("os.path.exists", exists)
    large = [str(tmp_path / str(number)) for number in range(3)]
    for path in large:
        write_run(path, pa.table({"slot": np.arange(1 << 18)}))
        open_run(path)
    bundle = Bundle(str(tmp_path), 7)
    for number in range(5):
        rows = pa.table({"slot": np.zeros(10, np.int64), "hash": np.arange(10)})
        bundle.take(f"sums#1~windows~{number}~0~10~0~0~7", OpenRun(rows), [])
    bundle.write()
    let_go()
    assert asked == []
    open_run(large[1])
    let_go()
    assert sorted(asked) == [large[0], large[2]]


def test_all_small_runs_of_a_state_are_kept_however_many(tmp_path: Path) -> None:
    """Looked at one after the other, each was gone when its turn came again."""
    rows = pa.table({"slot": np.arange(3)})
    for number in range(1_500):
        keep_open(str(tmp_path / str(number)), OpenRun(rows), 500, ())
    for number in range(1_500):
        open_run(str(tmp_path / str(number)))  # there is no such file


@pytest.mark.parametrize("form", ["numpy", "arrow", "table"])
def test_a_small_run_that_is_kept_does_not_keep_the_bucket_it_is_of(form: str) -> None:
    many = 100_000
    texts = pa.array([f"text {at}" for at in range(many)])
    columns: dict[str, Any] = {"slot": np.zeros(many, np.int64), "hash": np.arange(many)}
    if form != "numpy":
        columns["text"] = texts
    whole = OpenRun(pa.table(columns)) if form == "table" else OpenRun.of(columns)
    for low, high, copied in ((700, 710, True), (0, many - 1, False)):
        part = whole.part(low, high)
        hashes = part.hash
        expected = part.rows.to_pydict()
        part.stream_bytes()  # it knows its place in the whole
        part.stands_alone()
        assert part.rows.to_pydict() == expected
        assert pa.ipc.open_stream(part.stream_bytes()).read_all().equals(part.rows)
        assert np.shares_memory(part.hash, hashes) != copied
        if form == "numpy":
            base = part.hash.base
            assert (base is None or base.nbytes == 80) == copied
        elif copied:
            assert part.rows.get_total_buffer_size() < 1_000


OPENS_MANY = """
import resource, sys
import numpy as np, pyarrow as pa
from holdfast.spark.open_runs import open_run
from holdfast.spark.runs import write_run
rows = pa.table({"slot": np.arange(1 << 18)})
paths = [f"{sys.argv[1]}/{number}" for number in range(40)]
for path in paths:
    write_run(path, rows)
resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
runs = [open_run(path) for path in paths]
print(sum(int(run.slot[-1]) for run in runs))
"""


def test_more_large_runs_are_open_than_a_process_may_have_files(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENS_MANY, str(tmp_path)]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0, ended.stderr
    assert int(ended.stdout) == 40 * ((1 << 18) - 1)


def test_small_runs_are_kept_until_they_are_in_others_or_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(open_runs, "_RUN_BYTES", 10_000)
    monkeypatch.setattr(open_runs, "_MOST_KEPT_BYTES", 2 * 11_000)
    paths = [str(tmp_path / str(number)) for number in range(4)]
    for number, path in enumerate(paths):
        rows = pa.table({"slot": [number]})
        keep_open(path, OpenRun(rows), write_run(path, rows), paths[:1] if number == 1 else [])
    assert list(open_runs._kept) == paths[2:]
    read = open_run(paths[0])
    assert read.slot.tolist() == [0]
    assert open_run(paths[0]) is read
    assert list(open_runs._kept) == [paths[3], paths[0]]


def test_small_runs_that_are_kept_have_a_bound_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"slot": np.arange(100)})
    monkeypatch.setattr(open_runs, "_RUN_BYTES", 0)
    monkeypatch.setattr(open_runs, "_MOST_KEPT_BYTES", 2 * rows.nbytes)
    paths = [str(tmp_path / name) for name in "abcd"]
    for path in paths:
        write_run(path, rows)
        keep_open(path, OpenRun(rows), rows.nbytes, ())
    assert (list(open_runs._kept), open_runs._kept.bytes) == (paths[2:], 2 * rows.nbytes)
    Path(paths[3]).unlink()
    open_runs.forget_gone_runs()
    assert (list(open_runs._kept), open_runs._kept.bytes) == (paths[2:3], rows.nbytes)


def test_what_was_kept_is_what_was_written(tmp_path: Path) -> None:
    path = str(tmp_path / "run")
    whole = pa.table({"slot": np.arange(9), "name": [None, "a", "b"] * 3})
    rows = whole.slice(3, 5)
    keep_open(path, OpenRun(rows), write_run(path, rows), [])
    kept = open_run(path).rows
    open_runs._kept.clear()
    assert open_run(path).rows.equals(kept)
    assert kept["slot"].to_pylist() == [3, 4, 5, 6, 7]


@pytest.mark.parametrize("rows", [1000, 1 << 18])
def test_a_column_of_a_run_is_looked_at_where_it_is_mapped_not_copied(
    tmp_path: Path, rows: int
) -> None:
    """A copy of each column with every look made a bucket dearer the more windows were open."""
    path = str(tmp_path / "run")
    write_run(path, pa.table({"slot": np.arange(rows)}))
    run = open_run(path)
    (_, mapped) = run.rows["slot"].chunk(0).buffers()
    assert run.slot.__array_interface__["data"][0] == mapped.address
    assert run.slot.tolist() == [*range(rows)]


@pytest.mark.parametrize("spread", [2**63, 2**40, 50])
def test_hashes_are_found_where_a_binary_search_finds_them(
    spread: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where they are not spread evenly, come twice, or are beyond both ends."""
    random = np.random.default_rng(5)
    for count in (1, 2, 8, 9, 100, 5000):
        hashes = np.sort(random.integers(-spread, spread, count))
        ends = np.array([-(2**63), 2**63 - 1, hashes[0], hashes[-1]])
        wanted = np.concatenate([hashes, random.integers(-spread, spread, 300), ends])
        expected = np.searchsorted(hashes, wanted)
        assert (Directory(hashes).search(hashes, wanted) == expected).all()
        same = np.flatnonzero(np.isin(wanted, hashes))
        slots = np.repeat([0, 10, 20], [3, count, 2])
        columns = {"slot": slots, "hash": np.concatenate([[1, 2, 3], hashes, [1, 2]])}
        for many_rows in (1, 1 << 20):
            monkeypatch.setattr(open_runs, "_MANY_ROWS", many_rows)
            run = OpenRun(pa.table(columns))
            found, rows = run.equal_hashes(*run.range_of(10), wanted)
            assert found.tolist() == same.tolist()
            assert rows.tolist() == (3 + expected[same]).tolist()
            assert bool(run._aids.held) == (many_rows == 1)


class Searched(np.ndarray[Any, np.dtype[np.int64]]):
    """Hashes that count what is searched for in steps."""

    count = 0

    def searchsorted(self, v: Any, *arguments: Any, **named: Any) -> Any:
        self.count += len(v)
        return super().searchsorted(v, *arguments, **named)


@pytest.mark.parametrize("rows", [1 << 15, 40_000, (1 << 16) - 1])
def test_few_hashes_are_searched_for_in_steps(rows: int) -> None:
    """Each step waits for memory, and one in thirty was."""
    hashes = np.random.default_rng(7).integers(-(2**63), 2**63 - 1, rows)
    searched = np.sort(hashes).view(Searched)
    directory = Directory(np.asarray(searched))
    assert (directory.search(searched, hashes) == np.argsort(np.argsort(hashes))).all()
    assert searched.count < 0.01 * rows


@pytest.mark.parametrize("spread", [2**63, 2**40, 50])
def test_a_sieve_holds_back_nothing_that_is_there(spread: int) -> None:
    random = np.random.default_rng(6)
    for count in (1, 2, 100, 5000):
        hashes = np.append(random.integers(-spread, spread, count), [-(2**63), 2**63 - 1])
        assert Sieve(np.sort(hashes)).sifted(hashes).tolist() == [*range(count + 2)]


@pytest.mark.parametrize("kind", [np.int32, np.int64, np.uint64, np.float64, np.float32, np.bool_])
def test_rows_side_by_side_have_what_is_in_the_columns(kind: type) -> None:
    values: npt.NDArray[Any] = np.array([0, 1, 2**31 - 1, 0, 1] * 2000).astype(kind)
    if kind is np.float64:
        values[:3] = [np.nan, -0.0, np.inf]
    columns = {"slot": np.zeros(10_000, np.int64), "value": values, "other": np.arange(10_000)}
    columns["key"] = -columns["other"]
    run = OpenRun(pa.table(columns))
    found = run.beside(("value", "other"), ("key",))
    assert found is not None
    assert found is run.beside(("value", "other"), ("key",))
    plain = kind not in (np.float32, np.bool_)
    assert found.names == (("value",) if plain else ()) + ("other", "key")
    for at, name in enumerate(found.names):
        expected = run.plain(name)
        assert expected is not None
        values = from_words(found.rows[:, at], expected.dtype)
        assert values.dtype == expected.dtype
        assert values.tobytes() == expected.tobytes()
    assert run.beside((), ("key",)) is None
    assert (run.beside(("key",), ("value",)) is not None) == plain
    assert run.is_long
    assert not OpenRun(pa.table(columns).slice(0, 100)).is_long


ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 7), st.booleans(), st.integers()).map(
        lambda row: (row[0] * 10, row[1], row[2], row[3] % 100)
    ),
    max_size=12,
    unique_by=lambda row: row[:2],
)


def made(rows: list[tuple[int, int, bool, int]], text: bool) -> OpenRun:
    """A run in which several keys share a hash."""
    slot, key, dead, value = ([row[at] for row in rows] for at in range(4))
    columns = {
        "slot": pa.array(slot, pa.int64()),
        "hash": pa.array([each % 3 - 1 for each in key], pa.int64()),
        "k0": pa.array([str(each) for each in key]) if text else pa.array(key, pa.int64()),
        "value": pa.array(value, pa.int64()),
        # What never lies side by side with others, and what only does in some runs.
        "name": pa.array([str(each) for each in value]),
        "maybe": pa.array([each % 7 or None for each in value], pa.int64()),
        "dead": pa.array(dead, pa.bool_()),
    }
    return OpenRun(sort_rows(pa.table(columns)))


@pytest.mark.parametrize(
    ("beside_from", "room"), [(0, 1 << 20), (4, 1 << 20), (100, 1 << 20), (0, 500), (0, 0)]
)
@given(runs=st.lists(ROWS, max_size=5), text=st.booleans(), split=st.integers(0, 5))
def test_the_newest_row_of_each_key_is_found_before_and_after_runs_become_one(
    runs: list[list[tuple[int, int, bool, int]]],
    text: bool,
    split: int,
    beside_from: int,
    room: int,
) -> None:
    """Also where rows of all runs, of large ones, or of none lie side by side."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_runs, "_BESIDE_ROWS", beside_from)
        patch.setattr(lookups, "_MANY_KEYS", 1)
        patch.setattr(lookup_memory, "MEMORY", LookupMemory(room))
        find_in_all_forms(runs, text, split)


def find_in_all_forms(runs: list[list[tuple[int, int, bool, int]]], text: bool, split: int) -> None:
    newest = {(slot, key): (value, dead) for run in runs for slot, key, dead, value in run}
    alive = {place: value for place, (value, dead) in newest.items() if not dead}
    places = [(slot, key) for slot in (0, 10, 20, 30) for key in range(8)]
    keys = Keys(
        np.array([slot for slot, _ in places]),
        np.array([key % 3 - 1 for _, key in places]),
        (pa.array([str(key) if text else key for _, key in places]),),
    )
    opened = [made(run, text) for run in runs if run]
    forms = [opened]
    if opened:
        kept, swallowed = opened[:split], opened[split:]
        one = [merge(swallowed, ["k0"], 0, not kept)] if swallowed else []
        forms.append([*kept, *one])
    for form in forms:
        found, rows = lookup(form, keys, ["k0"], ["name", "value", "maybe"])
        values = [] if rows is None else rows["value"].to_pylist()
        if rows is not None:
            assert rows["name"].to_pylist() == [str(each) for each in values]
            assert rows["maybe"].to_pylist() == [each % 7 or None for each in values]
        hit = [place for place, is_there in zip(places, found, strict=True) if is_there]
        assert dict(zip(hit, values, strict=True)) == alive


@given(runs=st.lists(ROWS.filter(len), min_size=1, max_size=4), first_open=st.integers(0, 30))
def test_rows_that_do_not_replace_each_other_all_stay_but_for_what_is_closed(
    runs: list[list[tuple[int, int, bool, int]]], first_open: int
) -> None:
    rows = merge([made(run, False) for run in runs], None, first_open, False).rows
    assert sort_rows(rows).equals(rows)
    columns = (rows[name].to_pylist() for name in ("slot", "k0", "dead", "value"))
    expected = [row for run in runs for row in run if row[0] >= first_open]
    assert sorted(zip(*columns, strict=True)) == sorted(expected)


@given(st.lists(st.lists(KEYS, max_size=40), min_size=1, max_size=4), st.integers(1, 30))
def test_merged_in_pieces_rows_are_those_of_one_merge(
    keys: list[list[tuple[int, int, int]]], piece_rows: int
) -> None:
    """Equal hashes, hashes of several keys, and slots that are over among them."""
    runs = []
    for version, rows in enumerate(keys):
        slot, hashes, key = (np.array([row[at] for row in rows], np.int64) for at in range(3))
        columns = {"slot": slot, "hash": hashes, "version": np.full(len(rows), version)}
        dead = pa.array((key + version) % 3 == 0)
        texts = pa.array([None if each == 2 else str(each) for each in key], pa.string())
        runs.append(OpenRun(sort_rows(pa.table({**columns, "key": texts, "dead": dead}))))
    pieces = list(divided(runs, piece_rows))
    for whole in (True, False):
        once = merge(runs, ["key"], 1, whole).rows
        parts = [merge(each, ["key"], 1, whole).rows for each in pieces]
        assert pa.concat_tables(parts).equals(once)
    total = sum(map(len, runs))
    assert len(pieces) == max(1, -(-total // piece_rows))
    assert sum(len(run) for piece in pieces for run in piece) == total


@given(runs=st.lists(ROWS.filter(len), min_size=1, max_size=4), first_open=st.integers(0, 30))
def test_runs_of_several_queries_are_merged_at_once_as_each_by_itself(
    runs: list[list[tuple[int, int, bool, int]]], first_open: int
) -> None:
    opened = [made(run, False) for run in runs]
    # The same keys in all of them: they are not those of the others.
    parts = [(opened, True, first_open), (opened[-1:], False, 0), (opened[-1:], True, 0)]
    for run, (each, whole, oldest) in zip(merge_all(parts, ["k0"]), parts, strict=True):
        assert run.rows.equals(merge(each, ["k0"], oldest, whole).rows)
        assert pa.ipc.open_stream(run.stream_bytes()).read_all().equals(run.rows)


@pytest.mark.parametrize("seed", range(3))
def test_newer_runs_that_most_keys_are_not_in_are_sifted(seed: int) -> None:
    random = np.random.default_rng(seed)
    names = random.integers(-(2**63), 2**63 - 1, 20_000)
    newest: dict[int, int] = {}
    runs = []
    for number, count in enumerate((20_000, 3_000, 500, 7)):
        chosen = random.permutation(len(names))[:count]
        newest |= {int(each): number for each in chosen}
        columns = {
            "slot": np.zeros(count, np.int64),
            "hash": names[chosen],
            "k0": chosen,
            "value": np.full(count, number),
        }
        runs.append(OpenRun(sort_rows(pa.table(columns))))
    wanted = random.permutation(len(names))[:2_000]
    for run in runs[1:]:
        own, others = run.sifted(run.hash), run.sifted(names[wanted])
        assert own is not None
        assert others is not None
        assert len(own) == len(run)
        assert len(others) < 0.4 * len(wanted)
    keys = Keys(np.zeros(len(wanted), np.int64), names[wanted], (pa.array(wanted),))
    found, rows = lookup(runs, keys, ["k0"], ["value"])
    assert found.all()
    assert rows is not None
    assert rows["value"].to_pylist() == [newest[int(each)] for each in wanted]
