"""Joins within a time distance, against the oracle."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pytest
from hypothesis import given
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network
from holdfast.spark.engine import Engine
from holdfast.spark.version import Version
from holdfast.testing import OracleStream, plain_rows, run, same_rows, split, tuples
from tests.spark.support import SECOND, SPARK, Case, Row, bucket, cases, check


def left_row(rng: random.Random) -> Row:
    return (rng.choice(["a", "b", None]), rng.choice([1, 2, None]), rng.choice([None, 0.5, 2.5]))


def right_row(rng: random.Random) -> Row:
    return (rng.choice(["a", "b", None]), rng.choice([1, 2, None]), rng.choice([None, 1, 3]))


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Engine:
    network = Network("joins", spark=spark)
    left = network.source("l", "k string, j int, v double")
    right = network.source("r", "k string, i int, w bigint")
    left.join(right, "k", within="1 s").output("inner")
    left.join(right, "k", within="700 ms", how="left", condition="v < w").output("left")
    left.join(
        right,
        [("k", "k"), ("j", "i")],
        within=("300 ms", "1 s"),
        how="full",
        condition=F.col("left.v") + F.col("right.w") > 2,
    ).output("full")
    return Engine(network)


def oracle(streams: Mapping[str, OracleStream]) -> Mapping[str, OracleStream]:
    left, right = streams["l"], streams["r"]
    v, w = F.col("l.v"), F.col("r.w")
    return {
        "inner": left.join(right, [("k", "k")], SECOND, SECOND),
        "left": left.join(right, [("k", "k")], 700_000, 700_000, "left", v < w),
        "full": left.join(right, [("k", "k"), ("j", "i")], 300_000, SECOND, "full", v + w > 2),
    }


@SPARK
@given(case=cases())
def test_joins_equal_the_oracle(engine: Engine, case: Case) -> None:
    rows = {"l": case.rows(left_row, 30, salt=1), "r": case.rows(right_row, 30, salt=2)}
    check(engine, case, rows, oracle)


def test_keys_of_different_names_stay_apart_in_a_full_join(spark: SparkSession) -> None:
    """A tuple without a partner has nulls in all columns of the other side, as in Spark."""
    network = Network("names", spark=spark)
    left = network.source("l", "a string, v int")
    right = network.source("r", "b string, w int")
    left.join(right, [("a", "b")], within="1 s", how="full").output("out")
    engine = Engine(network)
    tables = {
        "l": tuples(engine, "l", [(1, "x", 1), (2, "y", 2)]),
        "r": tuples(engine, "r", [(3, "x", 3), (4, "z", 4)]),
    }
    streams = {name: OracleStream.of(spark, each, 9 * SECOND) for name, each in tables.items()}
    expected = streams["l"].join(streams["r"], [("a", "b")], SECOND, SECOND, "full")
    out = run(engine, split(tables, [0, 3, 9 * SECOND]))["out"]
    same_rows(out, expected.result())


def test_a_side_may_only_look_one_way(spark: SparkSession) -> None:
    network = Network("one_way", spark=spark)
    left = network.source("l", "k int, v int")
    right = network.source("r", "k int, w int")
    left.join(right, "k", within=("0 s", "10 us"), how="left").output("out")
    engine = Engine(network)
    rows = {"l": [(10, 1, 1), (50, 1, 2)], "r": [(9, 1, 1), (10, 1, 2), (20, 1, 3), (21, 1, 4)]}
    tables = {name: tuples(engine, name, each) for name, each in rows.items()}
    out = run(engine, split(tables, [0, 15, 100]))["out"]
    found = plain_rows(out.select(["stime", "v", "w"]))
    assert found == [(10, 1, 2), (20, 1, 3), (60, 2, None)]


def test_tuples_that_share_seq_are_matched_one_by_one(spark: SparkSession) -> None:
    """explode makes several tuples of one; each finds its own partner or none."""
    network = Network("twins", spark=spark)
    left = network.source("l", "ks array<string>").select(F.explode("ks").alias("k"))
    right = network.source("r", "k string, w int")
    left.join(right, "k", within="10 us", how="left").output("out")
    engine = Engine(network)
    buckets = [bucket(engine, 0, 100, l=[(1, ["a", "b", "b"])], r=[(5, "a", 7)])]
    out = run(engine, buckets)["out"]
    assert sorted(plain_rows(out.select(["k", "w"])), key=repr) == [
        ("a", 7),
        ("b", None),
        ("b", None),
    ]


def test_columns_may_be_called_as_the_join_calls_its_own(spark: SparkSession) -> None:
    names = ["role", "met", "left_seq", "l0", "side", "slot", "hash", "k0"]
    network = Network("names", spark=spark)
    left = network.source("l", "k int, " + ", ".join(f"{name} int" for name in names))
    right = network.source("r", "k int, r0 int, right_seq int")
    left.join(right, "k", within="10 us", how="left", condition="role < r0").output("out")
    left.join(right, "k", within="10 us", condition="met < right_seq").output("inner")
    engine = Engine(network)
    buckets = [bucket(engine, 0, 99, l=[(1, 1, *range(8))], r=[(2, 1, 5, 6), (3, 1, -5, -6)])]
    out = run(engine, buckets)
    assert out["out"].select(names).to_pylist() == [dict(zip(names, range(8), strict=True))]
    assert out["out"]["r0"].to_pylist() == [5]
    assert out["inner"]["right_seq"].to_pylist() == [6]


def test_a_stream_joins_itself(spark: SparkSession) -> None:
    network = Network("itself", spark=spark)
    source = network.source("s", "k int, v int")
    other = source.withColumnRenamed("v", "w")
    source.join(other, "k", within="5 us", condition="v < w").output("out")
    engine = Engine(network)
    tables = {"s": tuples(engine, "s", [(1, 1, 1), (3, 1, 2), (8, 1, 3), (20, 1, 4)])}
    out = run(engine, split(tables, [0, 2, 5, 30]))["out"]
    assert plain_rows(out.select(["stime", "v", "w"])) == [(3, 1, 2), (8, 2, 3)]


def test_pairs_across_many_buckets_and_memory_that_is_let_go(spark: SparkSession) -> None:
    network = Network("memory", spark=spark)
    left = network.source("l", "k int")
    right = network.source("r", "k int")
    left.join(right, "k", within="100 us").output("out")
    version = Version(Engine(network))
    for step in range(20):
        rows = [(step * 50, 1)]
        out = version.advance([bucket(version.engine, step * 50, step * 50 + 50, l=rows, r=rows)])
        assert out["out"].num_rows == min(2 * step + 1, 5)
        assert version.snapshot().rows() <= 20
