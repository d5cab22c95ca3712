"""Aggregates that depend on stream order, as plain Spark expressions over a whole group.

Each sorts the group's tuples by tuple time and ``seq`` and folds them from the left, which is
what the engine promises across buckets and machines.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column
from pyspark.sql import functions as F


def _in_order(value: Column, *, nulls: bool) -> Column:
    """The group's values in stream order, as an array of structs with a field ``v``."""
    row = F.struct(F.col("stime"), F.col("seq"), value.alias("v"))
    return F.array_sort(F.collect_list(row if nulls else F.when(value.isNotNull(), row)))


def _fold(values: Column, term: Callable[[Column], Column]) -> Column:
    return F.aggregate(values, F.lit(0.0), lambda total, each: total + term(each["v"]))


def sum_in_order(value: Column) -> Column:
    """The sum of doubles, added from the left; null if all are null."""
    values = _in_order(value.cast("double"), nulls=False)
    return F.when(F.size(values) > 0, _fold(values, lambda v: v))


def mean_in_order(value: Column) -> Column:
    """That sum over how many there are."""
    values = _in_order(value.cast("double"), nulls=False)
    return F.when(F.size(values) > 0, _fold(values, lambda v: v) / F.size(values))


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


def spread_in_order(value: Column) -> Column:
    """The standard deviation of a sample, from distances to the group's first value."""
    values = _in_order(value.cast("double"), nulls=False)
    count = F.size(values)
    start = values[0]["v"]
    total = _fold(values, lambda v: v - start)
    squares = _fold(values, lambda v: (v - start) * (v - start))
    spread = F.greatest(squares - total * total / count, F.lit(0.0)) / (count - 1)
    return F.when(count > 1, F.sqrt(spread))
