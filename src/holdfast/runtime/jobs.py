"""Runs a replica's jobs on Spark, one at a time, in a thread of their own.

A job is the driver's RunJob: a state, slices of received blocks, how far to go. The slices
become one Arrow table for each input, with ``seq`` from the tuple ids; what the engine gives
becomes one block for each output. No tuple is ever touched by Python.

States have no meaning outside this file. None stands for the state the replica started with:
the empty one, or the one the last checkpoint kept.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

from holdfast.blocks import Block, one_batch
from holdfast.core.effects import InputSlice, RunJob
from holdfast.core.events import Event, JobDone, JobFailed, OutputBlock
from holdfast.core.versions import Line
from holdfast.frames import SEQ
from holdfast.runtime.kept_windows import KeptWindows
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.faults import explain_job, is_user_code
from holdfast.spark.state import State

_Order = tuple[RunJob, Line] | Callable[[], None] | None


@dataclass(frozen=True)
class JobReport:
    """What a job took, for metrics."""

    seconds: float
    tuples_in: int
    tuples_out: int
    start: int
    stop: int
    # How long the job stood still for continuous checkpoints.
    pause_seconds: float = 0.0


class Jobs:
    """The executor of one replica."""

    def __init__(
        self,
        spark: SparkSession | None,
        engine: Engine | None,
        initial: State,
        post: Callable[[Event], None],
        markers: bool,
        on_report: Callable[[JobReport], None] = lambda report: None,
        windows: KeptWindows | None = None,
    ) -> None:
        """``markers``: find the oldest contributing input after each job (undo needs it).

        Otherwise states are kept, and need no input older than themselves. ``windows``: they
        are kept window by window.
        """
        self._engine = engine
        self._initial = initial
        self._post = post
        self._markers = markers
        self._on_report = on_report
        self._windows = windows
        self._spark = spark
        self._queue: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        self._cancelled: set[int] = set()
        self._thread = threading.Thread(target=self._run, name="holdfast-jobs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def submit(self, job: RunJob, line: Line = Line.LIVE) -> None:
        self._queue.put((job, line))

    def call(self, work: Callable[[], None]) -> None:
        """Run something else between two jobs, in their thread."""
        self._queue.put(work)

    def cancel(self, job: int) -> None:
        """A job that has not begun is not begun."""
        self._cancelled.add(job)

    def close(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(30.0)

    def _prepare(self) -> None:
        assert self._spark is not None
        activate(self._spark)

    def _run(self) -> None:
        self._prepare()
        while True:
            ordered = self._queue.get()
            if ordered is None:
                return
            if not isinstance(ordered, tuple):
                ordered()
                continue
            job, line = ordered
            if job.job in self._cancelled:
                self._cancelled.discard(job.job)
                continue
            try:
                done = self._carry_out(job, line)
            except Exception as error:
                self._post(JobFailed(job.job, explain_job(error), is_user_code(error)))
            else:
                self._post(done)

    def _carry_out(self, job: RunJob, line: Line) -> JobDone:
        started = time.monotonic()
        engine = self._engine
        assert engine is not None
        state = self._initial if job.state is None else job.state
        assert isinstance(state, State)
        tables = input_tables(job.slices, engine.input_schemas)
        if self._windows is not None and line is Line.REBUILD:
            return self._windows.rebuild(job, tables)
        bucket = Bucket(max(job.start, state.boundary), job.stop, tables)
        keeps = self._windows if line is Line.STABLE else None
        advance = engine.advance(state, [bucket], job.stop, windows=keeps is not None)
        emit_from = dict(job.emit_from)
        blocks = [
            output_block(stream, table, emit_from[stream])
            for stream, table in advance.outputs.items()
        ]
        marker = engine.oldest_contributing(advance.state) if self._markers else job.stop
        taken = sum(table.num_rows for table in tables.values())
        wanted = tuple(block for block in blocks if block.count or block.skipped)
        done = JobDone(job.job, advance.state, max(0, min(marker, job.stop)), wanted)
        begun = time.monotonic()
        if keeps is not None:
            done = keeps.keep(job, done, advance, taken, begun - started)
        emitted = sum(block.count for block in blocks)
        now = time.monotonic()
        self._on_report(JobReport(now - started, taken, emitted, job.start, job.stop, now - begun))
        return done


def activate(spark: SparkSession) -> None:
    """Make ``spark`` the session of this thread: Spark's plans look for it there."""
    assert spark._jvm is not None
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)


def input_tables(
    slices: Iterable[InputSlice], schemas: Mapping[str, pa.Schema]
) -> dict[str, pa.Table]:
    """The slices of each input as one table in the engine's schema, tuple ids as ``seq``.

    A redo has thousands of slices, so for each of them as little is done as can be.
    """
    batches: dict[str, list[pa.RecordBatch]] = {}
    ids: dict[str, list[npt.NDArray[np.int64]]] = {}
    for piece in slices:
        batch, its_ids = read_slice(piece)
        if batch.num_rows:
            batches.setdefault(piece.stream, []).append(batch)
            ids.setdefault(piece.stream, []).append(its_ids)
    return {
        stream: _one_table(batches[stream], np.concatenate(ids[stream]), schemas[stream])
        for stream in batches
    }


def read_slice(piece: InputSlice) -> tuple[pa.RecordBatch, npt.NDArray[np.int64]]:
    """The rows of a slice and their ids; copies only where rows are left out."""
    assert isinstance(piece.block, Block)
    batch, header = piece.block.batch(), piece.header
    ids: npt.NDArray[np.int64] = np.arange(header.first_id, header.first_id + batch.num_rows)
    if piece.skip:
        batch, ids = batch.slice(piece.skip), ids[piece.skip :]
    if header.stime_min < piece.stime_from or header.stime_max >= piece.stime_to:
        stimes = micros(batch.column("stime"))
        wanted = (stimes >= piece.stime_from) & (stimes < piece.stime_to)
        batch, ids = batch.filter(pa.array(wanted)), ids[wanted]
    return batch, ids


def _one_table(
    batches: list[pa.RecordBatch], ids: npt.NDArray[np.int64], schema: pa.Schema
) -> pa.Table:
    columns = []
    for field in schema:
        if field.name == SEQ.name:
            columns.append(pa.chunked_array([ids], field.type))
            continue
        at = batches[0].schema.get_field_index(field.name)
        columns.append(pa.chunked_array([batch.column(at) for batch in batches], field.type))
    return pa.table(columns, schema=schema)


def output_block(stream: str, table: pa.Table, emit_from: int) -> OutputBlock:
    """The tuples of an output from ``emit_from`` on; they are in the order of their times."""
    stimes = micros(table["stime"])
    skipped = int(np.searchsorted(stimes, emit_from, side="left"))
    count = table.num_rows - skipped
    if count == 0:
        return OutputBlock(stream, 0, skipped, 0, 0, 0, None)
    fresh = table.slice(skipped).drop_columns([SEQ.name])
    tmax = pc.max(fresh["tmax"].cast(pa.int64())).as_py()
    low, high = int(stimes[skipped]), int(stimes[-1])
    return OutputBlock(stream, count, skipped, low, high, tmax, Block(one_batch(fresh)))


def micros(column: pa.Array | pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """A column of times as microseconds."""
    numbers = column.cast(pa.int64())
    values: npt.NDArray[np.int64] = (
        numbers.to_numpy()
        if isinstance(numbers, pa.ChunkedArray)
        else numbers.to_numpy(zero_copy_only=False)
    )
    return values
