"""Steps of several queries that are carried out at once leave what each of them alone would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.spark import task
from holdfast.spark.aggregate_state import GroupState
from holdfast.spark.bundles import Bundle
from holdfast.spark.column_plans import Scan
from holdfast.spark.column_task import Node
from holdfast.spark.continuous_files import collect_news
from holdfast.spark.folds import Fold
from holdfast.spark.groups import in_stream_order
from holdfast.spark.joint_steps import rounds, run_steps
from holdfast.spark.open_runs import OpenRun
from holdfast.spark.runs import read_run
from holdfast.spark.state import EMPTY, State, collect_runs
from holdfast.spark.step_directories import StepDirectories
from holdfast.spark.task import LAZY, StepPlan
from holdfast.spark.time_aggregate import FAMILY, TimeAggregate, first_open_slot
from holdfast.windows import TimeWindow

PARTITIONS, BUCKETS = 3, 24
FOLDS = (
    Fold("add_wide", "v", ("total", "total_high"), (pa.int64(), pa.int32())),
    Fold("within_bigint", None, (), (), beside=("total", "total_high")),
    Fold("count", None, ("count",), (pa.int64(),)),
    Fold("max", "w", ("most",), (pa.string(),)),
)
TIMES = [pa.field(name, pa.int64()) for name in ("stime", "tmax", "seq")]
VALUES = [pa.field("v", pa.int64()), pa.field("w", pa.string())]
WINDOWS = {
    "one": (TimeWindow(10, 10), pa.int64()),
    "two": (TimeWindow(7, 7), pa.int64()),
    "text": (TimeWindow(8, 3), pa.string()),
    "none": (TimeWindow(5, 5), None),
    "small": (TimeWindow(12, 12), pa.int32()),
}


def plan(name: str, folds: tuple[Fold, ...] = FOLDS) -> StepPlan:
    window, kind = WINDOWS[name]
    keys = [] if kind is None else [pa.field("k0", kind)]
    given = pa.schema([*TIMES, pa.field("hash", pa.int64()), *keys, *VALUES])
    kept = [field for each in folds for field in each.results]
    output = pa.schema([*TIMES, pa.field("slot", pa.int64()), *keys, *kept])
    state = GroupState(tuple(field.name for field in keys), folds)
    return StepPlan(name, TimeAggregate(window, state), given, output, PARTITIONS)


class Side:
    """One of the two ways, with a state of its own."""

    def __init__(self, root: Path, at_once: bool) -> None:
        root.mkdir()
        self.plans = [plan(name) for name in WINDOWS]
        self._at_once = at_once
        self._directories = StepDirectories(root)
        self._steps = 0
        self.state: State = EMPTY

    def advance(self, rows: dict[str, pa.Table], boundary: int) -> Any:
        """What comes out, and what is told of windows."""
        self._steps += 1
        directory = self._directories.take(self._steps)
        told = {
            "before": self.state.boundary,
            "boundary": boundary,
            "version": self._steps,
            "step": self._steps,
            "directory": str(directory.path),
            "runs": self.state.paths(),
            "keeps": {"one": LAZY},
        }
        bundle = Bundle(str(directory.path), self._steps)
        every = range(PARTITIONS)
        given = [(each, rows[each.operator]) for each in self.plans]
        if self._at_once:
            made = run_steps(given, [every] * len(given), told, bundle)
        else:
            made = [run_steps([each], [every], told, bundle)[0] for each in given]
        bundle.write()
        news = [(each.family, each.opened, each.ended) for each in collect_news(directory)]
        first_open = {
            (name, FAMILY): first_open_slot(window, boundary)
            for name, (window, _) in WINDOWS.items()
        }
        runs = collect_runs(self.state, directory, PARTITIONS, first_open)
        self.state = State(self._steps, boundary, runs)
        emitted = [
            in_stream_order(pa.concat_tables([each.output.empty_table(), *tables])).to_pydict()
            for each, tables in zip(self.plans, made, strict=True)
        ]
        return emitted, news

    def files(self) -> list[Any]:
        """What the runs of each partition hold."""
        return [
            (operator, partition, read_run(run.address).to_pydict())
            for operator, _, partition, run in sorted(
                self.state.all_runs(), key=lambda each: each[:3]
            )
        ]


@pytest.mark.parametrize("collide", [False, True])
def test_queries_at_once_and_one_by_one(tmp_path: Path, collide: bool) -> None:
    at_once, alone = Side(tmp_path / "at_once", True), Side(tmp_path / "alone", False)
    random = np.random.default_rng(5)
    emitted = 0
    for bucket in range(BUCKETS):
        rows = {}
        for each in at_once.plans:
            count = int(random.integers(0, 400)) if bucket % 5 else 0
            stime = np.sort(random.integers(bucket * 4, bucket * 4 + 4, count))
            keys = random.integers(0, 300, count)
            # Spread over all bits, as hashes are; or two keys share each of them.
            hashes = keys // 2 if collide else keys * 0x1E3779B97F4A7C15
            kind = WINDOWS[each.operator][1]
            columns = {
                "stime": stime,
                "tmax": stime,
                "seq": np.arange(count) + bucket * 1000,
                "hash": np.zeros(count, np.int64) if kind is None else hashes,
                "k0": pa.array(keys).cast(kind or pa.int64()),
                "v": random.integers(-9, 9, count),
                "w": pa.array([f"w{one}" for one in random.integers(0, 9, count)], pa.string()),
            }
            table = pa.table(columns)
            rows[each.operator] = table.select(each.given.names).cast(each.given)
        one = at_once.advance(rows, bucket * 4 + 4)
        other = alone.advance(rows, bucket * 4 + 4)
        assert one == other
        assert at_once.files() == alone.files()
        emitted += sum(len(each["stime"]) for each in one[0])
    assert emitted


def test_runs_whose_texts_would_be_too_long_for_one_column_stay_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, bounded = Side(tmp_path / "plain", True), Side(tmp_path / "bounded", True)
    most = 2_500
    for bucket in range(8):
        count = 100
        rows = {}
        for each in plain.plans:
            keys = np.arange(count) + bucket * count
            columns = {
                **dict.fromkeys(("stime", "tmax", "seq"), np.full(count, bucket % 2)),
                "hash": keys * 0x1E3779B97F4A7C15 if WINDOWS[each.operator][1] else keys * 0,
                "k0": pa.array(keys).cast(WINDOWS[each.operator][1] or pa.int64()),
                "v": keys,
                "w": pa.array([f"word {bucket}"] * count),
            }
            rows[each.operator] = pa.table(columns).select(each.given.names).cast(each.given)
        boundary = 30 if bucket == 7 else 2
        expected = plain.advance(rows, boundary)
        with monkeypatch.context() as patch:
            patch.setattr(task, "_MOST_COLUMN_BYTES", most)
            assert bounded.advance(rows, boundary) == expected
        if bucket == 6:
            lists = [[*side.state.all_runs()] for side in (plain, bounded)]
            assert len(lists[1]) > len(lists[0])
            for *_, run in lists[1]:
                found = OpenRun(read_run(run.address))
                assert found.widest_bytes <= most


def test_steps_that_are_alike_go_together_unless_one_reads_the_other() -> None:
    def node(name: str, step: StepPlan | None, reads: str) -> Node:
        return Node(name, Scan(reads, ((0, "stime"),)), ("stime",), step)

    other = plan("two", FOLDS[:2])
    nodes = [
        node("one", plan("one"), "source"),
        node("one>", None, "one"),
        node("two", plan("two"), "source"),
        node("other", other, "source"),
        node("below", plan("small"), "two"),
    ]
    names = [[each.name for each in together] for together in rounds(nodes)]
    assert names == [["one", "two"], ["other"], ["one>"], ["below"]]


def test_a_sum_is_refused_for_its_own_values_not_for_those_of_other_queries(tmp_path: Path) -> None:
    side = Side(tmp_path / "at_once", True)
    count = 4
    rows = {}
    for each in side.plans:
        columns = {
            **dict.fromkeys(("stime", "tmax", "seq"), np.arange(count)),
            "hash": np.zeros(count, np.int64),
            "k0": pa.array(np.zeros(count, np.int64)).cast(WINDOWS[each.operator][1] or pa.int64()),
            "v": np.full(count, 2**60),
            "w": pa.array(["w"] * count),
        }
        rows[each.operator] = pa.table(columns).select(each.given.names).cast(each.given)
    emitted, _ = side.advance(rows, 30)
    totals = {n * 2**60 for n in range(1, count + 1)}
    assert all(set(each["total_within_bigint"]) <= totals for each in emitted)
    rows["one"] = rows["one"].set_column(5, "v", pa.array(np.full(count, 2**61)))
    with pytest.raises(OverflowError, match="total"):
        Side(tmp_path / "again", True).advance(rows, 30)
    # No sooner than the window ends: what comes yet may bring the total back.
    late = Side(tmp_path / "late", True)
    late.advance(rows, 9)
    rest = {name: each.slice(0, 0) for name, each in rows.items()}
    rest["one"] = rows["one"].set_column(5, "v", pa.array(np.full(count, -(2**61))))
    emitted, _ = late.advance(rest, 30)
    assert 0 in emitted[0]["total_within_bigint"]
