"""Aggregates over time windows, inside a Spark task.

State: one row for each open window of each group, in runs whose slot is the window's start.
A window closes when the boundary reaches its end; the closing windows are a contiguous range
of slots in every run, so closing costs what closes.

Queries that fold alike are advanced together (``joint_steps``): what few tuples take is
mostly calls of numpy and Arrow, and they are made once for all queries and partitions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.spark.aggregate_state import TMAX, GroupState, emit
from holdfast.spark.compaction import merge
from holdfast.spark.groups import Keyed, group, group_together, keys_of, with_slots
from holdfast.spark.lookups import Keys, lookup_all
from holdfast.spark.open_runs import OpenRun, taken
from holdfast.spark.replay import unseen
from holdfast.spark.runs import (
    HASH,
    SLOT,
    VERSION,
    Bools,
    Column,
    Int64s,
    homes,
    mix,
    numbers,
    one_array,
    sort_rows,
    take,
)
from holdfast.spark.task import FOREVER, NewRun, Step, write_runs
from holdfast.windows import TimeWindow

FAMILY = "windows"


def first_open_slot(window: TimeWindow, boundary: int) -> int:
    """The start of the oldest window that is still open at ``boundary``."""
    return ((boundary - window.size) // window.advance + 1) * window.advance


def _latest_starts(stime: Int64s, advance: int) -> Int64s:
    """The start of the newest window each tuple is in; those of a small bucket mostly have one."""
    if len(stime):
        first, last = (int(each) - int(each) % advance for each in (stime.min(), stime.max()))
        if first == last:
            return np.full(len(stime), first)
    return stime - stime % advance


@dataclass(frozen=True)
class TimeAggregate:
    """The operator."""

    window: TimeWindow
    state: GroupState

    @property
    def any_order(self) -> bool:
        """Whether tuples need not be put in order first."""
        return not self.state.depends_on_order

    def alike(self, given: pa.Schema) -> tuple[Any, ...] | None:
        """What queries whose steps go together have in common; None if this one goes alone."""
        if self.state.kinds is None:
            return None
        values = [fold.value for fold in self.state.folds if fold.value is not None]
        return (*self.state.kinds, *(given.field(name).type for name in values))

    def __call__(self, step: Step, rows: pa.Table) -> pa.Table:
        return self.together([step], rows)

    def together(self, steps: Sequence[Step], rows: pa.Table) -> pa.Table:
        """The tuples of all these partitions at once."""
        return self.all_together([(self, steps, rows)])[0]

    @staticmethod
    def all_together(
        given: Sequence[tuple[TimeAggregate, Sequence[Step], pa.Table]],
    ) -> list[pa.Table]:
        """The same for several queries that are alike: what each emits."""
        turns = [Turn(*each) for each in given]
        _advance([each for each in turns if each.rows.num_rows])
        return [each.emitted() for each in turns]

    def into_windows(self, rows: pa.Table) -> tuple[pa.Table, Int64s]:
        """Each tuple once for every window it belongs to, in stream order, and their slots."""
        size, advance = self.window.size, self.window.advance
        stime = numbers(rows["stime"]).astype(np.int64, copy=False)
        newest = _latest_starts(stime, advance)
        if size == advance:
            return rows, newest
        oldest = ((stime - size) // advance + 1) * advance
        copies = (newest - oldest) // advance + 1
        source = np.repeat(np.arange(len(stime)), copies)
        step = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies)
        return rows.take(pa.array(source)), oldest[source] + step * advance

    def results(self, closed: pa.Table) -> pa.Table:
        """What is emitted for windows that have closed."""
        slot, hashes = numbers(closed[SLOT]).astype(np.int64), numbers(closed[HASH])
        stime = slot + self.window.size - 1
        columns = {SLOT: pa.array(slot), **self.state.results(closed)}
        return emit(columns, stime, closed[TMAX], mix(hashes.astype(np.int64), slot))


class Turn:
    """One query's step for a bucket, in some of its partitions."""

    def __init__(self, handler: TimeAggregate, steps: Sequence[Step], rows: pa.Table) -> None:
        self.handler, self.steps = handler, steps
        self.names = handler.state.key_names
        self.after = first_open_slot(handler.window, steps[0].boundary)
        self.rows = rows
        # The groups that tuples touch, as the state has them now.
        self.touched: OpenRun | None = None
        self._came_and_went = [0] * len(steps)
        if rows.num_rows:
            self.rows, slot = handler.into_windows(rows)
            if steps[0].replay:
                self.rows, slot = self._not_seen(slot)
            keys = tuple(one_array(self.rows[name]) for name in self.names)
            partitions = 1 if len(steps) == 1 else steps[0].partitions
            hashes = numbers(self.rows[HASH]).astype(np.int64, copy=False)
            self.keyed = Keyed(slot, hashes, keys, partitions)

    def _not_seen(self, slot: Int64s) -> tuple[pa.Table, Int64s]:
        rows = with_slots(self.rows, slot)
        groups = group(rows, self.names)
        keys = keys_of(rows, groups, self.names)
        rows = unseen(self.steps[0], FAMILY, rows, groups, keys, self.names)
        return rows, numbers(rows[SLOT])

    def ranges(self, edges: Sequence[int]) -> list[tuple[int, int]]:
        """Which groups are those of each step, told by where those of each partition begin."""
        if len(self.steps) == 1:
            return [(edges[0], edges[1])]
        return [(edges[each.partition], edges[each.partition + 1]) for each in self.steps]

    def keep(
        self,
        touched: OpenRun,
        ranges: Sequence[tuple[int, int]],
        found: Bools,
    ) -> list[NewRun]:
        """What is to be written of what tuples have touched: of each partition, what is open."""
        self.touched = touched
        is_open = touched.slot >= self.after
        if not is_open.all():
            gone = ~found & ~is_open
            self._came_and_went = [int(gone[low:high].sum()) for low, high in ranges]
            places = [int(each) for each in (0, *is_open.cumsum())]
            ranges = [(places[low], places[high]) for low, high in ranges]
            rows = np.flatnonzero(is_open)
            columns = {name: taken([(touched, rows)], name, None) for name in touched.layout.names}
            touched, found = OpenRun.of(columns, touched.layout), found[is_open]
        news = []
        for step, (low, high) in zip(self.steps, ranges, strict=True):
            if low == high or step.look:
                continue
            run, known = touched.part(low, high), found[low:high]
            if step.keeps is not None:
                step.tell_rows(FAMILY, run.rows.drop_columns([VERSION]), ~known)
            replaced = int(np.count_nonzero(known))
            news.append(NewRun(step, FAMILY, run, self.names, self.after, replaced))
        return news

    def emitted(self) -> pa.Table:
        """What comes of the windows that the boundary has passed."""
        closed = self._closed()
        if closed is None:
            return pa.table({})
        if self.steps[0].keeps is not None:
            home = homes(numbers(closed[HASH]), self.steps[0].partitions)
            for step, never_kept in zip(self.steps, self._came_and_went, strict=True):
                step.ended(FAMILY, int((home == step.partition).sum()) - never_kept)
        return self.handler.results(closed)

    def _closed(self) -> pa.Table | None:
        """The windows that the boundary has passed, each as it was last.

        Keys of different partitions differ, so those of all are put together at once.
        """
        before = max(first_open_slot(self.handler.window, self.steps[0].before), -FOREVER)
        if before == self.after:
            return None
        pieces = []
        for step in self.steps:
            for run in step.read(FAMILY):
                low, high = run.slot.searchsorted([before, self.after])
                if high > low:
                    pieces.append(run.rows.slice(low, high - low))
        if self.touched is not None:
            is_closing = self.touched.slot < self.after
            if is_closing.any():
                rows = self.touched.rows
                closing = rows if is_closing.all() else rows.filter(pa.array(is_closing))
                pieces.append(sort_rows(closing))
        if not pieces:
            return None
        names = [name for name in pieces[0].column_names if name != VERSION]
        runs = [OpenRun(each.select(names)) for each in pieces]
        return merge(runs, self.names, before, False).rows


def _advance(turns: Sequence[Turn]) -> None:
    """Fold the tuples of queries that are alike into their windows, and write these."""
    turns = [each for each in turns if each.rows.num_rows]
    if not turns:
        return
    several = [each.keyed for each in turns]
    groups = group_together(several)
    first = groups.first_row
    slot = np.concatenate([each.slot for each in several]).take(first)
    hashes = np.concatenate([each.hash for each in several]).take(first)
    looks: list[tuple[Sequence[OpenRun], Keys, Sequence[str]]] = []
    keys: list[tuple[Column, ...]] = []
    spans: list[tuple[int, ...]] = []
    rows = lot = 0
    for turn, keyed in zip(turns, several, strict=True):
        edges = groups.edges[lot : lot + keyed.partitions + 1]
        spans.append(edges)
        at = first[edges[0] : edges[-1]] - rows
        keys.append(tuple(take(key, at) for key in keyed.keys))
        for step, (low, high) in zip(turn.steps, turn.ranges(edges), strict=True):
            here = slice(low - edges[0], high - edges[0])
            own = tuple(column[here] for column in keys[-1])
            looks.append(
                (step.read(FAMILY), Keys(slot[low:high], hashes[low:high], own), turn.names)
            )
        rows, lot = rows + len(keyed.hash), lot + keyed.partitions
    state = turns[0].handler.state
    found, old = lookup_all(looks, state.folded)
    folded = state.fold([each.rows for each in turns], groups, found, old)
    folded[VERSION] = np.full(groups.count, turns[0].steps[0].version)
    news: list[NewRun] = []
    for turn, edges, own in zip(turns, spans, keys, strict=True):
        here = slice(edges[0], edges[-1])
        columns: dict[str, Column] = {SLOT: slot[here], HASH: hashes[here]}
        columns.update(zip(turn.names, own, strict=True))
        columns.update((name, column[here]) for name, column in folded.items())
        ranges = [(low - edges[0], high - edges[0]) for low, high in turn.ranges(edges)]
        news += turn.keep(OpenRun.of(columns), ranges, found[here])
    write_runs(news)
