"""A table with a column of every kind that Spark and workers both compute on."""

from __future__ import annotations

import datetime
import math
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.spark.column_plans import Memory
from holdfast.spark.prepared import arrow_schema, input_frame, leaf_number
from holdfast.spark.translation import translate

KINDS = {
    "flag": "boolean",
    "tiny": "tinyint",
    "small": "smallint",
    "i": "int",
    "n": "bigint",
    "f": "float",
    "x": "double",
    "day": "date",
    "at": "timestamp",
    "text": "string",
    "bytes": "binary",
}


def values(rng: random.Random) -> dict[str, Any]:
    """A row of every kind; edges of each, and nulls everywhere."""
    bits = {"tiny": 8, "small": 16, "i": 32, "n": 64}
    row: dict[str, Any] = {
        name: rng.choice([0, 1, -1, 2 ** (b - 1) - 1, -(2 ** (b - 1)), rng.randrange(-99, 99)])
        for name, b in bits.items()
    }
    odd = [0.0, -0.0, math.nan, math.inf, -math.inf, 1e-320, 2.0**60, rng.uniform(-9, 9)]
    length = rng.choice([0, 1, 3, 4, 7, 8, 12, 31, 32, 33, 47, 64, 71])
    text = "".join(rng.choice("aé語z ") for _ in range(length))
    moment = datetime.timedelta(microseconds=rng.randrange(-(10**15), 10**15))
    epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
    row |= {
        "flag": rng.random() < 0.5,
        "f": rng.choice(odd),
        "x": rng.choice(odd),
        "day": (epoch + moment).date(),
        "at": epoch + moment,
        "text": text,
        "bytes": text.encode()[: rng.randrange(40)],
    }
    return {name: None if rng.random() < 0.15 else row[name] for name in KINDS}


def every_kind(spark: SparkSession) -> tuple[pa.Table, DataFrame]:
    """Some hundred rows as Arrow and in Spark."""
    rng = random.Random(5)
    schema = arrow_schema(
        spark.createDataFrame([], ", ".join(f"{k} {v}" for k, v in KINDS.items())).schema
    )
    rows = pa.Table.from_pylist([values(rng) for _ in range(400)], schema=schema)
    return rows, spark.createDataFrame(rows)


def on_columns(spark: SparkSession, rows: pa.Table, expression: str, scratch: Path) -> pa.Table:
    """The expression as a worker computes it; it must be one that workers know."""
    schema = spark.createDataFrame(rows.slice(0, 0)).schema
    leaf = input_frame(spark, schema, scratch)
    plan = translate(leaf.selectExpr(f"{expression} AS value"), {leaf_number(leaf): "rows"})
    assert plan is not None, f"{expression} was left to Spark"
    return plan.table(Memory({"rows": rows}), ["value"])
