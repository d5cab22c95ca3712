"""What a network computes, in words that are the same whichever process builds it.

One short line for each thing that matters: the operators with their inputs and columns, their
expressions as Spark analysed them, windows, bounds, aggregates, the code of the user's functions,
bucket and partitions. It is what state is kept with (``identity``).
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import DataType, StructField, StructType

from holdfast.aggregates import Aggregator
from holdfast.code_digest import code_digest
from holdfast.operators import Operator, SourceOperator, StatefulOperator, StatelessOperator
from holdfast.plans.fragment_plans import DescribedOperator
from holdfast.spark.plan_text import plan_lines, steps_above, whole_text
from holdfast.spark.stages import SYSTEM_FIELDS
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


Gained = Mapping[str, Collection[str]]


@dataclasses.dataclass(frozen=True)
class Described:
    """A query as it would be if its sources had not gained some columns.

    lines      what it computes.
    gained     the columns that each operator's stream has beside those of that query.
    operators  what of it is that of operators; sources are none.
    """

    lines: tuple[str, ...]
    gained: Gained
    operators: tuple[DescribedOperator, ...]


def describe_query(network: Network) -> tuple[str, ...]:
    """What ``network`` computes, line by line."""
    return describe_without(network, {}).lines


def describe_without(network: Network, gained: Gained) -> Described:
    """What ``network`` would compute if its sources had not gained these columns.

    An operator that names one of them cannot be without it, and is described as it is. One that
    does not name it hands it on, or leaves it out: it computes what it did before.
    """
    lines = [f"bucket: {network.bucket} us", f"partitions: {network.partitions}"]
    lines += _settings(network.spark)
    frames = _Frames(network.spark, gained)
    operators = []
    with whole_text(network.spark):
        for operator in network.operators:
            found = frames.described(operator)
            if isinstance(operator, SourceOperator):
                lines += [f"{operator.name}: {line}" for line in found.lines]
            else:
                lines += found.text()
                operators.append(found)
    named = sorted(network.outputs.items())
    lines += [f"output {name}: {stream.operator.name}" for name, stream in named]
    if any(", code " in line or "=code " in line for line in lines):
        # Another Python has other bytecode for the same code.
        lines.append(f"python: {sys.version_info.major}.{sys.version_info.minor}")
    return Described(tuple(lines), frames.gained, tuple(operators))


def columns_text(schema: StructType) -> str:
    """Columns as in SQL."""
    return ", ".join(_value_text(field) for field in schema.fields)


# -- operators --------------------------------------------------------------------------


def _settings(spark: SparkSession) -> list[str]:
    found = [f"{name}: {spark.conf.get(name)}" for name in _SETTINGS]
    given = spark.conf.getAll
    return found + [f"{name}: {given[name]}" for name in sorted(given) if name.startswith(_LEGACY)]


class _Frames:
    """Empty frames in the place of the operators' streams, with and without what was gained."""

    def __init__(self, spark: SparkSession, gained: Gained) -> None:
        self._spark = spark
        self._given = gained
        self.gained: dict[str, Collection[str]] = {}
        self._whole: dict[str, DataFrame] = {}
        self._before: dict[str, DataFrame] = {}

    def described(self, operator: Operator) -> DescribedOperator:
        """What an operator does; those that it reads from come before it."""
        names = [each.name for each in operator.inputs]
        inputs = [self._whole[each] for each in names]
        made = _applied(operator, inputs)
        kept = fields = operator.schema.fields
        if isinstance(operator, SourceOperator):
            kept = [each for each in fields if each.name not in self._given.get(operator.name, ())]
        elif any(self.gained[each] for each in names):
            before = [self._before[each] for each in names]
            found = _applied_without(operator, before)
            if found is not None and _leaves_alone(operator, made, inputs, found, before):
                kept = [each for each in fields if each.name in found.columns]
                made, inputs = found, before
        name = operator.name
        self._whole[name] = self._before[name] = self._frame(fields)
        self.gained[name] = {each.name for each in fields} - {each.name for each in kept}
        if self.gained[name]:
            self._before[name] = self._frame(kept)
        state = ""
        if isinstance(operator, StatefulOperator):
            state = type(operator.stateful).__name__
        lines = tuple(_operator_lines(operator, made, inputs, kept))
        return DescribedOperator(name, tuple(names), state, lines)

    def _frame(self, fields: list[StructField]) -> DataFrame:
        return self._spark.createDataFrame([], StructType([*SYSTEM_FIELDS, *fields]))


def _applied(operator: Operator, inputs: Sequence[DataFrame]) -> DataFrame | None:
    match operator:
        case StatelessOperator():
            return operator.apply(inputs)
        case StatefulOperator():
            # Any layout computes the same; this one has the least to say.
            return operator.stateful.build(operator.name, inputs, Spread(1, False))
    return None


def _applied_without(operator: Operator, inputs: Sequence[DataFrame]) -> DataFrame | None:
    """What an operator makes of inputs that lack columns; None if it cannot be without them."""
    try:
        return _applied(operator, inputs)
    except Exception:  # Spark's, or whatever the user's own function raises
        return None


def _leaves_alone(
    operator: Operator,
    made: DataFrame | None,
    inputs: Sequence[DataFrame],
    found: DataFrame,
    before: Sequence[DataFrame],
) -> bool:
    """Whether no state has columns in it that were gained; others may hand them on."""
    if not isinstance(operator, StatefulOperator):
        return True
    assert made is not None
    return steps_above(made, inputs) == steps_above(found, before)


def _operator_lines(
    operator: Operator,
    made: DataFrame | None,
    inputs: Sequence[DataFrame],
    fields: list[StructField],
) -> Iterator[str]:
    match operator:
        case SourceOperator():
            yield f"source with stime {operator.stime}, key {', '.join(operator.keys) or None}"
        case StatelessOperator():
            pass
        case StatefulOperator():
            yield from _stateful_lines(operator.stateful)
        case _:
            raise AssertionError(f"{operator.name} is of no known kind")
    if made is not None:
        yield from plan_lines(made, inputs)
    yield f"columns {columns_text(StructType(fields))}"


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
