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

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from holdfast.spark.groups import with_slots
from holdfast.spark.join_search import Probe
from holdfast.spark.open_runs import OpenRun
from holdfast.spark.runs import (
    HASH,
    SLOT,
    Bools,
    Int64s,
    mix,
    null_safe_equal,
    numbers,
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
        came = [OpenRun(each) for each in fresh]
        old = [step.read(name) for name in SIDES]
        results = [
            *self._pairs(Probe(came[0], self.key_names), 0, [*old[1], came[1]], PAIR),
            *self._pairs(Probe(came[1], self.key_names), 1, old[0], PAIR),
        ]
        for i in (0, 1):
            if self.outer[i] and not step.look:
                results += self._expired(i, step, [*old[i], came[i]], [*old[1 - i], came[1 - i]])
        self._keep(step, fresh)
        return pa.concat_tables(results, promote_options="default") if results else pa.table({})

    def _keep(self, step: Step, fresh: list[pa.Table]) -> None:
        keep_from = self.first_open_slot(step.boundary)
        for rows, name in zip(fresh, SIDES, strict=True):
            live = rows.filter(pa.array(numbers(rows[SLOT]) >= keep_from))
            step.write(name, live, None, keep_from)

    def _side(self, rows: pa.Table, side: int) -> pa.Table:
        return rows.select([SLOT, HASH, *_SYSTEM, *self.key_names, *self.columns[side]])

    def _pairs(
        self, probe: Probe, side: int, others: Sequence[OpenRun], role: int
    ) -> list[pa.Table]:
        """What the tuples of a side and their partners in these runs of the other one come to."""
        results = []
        for other in others:
            own, found = self._match(probe, side, other)
            if not len(own):
                continue
            pair = _Some(probe.run, own), _Some(other, found)
            left, right = pair if side == 0 else pair[::-1]
            seqs = [each.numbers("seq") for each in (left, right)]
            results.append(
                self._emit(
                    np.maximum(left.numbers("stime"), right.numbers("stime")),
                    np.maximum(left.numbers("tmax"), right.numbers("tmax")),
                    mix(seqs[0], seqs[1]),
                    role,
                    (left, right),
                    (seqs[0], seqs[1]),
                )
            )
        return results

    def _match(self, probe: Probe, side: int, other: OpenRun) -> tuple[Int64s, Int64s]:
        """All pairs of rows, of this side and of the other, with equal keys within the distance."""
        own, found = probe.near(other, self.grain)
        mine, theirs = _Some(probe.run, own), _Some(other, found)
        apart = theirs.numbers("stime") - mine.numbers("stime")
        if side == 1:
            apart = -apart
        good: Bools = (apart >= -self.before) & (apart <= self.after)
        own, found = own[good], found[good]
        for name in self.key_names:
            same = _equal(_Some(probe.run, own), _Some(other, found), name)
            own, found = own[same], found[same]
        return own, found

    def _expired(
        self, side: int, step: Step, mine: Sequence[OpenRun], others: Sequence[OpenRun]
    ) -> list[pa.Table]:
        """Tuples whose reach the boundary has just passed, each with all its candidates."""
        reach = self.after if side == 0 else self.before
        begin, end = step.before - reach, step.boundary - reach
        slots = [begin // self.grain * self.grain, end]
        passed = []
        for run in mine:
            low, high = run.slot.searchsorted(slots)
            stime = _numbers(run, "stime")[low:high]
            rows = np.flatnonzero((stime >= begin) & (stime < end))
            if len(rows):
                passed.append(self._side(run.rows, side).take(pa.array(rows + low)))
        if not passed:
            return []
        lonely = sort_rows(pa.concat_tables(passed, promote_options="default"))
        # Candidates name the tuple they belong to by a number: several tuples can share
        # ``seq``, and one task may handle several partitions.
        place = (step.partition << 40) + np.arange(lonely.num_rows)
        at = lonely.column_names.index("seq")
        numbered = OpenRun(lonely.set_column(at, "seq", pa.array(place)))
        results = self._pairs(Probe(numbered, self.key_names), side, others, CANDIDATE + 2 * side)
        seq = numbers(lonely["seq"]).astype(np.int64)
        stime = (numbers(lonely["stime"]) + reach).astype(np.int64)
        tmax = numbers(lonely["tmax"]).astype(np.int64)
        all_of_them = _Some(numbered, None)
        pair = (all_of_them, None) if side == 0 else (None, all_of_them)
        own = mix(seq, side - 2)
        results.append(self._emit(stime, tmax, own, LONELY + 2 * side, pair, (place, place)))
        return results

    def _emit(
        self,
        stime: Int64s,
        tmax: Int64s,
        seq: Int64s,
        role: int,
        sides: tuple[_Some | None, _Some | None],
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
        for some, names in zip(sides, self.columns, strict=True):
            for name in names:
                columns[name] = pa.nulls(len(stime)) if some is None else some.array(name)
        return pa.table(columns)


@dataclass(frozen=True)
class _Some:
    """Some rows of a run; None: all of them."""

    run: OpenRun
    rows: Int64s | None

    def array(self, name: str) -> pa.Array:
        array = self.run.array(name)
        return array if self.rows is None else array.take(pa.array(self.rows))

    def numbers(self, name: str) -> Int64s:
        found = _numbers(self.run, name)
        return found if self.rows is None else found.take(self.rows)


def _numbers(run: OpenRun, name: str) -> Int64s:
    found = run.plain(name)
    assert found is not None, f"{name} is a number in every row"
    return found.astype(np.int64, copy=False)


def _equal(mine: _Some, theirs: _Some, name: str) -> Bools:
    plain = [each.run.plain(name) for each in (mine, theirs)]
    if all(each is not None and each.dtype.kind == "i" for each in plain):
        same: Bools = mine.numbers(name) == theirs.numbers(name)
        return same
    return null_safe_equal(mine.array(name), theirs.array(name))


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
