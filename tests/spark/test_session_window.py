"""Session windows, against a batch job that finds the pauses with window functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from pyspark.sql import Column, SparkSession, Window
from pyspark.sql import functions as F

from holdfast import Network, session_window
from holdfast.spark import engine as engine_module
from holdfast.spark.engine import Engine
from holdfast.spark.version import Version
from holdfast.testing import OracleStream, first_in_order, run, same_bytes, split, sum_exactly
from holdfast.testing import tuples as make_tuples
from tests.spark.support import LENGTH, SCHEMA, SPARK, Case, bucket, cases, check, full_row

GAP = 400_000
SECOND = 1_000_000


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Engine:
    network = Network("sessions", spark=spark)
    source = network.source("s", SCHEMA)
    wanted = [F.sum("v").alias("total"), F.count("*").alias("n"), F.first("s").alias("first")]
    source.groupBy(session_window("400 ms"), "k", "j").agg(*wanted).output("keyed")
    source.groupBy(session_window("400 ms")).agg(F.count("*").alias("n")).output("no_key")
    return Engine(network)


def sessions(
    stream: OracleStream, keys: Sequence[str], aggregates: Mapping[str, Column]
) -> OracleStream:
    """A session starts with a tuple whose predecessor in the group is ``GAP`` or more older."""
    order = Window.partitionBy(*keys).orderBy("stime", "seq")
    time = F.unix_micros("stime")
    pause = F.coalesce(time - F.lag(time).over(order) >= GAP, F.lit(True))
    frame = stream.frame.withColumn("__starts", pause.cast("int"))
    frame = frame.withColumn("__session", F.sum("__starts").over(order))
    grouped = frame.groupBy("__session", *keys).agg(
        F.min(time).alias("__start"),
        (F.max(time) + GAP).alias("__end"),
        F.max("tmax").alias("tmax"),
        *(column.alias(f"__{name}") for name, column in aggregates.items()),
    )
    grouped = grouped.where(F.col("__end") <= stream.boundary)
    window = F.struct(
        F.timestamp_micros("__start").alias("start"), F.timestamp_micros("__end").alias("end")
    )
    frame = grouped.select(
        F.timestamp_micros(F.col("__end") - 1).alias("stime"),
        "tmax",
        F.lit(None).cast("bigint").alias("seq"),
        window.alias("window"),
        *keys,
        *(F.col(f"__{name}").alias(name) for name in aggregates),
    )
    return OracleStream(frame, stream.boundary)


def oracle(streams: Mapping[str, OracleStream]) -> Mapping[str, OracleStream]:
    aggregates = {
        "total": sum_exactly(F.col("v")),
        "n": F.count("*"),
        "first": first_in_order(F.col("s")),
    }
    return {
        "keyed": sessions(streams["s"], ["k", "j"], aggregates),
        "no_key": sessions(streams["s"], [], {"n": F.count("*")}),
    }


@SPARK
@given(case=cases())
def test_sessions_equal_the_oracle(engine: Engine, case: Case) -> None:
    check(engine, case, {"s": case.rows(full_row)}, oracle)


def test_sharded_sessions_are_the_same_bytes(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case(11, 0, (700_000, 1_900_000, 4_000_000), ())
    tables = {"s": make_tuples(engine, "s", case.rows(full_row))}
    one_task = run(engine, split(tables, case.edges))
    monkeypatch.setattr(engine_module, "_SHARDING", engine_module.Sharding(0, 0, 0))
    same_bytes(run(engine, split(tables, case.edges)), one_task, "sharded and one task")


def test_a_session_ends_without_another_tuple(engine: Engine) -> None:
    version = Version(engine)
    row = (SECOND // 2, "a", 1, 1, 1.0, None, "x", None)
    assert version.advance([bucket(engine, 0, SECOND // 2 + 1, s=[row])])["keyed"].num_rows == 0
    end = SECOND // 2 + GAP
    assert version.advance([], end - 1)["keyed"].num_rows == 0
    closed = version.advance([], end)["keyed"]
    assert closed.num_rows == 1
    assert version.advance([], end + LENGTH)["keyed"].num_rows == 0
    assert version.oldest_contributing() == end + LENGTH
