"""The first tuple of each key in every tumbling window, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.spark.engine import Engine
from holdfast.spark.version import Version
from holdfast.testing import OracleStream, run
from tests.spark.support import SCHEMA, SECOND, SPARK, Case, bucket, cases, check, full_row


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Engine:
    network = Network("distinct", spark=spark)
    source = network.source("s", SCHEMA)
    source.distinct("k", window=window("1 s")).output("one")
    source.distinct("k", "j", window=window("2500 ms")).output("two")
    source.select("j", "s").distinct(window=window("2 s")).output("all")
    return Engine(network)


def oracle(streams: Mapping[str, OracleStream]) -> Mapping[str, OracleStream]:
    source = streams["s"]
    return {
        "one": source.distinct(["k"], SECOND),
        "two": source.distinct(["k", "j"], 2_500_000),
        "all": source.select("j", "s").distinct(["j", "s"], 2 * SECOND),
    }


@SPARK
@given(case=cases())
def test_distinct_equals_the_oracle(engine: Engine, case: Case) -> None:
    check(engine, case, {"s": case.rows(full_row)}, oracle)


def test_results_of_windows_are_told_apart_by_their_window(spark: SparkSession) -> None:
    network = Network("chain", spark=spark)
    counted = network.source("s", "k int").groupBy(window("1 s"), "k").agg(F.count("*").alias("n"))
    counted.distinct(window=window("10 s")).output("out")
    engine = Engine(network)
    rows = [(0, 1), (1, 1), (SECOND, 1), (SECOND + 1, 1)]
    buckets = [
        bucket(engine, 0, 2 * SECOND, s=rows),
        bucket(engine, 2 * SECOND, 9 * SECOND, s=[(2 * SECOND, 1)]),
    ]
    assert run(engine, buckets)["out"]["n"].to_pylist() == [2, 2, 1]


def test_keys_are_forgotten_with_their_window(spark: SparkSession) -> None:
    network = Network("memory", spark=spark)
    network.source("s", "k int").distinct("k", window=window("1 s")).output("out")
    version = Version(Engine(network))
    for second in range(10):
        rows = [(second * SECOND + k, k) for k in range(5)]
        out = version.advance(
            [bucket(version.engine, second * SECOND, (second + 1) * SECOND, s=rows)]
        )
        assert out["out"].num_rows == 5
        assert version.snapshot().rows() <= 5
