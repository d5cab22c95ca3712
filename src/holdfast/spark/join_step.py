"""Joins within a time distance, inside a Spark task.

Both sides arrive in one table, ``side`` telling them apart. State: the recent tuples of each
side, in runs that only ever grow; ``slot`` is the tuple time rounded down to the join's reach,
so that the tuples in reach of a time lie in three neighbouring slots and old ones die by slot.

A pair is emitted in the advance that brings its later tuple. An outer join must also know
which tuples found no partner: once the boundary has passed a tuple's reach, all its
candidates are looked up again and sent along with it, and ``resolve`` decides after Spark has
evaluated the join's condition on them. No flag is kept for any tuple; the price is that an
outer join remembers twice the reach. A look, which may not have all tuples, says nothing of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from holdfast.spark.groups import with_slots
from holdfast.spark.runs import (
    HASH,
    SLOT,
    VERSION,
    Bools,
    Int64s,
    mix,
    null_safe_equal,
    numbers,
    one_array,
    sort_rows,
)
from holdfast.spark.task import Step

SIDES = ("left", "right")
ROLE = "role"
PAIR, CANDIDATE, LONELY = 0, 1, 2
_SYSTEM = ("stime", "tmax", "seq")


@dataclass(frozen=True)
class JoinStep:
    """Right tuples from ``before`` µs older to ``after`` µs newer than a left one match it."""

    before: int
    after: int
    outer: tuple[bool, bool]
    key_names: tuple[str, ...]
    columns: tuple[tuple[str, ...], tuple[str, ...]]

    # Pairs do not depend on the order of the tuples; what is emitted is put in order after.
    any_order: ClassVar[bool] = True

    @property
    def grain(self) -> int:
        return max(self.before, self.after, 1)

    def first_open_slot(self, boundary: int) -> int:
        """The oldest slot whose tuples can still be needed at ``boundary``."""
        memory = (2 if any(self.outer) else 1) * self.grain
        return (boundary - memory) // self.grain * self.grain

    def __call__(self, step: Step, rows: pa.Table) -> pa.Table:
        slot = numbers(rows["stime"]) // self.grain * self.grain
        rows = with_slots(rows, slot)
        side = numbers(rows["side"])
        fresh = [sort_rows(self._side(rows.filter(pa.array(side == i)), i)) for i in (0, 1)]
        if step.replay:
            self._keep(step, fresh)
            return pa.table({})
        old = [[run.rows.drop_columns([VERSION]) for run in step.read(name)] for name in SIDES]
        results = [
            *(self._pairs(fresh[0], run, PAIR) for run in (*old[1], fresh[1])),
            *(self._pairs(run, fresh[1], PAIR) for run in old[0]),
        ]
        for i in (0, 1):
            if self.outer[i] and not step.look:
                results += self._expired(i, step, [*old[i], fresh[i]], [*old[1 - i], fresh[1 - i]])
        self._keep(step, fresh)
        found = [each for each in results if each.num_rows]
        return pa.concat_tables(found, promote_options="default") if found else pa.table({})

    def _keep(self, step: Step, fresh: list[pa.Table]) -> None:
        keep_from = self.first_open_slot(step.boundary)
        for rows, name in zip(fresh, SIDES, strict=True):
            live = rows.filter(pa.array(numbers(rows[SLOT]) >= keep_from))
            step.write(name, live, None, keep_from)

    def _side(self, rows: pa.Table, side: int) -> pa.Table:
        return rows.select([SLOT, HASH, *_SYSTEM, *self.key_names, *self.columns[side]])

    def _pairs(self, left: pa.Table, right: pa.Table, role: int) -> pa.Table:
        at_left, at_right = self._match(left, right)
        left, right = left.take(pa.array(at_left)), right.take(pa.array(at_right))
        times = [numbers(left["stime"]), numbers(right["stime"])]
        newest = [numbers(left["tmax"]), numbers(right["tmax"])]
        seqs = [numbers(side["seq"]).astype(np.int64) for side in (left, right)]
        return self._emit(
            np.maximum(*times).astype(np.int64),
            np.maximum(*newest).astype(np.int64),
            mix(seqs[0], seqs[1]),
            role,
            (left, right),
            (seqs[0], seqs[1]),
        )

    def _match(self, left: pa.Table, right: pa.Table) -> tuple[Int64s, Int64s]:
        """All pairs of rows with equal keys within the distance."""
        if not left.num_rows or not right.num_rows:
            none = np.empty(0, dtype=np.int64)
            return none, none
        slots, hashes = np.unique(numbers(right[SLOT])), np.unique(numbers(right[HASH]))
        # Rows are sorted by slot and hash, so one number for both ascends and can be searched.
        place = _places(slots, numbers(right[SLOT]), len(hashes)) + _places(
            hashes, numbers(right[HASH])
        )
        left_slot, left_hash = numbers(left[SLOT]), _places(hashes, numbers(left[HASH]))
        found: list[tuple[Int64s, Int64s]] = []
        for distance in (-self.grain, 0, self.grain):
            probe = _places(slots, left_slot + distance, len(hashes))
            at = np.flatnonzero((probe >= 0) & (left_hash >= 0))
            wanted = probe[at] + left_hash[at]
            first = np.searchsorted(place, wanted, "left")
            count = np.searchsorted(place, wanted, "right") - first
            inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
            found.append((np.repeat(at, count), np.repeat(first, count) + inside))
        at_left, at_right = (np.concatenate([each[i] for each in found]) for i in (0, 1))
        good = self._matches(left, right, at_left, at_right)
        return at_left[good], at_right[good]

    def _matches(self, left: pa.Table, right: pa.Table, at_l: Int64s, at_r: Int64s) -> Bools:
        apart = numbers(right["stime"])[at_r] - numbers(left["stime"])[at_l]
        good: Bools = (apart >= -self.before) & (apart <= self.after)
        for name in self.key_names:
            mine = one_array(left[name].take(pa.array(at_l)))
            theirs = one_array(right[name].take(pa.array(at_r)))
            valid = numbers(mine.is_valid()).astype(np.bool_)  # a null key matches nothing
            good &= null_safe_equal(mine, theirs) & valid
        return good

    def _expired(
        self, side: int, step: Step, mine: list[pa.Table], others: list[pa.Table]
    ) -> list[pa.Table]:
        """Tuples whose reach the boundary has just passed, each with all its candidates."""
        reach = self.after if side == 0 else self.before
        results = []
        number = step.partition << 40
        for table in mine:
            known = numbers(table["stime"]) + reach
            passed = (known >= step.before) & (known < step.boundary)
            if not passed.any():
                continue
            lonely = table.filter(pa.array(passed))
            # Candidates name the tuple they belong to by a number: several tuples can share
            # ``seq``, and one task may handle several partitions.
            place = number + np.arange(lonely.num_rows)
            number += lonely.num_rows
            at = lonely.column_names.index("seq")
            numbered = lonely.set_column(at, "seq", pa.array(place))
            for other in others:
                pair = (numbered, other) if side == 0 else (other, numbered)
                results.append(self._pairs(*pair, CANDIDATE + 2 * side))
            seq = numbers(lonely["seq"]).astype(np.int64)
            stime = (numbers(lonely["stime"]) + reach).astype(np.int64)
            tmax = numbers(lonely["tmax"]).astype(np.int64)
            pair_ = (lonely, None) if side == 0 else (None, lonely)
            own = mix(seq, side - 2)
            results.append(self._emit(stime, tmax, own, LONELY + 2 * side, pair_, (place, place)))
        return results

    def _emit(
        self,
        stime: Int64s,
        tmax: Int64s,
        seq: Int64s,
        role: int,
        sides: tuple[pa.Table | None, pa.Table | None],
        seqs: tuple[Int64s, Int64s],
    ) -> pa.Table:
        columns: dict[str, pa.Array] = {
            "stime": pa.array(stime),
            "tmax": pa.array(tmax),
            "seq": pa.array(seq),
            ROLE: pa.array(np.full(len(stime), role, dtype=np.int32)),
            "left_seq": pa.array(seqs[0]),
            "right_seq": pa.array(seqs[1]),
        }
        for table, names in zip(sides, self.columns, strict=True):
            for name in names:
                column = pa.nulls(len(stime)) if table is None else one_array(table[name])
                columns[name] = column
        return pa.table(columns)


def _places(known: Int64s, values: Int64s, times: int = 1) -> Int64s:
    """Where each value stands among the ascending ``known``, times a number; -1 if it does not."""
    at = np.searchsorted(known, values)
    there = known[np.minimum(at, len(known) - 1)] == values
    return np.where(there, at * times, -1)


def resolve(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """``resolved`` as Spark calls it, where tuples come as rows."""
    received = list(batches)
    if received:
        yield from resolved(pa.Table.from_batches(received)).to_batches()


def resolved(rows: pa.Table) -> pa.Table:
    """Keep the pairs that meet the condition and the tuples that no candidate met.

    Candidates and the tuple they belong to come out of one advance of one partition, so this
    needs no state.
    """
    rows = rows.combine_chunks()
    role, met = numbers(rows[ROLE]), numbers(rows["met"]).astype(np.bool_)
    keep = (role == PAIR) & met
    for side, seq in enumerate(("left_seq", "right_seq")):
        seqs = numbers(rows[seq])
        matched = seqs[(role == CANDIDATE + 2 * side) & met]
        keep |= (role == LONELY + 2 * side) & ~np.isin(seqs, matched)
    return rows.filter(pa.array(keep)).combine_chunks()
