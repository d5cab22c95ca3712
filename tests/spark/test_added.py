"""Expressions of Spark's are columns added to a stream: once, and nothing else becomes a row."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast import Network, count_window, window
from holdfast.spark.added import Added, translate_adding
from holdfast.spark.column_plans import used_columns
from holdfast.spark.columns import Stage
from holdfast.spark.cuts import CutPart
from holdfast.spark.engine import Engine
from holdfast.spark.prepared import input_frame, leaf_number
from holdfast.testing import tuples
from tests.spark.support import SCHEMA, SPARK, Case, cases
from tests.spark.test_columns import both_paths, small_row


def stages(network: Network) -> list[Stage]:
    return Engine(network)._column_runner()._stages[False]


def of_spark(network: Network) -> list[CutPart]:
    """What is left to Spark's JVM."""
    return [part for stage in stages(network) if stage.in_jvm for part in stage.parts]


def read_by_many(spark: SparkSession) -> Network:
    """A column of Spark's that several queries read, and expressions of their own."""
    network = Network("many", spark=spark, partitions=2)
    source = network.source("s", SCHEMA)
    clean = source.withColumn("name", F.upper("s"))
    for seconds in (1, 2, 3):
        grouped = clean.groupBy(window(f"{seconds} s"), "name")
        grouped.agg(F.sum("v").alias("v"), F.count("*").alias("n")).output(f"by_name_{seconds}")
    clean.filter("i % 5 = 2").groupBy(window("2 s"), "k").agg(F.max("d").alias("d")).output("some")
    clean.filter("i % 5 = 3").select("name", "j").output("others")
    clean.groupBy(window("2 s"), "j").agg(F.sum(F.col("i") % 5).alias("i")).output("rests")
    return network


def test_what_several_queries_read_is_computed_once(spark: SparkSession) -> None:
    (only,) = of_spark(read_by_many(spark))
    assert only.reads == {"s"}
    assert [kind for _, kind in only.frame.dtypes] == ["string", "bigint"]  # upper(s) and i % 5


def test_only_the_columns_of_expressions_go_through_spark(spark: SparkSession) -> None:
    made = Engine(read_by_many(spark))
    runner = made._column_runner()
    rows = [(at, *small_row(random.Random(at))) for at in range(9)]
    streams = {"s": tuples(made, "s", rows)}
    (stage,) = (each for each in runner._stages[False] if each.in_jvm)
    found = runner._in_jvm(stage, streams, False, str(made.directory / "x"))
    assert stage.query is not None
    assert stage.query.columns("s") == ["i", "s"]
    assert [table.num_rows for table in found.values()] == [9]


def test_a_bucket_takes_one_job_in_the_jvm_and_one_on_columns(spark: SparkSession) -> None:
    assert [stage.in_jvm for stage in stages(read_by_many(spark))] == [True, False]


def that_may_fail(spark: SparkSession) -> Network:
    """Expressions that fail where Spark does not compute them."""
    network = Network("fail", spark=spark, partitions=3)
    source = network.source("s", SCHEMA)
    some = source.filter("j > 1").withColumn("rest", F.expr("10 % (j - 1)"))
    some.groupBy(window("1 s"), "rest").agg(F.sum("v").alias("v")).output("behind_a_filter")
    some.filter("rest = 0 or k = 'a'").select("rest", "k").output("behind_two")
    skipped = source.withColumn("odd", F.expr("nullif(i, 0) + 5 % i"))
    skipped.groupBy(count_window(2), "k").agg(F.sum("odd").alias("odd")).output("behind_null")
    chosen = source.selectExpr("case when j = 1 then 0 else i % (j - 1) end as c", "s", "i % 3 = 1")
    chosen.output("in_a_choice")
    source.selectExpr("i <> 0 and 7 % i = 1 as both", "concat(upper(s), upper(s)) as u").selectExpr(
        "both", "u", "length(u) + 1 as n", "u > 'X' as late"
    ).output("of_columns_of_columns")
    upper = source.select("k", F.upper("s").alias("s"), "v").union(source.select("k", "s", "v"))
    upper.groupBy(window("2 s"), "s").agg(F.sum("v").alias("v")).output("united")
    source.selectExpr("timestamp'2020-01-01 00:00:00' as at", "k").output("constants")
    return network


@SPARK
@given(case=cases())
@pytest.mark.parametrize("make", [read_by_many, that_may_fail])
def test_added_columns_and_rows_give_the_same_bytes(
    make: Any, case: Case, spark: SparkSession
) -> None:
    def tables(engine: Engine) -> dict[str, pa.Table]:
        return {"s": tuples(engine, "s", case.rows(small_row))}

    both_paths(make(spark), tables, case.edges, case.groups)


def added_to(frame: DataFrame, leaf: DataFrame) -> list[str] | None:
    """The expressions that are left to Spark, or None where all is."""
    added: Added = {}
    plan = translate_adding(frame, {"s": leaf}, {leaf_number(leaf): "s"}, added)
    return None if plan is None else [str(each.sql()) for _, each in added]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("upper(s) = 'A'", ["upper(s)"]),
        ("xxhash64(upper(s), s)", ["upper(s)"]),
        ("s is null and upper(s) = 'A'", ["upper(s)"]),
        ("7 % n + n", ["(7L % n)"]),
        ("n + 7 % n", ["(n + (7L % n))"]),  # null spares Spark the rest
        ("m + 7 % n", ["(7L % n)"]),  # which is never null
        ("s is null and 7 % n = 1", ["((s IS NULL) AND ((7L % n) = 1L))"]),
        ("7 % n = 1 and 7 % m = 1", ["(((7L % n) = 1L) AND ((7L % m) = 1L))"]),
        ("coalesce(n, 7 % m)", ["coalesce(n, (7L % m))"]),
        ("coalesce(7 % m, n)", ["(7L % m)"]),
        ("7 % n is not null and n > 3", ["(7L % n)"]),
        ("case when n > 0 then 7 % n end", ["CASE WHEN (n > 0L) THEN (7L % n) END"]),
        ("case when n > 0 then n % 7 end", ["(n % 7L)"]),
    ],
)
def test_of_an_expression_spark_computes_what_workers_cannot(
    expression: str, expected: list[str], spark: SparkSession, tmp_path: Path
) -> None:
    schema = spark.createDataFrame([], "s string, n bigint, m bigint not null").schema
    leaf = input_frame(spark, schema, tmp_path)
    assert added_to(leaf.selectExpr(f"{expression} as value"), leaf) == expected


def test_what_a_filter_keeps_back_is_not_asked_for(spark: SparkSession, tmp_path: Path) -> None:
    leaf = input_frame(spark, spark.createDataFrame([], "n bigint not null").schema, tmp_path)
    (found,) = added_to(leaf.filter("n > 0").selectExpr("7 % n as value"), leaf) or []
    assert found == "(IF((n > 0L), (7L % n), CAST(NULL AS BIGINT)))"
    (safe,) = added_to(leaf.filter("n > 0").selectExpr("n % 7 as value"), leaf) or []
    assert safe == "(n % 7L)"


def test_plans_that_are_more_than_expressions_are_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    leaf = input_frame(spark, spark.createDataFrame([], "n bigint").schema, tmp_path)
    assert added_to(leaf.selectExpr("explode(array(n, n)) as value"), leaf) is None


def test_parts_of_what_goes_to_spark_as_a_whole_are_not_asked_for(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Over columns that Spark's optimizer leaves where they are, since they are read twice."""
    leaf = input_frame(spark, spark.createDataFrame([], "s string, n bigint").schema, tmp_path)
    made = leaf.selectExpr("upper(s) as u", "n").selectExpr(
        "concat(u, u) = 'AA' as doubled", "coalesce(greatest(7 % n, 8 % n), 9 % n) as rest", "u"
    )
    added: Added = {}
    plan = translate_adding(made, {"s": leaf}, {leaf_number(leaf): "s"}, added)
    assert plan is not None
    assert used_columns(plan)["s+"] == {str(number) for number in added.values()}
    assert "coalesce(greatest((7L % n), (8L % n)), (9L % n))" in (added_to(made, leaf) or [])
