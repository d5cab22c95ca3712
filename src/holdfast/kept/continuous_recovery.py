"""The eventual checkpoint: a fragment's state from the window states in its output log.

The log is read backwards, in large pieces, from the newest window states that are not younger
than the moment to restore, to the oldest that is still needed. What is found of each family is
one table; its rows are sorted once, and the newest row of every window stays. No loop goes over
windows. The result is a partial state: every window as it was at its own time, with these times
beside it, from which ``Engine.replay`` computes the state at the moment to restore.

A log may have, from a run that was cut short, window states of a time after the moment it was
restored from, followed by those of the run after. Both are true: a state at a time depends on
nothing but the input. So the newest by time counts, and reading on is harmless. A window that is
open there and came and went within one step of the run after is closed by the replay; operators
without a replay have told that it is gone (``Step.write``). Where rows only ever accumulate (a
join's), each stretch of time is taken from the newest frame that has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.continuous import Generation, Mark
from holdfast.core.frame import Kind
from holdfast.errors import StateError
from holdfast.log import StreamLog
from holdfast.spark.compaction import first_of_keys
from holdfast.spark.continuous_files import PARTITION
from holdfast.spark.continuous_states import Members, WindowBatch, members_of
from holdfast.spark.engine import Engine
from holdfast.spark.replay import SINCE, since_family
from holdfast.spark.runs import (
    DEAD,
    HASH,
    SLOT,
    VERSION,
    Int64s,
    numbers,
    one_array,
    run_name,
    sort_rows,
    write_run,
)
from holdfast.spark.state import EMPTY, State, collect_runs
from holdfast.spark.stateful import Stateful
from holdfast.spark.task import FOREVER, LAZY

WINDOWS = (Kind.WINDOW_OPEN, Kind.WINDOW_CHECK)
CHUNK_BYTES = 4 << 20
# The name of the number of open windows beside every window state (``kept.continuous_reader``).
OPEN_WINDOWS = b"open_windows"


@dataclass(frozen=True)
class Extent:
    """The part of a log a recovery needs: window states, newest frame first.

    lsns          the place of each frame in the log.
    results       for each frame, how many result tuples the stream had when it was written.
    open_windows  how many windows were open at the boundary, where a frame of then says so.
    """

    batches: Sequence[WindowBatch]
    lsns: Sequence[int]
    results: Sequence[int]
    open_windows: int | None = None

    def places(self) -> list[tuple[int, int]]:
        """Time and place of each frame, in the order of the log."""
        found = zip(self.batches, self.lsns, strict=True)
        return [(batch.time, lsn) for batch, lsn in found][::-1]

    @property
    def frames(self) -> int:
        """q: how many window states and results it has."""
        windows: int = sum(batch.rows.num_rows for batch in self.batches)
        return windows + (self.results[0] - self.results[-1] if self.results else 0)


def read_extent(log: StreamLog, boundary: int, extent_from: int, whole_log: bool = False) -> Extent:
    """The window states that are needed for the state at ``boundary``.

    ``whole_log``: two copies have written it, so that times do not tell where to stop.
    """
    batches: list[WindowBatch] = []
    lsns: list[int] = []
    results: list[int] = []
    windows = None
    for lsn, frame in log.read_backwards(CHUNK_BYTES, kinds=WINDOWS):
        time = frame.header.stime_min
        if time < extent_from and not whole_log:
            break
        if extent_from <= time <= boundary:
            batches.append(WindowBatch.of(frame))
            lsns.append(lsn)
            results.append(frame.header.first_id)
            if time == boundary and frame.batch is not None:
                windows = int(frame.batch.schema.metadata[OPEN_WINDOWS])
    return Extent(batches, lsns, results, windows)


@dataclass(frozen=True)
class Recovered:
    """A partial state, and what is known of the windows in it.

    state        its boundary is where the replay must start.
    boundary     where the replay must stop.
    generations  the windows by the time of their states, oldest first.
    """

    state: State
    boundary: int
    generations: Mapping[int, Sequence[Members]]
    extent: Extent

    def counts(self, engine: Engine) -> list[Generation]:
        """The generations as ``core.continuous`` counts them."""
        found = []
        for time, members in self.generations.items():
            generation = Generation(time, members=tuple(members))
            for each in members:
                if engine.keeps[each.operator] == LAZY:
                    generation.replayed += each.count
                else:
                    generation.exact += each.count
            found.append(generation)
        return found

    def marks(self, input_times: Int64s) -> tuple[list[Mark], int]:
        """Frames and inputs before each time, from the times of the replayed tuples; and the
        frames in all."""
        order = sorted(zip(self.extent.batches, self.extent.results, strict=True), key=_time)
        marks: list[Mark] = []
        windows = 0
        base = order[0][1] if order else 0
        for batch, results in order:
            if not marks or marks[-1].time < batch.time:
                inputs = int(np.searchsorted(input_times, batch.time))
                marks.append(Mark(batch.time, windows + max(0, results - base), inputs))
            windows += batch.rows.num_rows
        start = Mark(min(self.state.boundary, marks[0].time if marks else FOREVER), 0, 0)
        results = max(self.extent.results, default=base) - base
        return [start, *marks], windows + results


def _time(found: tuple[WindowBatch, int]) -> tuple[int, int]:
    return found[0].time, found[1]


def load(engine: Engine, extent: Extent, boundary: int, replay_from: int) -> Recovered:
    """The partial state for ``boundary`` from the window states in ``extent``.

    ``replay_from`` is the oldest input that is needed: whatever window was last written before
    it, and would have to be replayed, has closed.
    """
    operators = {each.name: each.stateful for each in engine.stateful}
    families: dict[tuple[str, str], list[WindowBatch]] = {}
    for batch in extent.batches:
        if batch.operator not in operators:
            raise StateError(
                f"the log has window states of operator {batch.operator!r}, which this network "
                f"does not have; it was written by another network or another version of it"
            )
        families.setdefault((batch.operator, batch.family), []).append(batch)
    writer = _Writer(engine, boundary, replay_from)
    for (operator, family), batches in families.items():
        writer.write(operators[operator], operator, family, batches)
    return writer.result(extent, oldest_replayed(engine, boundary))


def oldest_replayed(engine: Engine, boundary: int) -> int:
    """The oldest input a replay up to ``boundary`` needs, whatever the window states."""
    lazy = [each for each in engine.stateful if engine.keeps[each.name] == LAZY]
    return min([boundary, *(each.stateful.replay_from(boundary) for each in lazy)])


class _Writer:
    """Makes runs of window states."""

    def __init__(self, engine: Engine, boundary: int, replay_from: int) -> None:
        self._engine = engine
        self._replay_from = replay_from
        self._version = engine.next_version(EMPTY)
        self._boundary = boundary
        self._first_open = engine.first_open(boundary)
        self._directory = engine.step_directory()
        self._members: dict[int, list[Members]] = {}
        self._oldest = boundary

    def write(
        self, stateful: Stateful, operator: str, family: str, batches: Sequence[WindowBatch]
    ) -> None:
        keys = stateful.row_keys(family)
        rows, times = _stretches(batches) if keys is None else _all(batches)
        open_from = self._first_open.get((operator, family), -FOREVER)
        live = numbers(rows[SLOT]) >= open_from
        rows, times = rows.filter(pa.array(live)), times[live]
        lazy = self._engine.keeps[operator] == LAZY
        if keys is not None:
            rows, times = _newest(rows, times, keys)
            if lazy:
                # The slots of count windows do not tell which are open; their age does.
                live = times >= self._replay_from
                rows, times = rows.filter(pa.array(live)), times[live]
        if not len(times):
            return
        if lazy:
            self._oldest = min(self._oldest, int(times.min()))
        self._note(operator, family, rows, times)
        home = numbers(rows[PARTITION])
        rows = rows.drop_columns([PARTITION])
        for partition in range(self._engine.partitions):
            mine = home == partition
            if mine.any():
                part = rows.filter(pa.array(mine))
                self._write(operator, family, partition, part)
                if lazy:
                    since = {SLOT: part[SLOT], SINCE: pa.array(times[mine])}
                    self._file(operator, since_family(family), partition, pa.table(since))
                for name, derived in stateful.derived(family, part).items():
                    self._write(operator, name, partition, sort_rows(derived))

    def _write(self, operator: str, family: str, partition: int, rows: pa.Table) -> None:
        versions = pa.array(np.full(rows.num_rows, self._version))
        self._file(operator, family, partition, rows.append_column(VERSION, versions))

    def _file(self, operator: str, family: str, partition: int, rows: pa.Table) -> None:
        slots = numbers(rows[SLOT])
        name = run_name((operator, family, partition), 0, slots, self._directory.number)
        write_run(str(self._directory.path / name), rows)

    def _note(self, operator: str, family: str, rows: pa.Table, times: Int64s) -> None:
        """The windows by the time of their states."""
        state = State(self._version, self._boundary)
        where = members_of(operator, family, rows, state, self._boundary)
        order = np.argsort(times, kind="stable")
        found, starts = np.unique(times[order], return_index=True)
        for time, places in zip(found, np.split(order, starts[1:]), strict=True):
            members = replace(where.at(places), time=int(time))
            self._members.setdefault(int(time), []).append(members)

    def result(self, extent: Extent, reach: int) -> Recovered:
        # What the boundary will close is still needed: the replay closes it.
        runs = collect_runs(EMPTY, self._directory, self._engine.partitions, {})
        state = State(self._version, min(self._oldest, reach), runs)
        generations = dict(sorted(self._members.items()))
        return Recovered(state, self._boundary, generations, extent)


def _all(batches: Iterable[WindowBatch]) -> tuple[pa.Table, Int64s]:
    tables = [batch.rows for batch in batches]
    times = np.concatenate([np.full(each.rows.num_rows, each.time) for each in batches])
    return pa.concat_tables(tables, promote_options="default"), times


def _stretches(batches: Sequence[WindowBatch]) -> tuple[pa.Table, Int64s]:
    """Rows that accumulate: of every stretch of time the newest frame's, each row once."""
    covered_from, tables, times = FOREVER, [], []
    for batch in batches:
        rows = batch.rows.filter(pc.less(batch.rows["stime"], covered_from))
        covered_from = min(covered_from, batch.start)
        tables.append(rows)
        times.append(np.full(rows.num_rows, batch.time))
    rows, found = pa.concat_tables(tables, promote_options="default"), np.concatenate(times)
    keys = [numbers(rows[name]) for name in (HASH, SLOT, PARTITION)]
    order = np.lexsort(keys)
    return rows.take(pa.array(order)), found[order]


def _newest(rows: pa.Table, times: Int64s, keys: tuple[str, ...]) -> tuple[pa.Table, Int64s]:
    """The newest state of every window, in the order of runs, partition by partition."""
    slot, hashes, home = (numbers(rows[name]) for name in (SLOT, HASH, PARTITION))
    order = np.lexsort((-times, hashes, slot, home))
    names = [one_array(rows[name]) for name in (PARTITION, *keys)]
    keep = first_of_keys(order, slot[order], hashes[order], names)
    if DEAD in rows.column_names:
        keep &= ~numbers(rows[DEAD])[order].astype(np.bool_)
    return rows.take(pa.array(order[keep])), times[order[keep]]
