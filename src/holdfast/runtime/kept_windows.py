"""A replica whose state is kept window by window in its output log.

Beside the log there is only the small recovery record. A restart

1. reads the window states that the record needs back from the log,
2. makes a partial state of them,
3. asks the producers for the input since the oldest of them (that is the record's marker), and
4. computes the state at the record's boundary in one job, which emits nothing.

A crash in any of these steps changes nothing on disk: the next restart does the same.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.blocks import Block
from holdfast.core.effects import RunJob
from holdfast.core.events import JobDone, RecoveryRecord, WindowBlock
from holdfast.core.settings import Continuous
from holdfast.errors import StateError
from holdfast.log import LogError, StreamLog
from holdfast.runtime.continuous import ContinuousCheckpoints
from holdfast.spark.engine import Advance, Bucket, Engine
from holdfast.spark.eventual import Recovered, load, read_extent
from holdfast.spark.state import EMPTY, State
from holdfast.spark.window_states import WindowBatch

# What loading a window state takes is measured when the log has so many, and again each time
# it has four times as many.
_MEASURE_FROM = 2_000


@dataclass(frozen=True)
class Took:
    """A recovery: window states and results that were read, tuples computed again, seconds."""

    frames: int = 0
    load_s: float = 0.0
    tuples: int = 0
    replay_s: float = 0.0


class KeptWindows:
    """Continuous checkpoints of one replica; its jobs' thread calls it."""

    def __init__(
        self,
        engine: Engine,
        settings: Continuous,
        owner: str,
        log: StreamLog,
        output: str,
        two_wrote: bool = False,
    ) -> None:
        """``log`` is that of ``output``, the output that keeps the window states.

        ``two_wrote``: another copy's window states may be in it, too.
        """
        self._engine = engine
        self._log = log
        self._output = output
        self._two_wrote = two_wrote
        self._executor = ThreadPoolExecutor(1, f"holdfast-windows-{owner}")
        self._checkpoints = ContinuousCheckpoints(engine, settings, owner, self._executor)
        self._recovered: Recovered | None = None
        self._took = Took()
        self._measure_at = _MEASURE_FROM

    def close(self) -> None:
        self._executor.shutdown(wait=True)

    # -- restarting ---------------------------------------------------------------------

    def restart(self, record: RecoveryRecord) -> State:
        """Steps 1 and 2; the state at the record's boundary if it needs no replay."""
        begun = time.monotonic()
        extent = read_extent(self._log, record.boundary, record.extent, self._two_wrote)
        recovered = load(self._engine, extent, record.boundary, record.marker)
        spent = time.monotonic() - begun
        self._took = Took(extent.frames, spent, 0, 0.0)
        if extent.frames > _MEASURE_FROM:
            self._checkpoints.measured(load_us=spent * 1e6 / extent.frames)
        if max(0, recovered.state.boundary) < record.marker:
            raise StateError(
                f"{self._log.directory}: its window states need input from "
                f"{recovered.state.boundary} on, the record beside it has {record.marker}; one "
                f"of them was replaced or lost: put it back"
            )
        self._recovered = recovered
        return self._checkpoints.recover(recovered, []) if _is_whole(record) else EMPTY

    def rebuild(self, job: RunJob, tables: Mapping[str, pa.Table]) -> JobDone:
        """Step 4."""
        assert self._recovered is not None, "a restart comes before a rebuild"
        start = max(job.start, min(self._recovered.state.boundary, job.stop))
        needed = {name: _since(table, start) for name, table in tables.items()}
        buckets = [Bucket(start, job.stop, needed)] if start < job.stop else []
        begun = time.monotonic()
        state = self._checkpoints.recover(self._recovered, buckets)
        tuples = sum(table.num_rows for table in needed.values())
        self._took = replace(self._took, tuples=tuples, replay_s=time.monotonic() - begun)
        cost = self._checkpoints.cost
        return JobDone(job.job, state, _within(cost.replay_from, job), (), (), cost.extent_from)

    # -- running ------------------------------------------------------------------------

    def keep(
        self, job: RunJob, done: JobDone, advance: Advance, taken: int, seconds: float
    ) -> JobDone:
        """Add to a stable job's result the window states that go with it."""
        checkpoints = self._checkpoints
        results = advance.outputs[self._output].num_rows
        windows = self.finish_round()
        checkpoints.measured(job_us=seconds * 1e6, tuples=taken)
        opened = checkpoints.advanced(job.start, advance, taken, results)
        cost = checkpoints.cost
        windows += _blocks(opened, checkpoints.told())
        if cost.extent >= self._measure_at:
            self._measure_at = 4 * cost.extent
            checkpoints.also(lambda: self._load_once(job.stop, cost.extent_from, cost.replay_from))
        marker = _within(cost.replay_from, job)
        return replace(done, marker=marker, windows=windows, extent=cost.extent_from)

    def finish_round(self) -> tuple[WindowBlock, ...]:
        """What was written beside the last job; waits for it."""
        return _blocks(self._checkpoints.finish_round(), self._checkpoints.told())

    def _load_once(self, boundary: int, extent_from: int, replay_from: int) -> None:
        """Load the extent as a recovery would, beside the next job, to learn what it takes."""
        begun = time.monotonic()
        try:
            extent = read_extent(self._log, boundary, extent_from, self._two_wrote)
        except LogError:
            return  # trimmed meanwhile; there will be another time
        load(self._engine, extent, boundary, replay_from)
        if extent.frames:
            spent = time.monotonic() - begun
            self._checkpoints.measured(load_us=spent * 1e6 / extent.frames)

    def status(self) -> dict[str, Any]:
        """What a recovery would cost now, and what the last one took."""
        return {**self._checkpoints.told(), "took": asdict(self._took)}


def _blocks(batches: Sequence[WindowBatch], told: Mapping[str, int]) -> tuple[WindowBlock, ...]:
    return tuple(
        WindowBlock(each.kind, each.rows.num_rows, each.time, Block(each.batch(told)))
        for each in batches
    )


def _since(table: pa.Table, start: int) -> pa.Table:
    """The tuples of a time or later."""
    return table.filter(pc.greater_equal(table["stime"].cast(pa.int64()), start))


def _is_whole(record: RecoveryRecord) -> bool:
    """Whether what the log has needs no input besides."""
    return record.marker >= record.boundary


def _within(time: int, job: RunJob) -> int:
    return max(0, min(time, job.stop))
