"""A job on columns, inside a Spark task: reads streams, runs steps, writes streams.

The driver writes the streams a job needs one after the other into one file, as Arrow. Each task
maps it into memory (or gets it from Spark, where executors are elsewhere), takes the tuples of
its partitions, runs the nodes of the job in their order, and writes what is wanted of them into a
file of its own, which the driver maps in turn. No tuple becomes a row.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark import Broadcast

from holdfast import disk
from holdfast.spark.bundles import Bundle
from holdfast.spark.column_plans import ColumnPlan, Memory
from holdfast.spark.groups import in_stream_order
from holdfast.spark.join_step import resolved
from holdfast.spark.joint_steps import rounds, run_steps
from holdfast.spark.open_runs import let_go
from holdfast.spark.resident_task import Order
from holdfast.spark.runs import (
    HASH,
    Bools,
    homes,
    numbers,
    one_piece,
    write_file,
    write_tables,
)
from holdfast.spark.task import (
    PROPERTY,
    StepPlan,
    conform,
    freeze_imports,
    job_property,
)

COLUMNS = "holdfast.columns"


@dataclass(frozen=True)
class Node:
    """A stream that a job on columns computes: what is below it, and what is done to that.

    columns  the names of the input's columns.
    step     the step that takes them; without one, the stream is the input itself.
    resolve  the input is what an outer join must choose from (``join_step``).
    whole    one task does all of it: what belongs together may be anywhere.
    """

    name: str
    input: ColumnPlan
    columns: tuple[str, ...]
    step: StepPlan | None = None
    resolve: bool = False
    whole: bool = False

    @cached_property
    def reads(self) -> frozenset[str]:
        """The streams below it."""
        return frozenset(scan.stream for scan in self.input.scans())

    @cached_property
    def nothing(self) -> pa.Table:
        """What a step emits mostly: to make even that takes 30 µs."""
        assert self.step is not None
        return self.step.output.empty_table()

    @cached_property
    def given_nothing(self) -> pa.Table:
        assert self.step is not None
        return self.step.given.empty_table()


@dataclass(frozen=True)
class ColumnTask:
    """What Spark calls, once for each of ``tasks`` tasks.

    wanted  the nodes whose streams the driver gets, in this order.
    sent    the input, if Spark carries it to the executors; else they share the driver's files.
    shares  each task computes these nodes, whole; without, its partitions of every node.
    """

    nodes: tuple[Node, ...]
    wanted: tuple[str, ...]
    tasks: int
    sent: Broadcast[bytes] | None = None
    shares: tuple[frozenset[str], ...] = ()

    def wanted_of(self, task: int) -> list[str]:
        """The nodes whose streams, or parts of them, one task gives, in this order."""
        return [name for name in self.wanted if not self.shares or name in self.shares[task]]

    def __call__(self, task: int, nothing: Iterable[Any]) -> Iterator[bytes]:
        for _ in nothing:
            pass  # a worker whose input was not read to its end is not used again
        freeze_imports()
        told, files = job_property(PROPERTY), job_property(COLUMNS)
        if self.sent is None:
            self._with_files(task, told, files)
            return iter(())
        sink = pa.BufferOutputStream()
        source = pa.py_buffer(self.sent.value)
        tables = self._compute(task, told, files["streams"], source)
        write_tables(sink, _there(tables), _head(tables))
        return iter([sink.getvalue().to_pybytes()])

    def carry_out(self, order: Order) -> None:
        """The same for a task that stays (``resident``)."""
        self._with_files(order.task, json.loads(order.told), json.loads(order.files))

    def take_back(self, order: Order) -> None:
        output = json.loads(order.files)["output"]
        Path(output_path(output, order.task)).unlink(missing_ok=True)

    def _with_files(self, task: int, told: dict[str, Any], files: dict[str, Any]) -> None:
        """One task's part, from the driver's file into one of its own."""
        source = pa.memory_map(files["input"])
        tables = self._compute(task, told, files["streams"], source)
        path = output_path(files["output"], task)
        write_file(f"{path}.part", _there(tables), _head(tables))
        disk.rename(f"{path}.part", path)

    def _compute(
        self, task: int, told: dict[str, Any], names: list[str], source: pa.NativeFile | pa.Buffer
    ) -> list[pa.Table | None]:
        """The wanted streams, or this task's parts of them; None of one without tuples."""
        given = dict(zip(names, read_streams(source, len(names)), strict=True))
        if self.shares:
            made = _run(self._rounds[task], 0, 1, given, told)
        else:
            made = _run(self._rounds[0], task, self.tasks, given, told)
        tables = [made[name] for name in self.wanted_of(task)]
        if self.shares or self.tasks == 1:
            names = self.wanted_of(task)
            tables = [
                _in_order(each) if name in self._outputs else each
                for name, each in zip(names, tables, strict=True)
            ]
        return [table if table is not None and table.num_rows else None for table in tables]

    @cached_property
    def _outputs(self) -> frozenset[str]:
        """The streams whose order counts: what steps are given they put in order themselves."""
        return frozenset(node.name for node in self.nodes if node.step is None and not node.resolve)

    @cached_property
    def _rounds(self) -> list[list[list[Node]]]:
        """The nodes of each share, or all of them, as they are carried out."""
        shares = self.shares or (frozenset(node.name for node in self.nodes),)
        return [rounds([node for node in self.nodes if node.name in share]) for share in shares]


def output_path(output: str, task: int) -> str:
    return f"{output}-{task}"


def _in_order(table: pa.Table | None) -> pa.Table | None:
    """A whole stream as the driver wants it, which has the others' to see to meanwhile."""
    if table is None or table.num_rows < 2:
        return table
    return in_stream_order(table)


def _there(tables: Iterable[pa.Table | None]) -> list[pa.Table]:
    return [table for table in tables if table is not None]


def _head(tables: Sequence[pa.Table | None]) -> bytes:
    """Which of the tables are there, a byte for each; what follows lies as Arrow wants it."""
    return bytes(table is not None for table in tables).ljust(_head_bytes(len(tables)), b"\0")


def _head_bytes(count: int) -> int:
    return -(-count // 64) * 64


def read_results(source: pa.NativeFile | pa.Buffer, count: int) -> list[pa.Table | None]:
    """The tables that a task has written, None for those without tuples."""
    reader = pa.BufferReader(source) if isinstance(source, pa.Buffer) else source
    there = reader.read(_head_bytes(count))[:count]
    found = iter(read_streams(reader, sum(there)))
    return [next(found) if each else None for each in there]


def read_streams(source: pa.NativeFile | pa.Buffer, count: int) -> list[pa.Table]:
    """Tables that lie one after the other; those of a mapped file are not copied."""
    reader = pa.BufferReader(source) if isinstance(source, pa.Buffer) else source
    return [pa.ipc.open_stream(reader).read_all() for _ in range(count)]


def _run(
    order: Sequence[Sequence[Node]],
    task: int,
    tasks: int,
    given: dict[str, pa.Table],
    told: Mapping[str, Any],
) -> dict[str, pa.Table | None]:
    """Every node's stream, or this task's part of it; None if nothing is below and nobody reads it.

    Most queries of a bucket emit nothing, and to compute nothing takes as long as a few tuples do.
    """
    everything = Memory(given)
    mine = everything if tasks == 1 else Memory(_slices(given, task, tasks))
    nothing = Memory({name: table.slice(0, 0) for name, table in given.items()}) if task else mine
    made: dict[str, pa.Table | None] = {}
    bundle = Bundle(told["directory"], told["step"])
    read = {stream for nodes in order for node in nodes for stream in node.reads}
    for nodes in order:
        steps = [(node, node.step) for node in nodes if node.step is not None]
        if steps:
            rows = [(step, _step_input(node, everything, task, tasks)) for node, step in steps]
            own = [range(task, step.partitions, tasks) for _, step in steps]
            for (node, _), emitted in zip(steps, run_steps(rows, own, told, bundle), strict=True):
                table = pa.concat_tables(emitted) if emitted else node.nothing
                made[node.name] = mine.streams[node.name] = table
            continue
        for node in nodes:
            if node.name not in read and not _has_tuples(node, mine, everything):
                made[node.name] = None
                continue
            memory = mine if not node.whole else nothing if task else everything
            table = node.input.table(memory, node.columns)
            table = resolved(table) if node.resolve and table.num_rows else table
            made[node.name] = mine.streams[node.name] = table
    bundle.write()
    let_go()
    return made


def _has_tuples(node: Node, *memories: Memory) -> bool:
    """Whether any of the streams it reads has; a plan makes nothing out of nothing."""
    there = [
        memory.streams[each] for memory in memories for each in node.reads & set(memory.streams)
    ]
    return any(table.num_rows for table in there)


def _step_input(node: Node, memory: Memory, task: int, tasks: int) -> pa.Table:
    """The step's tuples in the partitions of this task."""
    assert node.step is not None
    if not _has_tuples(node, memory):
        return node.given_nothing
    partitions = node.step.partitions

    def route(hashes: pa.Array) -> Bools:
        home: Bools = homes(numbers(hashes), partitions) % tasks == task
        return home

    plan, at = node.input, node.columns.index(HASH)
    rows = memory.rows(plan) if tasks == 1 else plan.routed(memory, at, route)
    columns = [rows.columns[number] for number in plan.output]
    table = pa.table(columns, names=list(node.columns))
    return one_piece(conform(table, node.step.given))


def run_here(
    job: ColumnTask, given: dict[str, pa.Table], told: Mapping[str, Any]
) -> dict[str, pa.Table]:
    """What a job makes of all its input, in this process and without Spark: what is not empty."""
    made = _run(rounds(job.nodes), 0, 1, given, told)
    there = ((name, made[name]) for name in job.wanted)
    return {name: table.combine_chunks() for name, table in there if table is not None}


def _slices(given: dict[str, pa.Table], task: int, tasks: int) -> dict[str, pa.Table]:
    """An equal share of each stream, for what can be computed tuple by tuple."""
    found = {}
    for name, table in given.items():
        edges: Sequence[int] = np.linspace(0, table.num_rows, tasks + 1).astype(int).tolist()
        found[name] = table.slice(edges[task], edges[task + 1] - edges[task])
    return found
