"""Cuts a network at its steps, into parts without state.

Between two steps, or a step and a source or an output, lies a plan without state. Here each of
them is a DataFrame of its own, over leaves that stand for sources and for what steps emit. A
part whose plan workers can run themselves (``translation``) needs no JVM; the others are computed
by Spark, as a query for all parts that are ready, and enter the next job on columns as streams.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from holdfast.operators import Operator, SourceOperator, upstream
from holdfast.spark.added import Added, added_frames, added_stream, translate_adding
from holdfast.spark.column_plans import ColumnPlan, Scan, used_columns
from holdfast.spark.column_task import Node
from holdfast.spark.prepared import input_frame, leaf_number, leaves_read
from holdfast.spark.stages import build, full_schema
from holdfast.spark.stateful import Spread, spark_schema
from holdfast.spark.task import StepPlan


@dataclass(frozen=True)
class CutPart:
    """A plan without state, and what takes its rows: a step, a choice, or an output.

    ``plan`` None: only Spark can compute it.
    ``adds``: what it computes are columns for another stream (``added``).
    """

    name: str
    frame: DataFrame
    plan: ColumnPlan | None
    reads: frozenset[str]
    step: StepPlan | None = None
    resolve: bool = False
    adds: bool = False

    @property
    def feed(self) -> str:
        """The stream Spark computes for it."""
        return self.name if self.adds else f"{self.name}<"

    def node(self, whole: bool) -> Node:
        """What a job on columns does for it."""
        names = tuple(self.frame.columns)
        plan = self.plan or Scan(self.feed, tuple(enumerate(names)))
        return Node(self.name, plan, names, self.step, self.resolve, whole)

    @property
    def uses(self) -> dict[str, set[str]]:
        """The columns a job on columns looks at, by stream."""
        if self.plan is None:
            return {self.feed: set(self.frame.columns)}
        return used_columns(self.plan)


@dataclass(frozen=True)
class Cut(Spread):
    """A layout in which what a step emits is a leaf."""

    spark: SparkSession = field(kw_only=True)
    scratch: Path = field(kw_only=True)
    parts: list[CutPart] = field(default_factory=list)
    leaves: dict[str, DataFrame] = field(default_factory=dict)
    added: Added = field(default_factory=dict)

    def attach(self, frame: DataFrame, step: StepPlan) -> DataFrame:
        self.add(step.operator, frame, step=step)
        return self.leaf(
            step.operator, input_frame(self.spark, spark_schema(step.output), self.scratch)
        )

    def resolve(self, name: str, frame: DataFrame) -> DataFrame:
        chosen = f"{name}?"
        self.add(chosen, frame, resolve=True)
        return self.leaf(chosen, input_frame(self.spark, frame.schema, self.scratch))

    def leaf(self, name: str, frame: DataFrame) -> DataFrame:
        self.leaves[name] = frame
        return frame

    def add(
        self, name: str, frame: DataFrame, step: StepPlan | None = None, resolve: bool = False
    ) -> None:
        numbers = {leaf_number(leaf): stream for stream, leaf in self.leaves.items()}
        plan = translate_adding(frame, self.leaves, numbers, self.added)
        if plan is None:
            reads = frozenset(leaves_read(frame, numbers))
        else:
            reads = frozenset(scan.stream for scan in plan.scans())
        self.parts.append(CutPart(name, frame, plan, reads, step, resolve))

    def all_parts(self) -> list[CutPart]:
        """Each part behind those it reads: columns are added before the first part with them."""
        adding = {
            added_stream(stream): CutPart(
                added_stream(stream), frame, None, frozenset([stream]), adds=True
            )
            for stream, frame in added_frames(self.leaves, self.added).items()
        }
        found: list[CutPart] = []
        for part in self.parts:
            found += [adding.pop(each) for each in sorted(part.reads) if each in adding]
            found.append(part)
        return found


def cut(
    outputs: Sequence[Operator], partitions: int, spark: SparkSession, scratch: Path
) -> tuple[list[CutPart], dict[str, DataFrame]]:
    """The parts of the network, each after those it reads, and the leaves they are over.

    The stream of an output has its operator's name and a mark, for a step has the name itself.
    """
    layout = Cut(partitions, False, spark=spark, scratch=scratch)
    frames: dict[str, DataFrame] = {}
    for operator in upstream(outputs):
        if isinstance(operator, SourceOperator):
            frame = input_frame(spark, full_schema(operator), scratch)
            frames[operator.name] = layout.leaf(operator.name, frame)
    for root in {operator.name: operator for operator in outputs}.values():
        layout.add(output_stream(root), build(root, frames, layout))
    return layout.all_parts(), layout.leaves


def output_stream(operator: Operator) -> str:
    return f"{operator.name}>"
