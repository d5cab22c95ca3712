"""Aggregates over sessions, inside a Spark task.

A session of a group ends once ``gap`` has passed without a tuple. State: the open session of
each group, and a family of *deadlines*, one row whenever a session moved its end, whose slot is
that end. When the boundary advances, the deadlines it passes are a contiguous range of slots;
the groups named there are looked up, and those whose session really ends there are closed. So
closing costs what closes, and the deadlines that were overtaken die by their slot.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from holdfast.spark.aggregate_state import TMAX, GroupState, emit
from holdfast.spark.groups import Groups, group, keys_of
from holdfast.spark.lookups import Keys, lookup
from holdfast.spark.replay import unseen
from holdfast.spark.runs import DEAD, HASH, SLOT, Bools, Int64s, mix, numbers
from holdfast.spark.task import FOREVER, Step

SESSIONS, DEADLINES = "sessions", "deadlines"
START, LAST = "start", "last_stime"


@dataclass(frozen=True)
class SessionAggregate:
    """The operator: emits each session once no tuple can join it."""

    gap: int
    state: GroupState

    def __call__(self, step: Step, rows: pa.Table) -> pa.Table:
        pieces: list[pa.Table] = []
        kept: list[pa.Table] = []
        opened = passed = np.empty(0, dtype=np.bool_)
        touched = None
        if step.replay and rows.num_rows:
            groups = group(rows, self.state.key_names)
            touched = keys_of(rows, groups, self.state.key_names)
            rows = unseen(step, SESSIONS, rows, groups, touched, self.state.key_names)
            touched = None
        if rows.num_rows:
            groups = group(rows, self.state.key_names)
            touched = keys_of(rows, groups, self.state.key_names)
            opened, passed = self._touch(step, rows, groups, touched, pieces, kept)
        self._pass_deadlines(step, touched, pieces, kept)
        if kept:
            changed = pa.concat_tables(kept)
            rest = np.zeros(changed.num_rows - len(opened), dtype=np.bool_)
            self._write(step, changed, np.append(opened, rest), np.append(passed, rest))
        if not pieces:
            return pa.table({})
        closed = pa.concat_tables(pieces)
        start, last = (numbers(closed[name]).astype(np.int64) for name in (START, LAST))
        columns = {SLOT: pa.array(start), "end": pa.array(last + self.gap)}
        columns.update(self.state.results(closed))
        seq = mix(numbers(closed[HASH]).astype(np.int64), start)
        return emit(columns, last + self.gap - 1, closed[TMAX], seq)

    def _touch(
        self,
        step: Step,
        rows: pa.Table,
        groups: Groups,
        keys: Keys,
        pieces: list[pa.Table],
        kept: list[pa.Table],
    ) -> tuple[Bools, Bools]:
        """Fold the tuples into sessions, the first of each group into its open one if it can.

        Returns which of the kept sessions are new, and which came and went in groups without
        a session before.
        """
        found, old = lookup(step.read(SESSIONS), keys, self.state.key_names)
        last_seen = np.full(groups.count, -FOREVER)
        if old is not None:
            last_seen[found] = numbers(old[LAST])
        session, first_row, continues = self._sessions(rows, groups, last_seen)
        code = groups.codes[first_row]
        at_old = (np.cumsum(found) - 1)[code]
        continued = old.take(pa.array(at_old[continues])) if old is not None else None
        own = Keys(
            keys.slot[code],
            keys.hash[code],
            tuple(column.take(pa.array(code)) for column in keys.columns),
        )
        columns = self.state.advance(rows, Groups(session, first_row), own, continues, continued)
        stime = numbers(rows["stime"]).astype(np.int64)
        start, last = stime[first_row], np.empty(len(first_row), dtype=np.int64)
        last[session] = stime
        if continued is not None:
            start[continues] = numbers(continued[START])
        closed = last + self.gap <= step.boundary
        columns[START], columns[LAST] = pa.array(start), pa.array(last)
        columns[DEAD] = pa.array(closed)
        table = pa.table(columns)
        if closed.any():
            pieces.append(table.filter(pa.array(closed)))
        ended = int((closed & continues).sum())
        if old is not None:
            left_behind = ~np.isin(np.flatnonzero(found), code[continues])
            ended += int(left_behind.sum())
            if left_behind.any():
                pieces.append(old.filter(pa.array(left_behind)).select(table.column_names))
        # Only the last session of a group can be open; its row also ends an older one's.
        newest = np.append(code[1:] != code[:-1], True)
        kept.append(table.filter(pa.array(newest)))
        step.ended(SESSIONS, ended)
        return (~closed & ~continues)[newest], (closed & ~found[code])[newest]

    def _sessions(
        self, rows: pa.Table, groups: Groups, last_seen: Int64s
    ) -> tuple[Int64s, Int64s, Bools]:
        """The session of each tuple, the first tuple of each session, and which continue."""
        order = np.argsort(groups.codes, kind="stable")
        code, time = groups.codes[order], numbers(rows["stime"]).astype(np.int64)[order]
        first = np.append(True, code[1:] != code[:-1])
        previous = np.append(0, time[:-1])
        previous[first] = last_seen[code[first]]
        pause = time - previous >= self.gap
        starts = first | pause
        session = np.empty(len(order), dtype=np.int64)
        session[order] = np.cumsum(starts) - 1
        return session, order[starts], (first & ~pause)[starts]

    def _pass_deadlines(
        self, step: Step, touched: Keys | None, pieces: list[pa.Table], kept: list[pa.Table]
    ) -> None:
        """Close the sessions whose end the boundary has reached, in groups without tuples."""
        due = []
        for run in step.read(DEADLINES):
            low, high = run.slot.searchsorted([step.before + 1, step.boundary + 1])
            if high > low:
                due.append(run.rows.slice(low, high - low).select([HASH, *self.state.key_names]))
        if not due:
            return
        keys = self._not_touched(pa.concat_tables(due), touched)
        _, rows = lookup(step.read(SESSIONS), keys, self.state.key_names)
        if rows is None:
            return
        ended = numbers(rows[LAST]) + self.gap <= step.boundary
        closed = rows.filter(pa.array(ended))
        if closed.num_rows:
            names = [name for name in closed.column_names if name != "version"]
            closed = closed.select(names)
            pieces.append(closed)
            step.ended(SESSIONS, closed.num_rows)
            gone = pa.array(np.ones(closed.num_rows, dtype=np.bool_))
            kept.append(closed.set_column(names.index(DEAD), DEAD, gone))

    def _not_touched(self, due: pa.Table, touched: Keys | None) -> Keys:
        due = due.append_column(SLOT, pa.array(np.zeros(due.num_rows, dtype=np.int64)))
        count = 0
        if touched is not None:
            count = len(touched.hash)
            columns = {HASH: pa.array(touched.hash), SLOT: pa.array(touched.slot)}
            columns.update(zip(self.state.key_names, touched.columns, strict=True))
            due = pa.concat_tables([pa.table(columns).select(due.column_names), due])
        groups = group(due, self.state.key_names)
        fresh = np.setdiff1d(groups.codes[count:], groups.codes[:count])
        return keys_of(due, Groups(groups.codes, groups.first_row[fresh]), self.state.key_names)

    def _write(self, step: Step, rows: pa.Table, opened: Bools, passed: Bools) -> None:
        keys = self.state.key_names
        step.write(SESSIONS, rows, keys, opened=opened, passed=passed)
        still_open = rows.filter(pa.array(~numbers(rows[DEAD]).astype(np.bool_)))
        step.write(DEADLINES, deadlines(still_open, self.gap, keys), None, step.boundary + 1)


def deadlines(sessions: pa.Table, gap: int, keys: tuple[str, ...]) -> pa.Table:
    """The rows of the family of deadlines for these open sessions."""
    ends = numbers(sessions[LAST]).astype(np.int64) + gap
    return sessions.select([SLOT, HASH, *keys]).set_column(0, SLOT, pa.array(ends))
