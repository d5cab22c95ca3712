"""Windows over a count of tuples per group, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import given
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, count_window
from holdfast.spark.engine import Engine
from holdfast.testing import OracleStream, first_in_order, last_in_order, sum_exactly
from tests.spark.support import SCHEMA, SPARK, Case, cases, check, full_row

SHAPES = {"tumbling": (4, 4), "overlapping": (5, 2), "gaps": (2, 5), "one": (1, 1)}


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Engine:
    network = Network("counts", spark=spark)
    source = network.source("s", SCHEMA)
    for name, (size, advance) in SHAPES.items():
        source.groupBy(count_window(size, advance), "k").agg(
            F.sum("v").alias("total"),
            F.count("i").alias("n"),
            F.first("s").alias("first"),
            F.last("j").alias("last"),
        ).output(name)
    source.groupBy(count_window(3)).agg(F.max("v").alias("most")).output("no_key")
    return Engine(network)


def oracle(streams: Mapping[str, OracleStream]) -> Mapping[str, OracleStream]:
    aggregates = {
        "total": sum_exactly(F.col("v")),
        "n": F.count("i"),
        "first": first_in_order(F.col("s")),
        "last": last_in_order(F.col("j")),
    }
    found = {
        name: streams["s"].count_aggregate(size, advance, ["k"], aggregates)
        for name, (size, advance) in SHAPES.items()
    }
    found["no_key"] = streams["s"].count_aggregate(3, 3, [], {"most": F.max("v")})
    return found


@SPARK
@given(case=cases())
def test_count_windows_equal_the_oracle(engine: Engine, case: Case) -> None:
    check(engine, case, {"s": case.rows(full_row)}, oracle)
