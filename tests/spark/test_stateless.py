"""filter, select, withColumn, drop, rename, union and transform, against the oracle."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd
import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.functions import pandas_udf

from holdfast import Network, window
from holdfast.spark.engine import Engine
from holdfast.spark.session import get_session
from holdfast.testing import OracleStream, plain_rows, run, split, sum_exactly, tuples
from tests.spark.support import SCHEMA, SECOND, SPARK, Case, cases, check, full_row


def words(df: DataFrame) -> DataFrame:
    return df.select(
        "stime", "tmax", "seq", "k", F.explode(F.array("s", "k", F.lit("z"))).alias("word")
    )


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Engine:
    half = F.udf(lambda value: None if value is None else value / 2, "double")

    @pandas_udf("bigint")  # type: ignore[call-overload, untyped-decorator]
    def successor(values: pd.Series) -> pd.Series:
        return values + 1

    network = Network("stateless", spark=spark)
    source = network.source("s", SCHEMA)
    other = network.source("o", SCHEMA)
    source.filter("v > 0 or j = 1").select("k", (F.col("i") * 2).alias("i2"), "d").output("some")
    source.withColumn("i", "i % 7").where(F.col("i") != 3).drop("at", "d").output("changed")
    source.transform(words).output("words")
    source.transform(lambda df: df.withColumn("v", half("v"))).select("k", "v").output("halves")
    source.select("k", successor(F.coalesce("i", F.lit(0))).alias("i")).output("successors")
    # A diamond whose branches overlap: the same tuple comes twice, in a fixed order.
    positive, odd = source.filter("v > 0"), source.filter("j = 1")
    both = positive.union(odd, other)
    both.output("both")
    both.groupBy(window("1 s"), "k").agg(F.sum("v").alias("v")).output("sums")
    return Engine(network)


def oracle(streams: Mapping[str, OracleStream]) -> Mapping[str, OracleStream]:
    source, other = streams["s"], streams["o"]
    both = source.filter("v > 0").union(source.filter("j = 1"), other)
    return {
        "some": source.filter("v > 0 or j = 1").select("k", (F.col("i") * 2).alias("i2"), "d"),
        "changed": source.with_column("i", F.expr("i % 7"))
        .filter("i <> 3")
        .derive(lambda df: df.drop("at", "d")),
        "words": source.derive(words),
        "halves": source.select("k", (F.col("v") / 2).alias("v")),
        "successors": source.select("k", (F.coalesce("i", F.lit(0)) + 1).alias("i")),
        "both": both,
        "sums": both.aggregate(SECOND, SECOND, ["k"], {"v": sum_exactly(F.col("v"))}),
    }


@SPARK
@given(case=cases())
def test_stateless_operators_equal_the_oracle(engine: Engine, case: Case) -> None:
    rows = {"s": case.rows(full_row, 40, salt=1), "o": case.rows(full_row, 20, salt=2)}
    out = check(engine, case, rows, oracle)
    # What keeps a tuple's place keeps the order: the oracle's, by tuple time and seq.
    tables = {name: tuples(engine, name, each) for name, each in rows.items()}
    sources = {n: OracleStream.of(get_session(), t, case.boundary) for n, t in tables.items()}
    expected = oracle(sources)["both"].result()
    columns = ["stime", "seq"]
    assert plain_rows(out["both"].select(columns)) == plain_rows(expected.select(columns))


def test_a_stream_can_be_united_with_itself(spark: SparkSession) -> None:
    network = Network("itself", spark=spark)
    counted = network.source("s", "k int").groupBy(window("1 s"), "k").agg(F.count("*").alias("n"))
    counted.union(counted).output("out")
    counted.union(counted.filter("n > 1")).output("diamond")
    engine = Engine(network)
    tables = {"s": tuples(engine, "s", [(0, 1), (5, 2), (10, 1), (SECOND + 3, 1)])}
    out = run(engine, split(tables, [0, 7, SECOND, 2 * SECOND]))
    assert sorted(out["out"]["n"].to_pylist()) == [1, 1, 1, 1, 2, 2]
    assert sorted(out["diamond"]["n"].to_pylist()) == [1, 1, 2, 2]
