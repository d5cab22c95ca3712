"""Cuts a network into waves, each one prepared Spark query.

A stream is *materialized* when it is an output, or when it is read more than once below and
there is a stateful operator above it: an operator with state must see each tuple once.
Materialized streams pass from one wave to the next through the driver, as Arrow. All streams
that can be computed from what earlier waves gave form one wave and one Spark job, whose result
is the union of them, each row in the columns of its own stream. A network without forks below
its state is a single wave: one bucket, one Spark job.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from holdfast.operators import (
    Operator,
    SourceOperator,
    StatefulOperator,
    StatelessOperator,
    upstream,
)
from holdfast.spark.prepared import PreparedQuery, input_frame, write_stream
from holdfast.spark.stateful import Spread

SYSTEM_FIELDS = [
    StructField("stime", TimestampType(), False),
    StructField("tmax", TimestampType(), False),
    StructField("seq", LongType(), False),
]
_STREAM = "stream"


def full_schema(operator: Operator) -> StructType:
    """An operator's columns inside the engine: the system columns, then its own."""
    return StructType([*SYSTEM_FIELDS, *operator.schema.fields])


@dataclass(frozen=True)
class Wave:
    """One query: the operators whose streams it computes, and the streams it reads."""

    roots: tuple[Operator, ...]
    reads: tuple[Operator, ...]
    # Prepared on first use: most networks never need the sharded form.
    _queries: dict[bool, PreparedQuery] = field(default_factory=dict)

    def run(
        self,
        spark: SparkSession,
        layout: Spread,
        scratch: Path,
        inputs: Mapping[str, tuple[pa.Table, Path]],
    ) -> dict[str, pa.Table]:
        """The streams of the wave, from those it reads; each is written to its path first."""
        query = self._query(spark, layout, scratch)
        slices = spark.sparkContext.defaultParallelism if layout.sharded else 1
        for name, (table, path) in inputs.items():
            write_stream(path, table.select(query.columns(name)), slices)
        result = query.execute({name: path for name, (_, path) in inputs.items()})
        parts = split_union(result, [full_schema(root).fieldNames() for root in self.roots])
        return {root.name: part for root, part in zip(self.roots, parts, strict=True)}

    def _query(self, spark: SparkSession, layout: Spread, scratch: Path) -> PreparedQuery:
        if layout.sharded not in self._queries:
            frames = {
                each.name: input_frame(spark, full_schema(each), scratch) for each in self.reads
            }
            results = [build(root, dict(frames), layout) for root in self.roots]
            result = union(results)
            self._queries[layout.sharded] = PreparedQuery(result, frames)
        return self._queries[layout.sharded]


def union(frames: Sequence[DataFrame]) -> DataFrame:
    """The frames one below the other, each in a struct column of its own."""
    if len(frames) == 1:
        return frames[0]
    tagged = [
        frame.select(F.lit(index).alias(_STREAM), F.struct("*").alias(f"s{index}"))
        for index, frame in enumerate(frames)
    ]
    result = tagged[0]
    for frame in tagged[1:]:
        result = result.unionByName(frame, allowMissingColumns=True)
    return result


def split_union(result: pa.Table, columns: Sequence[Sequence[str]]) -> list[pa.Table]:
    """The rows of each frame of a ``union``, whose columns have these names."""
    if len(columns) == 1:
        return [result]
    return [_rows_of(result, index, names) for index, names in enumerate(columns)]


def _rows_of(result: pa.Table, index: int, names: Sequence[str]) -> pa.Table:
    rows = result.filter(pc.equal(result[_STREAM], index))
    columns = [pc.struct_field(rows[f"s{index}"], [at]) for at in range(len(names))]
    return pa.table(columns, names=list(names))


def build(root: Operator, frames: dict[str, DataFrame], layout: Spread) -> DataFrame:
    """The DataFrame of ``root`` over the frames that are known; those of others are added."""

    def frame_of(operator: Operator) -> DataFrame:
        if operator.name not in frames:
            inputs = [frame_of(each) for each in operator.inputs]
            if isinstance(operator, StatelessOperator):
                frames[operator.name] = operator.apply(inputs)
            else:
                assert isinstance(operator, StatefulOperator)
                frames[operator.name] = operator.stateful.build(operator.name, inputs, layout)
        return frames[operator.name]

    return frame_of(root).select(*full_schema(root).fieldNames())


def plan_waves(outputs: Sequence[Operator]) -> list[Wave]:
    """The waves for these outputs, in the order in which they run."""
    roots = _materialized(outputs)
    names = {root.name for root in roots}
    depth: dict[str, int] = {}
    reads: dict[str, list[Operator]] = {}
    for root in roots:
        reads[root.name] = _reads(root, names)
        above = [depth[each.name] for each in reads[root.name] if each.name in depth]
        depth[root.name] = max(above, default=-1) + 1
    waves = []
    for level in range(max(depth.values()) + 1):
        mine = tuple(root for root in roots if depth[root.name] == level)
        read = {each.name: each for root in mine for each in reads[root.name]}
        waves.append(Wave(mine, tuple(read.values())))
    return waves


def _materialized(outputs: Sequence[Operator]) -> list[Operator]:
    """The operators whose streams the driver gets, inputs before what reads them."""
    operators = list(upstream(outputs))
    # A stream united or joined with itself is read twice, too.
    reads = Counter(each.name for operator in operators for each in operator.inputs)
    wanted = {operator.name for operator in outputs}
    found = []
    for operator in operators:
        uses = reads[operator.name] + (operator.name in wanted)
        if operator.name in wanted or (uses > 1 and _has_state(operator)):
            found.append(operator)
    return found


def _reads(root: Operator, materialized: set[str]) -> list[Operator]:
    """The sources and materialized streams that ``root`` is computed from."""
    found: dict[str, Operator] = {}

    def visit(operator: Operator) -> None:
        given = operator is not root and operator.name in materialized and _has_state(operator)
        if given or isinstance(operator, SourceOperator):
            found[operator.name] = operator
            return
        for each in operator.inputs:
            visit(each)

    visit(root)
    return list(found.values())


def _has_state(operator: Operator) -> bool:
    return any(isinstance(each, StatefulOperator) for each in upstream([operator]))
