"""Cuts a network into stages, each one prepared Spark query.

A stage computes one stream: an output, or a stream that several later operators read and
that is too dear to compute twice (there is a stateful operator above it, and an operator with
state must see each tuple once). Streams between stages pass through the driver as Arrow.
A network without such forks is a single stage: one bucket, one Spark job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from holdfast.operators import (
    Operator,
    SourceOperator,
    StatefulOperator,
    StatelessOperator,
    upstream,
)
from holdfast.spark.prepared import PreparedQuery, input_frame
from holdfast.spark.stateful import Layout

SYSTEM_FIELDS = [
    StructField("stime", TimestampType(), False),
    StructField("tmax", TimestampType(), False),
    StructField("seq", LongType(), False),
]


@dataclass(frozen=True)
class Stage:
    """One query: the operator whose output it computes, and what it reads."""

    operator: Operator
    reads: tuple[str, ...]
    stateful: tuple[StatefulOperator, ...]
    # Prepared on first use: most fragments never need the sharded form.
    _queries: dict[bool, PreparedQuery] = field(default_factory=dict)

    def query(
        self, spark: SparkSession, leaves: Mapping[str, Operator], layout: Layout, scratch: Path
    ) -> PreparedQuery:
        """The stage's query in the given layout, planned when first asked for."""
        if layout.sharded not in self._queries:
            frames = {
                name: input_frame(spark, _full_schema(leaves[name]), scratch) for name in self.reads
            }
            result = _build(self.operator, frames, layout)
            self._queries[layout.sharded] = PreparedQuery(result, frames)
        return self._queries[layout.sharded]


def _full_schema(operator: Operator) -> StructType:
    return StructType([*SYSTEM_FIELDS, *operator.schema.fields])


def _build(root: Operator, frames: Mapping[str, DataFrame], layout: Layout) -> DataFrame:
    """The DataFrame of ``root`` over the frames of the streams its stage reads."""
    built: dict[str, DataFrame] = {}

    def frame_of(operator: Operator) -> DataFrame:
        if operator.name in frames and (operator is not root or isinstance(root, SourceOperator)):
            return frames[operator.name]
        if operator.name not in built:
            inputs = [frame_of(each) for each in operator.inputs]
            if isinstance(operator, StatelessOperator):
                built[operator.name] = operator.apply(inputs)
            else:
                assert isinstance(operator, StatefulOperator)
                built[operator.name] = operator.stateful.build(operator.name, inputs, layout)
        return built[operator.name]

    return frame_of(root)


def plan_stages(outputs: Sequence[Operator]) -> list[Stage]:
    """The stages for these outputs, in an order in which each can run."""
    operators = list(upstream(outputs))
    readers: dict[str, set[str]] = {operator.name: set() for operator in operators}
    for operator in operators:
        for each in operator.inputs:
            readers[each.name].add(operator.name)
    wanted = {operator.name for operator in outputs}
    stateful_above: set[str] = set()
    roots: list[Operator] = []
    for operator in operators:
        above = any(each.name in stateful_above for each in operator.inputs)
        if above or isinstance(operator, StatefulOperator):
            stateful_above.add(operator.name)
        uses = len(readers[operator.name]) + (operator.name in wanted)
        shared = uses > 1 and operator.name in stateful_above
        if operator.name in wanted or shared:
            roots.append(operator)
    names = {root.name for root in roots}
    return [_stage(root, names) for root in roots]


def _stage(root: Operator, roots: set[str]) -> Stage:
    """Walk up from ``root`` to the sources and other roots it reads."""
    reads: list[str] = []
    stateful: list[StatefulOperator] = []
    seen: set[str] = set()

    def visit(operator: Operator) -> None:
        if operator.name in seen:
            return
        seen.add(operator.name)
        is_input = isinstance(operator, SourceOperator)
        # A stateless root is recomputed where that is cheap; one below state is read.
        if is_input or (operator is not root and operator.name in roots and _has_state(operator)):
            reads.append(operator.name)
            return
        if isinstance(operator, StatefulOperator):
            stateful.append(operator)
        for each in operator.inputs:
            visit(each)

    visit(root)
    return Stage(root, tuple(reads), tuple(stateful))


def _has_state(operator: Operator) -> bool:
    return any(isinstance(each, StatefulOperator) for each in upstream([operator]))
