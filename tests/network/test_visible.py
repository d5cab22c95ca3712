"""Functions of ``transform`` do not see the system columns, and cannot lose them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast import Network

FUNCTIONS: dict[str, tuple[Callable[[DataFrame], DataFrame], list[str]]] = {
    "select": (lambda df: df.select("v", F.upper("k").alias("k")), ["v", "k"]),
    "select a list": (lambda df: df.select(["v"]), ["v"]),
    "select everything": (lambda df: df.select("*", F.lit(1).alias("one")), ["k", "v", "one"]),
    "select them, too": (lambda df: df.select("stime", "tmax", "seq", "k"), ["k"]),
    "read them": (lambda df: df.select(F.unix_micros("stime").alias("at")), ["at"]),
    "selectExpr": (lambda df: df.selectExpr("v + 1 as w", "k"), ["w", "k"]),
    "by name": (lambda df: df.where(df["v"] > 0).drop("k"), ["v"]),
    "by attribute": (lambda df: df.filter(df.v > 0).withColumn("w", df.v * 2), ["k", "v", "w"]),
    "rename": (
        lambda df: df.withColumnRenamed("k", "key").withColumns({"z": F.lit(0)}),
        ["key", "v", "z"],
    ),
    "all names": (lambda df: df.toDF("a", "b"), ["a", "b"]),
    "its own transform": (lambda df: df.transform(lambda other: other[["v"]]), ["v"]),
    "fill": (lambda df: df.fillna(0.0).select("k"), ["k"]),
    "explode": (lambda df: df.select(F.explode(F.split("k", " ")).alias("word")), ["word"]),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_system_columns_go_with_their_tuples(spark: SparkSession, name: str) -> None:
    function, columns = FUNCTIONS[name]
    seen: list[list[str]] = []

    def looked(df: DataFrame) -> DataFrame:
        assert isinstance(df, DataFrame)
        seen.append(df.columns)
        assert df.schema.fieldNames() == [name for name, _ in df.dtypes] == df.columns
        return function(df)

    source = Network("visible", spark=spark).source("s", "k string, v double")
    stream = source.transform(looked)
    assert seen == [["k", "v"]]
    assert stream.columns == columns
    assert stream.template.columns[:3] == ["stime", "tmax", "seq"]


def test_a_small_table_can_be_joined(spark: SparkSession) -> None:
    source = Network("visible", spark=spark).source("s", "k string, v double")
    table = spark.createDataFrame([("a", 1)], "k string, rank int")
    stream = source.transform(lambda df: df.join(F.broadcast(table), "k").select("rank", "v"))
    assert stream.columns == ["rank", "v"]
