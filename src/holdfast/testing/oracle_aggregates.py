"""Aggregates as the engine promises them, as plain Spark expressions over a whole group.

Those that depend on stream order sort the group's tuples by tuple time and ``seq``. Sums of doubles
are added as fractions, in no order, and rounded once.
"""

from __future__ import annotations

import math
from fractions import Fraction

from pyspark.sql import Column
from pyspark.sql import functions as F


def _in_order(value: Column, *, nulls: bool) -> Column:
    """The group's values in stream order, as an array of structs with a field ``v``."""
    row = F.struct(F.col("stime"), F.col("seq"), value.alias("v"))
    return F.array_sort(F.collect_list(row if nulls else F.when(value.isNotNull(), row)))


def _rounded(number: Fraction) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _added(values: list[float] | None) -> float | None:
    if not values:
        return None
    odd = [value for value in values if not math.isfinite(value)]
    return sum(odd) if odd else _rounded(sum(map(Fraction, values), Fraction(0)))


def _deviation(values: list[float] | None) -> float | None:
    if values is None or len(values) < 2:
        return None
    if not all(map(math.isfinite, values)):
        return math.nan
    exact = [Fraction(value) for value in values]
    mean = sum(exact, Fraction(0)) / len(exact)
    spread = sum(((value - mean) ** 2 for value in exact), Fraction(0)) / (len(exact) - 1)
    return math.sqrt(_rounded(spread))


def sum_exactly(value: Column) -> Column:
    """The sum of doubles, rounded once; null if all are null."""
    return F.udf(_added, "double", useArrow=False)(F.collect_list(value.cast("double")))


def mean_exactly(value: Column) -> Column:
    """That sum over how many there are."""
    count = F.count(value)
    return F.when(count > 0, sum_exactly(value) / count)


def first_in_order(value: Column) -> Column:
    """The value of the first tuple, null or not."""
    return F.element_at(_in_order(value, nulls=True), 1)["v"]


def last_in_order(value: Column) -> Column:
    """The value of the last tuple, null or not."""
    return F.element_at(_in_order(value, nulls=True), -1)["v"]


def list_in_order(value: Column) -> Column:
    """The values that are not null, in stream order."""
    return F.array_compact(F.transform(_in_order(value, nulls=False), lambda each: each["v"]))


def set_in_order(value: Column) -> Column:
    """The first of each value that is not null, in stream order."""
    return F.array_distinct(list_in_order(value))


def top_in_order(count: int, by: Column, row: Column) -> Column:
    """The rows with the largest ``by``, largest first; of equals the earlier ones."""
    there = by.isNotNull()
    ranked = F.struct(by.alias("by"), F.col("stime"), F.col("seq"), row.alias("row"))
    rows = F.collect_list(F.when(there, ranked))

    def compared(left: Column, right: Column) -> Column:
        later = F.struct(left["stime"], left["seq"]) > F.struct(right["stime"], right["seq"])
        return (
            F.when(left["by"] > right["by"], -1)
            .when(left["by"] < right["by"], 1)
            .when(later, 1)
            .otherwise(-1)
        )

    best = F.slice(F.array_sort(rows, compared), 1, count)
    return F.array_compact(F.transform(best, lambda each: each["row"]))


def spread_exactly(value: Column) -> Column:
    """The standard deviation of a sample; only the variance and its root are rounded."""
    return F.udf(_deviation, "double", useArrow=False)(F.collect_list(value.cast("double")))
