"""Aggregates over time windows, inside a Spark task.

State: one row for each open window of each group, in runs whose slot is the window's start.
A window closes when the boundary reaches its end; the closing windows are a contiguous range
of slots in every run, so closing costs what closes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.spark.aggregate_state import TMAX, GroupState, emit
from holdfast.spark.groups import group, keys_of, with_slots
from holdfast.spark.replay import unseen
from holdfast.spark.runs import HASH, SLOT, VERSION, lookup, merge, mix, numbers, sort_rows
from holdfast.spark.task import FOREVER, Step
from holdfast.windows import TimeWindow

FAMILY = "windows"


def first_open_slot(window: TimeWindow, boundary: int) -> int:
    """The start of the oldest window that is still open at ``boundary``."""
    return ((boundary - window.size) // window.advance + 1) * window.advance


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
        key_names = self.state.key_names
        after = first_open_slot(self.window, step.boundary)
        touched = None
        rows = self._into_windows(rows) if rows.num_rows else rows
        if step.replay and rows.num_rows:
            groups = group(rows, key_names)
            keys = keys_of(rows, groups, key_names)
            rows = unseen(step, FAMILY, rows, groups, keys, key_names)
        came_and_went = 0
        if rows.num_rows:
            groups = group(rows, key_names)
            keys = keys_of(rows, groups, key_names)
            found, old = lookup(step.read(FAMILY), keys, key_names)
            touched = pa.table(self.state.advance(rows, groups, keys, found, old))
            is_open = keys.slot >= after
            still_open = touched.filter(pa.array(is_open))
            step.write(FAMILY, still_open, key_names, after, ~found[is_open])
            came_and_went = int((~found & ~is_open).sum())
        closed = self._closing(step, touched, after)
        if closed is None:
            return pa.table({})
        step.ended(FAMILY, closed.num_rows - came_and_went)
        return self._results(closed)

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

    def _closing(self, step: Step, touched: pa.Table | None, after: int) -> pa.Table | None:
        """The windows that the boundary has passed, each as it was last."""
        before = max(first_open_slot(self.window, step.before), -FOREVER)
        pieces = []
        for run in step.read(FAMILY):
            low, high = np.searchsorted(numbers(run[SLOT]), [before, after])
            if high > low:
                pieces.append(run.slice(low, high - low).drop_columns([VERSION]))
        if touched is not None:
            closing = touched.filter(pa.array(numbers(touched[SLOT]) < after))
            if closing.num_rows:
                pieces.append(sort_rows(closing))
        if not pieces:
            return None
        names = pieces[0].column_names
        return merge([each.select(names) for each in pieces], self.state.key_names, before, False)

    def _results(self, closed: pa.Table) -> pa.Table:
        slot, hashes = numbers(closed[SLOT]).astype(np.int64), numbers(closed[HASH])
        stime = slot + self.window.size - 1
        columns = {SLOT: pa.array(slot), **self.state.results(closed)}
        return emit(columns, stime, closed[TMAX], mix(hashes.astype(np.int64), slot))
