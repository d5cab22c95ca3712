"""A job on columns, seen from the driver: one file in, one file back from each task.

Few tuples need no job where results are early: expressions without a state, and joins, are computed
in the process itself, once a first job has warmed Spark up for when there are more. Whatever goes
wrong there goes to Spark, which says what it is as it says everything.

Where executors run on this machine, tasks stay for many buckets (``resident``), and a bucket is an
order to as many of them as it has tasks. If too few are free, it is a job of its own. That job is
made once; what differs between buckets reaches its tasks as job properties, so that an execution is
four calls of the JVM, whatever the network. Where executors do not run on this machine, Spark
carries both files: the input as a broadcast, the results as what the job returns.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark import SparkContext, cloudpickle
from pyspark.sql import SparkSession

from holdfast.spark.column_task import (
    COLUMNS,
    ColumnTask,
    Node,
    output_path,
    read_results,
    run_here,
)
from holdfast.spark.join_step import JoinStep
from holdfast.spark.resident import residents_of
from holdfast.spark.resident_task import Order
from holdfast.spark.runs import write_file, write_tables
from holdfast.spark.task import PROPERTY, StepPlan

# So many tuples take less time here than a job takes to begin.
FEW_ROWS = 10_000


def is_local(context: SparkContext) -> bool:
    """Whether executors are threads of the driver, and see its files."""
    master = str(context.master)
    return master == "local" or master.startswith("local[")


def _is_quick(step: StepPlan | None) -> bool:
    """Whether a step of few tuples may run in the driver: it has none of the user's code."""
    return step is None or isinstance(step.handler, JoinStep)


class ColumnJob:
    """One Spark job over several tasks that runs nodes on columns."""

    def __init__(
        self,
        spark: SparkSession,
        nodes: tuple[Node, ...],
        wanted: Mapping[str, pa.Table],
        tasks: int,
        shares: tuple[frozenset[str], ...] = (),
        here: bool = False,
    ) -> None:
        """``wanted``: the nodes whose streams are wanted, each as it is without tuples.

        ``shares``: instead of partitions of every node, the nodes of each task.

        ``here``: few tuples that no step but joins takes are computed in this process.
        """
        self._context = spark.sparkContext
        self._tasks = tasks = len(shares) or tasks
        self._nothing = wanted
        self._task = ColumnTask(nodes, tuple(wanted), tasks, shares=shares)
        self._here = here and all(_is_quick(node.step) for node in nodes)
        self._has_run = False
        self._numbers = self._context.parallelize(range(tasks), tasks)
        self._rdd: Any = None
        # By which residents know it, and what they are sent of it, once that is needed.
        self._name = uuid.uuid4().hex
        self._pickled: bytes | None = None

    def run(
        self, streams: Mapping[str, pa.Table], at: str, told: Mapping[str, Any]
    ) -> dict[str, pa.Table]:
        """The wanted streams, from those the nodes read; files are called by ``at``.

        ``told``: what the steps are told (``task``).
        """
        few = sum(each.num_rows for each in streams.values()) <= FEW_ROWS
        if self._here and few and self._has_run:
            with contextlib.suppress(Exception):
                return {**self._nothing, **run_here(self._task, dict(streams), told)}
        text = json.dumps(told)
        near = is_local(self._context)
        made = self._run_near(streams, at, text) if near else self._run_far(streams, text)
        self._has_run = True
        return {**self._nothing, **made}

    def _run_near(self, streams: Mapping[str, pa.Table], at: str, told: str) -> dict[str, pa.Table]:
        files = {"input": f"{at}-in.arrows", "output": f"{at}-out", "streams": list(streams)}
        paths = [output_path(f"{at}-out", task) for task in range(self._tasks)]
        there = [f"{at}-in.arrows", *paths, *(f"{each}.part" for each in paths)]
        try:
            write_file(f"{at}-in.arrows", list(streams.values()))
            text = json.dumps(files)
            if not self._order(text, told):
                self._execute(text, told)
            there = there[: 1 + len(paths)]
            return self._collect([pa.memory_map(path) for path in paths])
        finally:
            # What is mapped stays readable.
            for path in there:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(path)  # noqa: PTH108 (as in ``state``)

    def _order(self, files: str, told: str) -> bool:
        """Have tasks that stay do it; False if they cannot."""
        with residents_of(self._context).taken(self._tasks) as residents:
            for task, each in enumerate(residents):
                each.order(self._name, self._pickle, Order(task, told, files))
            # All of them, whatever one says: files must not go while somebody is at work.
            errors, done = [], bool(residents)
            for each in residents:
                try:
                    done = each.answer() and done
                except Exception as error:
                    errors.append(error)
            if errors:
                raise errors[0]
            return done

    def _pickle(self) -> bytes:
        if self._pickled is None:
            self._pickled = cloudpickle.dumps(self._task)  # type: ignore[no-untyped-call]
        return self._pickled

    def _execute(self, files: str, told: str) -> None:
        if self._rdd is None:
            self._rdd = self._numbers.mapPartitionsWithIndex(self._task)._jrdd
        with self._properties(files, told):
            self._rdd.count()

    @contextlib.contextmanager
    def _properties(self, files: str, told: str) -> Iterator[None]:
        """Tell the tasks of this thread's next job; see ``task``."""
        self._context.setLocalProperty(COLUMNS, files)
        self._context.setLocalProperty(PROPERTY, told)
        try:
            yield
        finally:
            self._context.setLocalProperty(PROPERTY, "")

    def _run_far(self, streams: Mapping[str, pa.Table], told: str) -> dict[str, pa.Table]:
        sink = pa.BufferOutputStream()
        write_tables(sink, list(streams.values()))
        sent = self._context.broadcast(sink.getvalue().to_pybytes())
        try:
            task = replace(self._task, sent=sent)
            with self._properties(json.dumps({"streams": list(streams)}), told):
                returned = self._numbers.mapPartitionsWithIndex(task).collect()
        finally:
            sent.destroy()
        return self._collect([pa.py_buffer(each) for each in returned])

    def _collect(self, sources: list[Any]) -> dict[str, pa.Table]:
        found: dict[str, list[pa.Table]] = {}
        for task, source in enumerate(sources):
            names = self._task.wanted_of(task)
            for name, table in zip(names, read_results(source, len(names)), strict=True):
                if table is not None:
                    found.setdefault(name, []).append(table)
        return {name: pa.concat_tables(tables) for name, tables in found.items()}
