"""Aggregates over time windows, inside a Spark task.

State: one row for each open window of each group, in runs whose slot is the window's start.
A window closes when the boundary reaches its end; the closing windows are a contiguous range
of slots in every run, so closing costs what closes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.spark.aggregate_state import TMAX, GroupState, emit
from holdfast.spark.compaction import merge
from holdfast.spark.groups import Groups, group, keys_of, with_slots
from holdfast.spark.lookups import Keys, lookup_all
from holdfast.spark.open_runs import OpenRun
from holdfast.spark.replay import unseen
from holdfast.spark.runs import HASH, SLOT, VERSION, Bools, mix, numbers, sort_rows
from holdfast.spark.task import FOREVER, Step, write_together
from holdfast.windows import TimeWindow

FAMILY = "windows"


def first_open_slot(window: TimeWindow, boundary: int) -> int:
    """The start of the oldest window that is still open at ``boundary``."""
    return ((boundary - window.size) // window.advance + 1) * window.advance


def _range_of(step: Step, groups: Groups) -> tuple[int, int]:
    """Which of the groups are those of a step's partition."""
    if not groups.edges:
        return 0, groups.count
    return groups.edges[step.partition], groups.edges[step.partition + 1]


@dataclass(frozen=True)
class TimeAggregate:
    """The operator."""

    window: TimeWindow
    state: GroupState

    @property
    def any_order(self) -> bool:
        """Whether tuples need not be put in order first."""
        return not self.state.depends_on_order

    def __call__(self, step: Step, rows: pa.Table) -> pa.Table:
        return self.together([step], rows)

    def together(self, steps: Sequence[Step], rows: pa.Table) -> pa.Table:
        """The tuples of all these partitions at once: most of what few take is not theirs alone."""
        key_names = self.state.key_names
        after = first_open_slot(self.window, steps[0].boundary)
        touched = None
        came_and_went = [0] * len(steps)
        rows = self._into_windows(rows) if rows.num_rows else rows
        if steps[0].replay and rows.num_rows:
            groups = group(rows, key_names)
            keys = keys_of(rows, groups, key_names)
            rows = unseen(steps[0], FAMILY, rows, groups, keys, key_names)
        if rows.num_rows:
            partitions = 1 if len(steps) == 1 else steps[0].partitions
            groups = group(rows, key_names, partitions)
            keys = keys_of(rows, groups, key_names)
            ranges = [_range_of(step, groups) for step in steps]
            found, old = self._look_up(steps, ranges, keys)
            touched = pa.table(self.state.advance(rows, groups, keys, found, old))
            came_and_went = self._keep(steps, ranges, touched, keys.slot >= after, found, after)
        closed = self._closing(steps, touched, after)
        if closed is None:
            return pa.table({})
        if steps[0].keeps is not None:
            home = numbers(closed[HASH]) % steps[0].partitions
            for step, never_kept in zip(steps, came_and_went, strict=True):
                step.ended(FAMILY, int((home == step.partition).sum()) - never_kept)
        return self._results(closed)

    def _look_up(
        self, steps: Sequence[Step], ranges: Sequence[tuple[int, int]], keys: Keys
    ) -> tuple[Bools, pa.Table | None]:
        """What the state has of the keys; those of each partition lie beside each other."""
        looks = [
            (step.read(FAMILY), keys.part(low, high))
            for step, (low, high) in zip(steps, ranges, strict=True)
        ]
        return lookup_all(looks, self.state.key_names, self.state.folded)

    def _keep(
        self,
        steps: Sequence[Step],
        ranges: Sequence[tuple[int, int]],
        touched: pa.Table,
        is_open: Bools,
        found: Bools,
        after: int,
    ) -> list[int]:
        """Write what tuples have touched and is open; how much came and went, by partition."""
        counts = [high - low for low, high in ranges]
        came_and_went = [0] * len(steps)
        if not is_open.all():
            gone = ~found & ~is_open
            came_and_went = [int(gone[low:high].sum()) for low, high in ranges]
            counts = [int(is_open[low:high].sum()) for low, high in ranges]
            touched, found = touched.filter(pa.array(is_open)), found[is_open]
        names = self.state.key_names
        write_together(steps, FAMILY, touched, counts, names, after, ~found, replace=True)
        return came_and_went

    def _into_windows(self, rows: pa.Table) -> pa.Table:
        """Each tuple once for every window it belongs to, in stream order."""
        size, advance = self.window.size, self.window.advance
        stime = numbers(rows["stime"]).astype(np.int64)
        newest = stime - stime % advance
        if size == advance:
            return with_slots(rows, newest)
        oldest = ((stime - size) // advance + 1) * advance
        copies = (newest - oldest) // advance + 1
        source = np.repeat(np.arange(len(stime)), copies)
        step = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies)
        return with_slots(rows.take(pa.array(source)), oldest[source] + step * advance)

    def _closing(
        self, steps: Sequence[Step], touched: pa.Table | None, after: int
    ) -> pa.Table | None:
        """The windows that the boundary has passed, each as it was last.

        Keys of different partitions differ, so those of all are put together at once.
        """
        before = max(first_open_slot(self.window, steps[0].before), -FOREVER)
        if before == after:
            return None
        pieces = []
        for step in steps:
            for run in step.read(FAMILY):
                low, high = run.slot.searchsorted([before, after])
                if high > low:
                    pieces.append(run.rows.slice(low, high - low))
        if touched is not None:
            closing = touched.filter(pa.array(numbers(touched[SLOT]) < after))
            if closing.num_rows:
                pieces.append(sort_rows(closing))
        if not pieces:
            return None
        names = [name for name in pieces[0].column_names if name != VERSION]
        runs = [OpenRun(each.select(names)) for each in pieces]
        return merge(runs, self.state.key_names, before, False).rows

    def _results(self, closed: pa.Table) -> pa.Table:
        slot, hashes = numbers(closed[SLOT]).astype(np.int64), numbers(closed[HASH])
        stime = slot + self.window.size - 1
        columns = {SLOT: pa.array(slot), **self.state.results(closed)}
        return emit(columns, stime, closed[TMAX], mix(hashes.astype(np.int64), slot))
