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
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.core.continuous import Restored, RoundFailed
from holdfast.core.effects import ReadWindows, RunJob
from holdfast.core.events import Event, JobDone, RecoveryRecord, WindowsRead, WindowsTimed
from holdfast.errors import StateError
from holdfast.kept.continuous_reader import WindowReader, blocks
from holdfast.kept.continuous_recovery import Recovered, load, read_extent
from holdfast.log import LogError, StreamLog
from holdfast.spark.engine import Advance, Bucket, Engine
from holdfast.spark.state import EMPTY, State

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
    """The windows of one replica as its log has them; its jobs' thread calls it.

    What a round orders (``read``) is done in a thread of its own, beside the next job.
    """

    def __init__(
        self,
        engine: Engine,
        owner: str,
        log: StreamLog,
        output: str,
        post: Callable[[Event], None],
        two_wrote: bool = False,
    ) -> None:
        """``log`` is that of ``output``, the output that keeps the window states.

        ``two_wrote``: another copy's window states may be in it, too.
        """
        self._engine = engine
        self._log = log
        self._output = output
        self._post = post
        self._two_wrote = two_wrote
        # One for the orders, which come one at a time; one to learn what loading takes.
        self._executor = ThreadPoolExecutor(2, f"holdfast-windows-{owner}")
        self._reader = WindowReader(engine)
        self._recovered: Recovered | None = None
        self._restored: Restored | None = None
        self._took = Took()
        self._note: dict[str, int] = {}
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
            self._post(WindowsTimed(spent * 1e6 / extent.frames))
        if max(0, recovered.state.boundary) < record.marker:
            raise StateError(
                f"{self._log.directory}: its window states need input from "
                f"{recovered.state.boundary} on, the record beside it has {record.marker}; one "
                f"of them was replaced or lost: put it back"
            )
        self._recovered = recovered
        if record.marker < record.boundary:
            return EMPTY
        state, self._restored = self._reader.recover(recovered, [])
        return state

    def rebuild(self, job: RunJob, tables: Mapping[str, pa.Table]) -> JobDone:
        """Step 4."""
        assert self._recovered is not None, "a restart comes before a rebuild"
        start = max(job.start, min(self._recovered.state.boundary, job.stop))
        needed = {name: _since(table, start) for name, table in tables.items()}
        buckets = [Bucket(start, job.stop, needed)] if start < job.stop else []
        begun = time.monotonic()
        state, restored = self._reader.recover(self._recovered, buckets)
        spent = time.monotonic() - begun
        tuples = sum(table.num_rows for table in needed.values())
        self._took = replace(self._took, tuples=tuples, replay_s=spent)
        took_us, due = int(spent * 1e6), self._engine.due(state)
        return JobDone(job.job, state, job.stop, (), restored=restored, took_us=took_us, due=due)

    # -- running ------------------------------------------------------------------------

    def keep(
        self,
        job: RunJob,
        before: State,
        done: JobDone,
        advance: Advance,
        taken: int,
        seconds: float,
    ) -> JobDone:
        """Add to a stable job's result the window states that go with it."""
        results = advance.outputs[self._output].num_rows
        opened, reached = self._reader.news(before, job.start, advance, taken, results)
        self._note = {**dict(job.note), "open_windows": reached.open_windows}
        restored, self._restored = self._restored, None
        return replace(
            done,
            windows=blocks(opened, self._note),
            reached=reached,
            restored=restored,
            took_us=int(seconds * 1e6),
        )

    def read(self, order: ReadWindows) -> None:
        """Carry out an order of a round, beside the next job."""
        self._executor.submit(self._read, order)

    def _read(self, order: ReadWindows) -> None:
        note = dict(order.note)
        try:
            state = order.state
            assert isinstance(state, State)
            answer, batches = self._reader.carry_out(state, order.order)
        except Exception as error:
            answer, batches = RoundFailed(f"{type(error).__name__}: {error}"), []
        self._post(WindowsRead(order.round, answer, blocks(batches, note)))
        if note.get("extent", 0) >= self._measure_at:
            self._measure_at = 4 * note["extent"]
            self._executor.submit(self._load_once, order.state, note)

    def _load_once(self, state: object, note: Mapping[str, int]) -> None:
        """Load the extent as a recovery would, to learn what it takes."""
        assert isinstance(state, State)
        begun = time.monotonic()
        try:
            extent = read_extent(self._log, state.boundary, note["extent_from"], self._two_wrote)
            load(self._engine, extent, state.boundary, note["replay_from"])
        except LogError:
            return  # trimmed meanwhile; there will be another time
        if extent.frames:
            spent = time.monotonic() - begun
            self._post(WindowsTimed(spent * 1e6 / extent.frames))

    def status(self) -> dict[str, Any]:
        """What a recovery would cost now, and what the last one took."""
        return {**self._note, "took": asdict(self._took)}


def _since(table: pa.Table, start: int) -> pa.Table:
    """The tuples of a time or later."""
    return table.filter(pc.greater_equal(table["stime"].cast(pa.int64()), start))
