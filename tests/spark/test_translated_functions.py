"""Every function that workers know, over every type that Spark takes for it: the same bits."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql.types import StructField, StructType

from holdfast.spark.column_plans import ColumnPlan, Memory
from holdfast.spark.prepared import input_frame, leaf_number
from holdfast.spark.translation import translate
from holdfast.testing import ipc_bytes
from tests.spark.kinds import KINDS, every_kind

# What few sources have, made of what ``KINDS`` has.
RARER = {
    "amount": "cast(small as decimal(12, 3))",
    "local": "cast(at as timestamp_ntz)",
    "pair": "if(flag, struct(n AS a, text AS b), null)",
    "several": "if(flag, array(n, i), null)",
}
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double")
FUNCTIONS = [
    "{x}",
    "unix_micros({x})",
    "timestamp_micros({x})",
    "xxhash64({x})",
    "xxhash64({x}, n, {y})",
    *(f"cast({{x}} AS {kind})" for kind in NUMBERS),
    *(f"{{x}} {how} {{y}}" for how in ("=", "<>", "<", "<=", ">", ">=")),
    *(f"{{x}} {how} {{y}}" for how in ("+", "-", "*", "/", "&", "|", "and", "or")),
    "not {x}",
    "{x} is null",
    "{x} is not null",
    "isnan({x})",
    "sqrt({x})",
    "greatest({x}, {y})",
    "shiftleft({x}, 3)",
    "coalesce({x}, {y})",
    "struct({x}, {y} AS z)",
    "struct(n, {x} AS z).z",
    "case when flag then {x} end",
    "case when flag then {x} when {x} = {y} then {y} else {x} end",
    "if(flag, {x}, {y})",
    "case when {x} > 1 then {y} / {x} end",
    "case when {x} > 1 then {y} / ({x} - 1) end",
]


def two_of_every_kind(spark: SparkSession) -> tuple[pa.Table, StructType]:
    """Columns of all types, and each once more in other rows; sums of two do not overflow."""
    rows, _ = every_kind(spark)
    for at, field in enumerate(rows.schema):
        if pa.types.is_integer(field.type):
            rows = rows.set_column(at, field, pc.divide(rows[field.name], pa.scalar(2, field.type)))
    made = (f"{expression} AS {name}" for name, expression in RARER.items())
    frame = spark.createDataFrame(rows).selectExpr("*", *made)
    first = frame.toArrow()
    others = first.take(pa.array([(7 * row + 1) % len(first) for row in range(len(first))]))
    for name in first.column_names:
        first = first.append_column(f"{name}_2", others[name])
    again = [StructField(f"{each.name}_2", each.dataType) for each in frame.schema]
    return first, StructType([*frame.schema, *again])


def test_what_workers_know_they_know_of_every_type(spark: SparkSession, tmp_path: Path) -> None:
    """What is left to Spark is right anyway; what is translated neither fails nor differs."""
    rows, schema = two_of_every_kind(spark)
    leaf = input_frame(spark, schema, tmp_path)
    plans: dict[tuple[str, str], ColumnPlan] = {}
    for function in FUNCTIONS:
        for kind in (*KINDS, *RARER):
            expression = function.format(x=kind, y=f"{kind}_2")
            try:
                frame = leaf.selectExpr(f"{expression} AS value")
            except AnalysisException:
                continue  # Spark does not take it
            if plan := translate(frame, {leaf_number(leaf): "rows"}):
                plans[function, expression] = plan
    assert {function for function, _ in plans} == set(FUNCTIONS) - {"{x} / {y}"}
    expected = spark.createDataFrame(rows, schema).selectExpr(
        *(f"{expression} AS c{at}" for at, (_, expression) in enumerate(plans))
    )
    theirs = expected.toArrow()
    for at, ((_, expression), plan) in enumerate(plans.items()):
        here = plan.table(Memory({"rows": rows}), [f"c{at}"])
        there = theirs.select([f"c{at}"])
        assert ipc_bytes(here.cast(there.schema)) == ipc_bytes(there), expression
