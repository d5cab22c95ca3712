"""Aggregates over a count of tuples per group, inside a Spark task.

Window ``w`` of a group holds its tuples number ``w * advance`` to ``w * advance + size - 1``.
State: one row for each open window of each group, found by the hash of group and window
number. When windows overlap or leave gaps, a second family keeps each group's next tuple
number; when they follow each other, an unfinished window tells it, and a group between two
windows needs no state at all.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.spark.aggregate_state import TMAX, GroupState, emit
from holdfast.spark.groups import Groups, group, keys_of
from holdfast.spark.lookups import Keys, lookup
from holdfast.spark.replay import since, unseen
from holdfast.spark.runs import DEAD, HASH, SLOT, Bools, Int64s, mix, numbers
from holdfast.spark.task import Step
from holdfast.windows import CountWindow

FAMILY, POSITIONS = "windows", "positions"
WINDOW, FILLED, CODE = "window_number", "filled", "group_code"


@dataclass(frozen=True)
class CountAggregate:
    """The operator: emits each window with the tuple that fills it."""

    window: CountWindow
    state: GroupState

    def __call__(self, step: Step, rows: pa.Table) -> pa.Table:
        if rows.num_rows == 0:
            return pa.table({})
        if step.replay and self._tumbling:
            rows = self._unseen(step, rows)
            if rows.num_rows == 0:
                return pa.table({})
        groups = group(rows, self.state.key_names)
        keys = keys_of(rows, groups, self.state.key_names)
        numbered = self._number(step, rows, groups, keys)
        expanded = self._expand(rows, numbered, groups.codes, keys.hash)
        if step.replay and not self._tumbling and expanded.num_rows:
            names = (*self.state.key_names, WINDOW)
            windows = group(expanded, names)
            at = keys_of(expanded, windows, names)
            expanded = unseen(step, FAMILY, expanded, windows, at, names)
        if expanded.num_rows == 0:
            return pa.table({})
        return self._fold(step, expanded, keys.hash)

    @property
    def _tumbling(self) -> bool:
        return self.window.size == self.window.advance

    def _unseen(self, step: Step, rows: pa.Table) -> pa.Table:
        """In a replay: the tuples that their group's open window has not counted yet."""
        names = self.state.key_names
        groups = group(rows, names)
        keys = keys_of(rows, groups, names)
        first = Keys(keys.slot, mix(keys.hash, 0), keys.columns)
        return unseen(step, FAMILY, rows, groups, first, names)

    def _number(self, step: Step, rows: pa.Table, groups: Groups, keys: Keys) -> Int64s:
        """The number of each tuple within its group, from the group's first tuple on."""
        order = np.argsort(groups.codes, kind="stable")
        counts = np.bincount(groups.codes, minlength=groups.count)
        starts = np.cumsum(counts) - counts
        within = np.empty(len(order), dtype=np.int64)
        within[order] = np.arange(len(order)) - starts[groups.codes[order]]
        if self._tumbling:
            first = Keys(keys.slot, mix(keys.hash, 0), keys.columns)
            base, _ = self._filled(step, FAMILY, first)
        else:
            base = self._positions(step, rows, groups, keys, counts)
        return base[groups.codes] + within

    def _filled(self, step: Step, family: str, keys: Keys) -> tuple[Int64s, Bools]:
        found, old = lookup(step.read(family), keys, self.state.key_names)
        filled = np.zeros(len(keys.hash), dtype=np.int64)
        if old is not None:
            filled[found] = numbers(old[FILLED])
        return filled, found

    def _positions(
        self, step: Step, rows: pa.Table, groups: Groups, keys: Keys, counts: Int64s
    ) -> Int64s:
        """Each group's number for its first tuple here; notes the number after its last."""
        names = self.state.key_names
        base, found = self._filled(step, POSITIONS, keys)
        if step.replay:
            # Tuples older than the position have been numbered before: count back from it.
            times = since(step, POSITIONS, keys, names)
            old = numbers(rows["stime"]) < times[groups.codes]
            base -= np.bincount(groups.codes[old], minlength=groups.count)
        columns = {SLOT: keys.slot, HASH: keys.hash, FILLED: base + counts}
        arrays = {name: pa.array(column) for name, column in columns.items()}
        arrays.update(zip(names, keys.columns, strict=True))
        step.write(POSITIONS, pa.table(arrays), names, opened=~found)
        return base

    def _expand(self, rows: pa.Table, number: Int64s, codes: Int64s, hashes: Int64s) -> pa.Table:
        """Each tuple once for every window it belongs to."""
        newest = number // self.window.advance
        oldest = np.maximum((number - self.window.size) // self.window.advance + 1, 0)
        copies = np.maximum(newest - oldest + 1, 0)
        source = np.repeat(np.arange(len(number)), copies)
        offset = np.arange(len(source)) - np.repeat(np.cumsum(copies) - copies, copies)
        window = oldest[source] + offset
        code = codes[source]
        expanded = rows.take(pa.array(source)).drop_columns([HASH])
        expanded = expanded.append_column(HASH, pa.array(mix(hashes[code], window)))
        expanded = expanded.append_column(WINDOW, pa.array(window))
        return expanded.append_column(CODE, pa.array(code))

    def _fold(self, step: Step, rows: pa.Table, hashes: Int64s) -> pa.Table:
        names = (*self.state.key_names, WINDOW)
        groups = group(rows, names)
        keys = keys_of(rows, groups, names)
        found, old = lookup(step.read(FAMILY), keys, names)
        plain = Keys(keys.slot, keys.hash, keys.columns[:-1])
        columns = self.state.advance(rows, groups, plain, found, old)
        filled = np.bincount(groups.codes, minlength=groups.count).astype(np.int64)
        if old is not None:
            filled[found] += numbers(old[FILLED]).astype(np.int64)
        last = np.empty(groups.count, dtype=np.int64)
        last[groups.codes] = np.arange(rows.num_rows)
        full = filled == self.window.size
        window = numbers(keys.columns[-1]).astype(np.int64)
        columns[WINDOW], columns[FILLED] = pa.array(window), pa.array(filled)
        columns[DEAD] = pa.array(full)
        touched = pa.table(columns)
        code = numbers(rows[CODE])[groups.first_row].astype(np.int64)
        self._keep(step, touched, full, found, code, hashes[code])
        done = touched.filter(pa.array(full))
        # A window's result takes the place of the tuple that filled it.
        filling = last[full]
        stime, seq = (numbers(rows[name])[filling].astype(np.int64) for name in ("stime", "seq"))
        return emit(self.state.results(done), stime, done[TMAX], seq)

    def _keep(
        self, step: Step, touched: pa.Table, full: Bools, found: Bools, code: Int64s, hashes: Int64s
    ) -> None:
        """Write what is open; a window found in the state and now full is marked dead there."""
        step.ended(FAMILY, int((full & found).sum()))
        names = (*self.state.key_names, WINDOW)
        opened, passed = ~full & ~found, full & ~found
        if self._tumbling:
            # A finished window leaves nothing behind, so a group's open window is always number
            # 0 in the state, and takes the place of the finished one.
            number = np.where(full, numbers(touched[WINDOW]), 0).astype(np.int64)
            touched = _replace(touched, WINDOW, number)
            touched = _replace(touched, HASH, mix(hashes, number))
            # Of a group without an open window, the row of number 0 says so.
            said = ~full | ((number == 0) & ~np.isin(code, code[~full]))
            touched = touched.filter(pa.array(said))
            opened, passed = opened[said], passed[said]
        step.write(FAMILY, touched, names, opened=opened, passed=passed)


def _replace(table: pa.Table, name: str, values: Int64s) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, pa.array(values))
