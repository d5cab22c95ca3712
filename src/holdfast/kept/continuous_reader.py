"""Continuous checkpoints of one fragment, read from its states: what ``core.continuous`` orders.

Nothing is remembered here but how many windows a state has open. Which windows are of which
generation is in the handles that the machine keeps and hands out with its orders (``Members``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.blocks import Block
from holdfast.core.continuous import (
    Checked,
    CheckWindows,
    LookAtWindows,
    Looked,
    Restored,
    RoundFailed,
    StateReached,
)
from holdfast.core.events import WindowBlock
from holdfast.core.frame import Kind
from holdfast.errors import StateError
from holdfast.kept.continuous_recovery import Recovered, oldest_replayed
from holdfast.spark.continuous_files import FamilyNews
from holdfast.spark.continuous_states import (
    Members,
    OpenRuns,
    WindowBatch,
    joined,
    live_rows,
    members_of,
    split_at,
)
from holdfast.spark.engine import Advance, Bucket, Engine
from holdfast.spark.runs import DEAD, Int64s, numbers
from holdfast.spark.state import EMPTY, State, without_times
from holdfast.spark.task import FOREVER, LAZY

Note = Mapping[str, int]


class WindowReader:
    """Reads the states of windows out of a fragment's states."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._operators = {each.name: each.stateful for each in engine.stateful}
        # How many windows a state has open, by its version; that of the newest few.
        self._open = {EMPTY.version: 0}
        # Runs that were read, for several looks at one state.
        self._runs: tuple[State, OpenRuns] | None = None
        # What the last look has read, so that it need not be read again to be written.
        self._looked: list[tuple[Members, pa.Table]] = []

    # -- after a job ----------------------------------------------------------------------

    def news(
        self, before: State, start: int, advance: Advance, inputs: int, results: int
    ) -> tuple[list[WindowBatch], StateReached]:
        """What the log must have of a stable state that was computed from ``start`` on."""
        state = advance.state
        open_windows = self._open[before.version] + self._balance(advance.windows)
        self._set_open(state, open_windows)
        batches: list[WindowBatch] = []
        members: list[Members] = []
        replayed = exact = 0
        for news in advance.windows:
            if news.rows is None:
                continue
            lazy = self._engine.keeps[news.operator] == LAZY
            kind = Kind.WINDOW_OPEN if lazy else Kind.WINDOW_CHECK
            batch = WindowBatch(kind, news.operator, news.family, start, state.boundary, news.rows)
            batches.append(batch)
            alive = _alive(news.rows)
            if alive.num_rows:
                where = members_of(news.operator, news.family, alive, state, state.boundary)
                members.append(where)
                replayed += where.count if lazy else 0
                exact += 0 if lazy else where.count
        written = sum(batch.rows.num_rows for batch in batches)
        reached = StateReached(
            state.boundary,
            inputs,
            results,
            replayed,
            exact,
            written,
            open_windows,
            oldest_replayed(self._engine, state.boundary),
            tuple(members),
        )
        return batches, reached

    def _set_open(self, state: State, count: int) -> None:
        newest = sorted({**self._open, state.version: count}.items())[-8:]
        self._open = {EMPTY.version: 0, **dict(newest)}

    def _balance(self, news: Sequence[FamilyNews]) -> int:
        return sum(
            each.opened - each.ended
            for each in news
            if self._operators[each.operator].counts(each.family)
        )

    # -- a round --------------------------------------------------------------------------

    def carry_out(
        self, state: State, order: LookAtWindows | CheckWindows
    ) -> tuple[Looked | Checked | RoundFailed, list[WindowBatch]]:
        """An order of a round; the answer, and what goes into the log."""
        try:
            if isinstance(order, LookAtWindows):
                return self._look(state, order), []
            return self._check(state, order)
        except (OSError, pa.ArrowException) as error:
            return RoundFailed(f"{type(error).__name__}: {error}"), []

    def _look(self, state: State, order: LookAtWindows) -> Looked:
        members: Sequence[Any] = order.members
        first, rest = split_at(joined(members), order.most)
        looked: list[tuple[Members, pa.Table]] = []
        stays: list[Members] = []
        for each in first:
            if self._operators[each.operator].row_keys(each.family) is None:
                stays += self._still_open(state, each)
                continue
            rows = live_rows(self._engine, state, each, self._opened(state))
            if rows is not None:
                found = members_of(each.operator, each.family, rows, state, order.time)
                looked.append((replace(found, written=each.written), rows))
        self._looked = looked
        alive = [where for where, _ in looked]
        replayed, exact = self._count([*alive, *rest, *stays])
        return Looked(
            sum(each.count for each in alive),
            replayed,
            exact,
            sum(each.count for each in rest),
            tuple(alive),
            (*rest, *stays),
        )

    def _check(self, state: State, order: CheckWindows) -> tuple[Checked, list[WindowBatch]]:
        batches: list[WindowBatch] = []
        written: list[Members] = []
        looked: Sequence[Any] = order.looked
        now = state.boundary
        for each in looked:
            rows = next((rows for where, rows in self._looked if where is each), None)
            if rows is None:
                raise StateError("windows are written right after they were looked at")
            kind = Kind.WINDOW_CHECK
            batches.append(WindowBatch(kind, each.operator, each.family, now, now, rows))
            written.append(members_of(each.operator, each.family, rows, state, now))
        return Checked(*self._count(looked), tuple(written)), _one_for_each_family(batches)

    def _opened(self, state: State) -> OpenRuns:
        if self._runs is None or self._runs[0] is not state:
            self._runs = (state, OpenRuns())
        return self._runs[1]

    def _still_open(self, state: State, members: Members) -> list[Members]:
        """Rows that accumulate are written once; they count until their time is over."""
        slots = self._operators[members.operator].first_open(state.boundary)
        open_from = slots.get(members.family, -FOREVER)
        return [members] if (members.slot >= open_from).any() else []

    def _count(self, found: Sequence[Members]) -> tuple[int, int]:
        lazy = [members for members in found if self._engine.keeps[members.operator] == LAZY]
        replayed = sum(members.count for members in lazy)
        return replayed, sum(members.count for members in found) - replayed

    # -- recovery -------------------------------------------------------------------------

    def recover(self, recovered: Recovered, buckets: Sequence[Bucket]) -> tuple[State, Restored]:
        """The state at the boundary of ``recovered``, from the input since its own."""
        boundary, partial = recovered.boundary, recovered.state
        if partial.boundary >= boundary:
            whole = State(partial.version, boundary, without_times(partial.runs))
            advance = Advance(whole, {})
        else:
            advance = self._engine.replay(partial, buckets, boundary)
        times = _input_times(buckets)
        counted = sum(
            each.count
            for found in recovered.generations.values()
            for each in found
            if self._operators[each.operator].counts(each.family)
        )
        open_windows = counted + self._balance(advance.windows)
        _check_count(recovered, open_windows)
        self._set_open(advance.state, open_windows)
        marks, frames = recovered.marks(times)
        reach = oldest_replayed(self._engine, boundary)
        reached = StateReached(boundary, len(times), frames, 0, 0, 0, open_windows, reach)
        generations = tuple(recovered.counts(self._engine))
        return advance.state, Restored(generations, tuple(marks), reached)


def blocks(batches: Sequence[WindowBatch], note: Note) -> tuple[WindowBlock, ...]:
    """Window states for the log, with figures beside them."""
    return tuple(
        WindowBlock(each.kind, each.rows.num_rows, each.time, Block(each.batch(note)))
        for each in batches
    )


def _one_for_each_family(batches: Sequence[WindowBatch]) -> list[WindowBatch]:
    """As few frames as can be: each has a price of its own."""
    found: dict[tuple[str, str], list[WindowBatch]] = {}
    for each in batches:
        found.setdefault((each.operator, each.family), []).append(each)
    return [
        replace(
            same[0],
            rows=pa.concat_tables([each.rows for each in same], promote_options="default"),
        )
        for same in found.values()
    ]


def _check_count(recovered: Recovered, windows: int) -> None:
    """The log says how many windows were open; it must have had a state of each."""
    told = recovered.extent.open_windows
    if told is not None and told != windows:
        raise StateError(
            f"{told} windows were open at {recovered.boundary}, but the log and the replayed "
            f"input give {windows}; part of either is missing"
        )


def _alive(rows: pa.Table) -> pa.Table:
    if DEAD not in rows.column_names:
        return rows
    return rows.filter(pa.array(~numbers(rows[DEAD]).astype(np.bool_)))


def _input_times(buckets: Sequence[Bucket]) -> Int64s:
    columns = [
        numbers(table["stime"].cast(pa.int64()))
        for bucket in buckets
        for table in bucket.tables.values()
    ]
    return np.sort(np.concatenate(columns)) if columns else np.empty(0, dtype=np.int64)
