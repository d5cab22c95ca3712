"""Runs a replica's jobs on Spark, one at a time, in a thread of their own.

A job is the driver's RunJob: a state, slices of received blocks, how far to go. The slices
become one Arrow table for each input, a source's with the tuple ids as ``seq``; what the engine
gives becomes one block for each output. No tuple is ever touched by Python.

A state that was kept is made one that a job can start from when the first job needs it: packed
states are unpacked, and with continuous checkpoints the log is read (``continuous_state``). Where
there is no engine yet, the first job makes one, and Spark with it.
"""

from __future__ import annotations

import queue
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.blocks import Block, one_batch
from holdfast.core.effects import GiveUp, InputSlice, Line, ReadWindows, RunJob
from holdfast.core.events import Event, JobDone, JobFailed, Left, OutputBlock
from holdfast.core.records import InLog, RecoveryRecord
from holdfast.core.settings import Keeping
from holdfast.flight.parts import is_part, without_positions
from holdfast.frames import SEQ
from holdfast.kept.continuous_state import KeptWindows
from holdfast.kept.quiet import Quiet
from holdfast.slots import Share
from holdfast.spark.chains import Handle, Workshop
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.faults import explain_job, is_no_room, is_user_code
from holdfast.spark.rejected import Rejected
from holdfast.spark.state import EMPTY, State
from holdfast.spark.undoing import Undone, give_up, rebuild
from holdfast.spark.warming import WarmUp, warm_up, warm_up_apart

_Order = RunJob | Callable[[], None] | None
MakeWindows = Callable[[Engine], KeptWindows]
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class JobReport:
    """What a job took, for metrics."""

    seconds: float
    tuples_in: int
    tuples_out: int
    start: int
    stop: int


class Jobs:
    """The executor of one replica."""

    def __init__(
        self,
        workshop: Workshop,
        keeping: Keeping,
        post: Callable[[Event], None],
        on_report: Callable[[JobReport], None] = lambda report: None,
        on_begin: Callable[[], None] = lambda: None,
        make_windows: MakeWindows | None = None,
        on_rejected: Callable[[tuple[Rejected, ...]], None] = lambda rejected: None,
        share: Share | None = None,
        on_results: Callable[[Line, Block], None] = lambda line, block: None,
        quiet: Quiet | None = None,
    ) -> None:
        """
        share         what a shard takes of its inputs.
        on_results    gets the blocks of results, before anybody else.
        on_rejected   gets the rows that a stable job has left out.
        on_begin      is called when a job begins, with Spark up and its state unpacked.
        make_windows  gives continuous checkpoints, for those who have them.
        quiet         is told when a job runs.
        """
        self._quiet = Quiet() if quiet is None else quiet
        self._workshop = workshop
        self._keeping = keeping
        self._post = post
        self._on_report = on_report
        self._on_begin = on_begin
        self._make_windows = make_windows
        self._on_rejected = on_rejected
        self._share = share
        self._on_results = on_results
        # Continuous checkpoints, once a job has begun.
        self.windows: KeptWindows | None = None
        # What the log gave for the record that this life began from.
        self._recovered: tuple[RecoveryRecord | None, State] | None = None
        # What the last job made; those who need it keep it.
        self._last: weakref.ref[State] = weakref.ref(EMPTY)
        self._sizes: dict[str, dict[str, int]] = {}
        self._queue: queue.SimpleQueue[_Order] = queue.SimpleQueue()
        # The last one: numbers ascend, and all before one that is cancelled are over.
        self._cancelled = 0
        self._thread = threading.Thread(target=self._run, name="holdfast-jobs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def state_sizes(self) -> dict[str, dict[str, int]]:
        """Rows and bytes of the state of each operator, after a job of late."""
        state = self._last()
        if state is not None:  # else it is packed, or nobody needs it any more
            self._sizes = state.sizes()
        return self._sizes

    def submit(self, job: RunJob) -> None:
        self._queue.put(job)

    def call(self, work: Callable[[], None]) -> None:
        """Run something else between two jobs, in their thread."""
        self._queue.put(work)

    def begin(self) -> None:
        """Jobs of another life follow: what the log gave before is not theirs."""

        def forget() -> None:
            self._recovered = None

        self.call(forget)

    def cancel(self, job: int) -> None:
        """A job that has not begun is not begun."""
        self._cancelled = job

    def close(self) -> None:
        self._queue.put(None)
        if self._thread.is_alive():
            self._thread.join(30.0)
        if self.windows is not None:
            self.windows.close()

    def read_windows(self, order: ReadWindows) -> None:
        """Look at windows, or read them for the log, beside the next job."""
        assert self.windows is not None, "a job of the stable version comes before"
        self.windows.read(order)

    def warm(self) -> None:
        """Plan the job and run it on the standard set: some made-up tuples, whose result goes."""
        warm_up(self._open())

    def warm_apart(self) -> None:
        """The same for one that stands by, and will work beside whatever runs here."""
        warm_up_apart(self._open())

    def warm_up(self, on_warm: Callable[[], None], goes_on: bool = False) -> None:
        """Warm up until jobs get no quicker; after the first ones, all other work goes first.

        ``goes_on``: an earlier life has left something to catch up with, in a large job.
        """
        progress, began = WarmUp(), time.monotonic()

        def once() -> None:
            if not progress.has_begun and not progress.is_short:
                for large in (True, False) if goes_on else (False,):
                    warm_up(self._open(), large=large, closes=True)
            if self._queue.empty() or not progress.has_begun:
                progress.took(self.time_set() / 1e6)
            if progress.is_over(time.monotonic() - began):
                on_warm()
            else:
                self.call(once)

        self.call(once)

    def time_set(self) -> int:
        """How long the standard set takes, in microseconds."""
        started = time.monotonic()
        self.warm()
        return int((time.monotonic() - started) * 1e6)

    def _open(self) -> Engine:
        engine = self._workshop.engine()
        engine.activate()
        return engine

    def _run(self) -> None:
        if self._workshop.is_open:
            self._open()
        while True:
            ordered = self._queue.get()
            if ordered is None:
                return
            if not isinstance(ordered, RunJob):
                ordered()
                continue
            if ordered.job <= self._cancelled:
                continue
            try:
                with self._quiet.job():
                    done = self._carry_out(ordered)
            except Exception as error:
                whose = is_user_code(error), is_no_room(error)
                self._post(JobFailed(ordered.job, explain_job(error), *whose))
            else:
                self._post(done)

    def _carry_out(self, job: RunJob) -> JobDone:
        started = time.monotonic()
        engine = self._open()
        if isinstance(job.state, Undone):
            return self._rebuild(engine, job, job.state, started)
        state = self._state(engine, job.state)
        tables = input_tables(job.slices, engine.input_schemas, self._share)
        self._on_begin()
        if self.windows is not None and job.line is Line.REBUILD:
            return self.windows.rebuild(job, tables)
        bucket = Bucket(max(job.start, state.boundary), job.stop, tables)
        keeps = self.windows if job.line is Line.STABLE else None
        advance = engine.advance(state, [bucket], job.stop, windows=keeps is not None)
        if advance.rejected and job.line is Line.STABLE:
            self._on_rejected(advance.rejected)
        emit_from = dict(job.emit_from)
        blocks = [
            output_block(stream, table, emit_from[stream])
            for stream, table in advance.outputs.items()
        ]
        taken = sum(table.num_rows for table in tables.values())
        wanted = tuple(block for block in blocks if block.count or block.skipped)
        left = None if job.gives_up is None else self._give_up(engine, job.gives_up)
        marker, due = self._marker(engine, advance.state), engine.due(advance.state)
        done = JobDone(job.job, advance.state, marker, wanted, left=left, due=due)
        self._last = weakref.ref(advance.state)
        if keeps is not None:
            spent = time.monotonic() - started
            done = keeps.keep(job, state, done, advance, taken, spent)
        for block in wanted:
            if isinstance(block.block, Block):
                self._on_results(job.line, block.block)
        emitted = sum(block.count for block in blocks)
        took = time.monotonic() - started
        self._on_report(JobReport(took, taken, emitted, job.start, job.stop))
        return done

    def _marker(self, engine: Engine, state: State) -> int:
        """The oldest input that is needed; states that are kept need none older than themselves."""
        if self._keeping is not Keeping.NOTHING:
            return state.boundary
        return max(0, min(engine.oldest_contributing(state), state.boundary))

    def _rebuild(self, engine: Engine, job: RunJob, undone: Undone, started: float) -> JobDone:
        """Operators that have given their state up make it again; nothing goes out."""
        tables = input_tables(job.slices, engine.input_schemas, self._share)
        self._on_begin()
        state = rebuild(engine, undone, [Bucket(job.start, job.stop, tables)])
        self._last = weakref.ref(state)
        taken = sum(table.num_rows for table in tables.values())
        took = time.monotonic() - started
        self._on_report(JobReport(took, taken, 0, job.start, job.stop))
        marker, due = self._marker(engine, state), engine.due(state)
        return JobDone(job.job, state, marker, (), due=due)

    def _give_up(self, engine: Engine, order: GiveUp) -> Left:
        state: Handle | Undone = order.state  # type: ignore[assignment]
        whole = state if isinstance(state, Undone) else self._workshop.state(state)
        left, marker = give_up(engine, whole, order.inputs)
        return Left(left, max(0, min(marker, order.boundary)))

    def _state(self, engine: Engine, kept: object) -> State:
        """What a job starts from."""
        if self._make_windows is not None and (kept is None or isinstance(kept, InLog)):
            return self._from_log(engine, None if kept is None else kept.record)
        handle: Handle = kept  # type: ignore[assignment]
        return self._workshop.state(handle)

    def _from_log(self, engine: Engine, record: RecoveryRecord | None) -> State:
        """The state that the log has for a record; what it can be rebuilt from, if that is all."""
        if self._recovered is None or self._recovered[0] != record:
            if self.windows is not None:
                self.windows.close()
            assert self._make_windows is not None
            self.windows = self._make_windows(engine)
            state = EMPTY if record is None else self.windows.restart(record)
            self._recovered = (record, state)
        return self._recovered[1]


def input_tables(
    slices: Iterable[InputSlice], schemas: Mapping[str, pa.Schema], share: Share | None = None
) -> dict[str, pa.Table]:
    """The slices of each input as one table in the engine's schema; a source's ids are its ``seq``.

    A shard's ``share`` is taken of what was not cut where it came from. A redo has thousands of
    slices, so for each of them as little is done as can be.
    """
    batches: dict[str, list[pa.RecordBatch]] = {}
    ids: dict[str, list[npt.NDArray[np.int64]]] = {}
    whole: set[str] = set()
    for piece in slices:
        batch, its_ids, is_cut = read_slice(piece)
        if batch.num_rows:
            batches.setdefault(piece.stream, []).append(batch)
            ids.setdefault(piece.stream, []).append(its_ids)
            if not is_cut:
                whole.add(piece.stream)
    tables = {
        stream: one_table(batches[stream], np.concatenate(ids[stream]), schemas[stream])
        for stream in batches
    }
    if share is None:
        return tables
    return {
        stream: share.take(stream, table) if stream in whole else table
        for stream, table in tables.items()
    }


def read_slice(piece: InputSlice) -> tuple[pa.RecordBatch, npt.NDArray[np.int64], bool]:
    """The rows of a slice and their ids, and whether rows of other shards were left out of it.

    Copies only where rows are left out here.
    """
    assert isinstance(piece.block, Block)
    batch, header = piece.block.batch(), piece.header
    is_cut = is_part(batch)
    if is_cut:
        batch, at = without_positions(batch)
    else:
        at = np.arange(batch.num_rows)
    ids: npt.NDArray[np.int64] = at + header.first_id
    if piece.skip:
        skip = int(np.searchsorted(at, piece.skip))
        batch, ids = batch.slice(skip), ids[skip:]
    if header.stime_min < piece.stime_from or header.stime_max >= piece.stime_to:
        stimes = micros(batch.column("stime"))
        wanted = (stimes >= piece.stime_from) & (stimes < piece.stime_to)
        batch, ids = batch.filter(pa.array(wanted)), ids[wanted]
    return batch, ids, is_cut


def one_table(
    batches: list[pa.RecordBatch], ids: npt.NDArray[np.int64], schema: pa.Schema
) -> pa.Table:
    """Batches of one input as a table in the engine's schema; ``ids`` are the seqs of a source."""
    columns = []
    for field in schema:
        at = batches[0].schema.get_field_index(field.name)
        if at < 0 and field.name == SEQ.name:
            columns.append(pa.chunked_array([ids], field.type))
            continue
        columns.append(pa.chunked_array([batch.column(at) for batch in batches], field.type))
    return pa.table(columns, schema=schema)


def output_block(stream: str, table: pa.Table, emit_from: int) -> OutputBlock:
    """The tuples of an output from ``emit_from`` on; they are in the order of their times."""
    stimes = micros(table["stime"])
    skipped = int(np.searchsorted(stimes, emit_from, side="left"))
    count = table.num_rows - skipped
    if count == 0:
        return OutputBlock(stream, 0, skipped, 0, 0, 0, None)
    fresh = table.slice(skipped)
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
