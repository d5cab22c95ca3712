"""A stream grouped by a window and keys, waiting to be aggregated or processed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.errors import PySparkException
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import MapType, StructType, _parse_datatype_string

from holdfast import habits
from holdfast.aggregates import Top, UserAggregate
from holdfast.columns import checked_columns
from holdfast.errors import NetworkError
from holdfast.spark.aggregate import Aggregate
from holdfast.spark.aggregate_functions import Aggregation, aggregations
from holdfast.spark.process import Process
from holdfast.spark.process_step import ProcessFunction
from holdfast.spark.window_columns import window_of
from holdfast.times import Duration, microseconds
from holdfast.windows import CountWindow, Window

if TYPE_CHECKING:
    from holdfast.stream import Stream


def _taken(key: Column | str | Window, stream: Stream) -> Column | str | Window:
    """A key; PySpark's own window functions are windows of ours."""
    if not isinstance(key, Column):
        return key
    return window_of(key, stream.time_columns()) or key


def _spelled_out(
    given: Column | str | UserAggregate | Top | Mapping[str, str],
) -> list[Column | str | UserAggregate | Top]:
    if not isinstance(given, Mapping):
        return [given]
    return [
        F.count("*") if (name, function) == ("*", "count") else F.expr(f"{function}(`{name}`)")
        for name, function in given.items()
    ]


class GroupedStream:
    """What ``stream.groupBy(...)`` returns."""

    def __init__(self, stream: Stream, keys: Sequence[Column | str | Window]) -> None:
        self._stream = stream
        keys = [_taken(each, stream) for each in keys]
        windows = [each for each in keys if isinstance(each, Window)]
        if len(windows) > 1:
            raise NetworkError("groupBy: takes one window; group twice for two")
        self._window = windows[0] if windows else None
        self._keys = tuple(
            F.col(each) if isinstance(each, str) else each
            for each in keys
            if not isinstance(each, Window)
        )
        self._fields = self._key_fields()

    if not TYPE_CHECKING:  # as in Stream

        def __getattr__(self, name: str) -> object:
            columns = [] if name.startswith("_") else self._stream.columns
            raise habits.unknown("GroupedStream", name, habits.GROUPED, columns)

    def _key_fields(self) -> StructType:
        if not self._keys:
            return StructType([])
        try:
            fields = self._stream.template.select(*self._keys).schema
        except PySparkException as error:
            reason = str(error).strip().splitlines()[0]
            raise NetworkError(f"groupBy: {reason}") from error
        for field in fields.fields:
            if isinstance(field.dataType, MapType):
                raise NetworkError(f"groupBy: cannot group by the MAP column {field.name!r}")
        return fields

    def agg(self, *aggregates: Column | str | UserAggregate | Top | Mapping[str, str]) -> Stream:
        """One tuple for each window and key, with these aggregates.

        PySpark's aggregate functions (``F.sum("x").alias("y")``), SQL strings
        (``"sum(x) AS y"``), ``holdfast.top(...)`` and ``holdfast.aggregate(...)`` can be mixed;
        as in PySpark, a dict names a function for each column: ``agg({"x": "sum", "*": "count"})``.
        """
        wanted = [each for given in aggregates for each in _spelled_out(given)]
        names = ", ".join(self._fields.fieldNames())
        label = f"aggregate{' by ' + names if names else ''}"
        if self._window is None:
            raise NetworkError(
                f"{label}: an aggregate over an endless stream needs a window; write "
                f"groupBy(window('10 seconds'), ...) or groupBy(count_window(10), ...)"
            )
        if not wanted:
            raise NetworkError(f"{label}: name at least one aggregate, e.g. agg(F.count('*'))")
        label = f"{label} in {self._window}"
        operator = Aggregate(self._window, self._keys, self._fields, self._folds(wanted, label))
        self._refuse_clash(operator, label)
        return self._stream.stateful("aggregate", label, operator)

    def _folds(
        self, aggregates: Sequence[Column | str | UserAggregate | Top], label: str
    ) -> tuple[Aggregation, ...]:
        try:
            return tuple(aggregations(self._stream.template, aggregates, label))
        except PySparkException as error:
            raise NetworkError(f"{label}: {str(error).strip().splitlines()[0]}") from error

    def _refuse_clash(self, operator: Aggregate, label: str) -> None:
        names = self._fields.fieldNames() + [each.field.name for each in operator.aggregations]
        if not isinstance(self._window, CountWindow):
            names.append("window")
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise NetworkError(
                f"{label}: two result columns are called {twice[0]!r}; name them with alias"
            )

    def count(self) -> Stream:
        """How many tuples each window and key has, in a column ``count``."""
        return self.agg(F.count("*").alias("count"))

    def process(
        self,
        function: ProcessFunction,
        output: str | StructType,
        state: str,
        forget_after: Duration | None = None,
    ) -> Stream:
        """A stateful operator of your own, in Python.

        ``function(key, tuples, state) -> (tuples, state)`` is called for every key that has
        new tuples: ``key`` is a dict, ``tuples`` an Arrow table in stream order with the
        stream's columns and stime, ``state`` what the last call returned (None at first).
        It returns an Arrow table with the ``output`` columns and stime, taken from the tuples
        given (or None), and the new state: a value of the Spark type ``state``, or None to
        forget the key. After ``forget_after`` without a tuple a key is forgotten by itself.

        The result must not depend on how the tuples are split into calls, nor on anything but
        them and ``state``: what a function keeps to itself, in a closure or in a global of the
        network's file, is gone with the bucket, and every replica must give the same.
        """
        name = getattr(function, "__name__", type(function).__name__)
        label = f"process {name} by {', '.join(self._fields.fieldNames())}"
        if self._window is not None:
            raise NetworkError(f"{label}: process takes no window; group by keys only")
        for field in self._fields.fieldNames():
            if field not in self._stream.columns:
                raise NetworkError(
                    f"{label}: group by columns of the stream; make {field!r} one with withColumn"
                )
        if not self._keys:
            raise NetworkError(f"{label}: needs at least one key, e.g. groupBy('server')")
        try:
            result = _parse_datatype_string(output) if isinstance(output, str) else output
            state_type = _parse_datatype_string(state)
        except PySparkException as error:
            raise NetworkError(f"{label}: {str(error).strip().splitlines()[0]}") from error
        if not isinstance(result, StructType):
            raise NetworkError(f"{label}: output must name columns, e.g. 'server string, n bigint'")
        checked_columns(result, label)
        forget = None if forget_after is None else microseconds(forget_after)
        operator = Process(
            function,
            tuple(self._fields.fieldNames()),
            self._stream.schema,
            result,
            state_type,
            forget,
        )
        return self._stream.stateful("process", label, operator)
