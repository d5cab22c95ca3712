"""Long runs are merged aside, so that no bucket waits for it.

To merge runs of millions of rows takes seconds. So a bucket leaves runs alone that are long, and a
task that stays, of those that no bucket needs, merges them meanwhile, by the same rule as all
others (``compaction``). The old ones are read until that is done; then the state of the next
bucket names the new one in their place. It has the same rows, each with the version it was
written by, so nothing else can tell.

Whatever is under way may be dropped at any moment: nothing but time is lost. What was merged is for
all states that name those very runs side by side, whichever of several that went different ways
they belong to, but for none of a boundary before that of the state it was begun for: there, windows
are open whose rows a merge has left out.

Where there are no tasks that stay, buckets merge runs of any length, as they come to it.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import SparkContext, cloudpickle

from holdfast import disk
from holdfast.spark.attempts import part_of
from holdfast.spark.compaction import how_many_to_merge, merge
from holdfast.spark.open_runs import OpenRun
from holdfast.spark.resident import residents_of
from holdfast.spark.resident_task import Order
from holdfast.spark.runs import read_run, run_name, write_run
from holdfast.spark.state import Run, Runs, State, new_runs
from holdfast.spark.task import FOREVER, within_bytes

if TYPE_CHECKING:
    from holdfast.spark.engine import Engine

# A run of more rows is long: to write a shorter one anew takes some ten milliseconds. Where buckets
# have many tuples, and take long anyway, it is one of so many times their rows.
LONG_ROWS, _TIMES_ROWS = 1 << 16, 4
# With more long runs in a partition merging does not keep up: then only longer ones count as long,
# and buckets merge the others. That wears off, by so much with every advance.
_MOST_LONG, _WEARS_OFF = 8, 0.98
# What was merged, and no state has had a use for in so many advances, is dropped.
_MOST_ADVANCES = 50
# How often a state is looked at: to look takes 20 µs where runs are many.
_EVERY_ADVANCES = 4
# After so many merges that nothing came of, there are no more.
_MOST_IN_VAIN = 8
# So much nicer than buckets, which do not wait.
_NICER = 5
_JOB = "merges of long runs"


@dataclass(frozen=True)
class MergeTask:
    """Merges some runs of one partition, oldest first, as a task that stays is told."""

    def carry_out(self, order: Order) -> None:
        # The niceness of a thread is its own on Linux, and cannot be taken back: it ends with it.
        nice = threading.Thread(target=self._nicely, args=(order,), name="holdfast-merge")
        nice.start()
        nice.join()

    def _nicely(self, order: Order) -> None:
        with contextlib.suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICER)
        # Whatever is wrong, the runs are there, and who reads them for a bucket tells of it.
        with contextlib.suppress(Exception):
            merge_files(**json.loads(order.files))

    def take_back(self, order: Order) -> None:
        """Nothing: whoever waited for it has removed the directory, or will with its engine."""


def merge_files(
    addresses: Sequence[str],
    place: tuple[str, str, int],
    directory: str,
    step: int,
    keys: Sequence[str] | None,
    first_open_slot: int,
    whole: bool,
) -> None:
    """Make one run of these, or of so many of the newest as can be one; its name says how many."""
    runs = [OpenRun(read_run(each)) for each in addresses]
    while len(runs) > 1 and not within_bytes(runs):
        runs, whole = runs[1:], False
    if len(runs) < 2:
        return
    merged = merge(runs, keys, first_open_slot, whole)
    operator, family, partition = place
    name = run_name((operator, family, partition), len(runs), merged.slot, step)
    part = part_of(f"{directory}/{name}")
    write_run(part, merged.rows)
    disk.rename(part, f"{directory}/{name}")


def to_merge(rows: Sequence[int], long_rows: int) -> tuple[int, int]:
    """Which runs of a partition, oldest first, are to become one: from where to where.

    Those that no bucket swallows: the newest long one and all before it.
    """
    long = [at for at, each in enumerate(rows) if each > long_rows]
    if not long:
        return 0, 0
    last = long[-1]
    return last - how_many_to_merge(rows[:last], rows[last]), last + 1


@dataclass
class _Merged:
    """A run that may be named in place of those at these addresses."""

    addresses: tuple[str, ...]
    run: Run
    boundary: int
    advances: int = 0


@dataclass(frozen=True)
class _Wanted:
    """A merge to be begun: which runs, of where."""

    place: tuple[str, str, int]
    runs: tuple[Run, ...]
    whole: bool
    boundary: int

    @property
    def addresses(self) -> tuple[str, ...]:
        return tuple(run.address for run in self.runs)


class Aside:
    """The long runs of one engine's states."""

    def __init__(self, engine: Engine, context: SparkContext, cores: int) -> None:
        # It holds on to this, and is to be gone with its last user.
        self._engine = weakref.ref(engine)
        self._context, self._cores = context, cores
        self._lock = threading.Lock()
        self._merged: list[_Merged] = []
        self._in_vain: set[tuple[str, ...]] = set()
        self._at_work = False
        # Of how many rows a run is long.
        self._long = LONG_ROWS
        # How many there were, and how many there must have been before the next merge.
        self._advances = self._rest = 0
        self._thread: threading.Thread | None = None

    def long_rows(self, rows: int) -> int | None:
        """Of more rows than this a bucket swallows no run; None if it is to swallow any.

        ``rows``: how many tuples it has for each partition.
        """
        self._long = max(LONG_ROWS, _TIMES_ROWS * rows, int(self._long * _WEARS_OFF))
        return self._long if self._is_possible else None

    @property
    def _is_possible(self) -> bool:
        there = residents_of(self._context).are_there
        return there and len(self._in_vain) <= _MOST_IN_VAIN

    def put_in_place(self, state: State) -> State:
        """The same state, with the runs that were merged meanwhile."""
        with self._lock:
            if not self._merged:
                return state
            runs = state.runs
            for each in self._merged:
                each.advances += 1
                if each.boundary <= state.boundary:
                    runs = _replaced(runs, each)
            self._merged = [each for each in self._merged if each.advances <= _MOST_ADVANCES]
        return State(state.version, state.boundary, runs)

    def begin(self, state: State) -> None:
        """Have long runs of the state merged, if there is something to do and nobody does it."""
        self._advances += 1
        if self._advances % _EVERY_ADVANCES == 0 and self._is_possible:
            self._begin(state)

    def settled(self, state: State) -> State:
        """The same state once there is nothing to merge aside any more."""
        self.wait()
        while self._is_possible and self._begin(state):
            self.wait()
            state = self.put_in_place(state)
        return state

    def _begin(self, state: State) -> bool:
        long = [
            ((operator, family, partition), runs)
            for operator, families in state.runs.items()
            for family, partitions in families.items()
            for partition, runs in enumerate(partitions)
            if any(run.rows > self._long for run in runs)
        ]
        if any(sum(run.rows > self._long for run in runs) > _MOST_LONG for _, runs in long):
            self._long *= 2
        if self._at_work or self._advances < self._rest or not long:
            return False
        wanted = self._wanted(long, state.boundary)
        if wanted is None:
            return False
        with self._lock:
            if self._at_work:
                return False
            self._at_work = True
        self._thread = threading.Thread(
            target=self._merge, args=(wanted,), name="holdfast-merges", daemon=True
        )
        self._thread.start()
        return True

    def wait(self) -> None:
        """Until what is under way is done."""
        if self._thread is not None:
            self._thread.join()

    def _wanted(
        self, long: Sequence[tuple[tuple[str, str, int], Sequence[Run]]], boundary: int
    ) -> _Wanted | None:
        for place, runs in long:
            first, end = to_merge([run.rows for run in runs], self._long)
            found = _Wanted(place, tuple(runs[first:end]), not first, boundary)
            if end - first > 1 and found.addresses not in self._in_vain:
                return found
        return None

    def _merge(self, wanted: _Wanted) -> None:
        try:
            made = self._made(wanted)
        except Exception:
            made = None
        with self._lock:
            self._at_work = False
            if made is None:
                self._in_vain.add(wanted.addresses)
            elif made:
                self._merged.extend(made)
            else:
                self._rest = self._advances + _MOST_ADVANCES

    def _made(self, wanted: _Wanted) -> list[_Merged] | None:
        """What came of it; None if it will not do, nothing if there was no task to be had."""
        operator, family, _ = wanted.place
        engine = self._engine()
        if engine is None:
            return []
        stateful = {each.name: each.stateful for each in engine.stateful}
        directory = engine.step_directory()
        told = {
            "addresses": wanted.addresses,
            "place": wanted.place,
            "directory": str(directory.path),
            "step": directory.number,
            "keys": stateful[operator].row_keys(family),
            "first_open_slot": engine.first_open(wanted.boundary).get((operator, family), -FOREVER),
            "whole": wanted.whole,
        }
        try:
            with residents_of(self._context).one_beside(self._cores) as found:
                for each in found:
                    each.order(_JOB, _pickled, Order(0, "{}", json.dumps(told)))
                    each.answer()
                if not found:
                    return []
        except BaseException:
            directory.remove()
            raise
        made = new_runs(directory)
        if not made:
            directory.remove()  # half of a run may be there
            return None
        (name, run), *_ = made
        return [_Merged(wanted.addresses[-int(name[3]) :], run, wanted.boundary)]


def _pickled() -> bytes:
    pickled: bytes = cloudpickle.dumps(MergeTask())  # type: ignore[no-untyped-call]
    return pickled


def _replaced(runs: Runs, merged: _Merged) -> Runs:
    """The runs of a state with the merged one in place of those it was made from."""
    for operator, families in runs.items():
        for family, partitions in families.items():
            for partition, mine in enumerate(partitions):
                at = _place_of(merged.addresses, mine)
                if at is None:
                    continue
                there = (merged.run,) if merged.run.rows else ()
                own = (*mine[:at], *there, *mine[at + len(merged.addresses) :])
                changed = (*partitions[:partition], own, *partitions[partition + 1 :])
                return {**runs, operator: {**families, family: changed}}
    return runs


def _place_of(addresses: Sequence[str], runs: Sequence[Run]) -> int | None:
    """Where among the runs those with these addresses are, one behind the other."""
    for at, run in enumerate(runs):
        if run.address == addresses[0]:
            same = [each.address for each in runs[at : at + len(addresses)]] == list(addresses)
            return at if same else None
    return None
