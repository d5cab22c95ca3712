"""The user's own keyed stateful operator, against the oracle."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.errors import PythonException
from pyspark.sql import SparkSession, Window
from pyspark.sql import functions as F

from holdfast import Network
from holdfast.spark.engine import Engine
from holdfast.spark.faults import explain_job, is_user_code
from holdfast.spark.state import EMPTY
from holdfast.spark.version import Version
from holdfast.testing import OracleStream, run
from tests.spark.networks import every_third, running_total
from tests.spark.support import PLAIN, SECOND, SPARK, Case, bucket, cases, check, plain_row


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Engine:
    network = Network("process", spark=spark)
    source = network.source("s", PLAIN)
    keyed = source.groupBy("k")
    keyed.process(running_total(), "k string, n bigint, total bigint", "bigint").output("totals")
    keyed.process(every_third(), "k string, n bigint", "int").output("thirds")
    keyed.process(
        running_total(), "k string, n bigint, total bigint", "bigint", forget_after="700 ms"
    ).output("forgetful")
    return Engine(network)


def oracle(streams: Mapping[str, OracleStream]) -> Mapping[str, OracleStream]:
    order = Window.partitionBy("k").orderBy("stime", "seq")
    total = F.sum("n").over(order.rowsBetween(Window.unboundedPreceding, 0))
    source = streams["s"]
    thirds = source.with_column("place", F.row_number().over(order)).filter("place % 3 = 0")
    time = F.unix_micros("stime")
    silent = F.coalesce(time - F.lag(time).over(order) >= 700_000, F.lit(True))
    again = Window.partitionBy("k", "calm").orderBy("stime", "seq")
    forgetful = source.with_column("silent", silent).with_column(
        "calm", F.sum(F.col("silent").cast("int")).over(order)
    )
    fresh = F.sum("n").over(again.rowsBetween(Window.unboundedPreceding, 0))
    return {
        "totals": source.with_column("total", total).select("k", "n", "total"),
        "thirds": thirds.select("k", "n"),
        "forgetful": forgetful.with_column("total", fresh).select("k", "n", "total"),
    }


@SPARK
@given(case=cases())
def test_process_equals_the_oracle(engine: Engine, case: Case) -> None:
    check(engine, case, {"s": case.rows(plain_row, 40)}, oracle)


def test_a_key_that_is_forgotten_leaves_no_state(engine: Engine, spark: SparkSession) -> None:
    network = Network("forget", spark=spark)
    source = network.source("s", PLAIN)
    source.groupBy("k").process(every_third(), "k string, n bigint", "int").output("out")
    version = Version(Engine(network))
    for step in range(9):
        row = (step, "a", step, 0.0)
        out = version.advance([bucket(version.engine, step, step + 1, s=[row])])["out"]
        assert out["n"].to_pylist() == ([step] if step % 3 == 2 else [])
    assert version.snapshot().rows() == 0


def test_what_one_call_emits_for_one_time_stays_in_order(spark: SparkSession) -> None:
    def twice(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table, Any]:
        both = [name for value in rows["n"].to_pylist() for name in (f"z{value}", f"a{value}")]
        stime = [time for time in rows["stime"].to_pylist() for _ in (0, 1)]
        return pa.table({"stime": pa.array(stime, rows["stime"].type), "name": both}), None

    network = Network("order", spark=spark)
    source = network.source("s", PLAIN)
    source.groupBy("k").process(twice, "name string", "int").output("out")
    engine = Engine(network)
    rows = [(5, "a", 9, 0.0), (5, "a", 1, 0.0), (6, "a", 3, 0.0)]
    out = run(engine, [bucket(engine, 0, SECOND, s=rows)])["out"]
    assert out["name"].to_pylist() == ["z9", "a9", "z1", "a1", "z3", "a3"]


def test_mistakes_of_the_function_are_named(spark: SparkSession) -> None:
    def wrong_time(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table, Any]:
        stime = pa.array([7], pa.timestamp("us", tz="UTC"))
        return pa.table({"stime": stime, "k": ["a"]}), None

    def wrong_columns(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table, Any]:
        return rows, None

    for function, message in ((wrong_time, "copy the stime"), (wrong_columns, "must return")):
        network = Network("mistakes", spark=spark)
        source = network.source("s", PLAIN)
        source.groupBy("k").process(function, "k string", "int").output("out")
        engine = Engine(network)
        with pytest.raises(Exception, match=message):
            run(engine, [bucket(engine, 0, SECOND, s=[(1, "a", 1, 1.0)])])


def fails_on_negative(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table, Any]:
    """Counts, and has changed its state when it raises."""
    total = state or {"n": 0}
    for value in rows["n"].to_pylist():
        total["n"] += value
        if value < 0:
            raise ValueError(f"{value} is negative")
    return rows.select(["stime", "n"]), total


def test_rows_on_which_a_function_raises_are_left_out_if_told(spark: SparkSession) -> None:
    network = Network("rejects", spark=spark)
    source = network.source("s", PLAIN)
    source.groupBy("k").process(fails_on_negative, "n bigint", "struct<n bigint>").output("out")
    rows = [
        (0, "a", 1, 0.0),
        (1, "a", -2, 0.0),
        (1, "a", 3, 0.0),
        (2, "b", -4, 0.0),
        (2, "a", 5, 0.0),
    ]
    whole = Engine(network, on_error="dead-letter")
    done = whole.advance(EMPTY, [bucket(whole, 0, 3, s=rows)])
    assert sorted(done.outputs["out"]["n"].to_pylist()) == [1, 3, 5]
    left_out = sorted((each.reason, each.row["n"]) for each in done.rejected)
    assert left_out == [
        ("ValueError: -2 is negative", -2),
        ("ValueError: -4 is negative", -4),
    ]
    # However the stream is cut, the same rows stay.
    state, parts = EMPTY, []
    for step in range(3):
        mine = [row for row in rows if row[0] == step]
        part = whole.advance(state, [bucket(whole, step, step + 1, s=mine)])
        state = part.state
        parts.append(part.outputs["out"])
    names = ["stime", "tmax", "n"]  # each bucket of this test numbers its rows anew
    cut, uncut = pa.concat_tables(parts).select(names), done.outputs["out"].select(names)
    assert cut.to_pylist() == uncut.to_pylist()
    stops = Engine(network)
    with pytest.raises(PythonException) as raised:
        stops.advance(EMPTY, [bucket(stops, 0, 3, s=rows)])
    where = r"\(test_process.py, line \d+, in fails_on_negative\)"
    assert re.fullmatch(rf"ValueError: -\d is negative {where}", explain_job(raised.value))
    assert is_user_code(raised.value)
