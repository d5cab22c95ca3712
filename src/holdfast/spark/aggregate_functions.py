"""Takes PySpark's aggregate expressions apart into folds.

``F.avg("load").alias("mean")`` or ``"avg(load) AS mean"`` are resolved by Spark itself; what
Spark resolved them to says which folds the state needs, from which values, and how the folded
columns become the result. Results therefore have Spark's names, types and nulls. Sum, average,
deviation and count of one column rest on the same sum and count, which the state has once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NumericType,
    ShortType,
    StructField,
    StructType,
)

from holdfast.aggregates import Top, UserAggregate
from holdfast.arrow_types import arrow_type
from holdfast.errors import NetworkError
from holdfast.spark import exact_sum
from holdfast.spark.folds import STATE_DIGITS, Fold

_INTEGERS = (ByteType, ShortType, IntegerType)
_SUPPORTED = (
    "count, sum, min, max, avg, first, last, stddev, approx_count_distinct, collect_list, "
    "collect_set, holdfast.top(...), holdfast.aggregate(...)"
)


@dataclass(frozen=True)
class Aggregation:
    """One result column: the values it folds and how to finish it.

    What an aggregation before it folds as well is not named again.
    """

    field: StructField
    values: tuple[Column, ...]
    folds: tuple[Fold, ...]
    finish: Column


@dataclass(frozen=True)
class _Call:
    """A resolved call of an aggregate function."""

    prefix: str
    function: str
    argument: str
    argument_type: DataType
    nullable: bool
    result: StructField


class _Kept:
    """The folds of an operator; those of sums and counts are known by what they are of."""

    def __init__(self) -> None:
        self._shared: dict[tuple[str, str | None], Fold] = {}
        self._values: list[Column] = []
        self._folds: list[Fold] = []

    def shared(self, kind: str, of: str | None, value: Column | None, fold: Fold) -> Fold:
        """``fold``, or the one that is kept already of the same kind and argument."""
        known = self._shared.setdefault((kind, of), fold)
        if known is fold:
            self._folds.append(fold)
            if value is not None:
                assert fold.value is not None
                self._values.append(value.alias(fold.value))
        return known

    def aggregation(self, field: StructField, finish: Column) -> Aggregation:
        """The aggregation that needed what came since the one before."""
        found = Aggregation(field, tuple(self._values), tuple(self._folds), finish)
        self._values, self._folds = [], []
        return found


def aggregations(
    frame: DataFrame, wanted: Sequence[Column | str | UserAggregate | Top], operator: str
) -> list[Aggregation]:
    """The folds for each wanted aggregate over ``frame``."""
    found = []
    kept = _Kept()
    for index, each in enumerate(wanted):
        prefix = f"a{index}"
        if isinstance(each, UserAggregate):
            found.append(_user(frame, each, prefix))
        elif isinstance(each, Top):
            found.append(_top(frame, each, prefix, operator))
        else:
            column = F.expr(each) if isinstance(each, str) else each
            call = _resolve(frame, column, prefix, operator)
            found.append(_FUNCTIONS[call.function](call, kept))
    return found


def _resolve(frame: DataFrame, column: Column, prefix: str, operator: str) -> _Call:
    probe = frame.agg(column)
    plan: Any = probe._jdf.queryExecution().analyzed()
    if plan.getClass().getSimpleName() != "Aggregate":
        raise NetworkError(f"{operator}: {column} is not an aggregate; use one of {_SUPPORTED}")
    expression = plan.aggregateExpressions().apply(0)
    if expression.getClass().getSimpleName() == "Alias":
        expression = expression.child()
    if expression.getClass().getSimpleName() != "AggregateExpression":
        raise NetworkError(
            f"{operator}: {column} combines an aggregate with other expressions; aggregate "
            f"first, then compute with withColumn"
        )
    function = expression.aggregateFunction()
    name = function.getClass().getSimpleName()
    several = name == "Count" and function.children().size() > 1
    odd = several or expression.isDistinct() or expression.filter().isDefined()
    if name not in _FUNCTIONS or odd:
        raise NetworkError(
            f"{operator}: {column} is not supported in a window; use one of {_SUPPORTED}, and "
            f"filter before the groupBy instead of inside the aggregate"
        )
    argument = str(function.children().apply(0).sql())
    value = frame.select(F.expr(argument).alias("value")).schema[0]
    _refuse_type(f"{operator}: {column}", name, value.dataType)
    ignore = bool(function.ignoreNulls()) if name in ("First", "Last") else False
    if ignore:
        raise NetworkError(
            f"{operator}: {column} with ignoreNulls is not supported in a window; filter the "
            f"nulls out before the groupBy"
        )
    return _Call(prefix, name, argument, value.dataType, value.nullable, probe.schema[0])


def _refuse_type(what: str, function: str, kind: DataType) -> None:
    summed = function in ("Sum", "Average", "StddevSamp")
    ordered = function in ("Min", "Max", "CollectSet", "top")
    nested = isinstance(kind, StructType | ArrayType)
    if (summed and not isinstance(kind, NumericType)) or (ordered and nested):
        raise NetworkError(
            f"{what} is over a {kind.simpleString()}, which is not supported in a window; take "
            f"a number or a plain column out of it with withColumn first"
        )


def _arrow(kind: DataType) -> pa.DataType:
    return arrow_type(kind)


def _simple(call: _Call, kind: str, value: Column, kept: pa.DataType) -> tuple[Column, Fold]:
    name = f"{call.prefix}_{kind}"
    return value.alias(f"{name}_in"), Fold(kind, f"{name}_in", (name,), (kept,))


def _count(call: _Call, kept: _Kept) -> Aggregation:
    return kept.aggregation(call.result, F.col(_present(call, kept)))


def _present(call: _Call, kept: _Kept) -> str:
    """The column of a fold that counts the tuples whose argument is not null."""
    name = f"{call.prefix}_count"
    if not call.nullable:
        fold = Fold("count", None, (name,), (pa.int64(),))
        return kept.shared("count", None, None, fold).columns[0]
    counted = F.expr(call.argument).isNotNull().cast("bigint")
    fold = Fold("add_long", f"{name}_in", (name,), (pa.int64(),))
    return kept.shared("count", call.argument, counted, fold).columns[0]


def _total(call: _Call, kept: _Kept, of_wide: str) -> str:
    """The column of a fold that adds up what is not null; ``of_wide``: what becomes of BIGINTs."""
    argument = F.expr(call.argument)
    if isinstance(call.argument_type, LongType):
        wide = (pa.int64(), pa.int32())
        added = _added(call, kept, "add_wide", argument, "bigint", wide)
        fold = Fold(of_wide, None, (), (), beside=added.columns)
        return str(kept.shared(of_wide, call.argument, None, fold).results[0].name)
    if isinstance(call.argument_type, _INTEGERS):
        return _added(call, kept, "add_long", argument, "bigint", (pa.int64(),)).columns[0]
    if isinstance(call.argument_type, DecimalType):
        scale = call.argument_type.scale
        kinds = (pa.decimal256(STATE_DIGITS, scale),)
        return _added(call, kept, "add_decimal", argument, f"decimal(38,{scale})", kinds).columns[0]
    return _exactly(call, kept).columns[0]


def _exactly(call: _Call, kept: _Kept) -> Fold:
    argument = F.expr(call.argument)
    return _added(call, kept, "add_exactly", argument, "double", (exact_sum.STATE,))


def _added(
    call: _Call,
    kept: _Kept,
    kind: str,
    argument: Column,
    sql_type: str,
    state: tuple[pa.DataType, ...],
) -> Fold:
    """A fold that adds the argument up as this type; a second column has what is too high."""
    name = f"{call.prefix}_{kind}"
    columns = (name, f"{name}_high")[: len(state)]
    fold = Fold(kind, f"{name}_in", columns, state)
    value = F.coalesce(argument.cast(sql_type), F.lit(0).cast(sql_type))
    return kept.shared(kind, call.argument, value, fold)


def _sum(call: _Call, kept: _Kept) -> Aggregation:
    total = F.col(_total(call, kept, "within_bigint")).cast(call.result.dataType)
    if call.nullable:
        total = F.when(F.col(_present(call, kept)) > 0, total)
    return kept.aggregation(call.result, total)


def _avg(call: _Call, kept: _Kept) -> Aggregation:
    total, count = F.col(_total(call, kept, "as_double")), F.col(_present(call, kept))
    if isinstance(call.argument_type, DecimalType):
        # As wide as Spark's own sum, no wider: a division's scale shrinks as precision grows.
        kind = call.argument_type
        total = total.cast(DecimalType(min(38, kind.precision + 10), kind.scale))
    else:
        total = total.cast("double")
    mean = F.when(count > 0, (total / count).cast(call.result.dataType))
    return kept.aggregation(call.result, mean)


def _one_value(kind: str) -> Callable[[_Call, _Kept], Aggregation]:
    def build(call: _Call, _: _Kept) -> Aggregation:
        value, fold = _simple(call, kind, F.expr(call.argument), _arrow(call.argument_type))
        return Aggregation(call.result, (value,), (fold,), F.col(fold.columns[0]))

    return build


def _stddev(call: _Call, kept: _Kept) -> Aggregation:
    count, total = _present(call, kept), _exactly(call, kept)
    name = f"{call.prefix}_squares"
    beside = (total.columns[0], count)
    fold = Fold("add_squares", total.value, (name,), (exact_sum.STATE,), beside=beside)
    # Once a group is finished, it is the variance.
    spread = F.col(kept.shared("add_squares", call.argument, None, fold).columns[0])
    return kept.aggregation(call.result, F.when(F.col(count) > 1, F.sqrt(spread)))


def _distinct_count(call: _Call, _: _Kept) -> Aggregation:
    argument = F.expr(call.argument)
    hashed = F.when(argument.isNotNull(), F.xxhash64(argument))
    value, fold = _simple(call, "sketch", hashed, pa.list_(pa.int64()))
    return Aggregation(call.result, (value,), (fold,), F.col(fold.columns[0]))


def _collect(call: _Call, _: _Kept) -> Aggregation:
    argument, kept = F.expr(call.argument), _arrow(call.result.dataType)
    value, fold = _simple(call, "collect", argument, kept)
    return Aggregation(call.result, (value,), (fold,), F.col(fold.columns[0]))


def _collect_set(call: _Call, _: _Kept) -> Aggregation:
    argument = F.expr(call.argument)
    if isinstance(call.argument_type, FloatType | DoubleType):
        argument = argument + F.lit(0.0).cast(call.argument_type)  # -0.0 equals 0.0
    value, fold = _simple(call, "collect_distinct", argument, _arrow(call.result.dataType))
    return Aggregation(call.result, (value,), (fold,), F.col(fold.columns[0]))


def _top(frame: DataFrame, wanted: Top, prefix: str, operator: str) -> Aggregation:
    columns = [F.expr(each) for each in (wanted.by, *wanted.columns)]
    fields = frame.select(*columns).schema.fields
    _refuse_type(f"{operator}: {wanted.name}", "top", fields[0].dataType)
    names = [field.name for field in fields]
    if len(set(names)) < len(names):
        raise NetworkError(f"{operator}: {wanted.name} names a column twice: {names}")
    row = F.struct(*columns).alias(f"{prefix}_in")
    kind = ArrayType(frame.select(row).schema[0].dataType, containsNull=False)
    fold = Fold("top", f"{prefix}_in", (f"{prefix}_top",), (_arrow(kind),), wanted.count)
    result = StructField(wanted.name, kind, nullable=False)
    return Aggregation(result, (row,), (fold,), F.col(fold.columns[0]))


def _user(frame: DataFrame, wanted: UserAggregate, prefix: str) -> Aggregation:
    value = frame.select(F.expr(wanted.argument).alias("value")).schema[0]
    fold = Fold(
        "user",
        f"{prefix}_in",
        (f"{prefix}_user",),
        (wanted.arrow_state_type(),),
        wanted.with_types(_arrow(value.dataType)),
    )
    column = F.expr(wanted.argument).alias(f"{prefix}_in")
    return Aggregation(wanted.field(), (column,), (fold,), F.col(fold.columns[0]))


_FUNCTIONS: dict[str, Callable[[_Call, _Kept], Aggregation]] = {
    "Count": _count,
    "Sum": _sum,
    "Average": _avg,
    "Min": _one_value("min"),
    "Max": _one_value("max"),
    "First": _one_value("first"),
    "Last": _one_value("last"),
    "StddevSamp": _stddev,
    "HyperLogLogPlusPlus": _distinct_count,
    "CollectList": _collect,
    "CollectSet": _collect_set,
}
