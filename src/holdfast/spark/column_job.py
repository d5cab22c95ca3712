"""A job on columns, seen from the driver: one file in, one file back from each task.

Few tuples that no step takes need no job: where results are early, expressions without a state are
computed in the process itself, once a first job has warmed Spark up for when there are more.
Whatever goes wrong there goes to Spark, which says what it is as it says everything.

The job is made once. What differs between buckets reaches the tasks as job properties, so that an
execution is three calls of the JVM, whatever the network. Where executors do not run on this
machine, Spark carries both files: the input as a broadcast, the results as what the job returns.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import SparkContext
from pyspark.sql import SparkSession

from holdfast import disk
from holdfast.disk import Operation
from holdfast.spark.column_task import (
    COLUMNS,
    ColumnTask,
    Node,
    output_path,
    read_streams,
    run_here,
    write_streams,
)

# So many tuples take less time here than a job takes to begin.
FEW_ROWS = 10_000


def is_local(context: SparkContext) -> bool:
    """Whether executors are threads of the driver, and see its files."""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


class ColumnJob:
    """One Spark job over several tasks that runs nodes on columns."""

    def __init__(
        self,
        spark: SparkSession,
        nodes: tuple[Node, ...],
        wanted: tuple[str, ...],
        tasks: int,
        shares: tuple[frozenset[str], ...] = (),
        here: bool = False,
    ) -> None:
        """``shares``: instead of partitions of every node, the nodes of each task.

        ``here``: few tuples that no step takes are computed in this process.
        """
        self._context = spark.sparkContext
        self._tasks = tasks = len(shares) or tasks
        self._task = ColumnTask(nodes, wanted, tasks, shares=shares)
        self._here = here and all(node.step is None for node in nodes)
        self._has_run = False
        self._numbers = self._context.parallelize(range(tasks), tasks)
        self._rdd: Any = None

    def run(self, streams: Mapping[str, pa.Table], at: str) -> dict[str, pa.Table]:
        """The wanted streams, from those the nodes read; files are called by ``at``."""
        few = sum(each.num_rows for each in streams.values()) <= FEW_ROWS
        if self._here and few and self._has_run:
            with contextlib.suppress(Exception):
                return run_here(self._task, dict(streams))
        made = self._run_near(streams, at) if is_local(self._context) else self._run_far(streams)
        self._has_run = True
        return made

    def _run_near(self, streams: Mapping[str, pa.Table], at: str) -> dict[str, pa.Table]:
        files = {"input": f"{at}-in.arrows", "output": f"{at}-out", "streams": list(streams)}
        paths = [Path(output_path(f"{at}-out", task)) for task in range(self._tasks)]
        try:
            disk.check(Operation.CREATE, f"{at}-in.arrows")
            with pa.OSFile(f"{at}-in.arrows", "wb") as sink:
                write_streams(sink, streams.values())
            self._execute(files)
            return self._collect([pa.memory_map(str(path)) for path in paths])
        finally:
            # What is mapped stays readable.
            for path in (
                Path(f"{at}-in.arrows"),
                *paths,
                *(Path(f"{each}.part") for each in paths),
            ):
                path.unlink(missing_ok=True)

    def _execute(self, files: Mapping[str, Any]) -> None:
        if self._rdd is None:
            self._rdd = self._numbers.mapPartitionsWithIndex(self._task)._jrdd
        self._context.setLocalProperty(COLUMNS, json.dumps(files))
        self._rdd.count()

    def _run_far(self, streams: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        sink = pa.BufferOutputStream()
        write_streams(sink, streams.values())
        sent = self._context.broadcast(sink.getvalue().to_pybytes())
        try:
            task = replace(self._task, sent=sent)
            self._context.setLocalProperty(COLUMNS, json.dumps({"streams": list(streams)}))
            returned = self._numbers.mapPartitionsWithIndex(task).collect()
        finally:
            sent.destroy()
        return self._collect([pa.py_buffer(each) for each in returned])

    def _collect(self, sources: list[Any]) -> dict[str, pa.Table]:
        found: dict[str, list[pa.Table]] = {name: [] for name in self._task.wanted}
        for task, source in enumerate(sources):
            names = self._task.wanted_of(task)
            for name, table in zip(names, read_streams(source, len(names)), strict=True):
                found[name].append(table)
        return {name: pa.concat_tables(tables) for name, tables in found.items()}
