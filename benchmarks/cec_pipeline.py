"""One fragment with its logs, as a replica runs it, without the processes around it.

The paper's query: the average price of each item over a count of its sales. Tuples have 100
bytes. The input lies in a log, as a filter in front of the aggregate would keep it; results and
window states go into the output log.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F

from holdfast import Network, count_window
from holdfast.core.events import RecoveryRecord
from holdfast.core.frame import Header, Kind
from holdfast.core.settings import Continuous
from holdfast.frames import SEQ, TIME, Frame, data_frame
from holdfast.kept.continuous_recovery import load, read_extent
from holdfast.log import Durability, LogOptions, StreamLog
from holdfast.spark.continuous_states import WindowBatch
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.session import get_session
from holdfast.spark.state import EMPTY, State
from holdfast.testing.continuous_rounds import Rounds

TUPLE_BYTES = 100
PAD = "x" * 56
STIME_US = 10  # between two tuples
SCHEMA = "item bigint, price int, pad string"
OPTIONS = LogOptions(durability=Durability.INTERVAL, sync_interval_ms=20.0, preallocate_bytes=0)


def make_engine(size: int) -> Engine:
    """The average price of every ``size`` sales of an item."""
    spark = get_session("local[2]", {"spark.driver.memory": "4g"})
    network = Network(f"prices{size}", bucket="200 ms", partitions=2, spark=spark)
    sales = network.source("sales", SCHEMA)
    mean = F.avg("price").alias("price")
    sales.groupBy(count_window(size), "item").agg(mean).output("prices")
    return Engine(network)


class Sales:
    """Buckets of sales of random items."""

    def __init__(
        self, engine: Engine, items: int, bucket: int, seed: int = 1, spread: float = 0.0
    ) -> None:
        """Buckets have up to ``spread`` more or less than ``bucket`` sales."""
        self._schema = engine.input_schemas["sales"]
        self._items = items
        self._bucket = bucket
        self._spread = spread
        self._random = np.random.default_rng(seed)
        self._next = 0

    def opening(self, size: int) -> list[Bucket]:
        """As many sales of each item as it has in its open window at a random moment."""
        sold = np.repeat(np.arange(self._items), self._random.integers(0, size, self._items))
        mixed = self._random.permutation(sold)
        starts = range(0, len(mixed), self._bucket)
        return [self._make(mixed[start : start + self._bucket]) for start in starts]

    def next(self) -> Bucket:
        count = int(self._bucket * (1 + self._spread * self._random.uniform(-1, 1)))
        return self._make(self._random.integers(0, self._items, count))

    def _make(self, items: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Bucket:
        count, first = len(items), self._next
        self._next += count
        numbers = np.arange(first, first + count)
        times = pa.array(numbers * STIME_US, TIME)
        prices = pa.array(self._random.integers(1, 1_000, count), pa.int32())
        pads = pa.array([PAD]).take(pa.array(np.zeros(count, dtype=np.int64)))
        columns = [times, times, pa.array(numbers), pa.array(items), prices, pads]
        table = pa.Table.from_arrays(columns, schema=self._schema)
        return Bucket(first * STIME_US, (first + count) * STIME_US, {"sales": table})


@dataclass
class Steps:
    """What the steps of a pipeline took and gave."""

    seconds: list[float] = field(default_factory=list)
    pauses: list[float] = field(default_factory=list)
    results: list[int] = field(default_factory=list)
    windows: list[int] = field(default_factory=list)
    extents: list[int] = field(default_factory=list)
    checks: int = 0


class Pipeline:
    """A fragment that is fed buckets."""

    def __init__(
        self, engine: Engine, directory: Path, settings: Continuous | None, persist: bool = True
    ) -> None:
        """Without ``settings`` nothing is checkpointed; ``persist`` writes window states."""
        self.engine = engine
        self.directory = directory
        self.settings = settings
        self.state: State = EMPTY
        self.steps = Steps()
        self._persist = persist
        self._executor = ThreadPoolExecutor(1, "rounds")
        own = engine.advance(EMPTY, [], 0).outputs["prices"].drop_columns([SEQ.name])
        self.log = StreamLog.open(directory / "prices", own.schema, options=OPTIONS)
        given = engine.input_schemas["sales"]
        self.upstream = StreamLog.open(
            directory / "sales", given.remove(given.get_field_index(SEQ.name)), options=OPTIONS
        )
        self.record = RecoveryRecord(0, 0, (), ())
        self.kept = None if settings is None else self._keep_windows(settings)

    def _keep_windows(self, settings: Continuous) -> Rounds:
        return Rounds(self.engine, settings, self._executor)

    @property
    def status(self) -> dict[str, int]:
        """What a recovery would cost."""
        assert self.kept is not None
        return self.kept.told()

    def close(self) -> None:
        if self.kept is not None:
            self.kept.finish_round()
        self._executor.shutdown()
        self.log.close()
        self.upstream.close()

    def feed(self, bucket: Bucket, log_input: bool = False) -> None:
        """One bucket: a job, its results, its window states."""
        table = bucket.tables["sales"]
        if log_input:
            batch = table.drop_columns([SEQ.name]).combine_chunks().to_batches()[0]
            self.upstream.append(data_frame(Kind.STABLE, self.upstream.next_id, batch))
        begun = time.perf_counter()
        before, keeps = self.state, self.kept is not None
        start = max(0, before.boundary)
        advance = self.engine.advance(self.state, [bucket], bucket.end, windows=keeps)
        computed = time.perf_counter()
        self.state = advance.state
        results = advance.outputs["prices"]
        checks: list[WindowBatch] = []
        opened: list[WindowBatch] = []
        if self.kept is not None:
            checks = self.kept.finish_round()
            self.kept.measured(job_us=(computed - begun) * 1e6, tuples=table.num_rows)
            tuples = (table.num_rows, results.num_rows)
            opened = self.kept.advanced(before, start, advance, *tuples)
            needs = (self.kept.replay_from, self.kept.extent_from)
            self.record = RecoveryRecord(bucket.end, needs[0], (), (), needs[1])
        paused = time.perf_counter()
        self._append(checks)
        if results.num_rows:
            batch = results.drop_columns([SEQ.name]).combine_chunks().to_batches()[0]
            self.log.append(data_frame(Kind.STABLE, self.log.next_id, batch))
        self.log.append(Frame(Header(Kind.BOUNDARY, self.log.next_id, 0, bucket.end, bucket.end)))
        self._append(opened)
        self.steps.seconds.append(time.perf_counter() - begun)
        self.steps.pauses.append(paused - computed)
        self.steps.results.append(results.num_rows)
        self.steps.windows.append(sum(each.rows.num_rows for each in [*checks, *opened]))
        if self.kept is not None:
            self.steps.extents.append(self.status["extent"])

    def finish_round(self) -> None:
        """Wait for the round beside the last job."""
        if self.kept is not None:
            self._append(self.kept.finish_round())

    def _append(self, windows: Iterable[WindowBatch]) -> None:
        if not self._persist:
            return
        at, told = self.log.next_id, self.status if self.kept is not None else {}
        frames = [Frame(each.header(at), each.batch(told)) for each in windows]
        checked = [each for each in frames if each.kind is Kind.WINDOW_CHECK]
        self.steps.checks += sum(each.header.count for each in checked)
        if frames:
            self.log.append(frames)

    def crash(self) -> Recovery:
        """Lose everything but the logs and the record, and recover in this warm process."""
        assert self.kept is not None
        assert self.settings is not None
        expected = self.status["recovery_us"] / 1e6
        self.kept.finish_round()  # lost
        self.log.close()
        self.log = StreamLog.open(self.directory / "prices", options=OPTIONS)
        self.kept = self._keep_windows(self.settings)
        self.state = EMPTY
        begun = time.perf_counter()
        record = self.record
        extent = read_extent(self.log, record.boundary, record.extent)
        recovered = load(self.engine, extent, record.boundary, record.marker)
        loaded = time.perf_counter()
        buckets, tuples = [], 0
        if recovered.state.boundary < record.boundary:
            buckets = [self._replayed(max(0, recovered.state.boundary), record.boundary)]
            tuples = buckets[0].tables["sales"].num_rows
        self.state = self.kept.recover(recovered, buckets)
        done = time.perf_counter()
        return Recovery(extent.frames, loaded - begun, tuples, done - loaded, expected)

    def _replayed(self, start: int, stop: int) -> Bucket:
        """The input from ``start`` on, read from the log in front of the fragment."""
        schema = self.engine.input_schemas["sales"]
        first_id = next(
            (
                header.first_id
                for header, _ in self.upstream.headers()
                if header.kind is Kind.STABLE and header.stime_max >= start
            ),
            self.upstream.next_id,
        )
        with self.upstream.replay(from_id=first_id) as reader:
            pieces = [frame.batch for _, frame in reader if frame.kind is Kind.STABLE]
        table = pa.Table.from_batches(pieces, schema=self.upstream.schema)
        ids = np.arange(first_id, first_id + table.num_rows)
        table = table.add_column(2, SEQ, pa.array(ids))
        table = table.filter(pc.field("stime").cast(pa.int64()) >= start)
        return Bucket(start, stop, {"sales": table.select(schema.names).cast(schema)})


@dataclass(frozen=True)
class Recovery:
    """A recovery: what was read and replayed, and what each took, in seconds."""

    extent: int
    load_s: float
    replay: int
    replay_s: float
    expected_s: float
