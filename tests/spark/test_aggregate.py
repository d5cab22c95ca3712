"""Every aggregate over tumbling and sliding windows, against the oracle."""

from __future__ import annotations

import random
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Aggregator, Network, aggregate, count_window, session_window, top, window
from holdfast.spark.engine import Engine
from holdfast.spark.version import Version
from holdfast.testing import (
    OracleStream,
    first_in_order,
    last_in_order,
    list_in_order,
    mean_exactly,
    plain_rows,
    run,
    same_bytes,
    same_rows,
    set_in_order,
    split,
    spread_exactly,
    sum_exactly,
    top_in_order,
    tuples,
)
from tests.spark.support import SCHEMA, SECOND, SPARK, Case, Row, bucket, cases, check, full_row


def squares() -> Aggregator:
    """A user's aggregator; made in a function so that it travels to the workers by value."""

    class Squares(Aggregator):
        state_type = "struct<n: bigint, total: decimal(38,0)>"
        result_type = "decimal(38,0)"

        def reduce(self, values: pa.Array) -> Any:
            present = [int(each) for each in values.to_pylist() if each is not None]
            return {"n": len(present), "total": sum(each * each for each in present)}

        def merge(self, earlier: Any, later: Any) -> Any:
            return {name: int(earlier[name]) + int(later[name]) for name in earlier}

        def finish(self, state: Any) -> Any:
            return state["total"] if state["n"] else None

    return Squares()


EXTREMES = ["i", "v", "d", "s", "at", "j"]


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Engine:
    network = Network("aggregates", spark=spark)
    source = network.source("s", SCHEMA)
    every = source.groupBy(window("1 s"), "k").agg(
        F.count("*").alias("n"),
        F.count("v").alias("n_v"),
        F.sum("i").alias("sum_i"),
        F.sum("j").alias("sum_j"),
        F.sum("v").alias("sum_v"),
        F.sum("d").alias("sum_d"),
        *(F.min(name).alias(f"min_{name}") for name in EXTREMES),
        *(F.max(name).alias(f"max_{name}") for name in EXTREMES),
        F.avg("v").alias("avg_v"),
        F.avg("i").alias("avg_i"),
        "avg(d) AS avg_d",
        F.first("v").alias("first_v"),
        F.first("s").alias("first_s"),
        F.last("d").alias("last_d"),
        F.last("at").alias("last_at"),
        F.stddev("v").alias("spread_v"),
        F.stddev("i").alias("spread_i"),
        F.approx_count_distinct("s").alias("kinds"),
        F.approx_count_distinct("v").alias("kinds_v"),
        aggregate(squares(), "i").alias("squares"),
        F.collect_list("v").alias("all_v"),
        F.collect_list("s").alias("all_s"),
        F.collect_list(F.struct("i", "s")).alias("all_rows"),
        F.collect_set("s").alias("set_s"),
        "collect_set(j) AS set_j",
        top(2, "v", "s", "i").alias("most_v"),
        top(3, "-d AS least", "at").alias("least_d"),
    )
    every.output("every")
    source.groupBy(window("2 s", "600 ms"), "k", "j").agg(
        F.sum("v").alias("sum_v"), F.max("s").alias("max_s"), "count(1) AS n"
    ).output("sliding")
    source.groupBy(window("1500 ms", "1500 ms")).agg(
        F.sum(F.col("i") + 1).alias("sum_i"), F.last("k").alias("last_k")
    ).output("no_key")
    return Engine(network)


def oracle(streams: Mapping[str, OracleStream]) -> Mapping[str, OracleStream]:
    source = streams["s"]
    col = F.col
    every = source.aggregate(
        SECOND,
        SECOND,
        ["k"],
        {
            "n": F.count("*"),
            "n_v": F.count("v"),
            "sum_i": F.sum("i"),
            "sum_j": F.sum("j"),
            "sum_v": sum_exactly(col("v")),
            "sum_d": F.sum("d"),
            **{f"min_{name}": F.min(name) for name in EXTREMES},
            **{f"max_{name}": F.max(name) for name in EXTREMES},
            "avg_v": mean_exactly(col("v")),
            "avg_i": F.avg("i"),
            "avg_d": F.avg("d"),
            "first_v": first_in_order(col("v")),
            "first_s": first_in_order(col("s")),
            "last_d": last_in_order(col("d")),
            "last_at": last_in_order(col("at")),
            "spread_v": spread_exactly(col("v")),
            "spread_i": spread_exactly(col("i")),
            "kinds": F.count_distinct("s"),
            "kinds_v": F.count_distinct("v"),
            "all_v": list_in_order(col("v")),
            "all_s": list_in_order(col("s")),
            "all_rows": list_in_order(F.struct("i", "s")),
            "set_s": set_in_order(col("s")),
            "set_j": set_in_order(col("j")),
            "most_v": top_in_order(2, col("v"), F.struct("v", "s", "i")),
            "least_d": top_in_order(3, -col("d"), F.struct((-col("d")).alias("least"), "at")),
            "squares": F.sum(col("i").cast("decimal(15,0)") * col("i")).cast("decimal(38,0)"),
        },
    )
    sliding = source.aggregate(
        2 * SECOND,
        600_000,
        ["k", "j"],
        {"sum_v": sum_exactly(col("v")), "max_s": F.max("s"), "n": F.count("*")},
    )
    no_key = source.aggregate(
        1_500_000,
        1_500_000,
        [],
        {"sum_i": F.sum(col("i") + 1), "last_k": last_in_order(col("k"))},
    )
    return {"every": every, "sliding": sliding, "no_key": no_key}


@SPARK
@given(case=cases())
def test_aggregates_equal_the_oracle(engine: Engine, case: Case) -> None:
    check(engine, case, {"s": case.rows(full_row)}, oracle)


def test_spread_is_close_to_sparks_own(spark: SparkSession) -> None:
    network = Network("spread", spark=spark)
    source = network.source("s", "v double")
    source.groupBy(window("1 s")).agg(F.stddev("v").alias("v")).output("out")
    engine = Engine(network)
    rng = random.Random(5)
    rows = [(i, 1e9 + rng.random()) for i in range(1000)]
    table = tuples(engine, "s", rows)
    out = run(engine, split({"s": table}, [0, 100, 700, SECOND]))["out"]
    expected = spark.createDataFrame(table).agg(F.stddev("v")).toArrow()[0][0].as_py()
    assert out["v"].to_pylist() == pytest.approx([expected], rel=1e-6)


def test_distinct_counts_are_exact_below_the_sketch_and_close_above(spark: SparkSession) -> None:
    network = Network("kinds", spark=spark)
    source = network.source("s", "k string, i bigint")
    source.groupBy(window("1 s"), "k").agg(F.approx_count_distinct("i").alias("n")).output("out")
    engine = Engine(network)
    truth = {"few": 3, "below": 1023, "at": 1024, "above": 5000, "many": 40_000}
    rows: list[Row] = [(i % SECOND, k, i) for k, n in truth.items() for i in range(n)]
    rows += [(7, "few", None), (8, "none", None)]
    tables = {"s": tuples(engine, "s", rows)}
    out = run(engine, split(tables, [0, SECOND]))
    same_bytes(run(engine, split(tables, [0, 900, 3000, SECOND])), out)
    found = dict(zip(out["out"]["k"].to_pylist(), out["out"]["n"].to_pylist(), strict=True))
    assert (found["none"], found["few"], found["below"]) == (0, 3, 1023)
    for k in ("at", "above", "many"):
        assert found[k] == pytest.approx(truth[k], rel=0.1), k


def test_decimals_keep_all_38_digits(spark: SparkSession) -> None:
    network = Network("decimals", spark=spark)
    source = network.source("s", "wide decimal(38,6), fine decimal(18,12)")
    source.groupBy(window("1 s")).agg(
        F.sum("wide").alias("total"), F.avg("fine").alias("mean"), F.max("wide").alias("most")
    ).output("out")
    engine = Engine(network)
    wide = [Decimal("91234567890123456789012345678.123456"), Decimal("0.000001"), Decimal("7.5")]
    fine = [Decimal("1.000000000001"), Decimal("2.000000000002"), Decimal("0.000000000001")]
    rows = [(i, *pair) for i, pair in enumerate(zip(wide, fine, strict=True))]
    table = tuples(engine, "s", rows)
    batch = OracleStream.of(spark, table, SECOND).aggregate(
        SECOND,
        SECOND,
        [],
        {"total": F.sum("wide"), "mean": F.avg("fine"), "most": F.max("wide")},
    )
    same_rows(run(engine, split({"s": table}, [0, 1, 2, SECOND]))["out"], batch.result())


def test_keys_of_every_type_are_told_apart(spark: SparkSession) -> None:
    """NaN equals NaN, null equals null and -0.0 equals 0.0, in one bucket and across buckets."""
    network = Network("keys", spark=spark)
    source = network.source("s", "f double, d decimal(4,2), at timestamp, b boolean, z binary")
    source = source.withColumn("pair", "struct(f, b)").withColumn("list", "array(d, d)")
    keys = ["f", "d", "at", "b", "z", "pair", "list"]
    for key in keys:
        source.groupBy(window("1 s"), key).agg(F.count("*").alias("n")).output(f"by_{key}")
    engine = Engine(network)
    rng = random.Random(3)
    rows = [
        (
            rng.randrange(2 * SECOND),
            rng.choice([0.0, -0.0, float("nan"), None, 1.5]),
            rng.choice([None, Decimal("1.50"), Decimal("-1.50")]),
            rng.choice([None, 0, 5]),
            rng.choice([None, True, False]),
            rng.choice([None, b"", b"\x00"]),
        )
        for _ in range(60)
    ]
    table = tuples(engine, "s", rows)
    whole = run(engine, split({"s": table}, [0, 2 * SECOND]))
    same_bytes(run(engine, split({"s": table}, [0, 300_000, 700_000, 2 * SECOND])), whole)
    stream = OracleStream.of(spark, table, 2 * SECOND)
    stream = stream.with_column("pair", F.expr("struct(f, b)"))
    stream = stream.with_column("list", F.expr("array(d, d)"))
    for key in keys:
        expected = stream.aggregate(SECOND, SECOND, [key], {"n": F.count("*")})
        same_rows(whole[f"by_{key}"], expected.result(), f"by_{key}")


def test_lists_in_every_kind_of_window(spark: SparkSession) -> None:
    """A NaN is the largest, a null counts for nothing, -0.0 is no other value than 0.0."""
    network = Network("lists", spark=spark)
    source = network.source("s", "v double")
    for name, kind in (
        ("time", window("1 s")),
        ("count", count_window(5)),
        ("session", session_window("100 ms")),
    ):
        lists = source.groupBy(kind).agg(
            F.collect_set("v").alias("set"), F.collect_list("v").alias("list"), top(2, "v", "1 one")
        )
        lists.output(name)
    engine = Engine(network)
    values = [1.0, None, -0.0, 0.0, float("nan")]
    table = tuples(engine, "s", list(enumerate(values)))
    whole = run(engine, split({"s": table}, [0, 2 * SECOND]))
    same_bytes(run(engine, split({"s": table}, [0, 1, 3, 4, 2 * SECOND])), whole)
    for out in whole.values():
        (row,) = out.to_pylist()
        assert [str(each) for each in row["set"]] == ["1.0", "0.0", "nan"]
        assert [str(each) for each in row["list"]] == ["1.0", "-0.0", "0.0", "nan"]
        assert [str(each["v"]) for each in row["top(2, v, 1 one)"]] == ["nan", "1.0"]


def test_a_window_closes_with_the_boundary_and_not_before(spark: SparkSession) -> None:
    network = Network("closing", spark=spark)
    source = network.source("s", "i bigint")
    source.groupBy(window("1 s")).agg(F.count("*").alias("n")).output("out")
    version = Version(Engine(network))
    first = bucket(version.engine, 0, 999_999, s=[(0, 1), (999_998, 1)])
    assert version.advance([first])["out"].num_rows == 0
    second = bucket(version.engine, 999_999, SECOND, s=[(999_999, 1)])
    out = version.advance([second])["out"]
    assert plain_rows(out.select(["stime", "tmax", "n"])) == [(999_999, 999_999, 3)]
    assert version.advance([], 5 * SECOND)["out"].num_rows == 0


def test_columns_that_spark_finds_to_have_no_nulls(spark: SparkSession) -> None:
    network = Network("nulls", spark=spark)
    source = network.source("s", "k string, v double").filter("k is not null and v is not null")
    source.groupBy(window("1 s"), "k").agg(F.sum("v").alias("v")).output("out")
    engine = Engine(network)
    rows = [(1, "a", 1.5), (2, None, 1.0), (3, "a", None), (4, "a", 2.0)]
    out = run(engine, [bucket(engine, 0, 2, s=rows[:1]), bucket(engine, 2, SECOND, s=rows[1:])])
    assert out["out"].select(["k", "v"]).to_pylist() == [{"k": "a", "v": 3.5}]


def test_a_sum_that_overflows_says_so(spark: SparkSession) -> None:
    network = Network("overflow", spark=spark)
    source = network.source("s", "i bigint")
    source.groupBy(window("1 s")).agg(F.sum("i").alias("i")).output("out")
    engine = Engine(network)
    rows = [(0, 2**62), (1, 2**62)]
    with pytest.raises(Exception, match="cast the summed column"):
        run(engine, [bucket(engine, 0, SECOND, s=rows)])
