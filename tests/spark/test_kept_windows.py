"""What a replica with continuous checkpoints hands to its log, and how it restarts from it."""

from __future__ import annotations

import queue
import unittest.mock
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, count_window
from holdfast.blocks import Block
from holdfast.core.continuous import CecState
from holdfast.core.continuous_rounds import WindowRounds
from holdfast.core.effects import Line, RunJob
from holdfast.core.events import (
    Event,
    JobDone,
    RecoveryRecord,
    WindowBlock,
    WindowsRead,
    WindowsTimed,
)
from holdfast.core.frame import Header, Kind
from holdfast.core.settings import Continuous
from holdfast.core.versions import Running
from holdfast.frames import Frame, data_frame
from holdfast.kept import continuous_state as kept_windows
from holdfast.kept.continuous_state import KeptWindows
from holdfast.log import StreamLog
from holdfast.spark.engine import Engine
from holdfast.spark.state import EMPTY, State
from holdfast.testing import run, same_bytes, split, tuples
from tests.blocks_for_tests import boundary_frame
from tests.spark.support import PLAIN, SECOND, Case, plain_row

KNOBS = Continuous(extent=8, interval_us=20_000, period_us=20_000)


def write(log: StreamLog, windows: tuple[WindowBlock, ...]) -> None:
    for one in windows:
        assert isinstance(one.block, Block)
        header = Header(one.kind, log.next_id, one.count, one.time, one.time)
        log.append(Frame(header, one.block.batch()))


def test_a_replica_restarts_from_its_log(spark: SparkSession, tmp_path: Path) -> None:
    network = Network("kept", spark=spark)
    source = network.source("s", PLAIN)
    source.groupBy(count_window(4), "k").agg(F.sum("x").alias("x")).output("out")
    engine = Engine(network)
    case = Case(1, 0, (), ())
    tables = {"s": tuples(engine, "s", case.rows(plain_row, 60))}
    expected = run(engine, split(tables, [0, case.boundary]))
    schema = expected["out"].drop_columns(["seq"]).schema
    buckets = split(tables, range(0, case.boundary + 1, SECOND // 2))
    state: State = EMPTY
    record = RecoveryRecord(0, 0, (), ())
    found: list[pa.Table] = []
    events: queue.Queue[Event] = queue.Queue()

    def begin(log: StreamLog) -> tuple[KeptWindows, WindowRounds]:
        made = KeptWindows(engine, "replica", log, "out", events.put)
        return made, WindowRounds("replica", KNOBS, record.boundary)

    def finish_round(log: StreamLog) -> None:
        while rounds.machine.state is not CecState.IDLE:
            event = events.get(timeout=60.0)
            assert isinstance(event, WindowsRead | WindowsTimed)
            read = rounds.read(event, number * 100_000)
            write(log, read.windows)
            for order in read.orders:
                kept.read(order)

    with (
        unittest.mock.patch.object(kept_windows, "_MEASURE_FROM", 1),
        StreamLog.open(tmp_path / "out", schema) as log,
    ):
        kept, rounds = begin(log)
        for number, bucket in enumerate(buckets, 1):
            if number == 8:
                kept.close()
                kept, rounds = begin(log)
                state = kept.restart(record)
                if record.marker < record.boundary:
                    since = split(tables, [record.marker, record.boundary])[0].tables
                    span = (record.marker, record.boundary)
                    rebuilt = kept.rebuild(RunJob(0, Line.REBUILD, None, *span, (), ()), since)
                    assert isinstance(rebuilt.state, State)
                    state = rebuilt.state
                    rounds.took(rebuilt, Running(0, Line.REBUILD, *span), number * 100_000)
                    assert rounds.extent >= record.extent
            start = max(0, state.boundary)
            job = RunJob(number, Line.STABLE, state, start, bucket.end, (), (), rounds.note())
            advance = engine.advance(state, [bucket], bucket.end, windows=True)
            done = JobDone(number, advance.state, bucket.end, ())
            done = kept.keep(job, state, done, advance, bucket.tables["s"].num_rows, 0.01)
            finish_round(log)
            running = Running(number, Line.STABLE, start, bucket.end)
            done = rounds.took(done, running, number * 100_000)
            state = advance.state
            out = advance.outputs["out"]
            found.append(out)
            if out.num_rows:
                rows = out.drop_columns(["seq"]).combine_chunks().to_batches()[0]
                log.append(data_frame(Kind.STABLE, log.next_id, rows))
            log.append(boundary_frame(log.next_id, bucket.end))
            write(log, done.windows)
            record = RecoveryRecord(bucket.end, done.marker, (), (), rounds.extent)
            for order in rounds.begin():
                kept.read(order)
        assert kept.status()["open_windows"] > 0
        kept.close()
        kinds = {entry.frame.kind for entry in log.read_backwards()}
    assert {Kind.WINDOW_OPEN, Kind.WINDOW_CHECK} <= kinds
    same_bytes({"out": pa.concat_tables(found)}, expected, "with a restart and without")
    engine.close()
