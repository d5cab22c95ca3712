"""The query network: what a user writes.

    network = Network("monitoring", bucket="200 ms")
    load = network.source("load", "at timestamp, server string, cpu double", stime="at")
    busy = (
        load.filter("cpu > 0.5")
        .groupBy(window("10 seconds"), "server")
        .agg(F.avg("cpu").alias("cpu"), F.count("*").alias("readings"))
    )
    busy.output("busy")

Every step is checked by Spark the moment it is written: an unknown column, clashing types or
a non-deterministic expression raises NetworkError there, naming the operator and the fix.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TypeAlias

import pyarrow as pa
from pyspark.errors import AnalysisException, ParseException, PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import (
    DateType,
    LongType,
    StructType,
    TimestampType,
    _parse_datatype_string,
)

from holdfast.columns import checked_columns
from holdfast.draw import describe, draw
from holdfast.errors import NetworkError
from holdfast.operators import Operator, SourceOperator, upstream
from holdfast.spark.session import get_session
from holdfast.spark.stages import SYSTEM_FIELDS
from holdfast.stream import Stream
from holdfast.times import Duration, microseconds

SchemaLike: TypeAlias = str | StructType | pa.Schema
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


class Network:
    """A loop-free graph of operators between sources and outputs.

    name        names the query in logs, files and pictures.
    bucket      the interval of tuple time processed as one unit.
    partitions  into how many parts state is split by key. It belongs to the network: results
                are the same bits on any machine, whatever its cores.
    """

    def __init__(
        self,
        name: str,
        *,
        bucket: Duration = "200 ms",
        partitions: int = 2,
        spark: SparkSession | None = None,
    ) -> None:
        if partitions < 1:
            raise NetworkError(f"network {name!r}: partitions must be at least 1, got {partitions}")
        self.name = _checked_name("network", name)
        self.bucket = microseconds(bucket)
        self.partitions = partitions
        self.spark = spark or get_session()
        self._sources: dict[str, SourceOperator] = {}
        self._outputs: dict[str, Stream] = {}
        self._counts: dict[str, int] = {}
        self._made: set[str] = set()

    def source(
        self,
        name: str,
        schema: SchemaLike,
        *,
        stime: str | None = None,
        key: str | tuple[str, ...] | list[str] = (),
        fragment: str = "main",
    ) -> Stream:
        """A stream that enters the network.

        ``stime`` names the column with the tuple time (timestamp, or bigint microseconds);
        without it, tuples take the time of their arrival. Tuples with a null in that column
        or in a ``key`` column go to the dead-letter file.
        """
        label = f"source {name!r}"
        if _checked_name("source", name) in self._sources:
            raise NetworkError(f"{label}: there is a source of that name already; choose another")
        if name in self._made:
            raise NetworkError(
                f"{label}: an operator is called {name!r}; choose another name, or declare the "
                f"source before it"
            )
        columns = _struct(schema, label)
        checked_columns(columns, label)
        keys = (key,) if isinstance(key, str) else tuple(key)
        for each in (*keys, *([stime] if stime else [])):
            if each not in columns.fieldNames():
                raise NetworkError(
                    f"{label}: there is no column {each!r}; it has {columns.fieldNames()}"
                )
        if stime and not isinstance(columns[stime].dataType, TimestampType | LongType | DateType):
            raise NetworkError(
                f"{label}: stime column {stime!r} must be TIMESTAMP (or BIGINT microseconds), "
                f"it is {columns[stime].dataType.simpleString()}"
            )
        operator = SourceOperator(name, label, (), columns, fragment, stime, keys)
        self._sources[name] = operator
        template = self.spark.createDataFrame([], StructType([*SYSTEM_FIELDS, *columns.fields]))
        return Stream(self, operator, template)

    def add_output(self, name: str, stream: Stream) -> None:
        """Make ``stream`` an output; users call ``stream.output(name)``."""
        if stream.network is not self:
            raise NetworkError(f"output {name!r}: the stream belongs to another network")
        if _checked_name("output", name) in self._outputs:
            raise NetworkError(f"output {name!r}: there is an output of that name already")
        self._outputs[name] = stream

    def fresh_name(self, kind: str) -> str:
        """A name for the next operator of a kind; the same in every process."""
        while True:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            name = f"{kind}_{self._counts[kind]}"
            if name not in self._sources:
                self._made.add(name)
                return name

    @property
    def sources(self) -> Mapping[str, SourceOperator]:
        return self._sources

    @property
    def outputs(self) -> Mapping[str, Stream]:
        return self._outputs

    @property
    def operators(self) -> list[Operator]:
        """All operators that an output depends on, inputs before what reads them."""
        return list(upstream([stream.operator for stream in self._outputs.values()]))

    def check(self) -> None:
        """Raise NetworkError unless the network can run as a whole."""
        if not self._outputs:
            raise NetworkError(
                f"network {self.name!r} has no output; end a stream with .output('name')"
            )
        used = {operator.name for operator in self.operators}
        idle = [name for name in self._sources if name not in used]
        if idle:
            raise NetworkError(
                f"network {self.name!r}: no output depends on source {idle[0]!r}; use it or "
                f"remove it"
            )

    def describe(self) -> str:
        """The graph as text, one operator a line."""
        return describe(self.name, self.operators, self._output_names())

    def draw(self, path: str) -> None:
        """Draw the graph into ``path``, an .svg or .png file."""
        draw(path, self.name, self.operators, self._output_names())

    def _output_names(self) -> dict[str, list[str]]:
        names: dict[str, list[str]] = {}
        for name, stream in self._outputs.items():
            names.setdefault(stream.operator.name, []).append(name)
        return names


def _checked_name(kind: str, name: str) -> str:
    if not _NAME.fullmatch(name):
        raise NetworkError(
            f"{kind} {name!r}: a name starts with a letter and has only letters, digits, - and _"
        )
    return name


def _struct(schema: SchemaLike, label: str) -> StructType:
    if isinstance(schema, StructType):
        return schema
    if isinstance(schema, pa.Schema):
        return from_arrow_schema(schema)
    try:
        parsed = _parse_datatype_string(schema)
    except (AnalysisException, ParseException, PySparkException) as error:
        raise NetworkError(
            f"{label}: cannot read the schema {schema!r}; write it as in SQL, for example "
            f"'at timestamp, server string, cpu double' ({first_line(error)})"
        ) from None
    if not isinstance(parsed, StructType):
        raise NetworkError(
            f"{label}: the schema {schema!r} has no column names; write it as in SQL, for "
            f"example 'at timestamp, server string, cpu double'"
        )
    return parsed


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
