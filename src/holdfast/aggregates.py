"""Aggregates a user writes in Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructField, _parse_datatype_string

from holdfast.arrow_types import arrow_type
from holdfast.errors import NetworkError


class Aggregator(ABC):
    """A mergeable aggregate over the values of one column.

    Values come as Arrow arrays, in stream order, split anyhow: ``merge`` must give the same
    state for every split. The state is any value of ``state_type`` (a Spark type as a string,
    e.g. ``"struct<n: bigint, total: double>"``, then it is a dict). One that gives the same state
    for every order of the values, too, may say ``any_order = True``: they are not sorted for it.
    """

    state_type: str
    result_type: str
    any_order: bool = False

    @abstractmethod
    def reduce(self, values: pa.Array) -> Any:
        """The state of these values alone."""

    @abstractmethod
    def merge(self, earlier: Any, later: Any) -> Any:
        """The state of both; ``earlier`` came first in the stream."""

    @abstractmethod
    def finish(self, state: Any) -> Any:
        """The result a state stands for."""


@dataclass(frozen=True)
class UserAggregate:
    """An Aggregator applied to an expression, to be passed to ``agg``."""

    aggregator: Aggregator
    argument: str
    name: str

    def alias(self, name: str) -> UserAggregate:
        return UserAggregate(self.aggregator, self.argument, name)

    def field(self) -> StructField:
        return StructField(self.name, _parse_datatype_string(self.aggregator.result_type))

    def arrow_state_type(self) -> pa.DataType:
        return _arrow(self.aggregator.state_type)

    def with_types(self, _: pa.DataType) -> TypedAggregator:
        return TypedAggregator(self.aggregator, _arrow(self.aggregator.result_type))


@dataclass(frozen=True)
class TypedAggregator:
    """An aggregator as the tasks use it: no Spark session is at hand there to parse types."""

    aggregator: Aggregator
    arrow_result_type: pa.DataType

    @property
    def any_order(self) -> bool:
        return self.aggregator.any_order

    def reduce(self, values: pa.Array) -> Any:
        return self.aggregator.reduce(values)

    def merge(self, earlier: Any, later: Any) -> Any:
        return self.aggregator.merge(earlier, later)

    def finish(self, state: Any) -> Any:
        return self.aggregator.finish(state)


@dataclass(frozen=True)
class Top:
    """The rows of a group with the largest values, to be passed to ``agg``."""

    count: int
    by: str
    columns: tuple[str, ...]
    name: str

    def alias(self, name: str) -> Top:
        return Top(self.count, self.by, self.columns, name)


def top(count: int, by: str, *columns: str) -> Top:
    """The ``count`` rows with the largest ``by``, with these columns besides: an array, largest
    first; of equals the earlier ones, and none whose ``by`` is null.

    ``top(3, "latency", "server").alias("slowest")``; columns are names or SQL expressions. For
    the smallest, ``top(3, "-latency AS latency")``.
    """
    if not isinstance(count, int) or isinstance(count, bool) or count < 1:
        raise NetworkError(f"top: how many is a number of at least 1, got {count!r}")
    if not all(isinstance(each, str) for each in (by, *columns)):
        raise NetworkError(f"top: name columns or SQL expressions as texts, got {(by, *columns)}")
    return Top(count, by, columns, f"top({', '.join(map(str, (count, by, *columns)))})")


def _arrow(ddl: str) -> pa.DataType:
    kind = _parse_datatype_string(ddl)
    return arrow_type(kind)


def aggregate(aggregator: Aggregator, argument: str) -> UserAggregate:
    """Apply a user-defined aggregator to a column or SQL expression."""
    if not isinstance(aggregator, Aggregator):
        raise NetworkError(
            f"aggregate: expected a holdfast.Aggregator, got {aggregator!r}; derive from "
            f"Aggregator and pass an instance"
        )
    name = f"{type(aggregator).__name__.lower()}({argument})"
    return UserAggregate(aggregator, argument, name)
