"""What every stateful operator is to the engine.

An operator runs as three parts of one Spark plan: a projection that computes its keys, hash
and values as Spark expressions; the step that holds its state, in Python workers on Arrow;
and a projection that turns what the step emits into the operator's columns.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructType

from holdfast.frames import SYSTEM_COLUMNS
from holdfast.spark.join_step import resolve
from holdfast.spark.prepared import arrow_schema
from holdfast.spark.runs import DEAD, HASH, SLOT, read_run
from holdfast.spark.state import State
from holdfast.spark.task import FOREVER, Handler, StepPlan, stateful

TIMES = [pa.field(name, pa.int64()) for name in SYSTEM_COLUMNS]


@dataclass(frozen=True)
class Spread:
    """How a plan spreads over tasks: the network's partitions, in one task or one task each."""

    partitions: int
    sharded: bool

    def attach(self, frame: DataFrame, step: StepPlan) -> DataFrame:
        """What a step emits for the rows of ``frame``."""
        if self.sharded:
            frame = frame.unionByName(_markers(frame, self.partitions))
            partition = F.pmod(F.col(HASH), F.lit(self.partitions)).cast("int")
            frame = frame.repartitionById(self.partitions, partition)
        else:
            frame = frame.coalesce(1)
        return frame.mapInArrow(stateful(step, self.sharded), spark_schema(step.output))

    def resolve(self, name: str, frame: DataFrame) -> DataFrame:
        """What an outer join leaves of its candidates (``join_step``)."""
        return frame.mapInArrow(resolve, frame.schema)


class Stateful(ABC):
    """The engine's side of a stateful operator."""

    # Whether the operator can say nothing while one of its inputs is missing.
    blocks = False

    @property
    def depends_on_order(self) -> bool:
        """Whether the same tuples in another order would give something else."""
        return False

    @property
    def window_us(self) -> tuple[int, ...]:
        """Size and advance of its time windows, in microseconds; empty if it has none."""
        return ()

    @abstractmethod
    def build(self, name: str, inputs: Sequence[DataFrame], layout: Spread) -> DataFrame:
        """The operator's output as a DataFrame over its inputs."""

    def first_open(self, boundary: int) -> dict[str, int]:
        """For each family whose slots are times: the oldest slot needed at ``boundary``."""
        return {}

    def due(self, state: State, name: str) -> int:
        """The first boundary that can emit something although no tuple came; FOREVER if none."""
        return FOREVER

    def reach_back(self) -> int:
        """How much older than a tuple it emits the input behind that tuple can be."""
        return 0

    def oldest_contributing(self, state: State, name: str) -> int | None:
        """The oldest input tuple time that still shapes the state; None if nothing does."""
        oldest = None
        for operator, family, _, run in state.all_runs():
            if operator != name:
                continue
            rows = read_run(run.address)
            first = self.first_open(state.boundary).get(family, -FOREVER)
            column = "oldest" if "oldest" in rows.column_names else self.time_column(family)
            if column not in rows.column_names:
                continue
            live = rows.filter(pc.greater_equal(rows[SLOT], first))
            if DEAD in rows.column_names:
                live = live.filter(pc.invert(live[DEAD]))
            value = pc.min(live[column]).as_py()
            if value is not None:
                oldest = value if oldest is None else min(oldest, value)
        return oldest

    def replays(self) -> bool:
        """Whether the state can be computed again from window states of different ages.

        If not, continuous checkpoints keep every state that changes.
        """
        return False

    def replay_from(self, boundary: int) -> int:
        """The oldest input a replay up to ``boundary`` needs beside the window states."""
        return boundary

    def counts(self, family: str) -> bool:
        """Whether the family's rows are windows that tell when they end."""
        return self.row_keys(family) is not None

    def derived(self, family: str, rows: pa.Table) -> dict[str, pa.Table]:
        """Families made from the rows of a recovered family, which nobody keeps."""
        return {}

    @abstractmethod
    def row_keys(self, family: str) -> tuple[str, ...] | None:
        """The columns that make a state row unique, or None if rows only ever accumulate."""

    def time_column(self, family: str) -> str:
        """The column of a state row that has the oldest tuple time behind it."""
        return SLOT


def prepare(frame: DataFrame, keys: Sequence[Column], values: Sequence[Column]) -> DataFrame:
    """The projection in front of a step: times as numbers, hash, keys, values."""
    kinds = frame.select(*keys).schema.fields if keys else []
    keys = [_one_way(key, kind.dataType) for key, kind in zip(keys, kinds, strict=True)]
    hashed = F.xxhash64(*keys) if keys else F.lit(0).cast("bigint")
    return frame.select(
        F.unix_micros("stime").alias("stime"),
        F.unix_micros("tmax").alias("tmax"),
        F.col("seq"),
        hashed.alias(HASH),
        *(key.alias(f"k{i}") for i, key in enumerate(keys)),
        *values,
    )


def _one_way(column: Column, kind: DataType) -> Column:
    """-0.0 and 0.0 are one key, and all kinds of NaN are: whichever comes first, it is the same."""
    if isinstance(kind, DoubleType | FloatType):
        zero, nan = (F.lit(each).cast(kind) for each in (0.0, math.nan))
        return F.when(column == 0, zero).when(F.isnan(column), nan).otherwise(column)
    if isinstance(kind, StructType):
        fields = [_one_way(column[each.name], each.dataType).alias(each.name) for each in kind]
        return F.when(column.isNotNull(), F.struct(*fields))
    if isinstance(kind, ArrayType):
        return F.transform(column, lambda element: _one_way(element, kind.elementType))
    return column


def attach(
    name: str, frame: DataFrame, handler: Handler, output: pa.Schema, layout: Spread
) -> DataFrame:
    """Run ``handler`` over ``frame``, whose rows carry a hash, in the given layout."""
    # What can be null differs between layouts, and state outlives the layout it was made in.
    given = pa.schema([field.with_nullable(True) for field in arrow_schema(frame.schema)])
    return layout.attach(frame, StepPlan(name, handler, given, output, layout.partitions))


def _markers(frame: DataFrame, partitions: int) -> DataFrame:
    """One row for each partition, all null but for its hash.

    They tell every task which partition it has: below a union Spark numbers tasks otherwise,
    and a partition without tuples may still have windows to close.
    """
    columns = [
        (F.col("id") if field.name == HASH else F.lit(None)).cast(field.dataType).alias(field.name)
        for field in frame.schema.fields
    ]
    return frame.sparkSession.range(0, partitions, 1, 1).select(*columns)


def spark_schema(schema: pa.Schema) -> StructType:
    return from_arrow_schema(schema)


def times() -> list[Column]:
    """The projection behind a step: its times as timestamps again."""
    return [
        F.timestamp_micros("stime").alias("stime"),
        F.timestamp_micros("tmax").alias("tmax"),
        F.col("seq"),
    ]
