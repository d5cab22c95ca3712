"""What a stateful operator sees of the job it runs in, inside a Spark task.

The plan of a fragment is fixed, so everything that differs between buckets reaches the tasks
as one job property: the boundary before and after, where the state's runs are, where to put
the new ones. A task handles one partition of the state, or all of them when the bucket is
small enough for a job without a shuffle.

What a task did to the state is told by the names of the files it leaves in the step's
directory; a task that Spark runs again writes the same files again. With continuous
checkpoints it also leaves the states of the windows that opened (see ``window_states``).

A *replay* brings back a state from window states of different ages: steps take input they may
have seen before, ignore what they have, and emit nothing (see ``replay``).
"""

from __future__ import annotations

import functools
import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import TaskContext

from holdfast import disk
from holdfast.spark.attempts import part_of
from holdfast.spark.bundles import Bundle
from holdfast.spark.compaction import how_many_to_merge, merge_all
from holdfast.spark.continuous_files import Told, write_told
from holdfast.spark.groups import in_stream_order
from holdfast.spark.open_runs import OpenRun, keep_open, let_go, open_run
from holdfast.spark.rejected import STOP, Rejected, write_rejected
from holdfast.spark.runs import (
    HASH,
    SLOT,
    VERSION,
    Bools,
    homes,
    numbers,
    one_piece,
    run_name,
    sort_rows,
    write_run,
)

PROPERTY = "holdfast.step"
FOREVER = 2**62
# How an operator's window states are kept: written when a window opens and now and then, and
# computed again from there; or written whenever they change.
LAZY, EAGER = "lazy", "eager"
# Runs become one while no column of texts, bytes or lists has more: Arrow's have room for twice as
# much.
_MOST_COLUMN_BYTES = 1 << 30
# Families that can be made from others, so that nobody keeps them.
DERIVED = ("deadlines",)


@dataclass
class Step:
    """One advance of one partition of one operator, of all its ``partitions``.

    number  no other step of the engine has it.
    look    what becomes of the state is written nowhere, and more tuples of these times may come.
    bundle  takes the small runs, if there is one.
    long_rows  of more than so many rows it swallows no run.
    """

    before: int
    boundary: int
    version: int
    number: int
    partition: int
    partitions: int
    directory: str
    runs: dict[str, list[str]]
    operator: str
    keeps: str | None = None
    replay: bool = False
    on_error: str = STOP
    look: bool = False
    bundle: Bundle | None = None
    long_rows: int | None = None
    _rejected: list[Rejected] = field(default_factory=list)
    _open: dict[str, list[OpenRun]] = field(default_factory=dict)
    _told: dict[str, Told] = field(default_factory=dict)

    def read(self, family: str) -> list[OpenRun]:
        """The runs of one of the operator's state families, oldest first."""
        if family not in self._open:
            self._open[family] = [open_run(path) for path in self.runs.get(family, [])]
        return self._open[family]

    def write(
        self,
        family: str,
        rows: pa.Table,
        keys: Sequence[str] | None,
        first_open_slot: int = -FOREVER,
        opened: Bools | None = None,
        passed: Bools | None = None,
    ) -> None:
        """Add ``rows`` to a family as a new run, swallowing small neighbours.

        ``keys`` None means the family only ever grows: rows do not replace each other.
        ``opened`` says which rows are windows that were not open before.
        ``passed`` says which rows are dead and replace none: their windows came and went within
        the step. The state needs nothing of them, but where all that changes is kept, they are
        told: the log may have such a window open, written by a run that was cut short and went
        other steps.
        """
        if rows.num_rows == 0 or self.look:
            return
        if self.keeps is not None:
            self.tell_rows(family, rows, opened)
        if passed is not None and passed.any():
            rows = rows.filter(pa.array(~passed))
            if rows.num_rows == 0:
                return
        versions = pa.array(np.full(rows.num_rows, self.version))
        run = OpenRun(sort_rows(rows.append_column(VERSION, versions)))
        write_runs([NewRun(self, family, run, keys, first_open_slot)])

    def _add(self, family: str, run: OpenRun, kept: int) -> None:
        """Write the run that is the newest now, after so many that are kept."""
        paths = self.runs.get(family, [])
        swallowed = len(paths) - kept
        name = run_name((self.operator, family, self.partition), swallowed, run.slot, self.number)
        if self.bundle is not None and self.bundle.take(name, run, paths[kept:]):
            return
        path = f"{self.directory}/{name}"
        part = part_of(path)
        size = write_run(part, run.rows)
        disk.rename(part, path)
        keep_open(path, run, size, paths[kept:])

    def ended(self, family: str, count: int) -> None:
        """So many windows that were open before the step are not open after it."""
        if self.keeps is not None and count:
            self._told.setdefault(family, Told()).ended += int(count)

    def reject(self, reason: str, row: dict[str, Any]) -> None:
        """A user's function raises on a row, which is left out."""
        self._rejected.append(Rejected(self.operator, reason, row))

    def finish(self) -> None:
        """Leave what is to be told beside the state, after the handler has run."""
        place = (self.operator, self.partition)
        write_rejected(self.directory, place, self.number, self._rejected)
        for family, told in self._told.items():
            write_told(self.directory, (self.operator, family, self.partition), self.number, told)

    def tell_rows(self, family: str, rows: pa.Table, opened: Bools | None) -> None:
        """What continuous checkpoints are to know of rows that are written."""
        if self.keeps is None or family in DERIVED:
            return
        told = self._told.setdefault(family, Told())
        if opened is not None:
            told.opened += int(opened.sum())
        if self.keeps == EAGER:
            told.rows = rows
        elif opened is not None and opened.any():
            told.rows = rows.filter(pa.array(opened))


@dataclass(frozen=True)
class NewRun:
    """What a step adds to a family, as a run.

    keys             by which rows replace those there are; None: they replace none.
    first_open_slot  what is older is needed no more.
    replaced         how many of its rows replace one each of those there are, if that is known.
    """

    step: Step
    family: str
    run: OpenRun
    keys: Sequence[str] | None
    first_open_slot: int
    replaced: int | None = None


def write_runs(news: Sequence[NewRun]) -> None:
    """Add to families, swallowing small neighbours; those with the same columns go together."""
    parts: list[tuple[Sequence[OpenRun], bool, int]] = []
    places = []
    alike: dict[tuple[str, ...], list[int]] = {}
    for at, new in enumerate(news):
        runs = new.step.read(new.family)
        rows = [len(each) for each in runs]
        step = new.step
        kept = len(runs) - how_many_to_merge(rows, len(new.run), step.partition, step.long_rows)
        while not within_bytes([*runs[kept:], new.run]):
            kept += 1
        swallowed = runs[kept:]
        if len(runs) == len(swallowed) == 1 and new.replaced == len(runs[0]):
            swallowed = []  # nothing of it is left: so it is where few keys come with every bucket
        places.append(kept)
        parts.append(([*swallowed, new.run], not kept, new.first_open_slot))
        if swallowed:
            keys = ("",) if new.keys is None else new.keys
            alike.setdefault((new.family, *keys, *new.run.layout.kinds), []).append(at)
    found = [runs[0] for runs, *_ in parts]
    for several in alike.values():
        for together in _within_bytes(several, parts):
            merged = merge_all([parts[at] for at in together], news[together[0]].keys)
            for at, run in zip(together, merged, strict=True):
                found[at] = run
    for new, run, kept in zip(news, found, places, strict=True):
        new.step._add(new.family, run, kept)


def within_bytes(runs: Sequence[OpenRun]) -> bool:
    """Whether they can be one; the new run alone always is what it is."""
    return len(runs) == 1 or sum(each.widest_bytes for each in runs) <= _MOST_COLUMN_BYTES


def _within_bytes(
    several: Sequence[int], parts: Sequence[tuple[Sequence[OpenRun], bool, int]]
) -> Iterator[list[int]]:
    """Those that are merged at once: their columns lie one behind the other meanwhile."""
    together: list[int] = []
    taken = 0
    for at in several:
        size = sum(run.widest_bytes for run in parts[at][0])
        if together and taken + size > _MOST_COLUMN_BYTES:
            yield together
            together, taken = [], 0
        together.append(at)
        taken += size
    yield together


Handler = Callable[[Step, pa.Table], pa.Table]


@functools.cache
def freeze_imports() -> None:
    """Once in each worker: what is imported by now is no garbage.

    PySpark's workers collect garbage after every task, and look through every object of every
    module for it: some 40 ms, more than all the rest of a small bucket's task.
    """
    gc.freeze()


def _gather(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.Table:
    """The tuples as one table. Spark's optimizer may have found that a column has no nulls;
    state outlives plans, so its schema must not depend on that.
    """
    if not batches:
        return schema.empty_table()
    return pa.Table.from_batches(batches).cast(schema).combine_chunks()


@dataclass(frozen=True)
class StepPlan:
    """An operator's step as tasks need it: what it is given, what it emits, how state is split."""

    operator: str
    handler: Handler
    given: pa.Schema
    output: pa.Schema
    partitions: int

    def run(
        self,
        told: Mapping[str, Any],
        rows: pa.Table,
        partitions: Sequence[int],
        bundle: Bundle | None = None,
    ) -> Iterator[pa.Table]:
        """Hands these partitions their tuples, and gives what is emitted for them, if anything is.

        They are in stream order, unless the handler says that any order will do. A handler with
        ``together`` takes those of all partitions at once, but for a replay, which asks each of
        them what it has seen.
        """
        replay = told.get("replay")
        if replay is not None and self.operator not in replay:
            return  # its state is whole, and nothing reaches it
        only = told.get("only")
        if only is not None and self.operator not in only:
            return  # nobody needs what it would make
        any_order = getattr(self.handler, "any_order", False)
        together = getattr(self.handler, "together", None)
        if together is not None and replay is None:
            parts = iter([(tuple(partitions), rows)])
        else:
            parts = (((each,), own) for each, own in by_partition(rows, partitions, self))
        for several, own in parts:
            ordered = own if any_order or own.num_rows < 2 else in_stream_order(own)
            steps = [step_of(told, self, partition, bundle) for partition in several]
            if together is not None:
                result = together(steps, ordered)
            else:
                zeros = pa.array(np.zeros(own.num_rows, np.int64))
                result = self.handler(steps[0], ordered.append_column(SLOT, zeros))
            for step in steps:
                step.finish()
            if replay is None and result.num_rows:
                yield one_piece(conform(result, self.output))


def job_property(name: str) -> dict[str, Any]:
    """What the driver tells the tasks of a job."""
    context = TaskContext.get()
    assert context is not None, "stateful operators run inside Spark tasks"
    told: dict[str, Any] = json.loads(context.getLocalProperty(name) or "{}")
    return told


def stateful(
    plan: StepPlan, sharded: bool
) -> Callable[[Iterable[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function Spark runs where tuples come as rows: collects those of a task."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_imports()
        table = _gather(list(batches), plan.given)
        partitions: Sequence[int] = range(plan.partitions)
        if sharded:
            partition, table = _marked(table)
            partitions = [partition]
        for emitted in plan.run(job_property(PROPERTY), table, partitions):
            yield from emitted.to_batches()
        let_go()

    return run


def _marked(table: pa.Table) -> tuple[int, pa.Table]:
    """The partition a task has been given, told by its marker row, and its tuples."""
    marker = pc.is_null(table["stime"])
    partition = table[HASH].filter(marker)[0].as_py()
    return partition, table.filter(pc.invert(marker))


def by_partition(
    table: pa.Table, partitions: Sequence[int], plan: StepPlan
) -> Iterator[tuple[int, pa.Table]]:
    """The tuples of each of these partitions; the table has those of no others."""
    if len(partitions) == 1:
        yield partitions[0], table
        return
    home = homes(numbers(table[HASH]), plan.partitions)
    for partition in partitions:
        yield partition, table.filter(pa.array(home == partition))


def conform(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly the columns and types Spark was told of."""
    if table.num_rows == 0:
        return schema.empty_table()
    # To cast columns to what they are takes 40 µs, with every step of every bucket.
    if table.schema.equals(schema, check_metadata=True):
        return table
    table = table.select(schema.names)
    if all(map(_is_of, table.itercolumns(), schema)):
        return pa.Table.from_arrays(table.columns, schema=schema)
    return table.cast(schema)


def _is_of(column: pa.ChunkedArray, field: pa.Field) -> bool:
    """Whether the field can have the column as it is."""
    return column.type == field.type and (field.nullable or not column.null_count)


def step_of(told: Mapping[str, Any], plan: StepPlan, partition: int, bundle: Bundle | None) -> Step:
    """One partition's step of a job that is told so."""
    operator = plan.operator
    runs: dict[str, list[str]] = {}
    for family, paths in told["runs"].get(operator, {}).items():
        runs[family] = paths[partition]
    return Step(
        told["before"],
        told["boundary"],
        told["version"],
        told["step"],
        partition,
        plan.partitions,
        told["directory"],
        runs,
        operator,
        told["keeps"].get(operator),
        told.get("replay") is not None,
        told.get("on_error", STOP),
        told.get("look", False),
        bundle,
        told.get("long_rows"),
    )
