"""What a network computes, in words that are the same whichever process builds it.

One short line for each thing that matters: the operators with their inputs and columns, their
expressions as Spark analysed them, windows, bounds, aggregates, the code of the user's functions,
bucket and partitions. It is what state is kept with (``identity``).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from holdfast.aggregates import Aggregator
from holdfast.code_digest import code_digest
from holdfast.operators import Operator, SourceOperator, StatefulOperator, StatelessOperator
from holdfast.spark.plan_text import plan_lines, whole_text
from holdfast.spark.stages import full_schema
from holdfast.spark.stateful import Spread

if TYPE_CHECKING:
    from holdfast.network import Network

# Settings of Spark that change what expressions compute.
_SETTINGS = (
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.decimalOperations.allowPrecisionLoss",
)
_LEGACY = "spark.sql.legacy."


def describe_query(network: Network) -> tuple[str, ...]:
    """What ``network`` computes, line by line."""
    frames: dict[str, DataFrame] = {}
    lines = [f"bucket: {network.bucket} us", f"partitions: {network.partitions}"]
    lines += _settings(network.spark)
    with whole_text(network.spark):
        for operator in network.operators:
            inputs = [frames[each.name] for each in operator.inputs]
            lines += [f"{operator.name}: {line}" for line in _operator_lines(operator, inputs)]
            frames[operator.name] = network.spark.createDataFrame([], full_schema(operator))
    named = sorted(network.outputs.items())
    lines += [f"output {name}: {stream.operator.name}" for name, stream in named]
    if any(", code " in line or "=code " in line for line in lines):
        # Another Python has other bytecode for the same code.
        lines.append(f"python: {sys.version_info.major}.{sys.version_info.minor}")
    return tuple(lines)


def columns_text(schema: StructType) -> str:
    """Columns as in SQL."""
    return ", ".join(_value_text(field) for field in schema.fields)


# -- operators --------------------------------------------------------------------------


def _settings(spark: SparkSession) -> list[str]:
    found = [f"{name}: {spark.conf.get(name)}" for name in _SETTINGS]
    given = spark.conf.getAll
    return found + [f"{name}: {given[name]}" for name in sorted(given) if name.startswith(_LEGACY)]


def _operator_lines(operator: Operator, inputs: Sequence[DataFrame]) -> Iterator[str]:
    read = ", ".join(each.name for each in operator.inputs)
    match operator:
        case SourceOperator():
            yield f"source with stime {operator.stime}, key {', '.join(operator.keys) or None}"
        case StatelessOperator():
            yield f"from {read}"
            yield from plan_lines(operator.apply(inputs), inputs)
        case StatefulOperator():
            stateful = operator.stateful
            yield f"{type(stateful).__name__} from {read}"
            yield from _stateful_lines(stateful)
            # Any layout computes the same; this one has the least to say.
            yield from plan_lines(stateful.build(operator.name, inputs, Spread(1, False)), inputs)
        case _:
            raise AssertionError(f"{operator.name} is of no known kind")
    yield f"columns {columns_text(operator.schema)}"


def _stateful_lines(stateful: Any) -> Iterator[str]:
    if not dataclasses.is_dataclass(stateful):
        yield f"settings=code {code_digest(stateful)}"
        return
    for name, value in _fields(stateful):
        if isinstance(value, tuple) and any(dataclasses.is_dataclass(each) for each in value):
            yield from (f"{name} {_value_text(each)}" for each in value)
        else:
            yield f"{name}={_value_text(value)}"


def _fields(value: Any) -> Iterator[tuple[str, Any]]:
    """The fields of a dataclass that say something; expressions are in the plan."""
    for field in dataclasses.fields(value):
        found = getattr(value, field.name)
        parts = found if isinstance(found, tuple) and found else (found,)
        if not all(each is None or isinstance(each, Column) for each in parts):
            yield field.name, found


def _value_text(value: Any) -> str:
    match value:
        case None | bool() | int() | float() | str():
            return repr(value)
        case StructField():
            kind = value.dataType.simpleString()
            return f"{value.name} {kind}{'' if value.nullable else ' not null'}"
        case StructType():
            return f"({columns_text(value)})"
        case DataType():
            return value.simpleString()
        case pa.DataType() | pa.Schema():
            return " ".join(str(value).split())
        case tuple():
            return f"({', '.join(_value_text(each) for each in value)})"
        case Aggregator():
            return f"code {code_digest(value)}"
        case _ if dataclasses.is_dataclass(value) and type(value).__module__.startswith(
            "holdfast."
        ):
            inner = (f"{name}={_value_text(each)}" for name, each in _fields(value))
            return f"{type(value).__name__}({', '.join(inner)})"
    return f"code {code_digest(value)}"
