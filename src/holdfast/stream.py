"""Streams: the edges of a network, with PySpark's words for what can be done to them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, cast

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from holdfast import habits
from holdfast.columns import checked_columns
from holdfast.errors import NetworkError
from holdfast.frames import SYSTEM_COLUMNS
from holdfast.grouped import GroupedStream
from holdfast.operators import (
    Operator,
    SourceOperator,
    StatefulOperator,
    StatelessOperator,
    upstream,
)
from holdfast.spark.determinism import refuse_nondeterministic, refuse_stateful
from holdfast.spark.distinct import Distinct
from holdfast.spark.join import OUTER, Join
from holdfast.spark.stateful import Spread, Stateful
from holdfast.times import Duration, microseconds, show_duration
from holdfast.visible import VisibleFrame, keep_system_columns, whole_of
from holdfast.windows import TimeWindow, Window

if TYPE_CHECKING:
    from holdfast.network import Network

_ONE_TASK = Spread(1, False)


class Stream:
    """An ordered stream of tuples with a schema. Every method returns a new stream."""

    def __init__(self, network: Network, operator: Operator, template: DataFrame) -> None:
        self.network = network
        self.operator = operator
        # An empty DataFrame with the stream's columns, on which Spark checks each step.
        self.template = template

    @property
    def schema(self) -> StructType:
        """The columns of the stream, without the system columns stime, tmax and seq."""
        return self.operator.schema

    @property
    def columns(self) -> list[str]:
        return self.schema.fieldNames()

    def __getitem__(self, name: str) -> Column:
        """A column, for expressions: ``load.filter(load["cpu"] > 0.7)``."""
        self._require(name, f"[{name!r}]")
        return F.col(f"`{name}`")

    if not TYPE_CHECKING:  # a type checker shall go on to tell of misspelt methods

        def __getattr__(self, name: str) -> Column:
            if name.startswith("_") or "operator" not in self.__dict__:
                raise AttributeError(f"'Stream' object has no attribute {name!r}")
            if name in self.columns:
                return self[name]
            raise habits.unknown("Stream", name, habits.STREAM, self.columns)

    def filter(self, condition: Column | str) -> Stream:
        """Only the tuples for which the condition is true."""
        return self._stateless("filter", f"filter {condition}", lambda df: df.where(condition))

    where = filter

    def select(self, *columns: Column | str) -> Stream:
        """These columns or expressions, like DataFrame.select; '*' means all."""
        return self._project("select", lambda df, more: df.select(*columns, *more))

    def selectExpr(self, *expressions: str) -> Stream:
        """These SQL expressions."""
        return self.select(*(F.expr(each) for each in expressions))

    def withColumn(self, name: str, column: Column | str) -> Stream:
        """The stream with one column added or replaced; a string is a SQL expression."""
        if name in SYSTEM_COLUMNS:
            raise NetworkError(f"withColumn {name!r}: {name} is a system column; choose another")
        value = F.expr(column) if isinstance(column, str) else column
        label = f"withColumn {name} = {column}"
        return self._stateless("map", label, lambda df: df.withColumn(name, value))

    def withColumns(self, columns: Mapping[str, Column | str]) -> Stream:
        """The stream with columns added or replaced, one after the other."""
        stream = self
        for name, column in columns.items():
            stream = stream.withColumn(name, column)
        return stream

    def drop(self, *names: str) -> Stream:
        """The stream without these columns."""
        for name in names:
            self._require(name, "drop")
        return self._stateless("drop", f"drop {', '.join(names)}", lambda df: df.drop(*names))

    def withColumnRenamed(self, existing: str, new: str) -> Stream:
        """The stream with one column renamed."""
        self._require(existing, "withColumnRenamed")
        label = f"rename {existing} to {new}"
        return self._stateless("rename", label, lambda df: df.withColumnRenamed(existing, new))

    def transform(self, function: Callable[[DataFrame], DataFrame]) -> Stream:
        """Any PySpark code that looks at one tuple at a time.

        The function gets a DataFrame with the stream's columns. The system columns go with each
        tuple by themselves; an expression may read them as ``stime``, ``tmax`` and ``seq``.
        """
        name = getattr(function, "__name__", "function")
        return self._stateless(
            "transform", f"transform {name}", lambda df: whole_of(function(_visible(df)))
        )

    def union(self, *others: Stream) -> Stream:
        """All tuples of these streams, which must have the same columns and types."""
        streams = [self, *others]
        label = "union"
        for other in others:
            self._same_network(other, label)
            _require_same_columns(self, other)
        bits = max(1, (len(streams) - 1).bit_length())

        def unite(frames: Sequence[DataFrame]) -> DataFrame:
            own = [name for name in frames[0].columns if name not in SYSTEM_COLUMNS]
            names = [*SYSTEM_COLUMNS, *own]
            branches = [_branch(df, i, bits).select(*names) for i, df in enumerate(frames)]
            result = branches[0]
            for branch in branches[1:]:
                result = result.unionByName(branch)
            return result

        made = self._new_stateless("union", f"union of {len(streams)}", streams, unite)
        assert isinstance(made.operator, StatelessOperator)
        operator = dataclasses.replace(made.operator, branch_bits=bits)
        return Stream(self.network, operator, made.template)

    def distinct(self, *columns: str, window: Window | None = None) -> Stream:
        """The first tuple of every combination of these columns (all, if none is named) in
        every tumbling window. The tuple is passed on at once, not when the window closes.
        """
        keys = columns or tuple(self.columns)
        label = f"distinct {', '.join(keys)}"
        for key in keys:
            self._require(key, label)
        if not isinstance(window, TimeWindow) or window.size != window.advance:
            raise NetworkError(
                f"{label}: needs a tumbling window, so that its memory is bounded; write "
                f"distinct(..., window=window('10 minutes'))"
            )
        return self.stateful(
            "distinct", f"{label} in {window}", Distinct(window, keys, self.schema)
        )

    def dropDuplicates(
        self, subset: Sequence[str] | str | None = None, *columns: str, window: Window | None = None
    ) -> Stream:
        """The same as ``distinct``, with the columns as PySpark takes them: in a list."""
        named = [subset] if isinstance(subset, str) else list(subset or ())
        return self.distinct(*named, *columns, window=window)

    drop_duplicates = dropDuplicates

    def join(
        self,
        other: Stream,
        on: str | Sequence[str] | Sequence[tuple[str, str]],
        within: Duration | tuple[Duration, Duration],
        how: str = "inner",
        condition: Column | str | None = None,
    ) -> Stream:
        """Pairs with equal key columns whose tuple times are at most ``within`` apart.

        ``within`` may be a pair: how much older and how much newer the other tuple may be.
        ``condition`` may use the output columns, and left.x and right.x where names clash.
        ``how`` is inner, left or full; a tuple without a partner is emitted once none can come.
        """
        operator = self._join_operator(other, on, within, how, condition)
        keys = ", ".join(a if a == b else f"{a} = {b}" for a, b in operator.keys)
        distance = show_duration(max(operator.before, operator.after))
        label = f"{how} join on {keys} within {distance}"
        return self.stateful("join", label, operator, other)

    def _join_operator(
        self,
        other: Stream,
        on: str | Sequence[str] | Sequence[tuple[str, str]],
        within: Duration | tuple[Duration, Duration],
        how: str,
        condition: Column | str | None,
    ) -> Join:
        self._same_network(other, "join")
        how = {"leftouter": "left", "left_outer": "left", "outer": "full", "fullouter": "full"}.get(
            how, how
        )
        if how not in OUTER:
            raise NetworkError(f"join: how must be inner, left or full, got {how!r}")
        listed = [on] if isinstance(on, str) else list(on)
        keys = tuple(
            (each, each) if isinstance(each, str) else (each[0], each[1]) for each in listed
        )
        if not keys:
            raise NetworkError("join: needs at least one equality; name the columns in 'on'")
        for left, right in keys:
            self._require(left, "join")
            other._require(right, "join")
            types = self.schema[left].dataType, other.schema[right].dataType
            if types[0] != types[1]:
                raise NetworkError(
                    f"join on {left} = {right}: the types clash, {types[0].simpleString()} and "
                    f"{types[1].simpleString()}; cast one side with withColumn"
                )
        before, after = (
            (microseconds(within[0], least=0), microseconds(within[1], least=0))
            if isinstance(within, tuple)
            else (microseconds(within), microseconds(within))
        )
        test = F.expr(condition) if isinstance(condition, str) else condition
        columns = _joined_columns(self.schema, other.schema, keys)
        return Join(keys, before, after, how, test, (self.schema, other.schema), columns)

    def groupBy(self, *keys: Column | str | Window) -> GroupedStream:
        """Group by a window and key columns; follow with agg, count or process."""
        return GroupedStream(self, keys)

    groupby = groupBy

    def time_columns(self) -> set[str]:
        """The columns that hold the tuple time: stime, and the sources' own if nothing since can
        have changed it."""
        operators = list(upstream([self.operator]))
        names = {each.stime for each in operators if isinstance(each, SourceOperator)}
        (name,) = names if len(names) == 1 else (None,)
        if name is None or name not in self.columns:
            return {"stime"}
        kept = all(isinstance(each, SourceOperator) or _keeps(each, name) for each in operators)
        return {"stime", name} if kept else {"stime"}

    def output(self, name: str) -> Stream:
        """Name this stream as an output of the network."""
        self.network.add_output(name, self)
        return self

    def fragment(self, name: str) -> Stream:
        """Cut the network here: what follows belongs to fragment ``name``."""
        label = f"fragment {name!r}"
        stream = self._new_stateless("cut", label, [self], lambda frames: frames[0], name)
        return stream

    def stateful(self, kind: str, label: str, stateful: Stateful, *others: Stream) -> Stream:
        """A new stream made by a stateful operator over this stream and others."""
        inputs = [self, *others]
        templates = [each.template for each in inputs]
        name = self.network.fresh_name(kind)
        template = _checked(label, lambda: stateful.build(name, templates, _ONE_TASK))
        refuse_nondeterministic(template, label)
        operator = StatefulOperator(
            name,
            label,
            tuple(each.operator for each in inputs),
            _user_schema(template, label),
            self.operator.fragment,
            stateful,
        )
        empty = self.network.spark.createDataFrame([], template.schema)
        return Stream(self.network, operator, empty)

    def _stateless(
        self, kind: str, label: str, function: Callable[[DataFrame], DataFrame]
    ) -> Stream:
        return self._new_stateless(kind, label, [self], lambda frames: function(frames[0]))

    def _project(
        self, kind: str, function: Callable[[DataFrame, Sequence[Column]], DataFrame]
    ) -> Stream:
        stream = self._stateless(kind, kind, lambda df: keep_system_columns(df, function))
        return stream._relabel(f"{kind} {', '.join(stream.columns)}")

    def _relabel(self, label: str) -> Stream:
        operator = self.operator
        assert isinstance(operator, StatelessOperator)
        renamed = dataclasses.replace(operator, label=label)
        return Stream(self.network, renamed, self.template)

    def _new_stateless(
        self,
        kind: str,
        label: str,
        inputs: Sequence[Stream],
        apply: Callable[[Sequence[DataFrame]], DataFrame],
        fragment: str | None = None,
    ) -> Stream:
        templates = [each.template for each in inputs]
        template = _checked(label, lambda: apply(templates))
        if not isinstance(template, DataFrame):
            raise NetworkError(f"{label}: the function must return a DataFrame, not {template!r}")
        refuse_nondeterministic(template, label)
        refuse_stateful(template, label)
        operator = StatelessOperator(
            self.network.fresh_name(kind),
            label,
            tuple(each.operator for each in inputs),
            _user_schema(template, label),
            fragment or self.operator.fragment,
            apply,
        )
        return Stream(self.network, operator, template)

    def _require(self, name: str, label: str) -> None:
        if name not in self.columns:
            raise NetworkError(f"{label}: there is no column {name!r}; it has {self.columns}")

    def _same_network(self, other: Stream, label: str) -> None:
        if other.network is not self.network:
            raise NetworkError(
                f"{label}: the streams belong to different networks ({self.network.name!r} and "
                f"{other.network.name!r}); build both in one"
            )


def _keeps(operator: Operator, column: str) -> bool:
    """Whether an operator hands a column on as it is, as far as its kind tells."""
    if operator.name.startswith("map_"):
        return not operator.label.startswith(f"withColumn {column} = ")
    return operator.name.startswith(("filter_", "drop_", "union_", "cut_", "distinct_"))


def _visible(frame: DataFrame) -> DataFrame:
    return cast(DataFrame, VisibleFrame(frame))


def _branch(frame: DataFrame, index: int, bits: int) -> DataFrame:
    """Tuples of equal time keep their order within a branch; the branch breaks the tie."""
    return frame.withColumn("seq", F.shiftleft("seq", bits).bitwiseOR(F.lit(index).cast("bigint")))


def _checked(label: str, build: Callable[[], DataFrame]) -> DataFrame:
    """Run ``build``; what Spark refuses becomes a NetworkError that names the operator."""
    try:
        return build()
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
        raise NetworkError(f"{label}: {reason}") from error


def _user_schema(template: DataFrame, label: str) -> StructType:
    missing = [name for name in SYSTEM_COLUMNS if name not in template.columns]
    if missing:
        raise NetworkError(
            f"{label}: the result is not made of the stream's own tuples, for it lacks {missing}; "
            f"use what looks at one tuple at a time, such as select, withColumn, where or drop"
        )
    fields = list(template.schema.fields)
    for name in SYSTEM_COLUMNS:
        del fields[[field.name for field in fields].index(name)]
    schema = StructType(fields)
    checked_columns(schema, label)
    return schema


def _require_same_columns(left: Stream, right: Stream) -> None:
    mine = {field.name: field.dataType for field in left.schema.fields}
    theirs = {field.name: field.dataType for field in right.schema.fields}
    if mine.keys() != theirs.keys():
        raise NetworkError(
            f"union: the streams must have the same columns; one has {sorted(mine)}, the other "
            f"{sorted(theirs)}; use select to make them alike"
        )
    for name, kind in mine.items():
        if theirs[name] != kind:
            raise NetworkError(
                f"union: the types of column {name!r} clash, {kind.simpleString()} and "
                f"{theirs[name].simpleString()}; cast one with withColumn"
            )


def _listed(names: Sequence[str]) -> str:
    """A column 'a', or the columns 'a' and 'b'."""
    quoted = [repr(name) for name in names]
    if len(quoted) == 1:
        return f"a column {quoted[0]}"
    return f"the columns {', '.join(quoted[:-1])} and {quoted[-1]}"


def _joined_columns(
    left: StructType, right: StructType, keys: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, int, str], ...]:
    """Output name, side and source name of each column; shared keys appear once."""
    shared = {a for a, b in keys if a == b}
    clash = (set(left.fieldNames()) & set(right.fieldNames())) - shared
    if clash:
        raise NetworkError(
            f"join: both sides have {_listed(sorted(clash))}; rename one of each with "
            f"withColumnRenamed"
        )
    columns = [(name, 0, name) for name in left.fieldNames()]
    columns += [(name, 1, name) for name in right.fieldNames() if name not in shared]
    return tuple(columns)
