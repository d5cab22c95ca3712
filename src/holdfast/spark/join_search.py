"""Finds the tuples of a run that lie near others: in the same slot or beside it, with one hash.

Those that come are looked up among those that are kept, never the other way: what is kept is
in the order of slots and hashes, so each look costs a few steps however much there is.
"""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np

from holdfast.spark.open_runs import OpenRun
from holdfast.spark.runs import Bools, Int64s, numbers

# Slots are looked at one after the other where there are few, or so many tuples in each of them.
_FEW_SLOTS, _MANY_IN_SLOT = 8, 32


class Probe:
    """Tuples that are looked up, as a run; those with a null in a key have no partner."""

    def __init__(self, run: OpenRun, key_names: tuple[str, ...]) -> None:
        self.run = run
        # Which of its rows may have a partner; None: all of them.
        self._rows: Int64s | None = None
        missing = [run.array(name).is_null() for name in key_names if run.array(name).null_count]
        if missing:
            none: Bools = np.logical_or.reduce([numbers(each) for each in missing])
            self._rows = np.flatnonzero(~none)

    @cached_property
    def _hash(self) -> Int64s:
        return self.run.hash if self._rows is None else self.run.hash.take(self._rows)

    @cached_property
    def _slot(self) -> Int64s:
        return self.run.slot if self._rows is None else self.run.slot.take(self._rows)

    @cached_property
    def _edges(self) -> Int64s:
        """Where each slot's tuples begin, and where the last ones end."""
        if not len(self._slot):
            return np.zeros(1, np.int64)
        begins = np.flatnonzero(self._slot[1:] != self._slot[:-1]) + 1
        return np.concatenate([[0], begins, [len(self._slot)]])

    def near(self, run: OpenRun, grain: int) -> tuple[Int64s, Int64s]:
        """All pairs of its rows and the run's with one hash whose slots are one or lie beside."""
        none = np.empty(0, np.int64)
        slots = len(self._edges) - 1
        if not len(run) or not slots:
            return none, none
        one_by_one = slots <= _FEW_SLOTS or len(self._slot) >= _MANY_IN_SLOT * slots
        look = self._slot_by_slot if one_by_one else self._all_slots
        looks = [each for distance in (-grain, 0, grain) for each in look(run, distance)]
        if not looks:
            return none, none
        at, first, end = (np.concatenate([each[i] for each in looks]) for i in range(3))
        count = _after_equal(run.hash, first, end) - first
        inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        at = np.repeat(at, count)
        return at if self._rows is None else self._rows.take(at), np.repeat(first, count) + inside

    def _slot_by_slot(self, run: OpenRun, distance: int) -> list[tuple[Int64s, Int64s, Int64s]]:
        """Which tuples have their hash in the slot so far off; the first such row, the slot's end.

        For each slot in turn.
        """
        found = []
        edges = self._edges.tolist()
        for begin, end in pairwise(edges):
            low, high = run.range_of(int(self._slot[begin]) + distance)
            if low == high:
                continue
            same, rows = run.equal_hashes(low, high, self._hash[begin:end])
            if len(same):
                found.append((same + begin, rows, np.full(len(rows), high)))
        return found

    def _all_slots(self, run: OpenRun, distance: int) -> list[tuple[Int64s, Int64s, Int64s]]:
        """The same for all slots at once."""
        wanted = self._slot[self._edges[:-1]] + distance
        counts = np.diff(self._edges)
        low = np.repeat(run.slot.searchsorted(wanted, "left"), counts)
        end = np.repeat(run.slot.searchsorted(wanted, "right"), counts)
        first = _place(run.hash, self._hash, low, end, after=False)
        same = np.flatnonzero((first < end) & (run.hash.take(first, mode="clip") == self._hash))
        return [(same, first.take(same), end.take(same))] if len(same) else []


def _after_equal(hashes: Int64s, first: Int64s, end: Int64s) -> Int64s:
    """Where the hashes end that equal the one in each of these places, at the latest at ``end``."""
    after = first + 1
    wanted = hashes.take(first)
    several = np.flatnonzero((after < end) & (hashes.take(after, mode="clip") == wanted))
    if len(several):
        wanted, begin, end = (each.take(several) for each in (wanted, after, end))
        after[several] = _place(hashes, wanted, begin, end, after=True)
    return after


def _place(hashes: Int64s, wanted: Int64s, low: Int64s, high: Int64s, after: bool) -> Int64s:
    """As ``searchsorted``, for each wanted hash among those between two places of its own."""
    for _ in range(int((high - low).max()).bit_length()):
        middle = (low + high) >> 1
        values = hashes.take(middle, mode="clip")
        right = ((values <= wanted) if after else (values < wanted)) & (middle < high)
        low, high = np.where(right, middle + 1, low), np.where(right, high, middle)
    return low
