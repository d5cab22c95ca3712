"""A step that takes all its partitions at once leaves what each of them alone would."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.spark.aggregate_state import GroupState
from holdfast.spark.continuous_files import collect_news
from holdfast.spark.folds import Fold
from holdfast.spark.groups import in_stream_order
from holdfast.spark.runs import read_run
from holdfast.spark.state import EMPTY, State, collect_runs
from holdfast.spark.step_directories import StepDirectories
from holdfast.spark.task import LAZY, StepPlan
from holdfast.spark.time_aggregate import FAMILY, TimeAggregate, first_open_slot
from holdfast.windows import TimeWindow

PARTITIONS, BUCKETS, SIZE = 3, 24, 10
FOLDS = (
    Fold("add_wide", "v", ("total", "total_high"), (pa.int64(), pa.int32())),
    Fold("within_bigint", None, (), (), beside=("total", "total_high")),
    Fold("count", None, ("count",), (pa.int64(),)),
    Fold("max", "v", ("most",), (pa.int64(),)),
    Fold("first", "w", ("first",), (pa.string(),)),
)


class Side:
    """One of the two ways, with a state of its own."""

    def __init__(self, root: Path, window: TimeWindow, key: pa.DataType, how: str) -> None:
        names = () if how == "no key" else ("k0",)
        folds = FOLDS[:4] if how == "any order" else FOLDS
        self.window = window
        times = [pa.field(name, pa.int64()) for name in ("stime", "tmax", "seq")]
        keys = [pa.field(name, key) for name in names]
        values = [pa.field("v", pa.int64()), pa.field("w", pa.string())]
        given = pa.schema([*times, pa.field("hash", pa.int64()), *keys, *values])
        kept = [field for each in folds for field in each.results]
        output = pa.schema([*times, pa.field("slot", pa.int64()), *keys, *kept])
        handler = TimeAggregate(window, GroupState(names, folds))
        self.plan = StepPlan("sums", handler, given, output, PARTITIONS)
        self._directories = StepDirectories(root)
        self._steps = 0
        self.state: State = EMPTY

    def advance(self, rows: pa.Table, boundary: int, parts: Sequence[Sequence[int]]) -> Any:
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
            "keeps": {"sums": LAZY},
        }
        home = rows["hash"].to_numpy() % PARTITIONS
        made = [
            table
            for part in parts
            for table in self.plan.run(told, rows.filter(pa.array(np.isin(home, part))), part)
        ]
        news = [(each.family, each.opened, each.ended) for each in collect_news(directory)]
        first_open = {("sums", FAMILY): first_open_slot(self.window, boundary)}
        runs = collect_runs(self.state, directory, PARTITIONS, first_open)
        self.state = State(self._steps, boundary, runs)
        emitted = pa.concat_tables([self.plan.output.empty_table(), *made])
        return in_stream_order(emitted).to_pydict(), news

    def files(self) -> list[tuple[int, dict[str, list[Any]]]]:
        """What the runs of each partition hold."""
        return [
            (partition, read_run(run.address).to_pydict())
            for _, _, partition, run in self.state.all_runs()
        ]


@pytest.mark.parametrize("how", ["any order", "in order", "no key"])
@pytest.mark.parametrize("window", [TimeWindow(SIZE, SIZE), TimeWindow(SIZE, 3)])
@pytest.mark.parametrize("key", [pa.int64(), pa.string()])
def test_partitions_together_and_one_by_one(
    tmp_path: Path, how: str, window: TimeWindow, key: pa.DataType
) -> None:
    sides = []
    for name in ("together", "alone"):
        (tmp_path / name).mkdir()
        sides.append(Side(tmp_path / name, window, key, how))
    together, alone = sides
    random = np.random.default_rng(3)
    emitted = 0
    for bucket in range(BUCKETS):
        start, length = bucket * 4, 4 if bucket % 5 else 0
        count = int(random.integers(0, 30)) if length else 0
        stime = np.sort(random.integers(start, start + 4, count))
        keys = random.integers(0, 9, count)
        columns = {
            "stime": stime,
            "tmax": stime,
            "seq": np.arange(count) + bucket * 100,
            # Two keys share each hash.
            "hash": np.zeros(count, np.int64) if how == "no key" else keys // 2 - 2,
            "k0": pa.array(keys).cast(key),
            "v": random.integers(-9, 9, count),
            "w": pa.array([f"w{each}" for each in random.integers(0, 9, count)], pa.string()),
        }
        rows = pa.table(columns).select(together.plan.given.names).cast(together.plan.given)
        boundary = start + 4
        one = together.advance(rows, boundary, [range(PARTITIONS)])
        other = alone.advance(rows, boundary, [[each] for each in range(PARTITIONS)])
        assert one == other
        assert together.files() == alone.files()
        emitted += len(one[0]["stime"])
    assert emitted
