"""The distinct operator: the first tuple of every key in every tumbling window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from holdfast.spark.distinct_step import DistinctStep
from holdfast.spark.prepared import arrow_schema
from holdfast.spark.stateful import TIMES, Spread, Stateful, attach, prepare, times
from holdfast.spark.time_aggregate import FAMILY, first_open_slot
from holdfast.windows import TimeWindow


@dataclass(frozen=True)
class Distinct(Stateful):
    """Passes a tuple unless its window has already seen its key."""

    window: TimeWindow
    keys: tuple[str, ...]
    schema: StructType

    @property
    def depends_on_order(self) -> bool:
        return True

    @property
    def window_us(self) -> tuple[int, ...]:
        return self.window.size, self.window.advance

    def build(self, name: str, inputs: Sequence[DataFrame], layout: Spread) -> DataFrame:
        columns = tuple(f"c{i}" for i in range(len(self.schema)))
        values = [
            F.col(field.name).alias(column)
            for field, column in zip(self.schema.fields, columns, strict=True)
        ]
        frame = prepare(inputs[0], [F.col(key) for key in self.keys], values)
        step = DistinctStep(self.window, tuple(f"k{i}" for i in range(len(self.keys))), columns)
        before = arrow_schema(frame.schema)
        output = pa.schema([*TIMES, *(before.field(column) for column in columns)])
        emitted = attach(name, frame, step, output, layout)
        renamed = [
            F.col(column).alias(field.name)
            for field, column in zip(self.schema.fields, columns, strict=True)
        ]
        return emitted.select(*times(), *renamed)

    def row_keys(self, family: str) -> tuple[str, ...]:
        return tuple(f"k{i}" for i in range(len(self.keys)))

    def counts(self, family: str) -> bool:
        return False  # what a window has seen is forgotten with the window, silently

    def first_open(self, boundary: int) -> dict[str, int]:
        return {FAMILY: first_open_slot(self.window, boundary)}

    def reach_back(self) -> int:
        return self.window.size - 1
