"""What a replica with continuous checkpoints hands to its log, and how it restarts from it."""

from __future__ import annotations

import unittest.mock
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, count_window
from holdfast.blocks import Block
from holdfast.core.effects import Line, RunJob
from holdfast.core.events import JobDone, RecoveryRecord, WindowBlock
from holdfast.core.frame import Header, Kind
from holdfast.core.settings import Continuous
from holdfast.frames import Frame, boundary_frame, data_frame
from holdfast.log import StreamLog
from holdfast.runtime import kept_windows
from holdfast.runtime.kept_windows import KeptWindows
from holdfast.spark.engine import Engine
from holdfast.spark.state import EMPTY, State
from holdfast.testing import run, same_bytes, split, tuples
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
    with (
        unittest.mock.patch.object(kept_windows, "_MEASURE_FROM", 1),
        StreamLog.open(tmp_path / "out", schema) as log,
    ):
        kept = KeptWindows(engine, KNOBS, "replica", log, "out")
        for number, bucket in enumerate(buckets):
            if number == 7:
                kept.close()
                kept = KeptWindows(engine, KNOBS, "replica", log, "out")
                state = kept.restart(record)
                if record.marker < record.boundary:
                    since = split(tables, [record.marker, record.boundary])[0].tables
                    order = RunJob(0, Line.REBUILD, None, record.marker, record.boundary, (), ())
                    rebuilt = kept.rebuild(order, since)
                    assert isinstance(rebuilt.state, State)
                    state = rebuilt.state
                    assert rebuilt.extent >= record.extent
            job = RunJob(number, Line.STABLE, state, max(0, state.boundary), bucket.end, (), ())
            advance = engine.advance(state, [bucket], bucket.end, windows=True)
            taken = bucket.tables["s"].num_rows
            done = JobDone(number, advance.state, bucket.end, ())
            done = kept.keep(job, done, advance, taken, 0.01)
            state = advance.state
            out = advance.outputs["out"]
            found.append(out)
            write(log, tuple(each for each in done.windows if each.time < bucket.end))
            if out.num_rows:
                rows = out.drop_columns(["seq"]).combine_chunks().to_batches()[0]
                log.append(data_frame(Kind.STABLE, log.next_id, rows))
            log.append(boundary_frame(log.next_id, bucket.end))
            write(log, tuple(each for each in done.windows if each.time >= bucket.end))
            record = RecoveryRecord(bucket.end, done.marker, (), (), done.extent)
        assert kept.status()["open_windows"] > 0
        kept.close()
        kinds = {entry.frame.kind for entry in log.read_backwards()}
    assert {Kind.WINDOW_OPEN, Kind.WINDOW_CHECK} <= kinds
    same_bytes({"out": pa.concat_tables(found)}, expected, "with a restart and without")
    engine.close()
