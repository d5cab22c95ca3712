"""Long runs are merged beside the buckets, and nobody can tell by what comes out."""

from __future__ import annotations

import json
from collections import deque
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.packed import PackedState
from holdfast.spark import aside, task
from holdfast.spark.aside import MergeTask, merge_files, to_merge
from holdfast.spark.compaction import how_many_to_merge
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.packing import pack, unpack
from holdfast.spark.resident_task import Order
from holdfast.spark.runs import read_run, write_run
from holdfast.spark.state import EMPTY, Run, RunFile, State
from holdfast.spark.step_directories import StepDirectory
from holdfast.testing import ipc_bytes, split
from tests.spark.networks import every_kind_of_state, some_tables
from tests.spark.residents import Places
from tests.spark.support import SECOND

BUCKETS = 24
LONG = 6


def buckets_of(engine: Engine) -> list[Bucket]:
    length = 6 * SECOND // BUCKETS
    return split(some_tables(engine, 7, 900), [at * length for at in range(BUCKETS + 1)])


def content(packed: PackedState) -> list[tuple[str, str, int, bytes]]:
    return sorted(
        (each.operator, each.family, each.partition, ipc_bytes(each.rows.combine_chunks()))
        for each in packed.parts
    )


class Way:
    """One way through the buckets."""

    def __init__(self, engine: Engine, state: State = EMPTY) -> None:
        self.engine = engine
        self.state = state
        self.outputs: list[dict[str, bytes]] = []
        self.states: list[State] = []

    def go(self, buckets: list[Bucket], waits: bool) -> Way:
        for each in buckets:
            done = self.engine.advance(self.state, [each])
            self.state = done.state
            self.states.append(self.state)
            self.outputs.append({name: ipc_bytes(each) for name, each in done.outputs.items()})
            if waits:
                self.engine._aside.wait()
        return self


@pytest.fixture
def long_runs_are_few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aside, "LONG_ROWS", LONG)
    monkeypatch.setattr(aside, "_TIMES_ROWS", 0)
    monkeypatch.setattr(aside, "_EVERY_ADVANCES", 1)


@pytest.fixture(scope="module")
def plain(spark: SparkSession) -> Way:
    """Where buckets merge all runs."""
    engine = Engine(every_kind_of_state(spark))
    return Way(engine).go(buckets_of(engine), waits=False)


def addresses(state: State) -> set[str]:
    return {run.address for *_, run in state.all_runs()}


@pytest.mark.jobs
@pytest.mark.parametrize("waits", [True, False])
def test_what_comes_out_is_the_same(
    spark: SparkSession, plain: Way, long_runs_are_few_rows: None, waits: bool
) -> None:
    engine = Engine(every_kind_of_state(spark))
    way = Way(engine).go(buckets_of(engine), waits)
    engine._aside.wait()
    assert way.outputs == plain.outputs
    assert content(pack(engine, way.state)) == content(pack(plain.engine, plain.state))
    assert not engine._aside._in_vain
    if waits:
        merged = {each.run.address for each in engine._aside._merged}
        used = [merged & addresses(each) for each in way.states]
        assert sum(map(bool, used)) > 5
    engine.close()


@pytest.mark.jobs
def test_a_state_from_before_goes_on_as_if_nothing_was_merged(
    spark: SparkSession, plain: Way, long_runs_are_few_rows: None
) -> None:
    """Also with merges that were begun for a later state with the same runs."""
    engine = Engine(every_kind_of_state(spark))
    buckets = buckets_of(engine)
    way = Way(engine).go(buckets, waits=True)
    for at in (BUCKETS // 3, BUCKETS // 2, BUCKETS - 3):
        again = Way(engine, way.states[at]).go(buckets[at + 1 :], waits=True)
        assert again.outputs == plain.outputs[at + 1 :]
    engine.close()


@pytest.mark.jobs
def test_changes_since_a_state_are_all_there(
    spark: SparkSession, plain: Way, long_runs_are_few_rows: None
) -> None:
    """Marks of what was deleted are not lost in a merge of runs from before and after it."""
    engine, other = (Engine(every_kind_of_state(spark)) for _ in range(2))
    buckets = buckets_of(engine)
    way = Way(engine).go(buckets, waits=True)
    for at in range(2, BUCKETS - 1, 3):
        base = unpack(other, pack(engine, way.states[at]))
        for later in (at + 1, (at + BUCKETS) // 2, BUCKETS - 1):
            changes = pack(engine, way.states[later], way.states[at])
            laid = unpack(other, changes, base)
            assert content(pack(other, laid)) == content(pack(plain.engine, plain.states[later])), (
                at,
                later,
            )
    engine.close()
    other.close()


@pytest.mark.jobs
def test_nothing_is_merged_for_a_state_of_an_older_boundary(
    spark: SparkSession, long_runs_are_few_rows: None
) -> None:
    engine = Engine(every_kind_of_state(spark))
    way = Way(engine).go(buckets_of(engine), waits=True)
    for each in way.states[::4]:
        merged = engine._aside.put_in_place(each)
        for one in engine._aside._merged:
            if one.boundary > each.boundary:
                assert one.run.address not in addresses(merged)
    engine.close()


@pytest.mark.jobs
def test_merges_that_fail_are_given_up(
    spark: SparkSession,
    plain: Way,
    long_runs_are_few_rows: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: object) -> None:
        raise OSError("no space left on device")

    engine = Engine(every_kind_of_state(spark))
    monkeypatch.setattr(engine._aside, "_made", fails)
    way = Way(engine).go(buckets_of(engine), waits=True)
    assert way.outputs == plain.outputs
    assert engine._aside.long_rows(0) is None
    engine.close()


@pytest.mark.jobs
def test_what_nobody_has_a_use_for_is_dropped(
    spark: SparkSession, long_runs_are_few_rows: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "_MOST_ADVANCES", 2)
    engine = Engine(every_kind_of_state(spark))
    way = Way(engine).go(buckets_of(engine), waits=True)
    assert len(engine._aside._merged) <= 3
    state = way.state
    end = state.boundary
    for step in range(1, 5):  # all windows end
        state = engine.advance(state, [], end + step * 10 * SECOND).state
        engine._aside.wait()
    assert not engine._aside._merged
    engine.close()


@pytest.mark.jobs
def test_a_state_that_has_settled_is_the_same(
    spark: SparkSession,
    plain: Way,
    long_runs_are_few_rows: None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(every_kind_of_state(spark))
    monkeypatch.setattr(engine._aside, "begin", lambda _: None)
    way = Way(engine).go(buckets_of(engine), waits=False)
    settled = engine.settled(way.state)
    assert len(addresses(settled)) < len(addresses(way.state))
    assert content(pack(engine, settled)) == content(pack(plain.engine, plain.state))
    engine.close()


def test_the_newest_long_run_swallows_older_ones() -> None:
    assert to_merge([], 10) == (0, 0)
    assert to_merge([5, 5], 10) == (0, 0)
    assert to_merge([100], 10) == (0, 1)
    assert to_merge([100, 20, 5], 10) == (1, 2)
    assert to_merge([200, 30, 20, 5], 10) == (1, 3)
    assert to_merge([100, 60, 20, 30, 5, 2], 10) == (0, 4)
    assert to_merge([100, 5, 60, 5], 10) == (0, 3)  # a short one between long ones, too


def test_what_is_long_depends_on_buckets_and_on_what_is_left_to_merge(spark: SparkSession) -> None:
    engine = Engine(every_kind_of_state(spark))
    own = engine._aside

    def long(rows: int) -> int:
        return own.long_rows(rows) or 0

    assert long(10) == aside.LONG_ROWS
    assert long(aside.LONG_ROWS) == 4 * aside.LONG_ROWS
    after = [long(10) for _ in range(100)]
    assert after[0] > after[20] > after[-1] == aside.LONG_ROWS
    runs = tuple(
        Run(RunFile(StepDirectory(Path(), 0, deque()), ""), f"{at}", [99_999, 0, 0], 0)
        for at in range(9)
    )
    own._at_work = True  # and nobody else begins
    own._begin(State(1, 0, {"sums": {"windows": (runs,)}}))
    assert long(10) > 1.9 * aside.LONG_ROWS
    engine.close()


def test_a_bucket_swallows_no_long_run() -> None:
    assert how_many_to_merge([100, 20, 10], 10) == 2
    assert how_many_to_merge([100, 20, 10], 10, long_rows=15) == 1
    assert how_many_to_merge([100, 20, 10], 10, long_rows=5) == 0


def test_runs_that_cannot_be_merged_are_left(tmp_path: Path) -> None:
    """The task ends as if nothing was: what is wrong is told by who reads the runs."""
    told = {
        "addresses": [str(tmp_path / "gone"), str(tmp_path / "gone, too")],
        "place": ["sums", "windows", 0],
        "directory": str(tmp_path),
        "step": 1,
        "keys": ["k0"],
        "first_open_slot": 0,
        "whole": True,
    }
    MergeTask().carry_out(Order(0, "{}", json.dumps(told)))
    assert not list(tmp_path.iterdir())


def test_runs_too_large_to_be_one_are_merged_without_the_oldest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(number: int, letters: int) -> str:
        table = pa.table(
            {
                "slot": [0, 0],
                "hash": [1, 2],
                "k0": ["a" * letters, "b"],
                "version": [number, number],
                "dead": [False, number == 2],
            }
        )
        write_run(str(tmp_path / f"run-{number}"), table)
        return str(tmp_path / f"run-{number}")

    runs = [run(0, 500), run(1, 10), run(2, 10)]
    monkeypatch.setattr(task, "_MOST_COLUMN_BYTES", 200)
    merge_files(runs, ("sums", "windows", 0), str(tmp_path), 9, ["k0"], 0, True)
    (made,) = tmp_path.glob("*~9")
    assert made.name.split("~")[3] == "2"
    rows = read_run(str(made)).to_pydict()
    assert rows["version"] == [2, 2]
    assert rows["dead"] == [False, True]  # not forgotten: an older run is left


@pytest.mark.jobs
def test_buckets_keep_their_tasks(spark: SparkSession) -> None:
    """They know the runs, and another one would have to read and prepare them anew."""
    places = Places(spark)
    with places.own.taken(2) as first:
        pass
    places.own._most = 3
    for _ in range(2):
        with places.own.one_beside(2) as merging:
            assert len(merging) == 1
            assert merging[0] not in first
        with places.own.taken(2) as then:
            assert list(then) == list(first)
            with places.own.one_beside(2) as again:
                assert list(again) == list(merging)
    places.own._most = 2
    with places.own.taken(3) as none, places.own.one_beside(3) as neither:
        assert not none
        assert not neither
    places.own.close()
