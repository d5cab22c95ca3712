"""The process operator: keyed state and Python code of the user's own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from holdfast.arrow_types import arrow_type
from holdfast.spark.prepared import arrow_schema
from holdfast.spark.process_step import ProcessFunction, ProcessStep
from holdfast.spark.state import State
from holdfast.spark.stateful import TIMES, Spread, Stateful, attach, prepare, times
from holdfast.spark.task import FOREVER


@dataclass(frozen=True)
class Process(Stateful):
    """Calls ``function(key, tuples, state)`` once for each key with new tuples."""

    function: ProcessFunction
    keys: tuple[str, ...]
    schema: StructType
    output: StructType
    state_type: DataType
    forget_after: int | None

    @property
    def depends_on_order(self) -> bool:
        return True

    def build(self, name: str, inputs: Sequence[DataFrame], layout: Spread) -> DataFrame:
        columns = tuple(f"c{i}" for i in range(len(self.schema)))
        values = [
            F.col(field.name).alias(column)
            for field, column in zip(self.schema.fields, columns, strict=True)
        ]
        frame = prepare(inputs[0], [F.col(key) for key in self.keys], values)
        output = arrow_schema(self.output)
        step = ProcessStep(
            self.function,
            tuple(f"k{i}" for i in range(len(self.keys))),
            self.keys,
            columns,
            tuple(self.schema.fieldNames()),
            arrow_type(self.state_type),
            output,
            self.forget_after,
            name,
        )
        emitted = attach(name, frame, step, pa.schema([*TIMES, *output]), layout)
        return emitted.select(*times(), *(F.col(each) for each in self.output.fieldNames()))

    def row_keys(self, family: str) -> tuple[str, ...]:
        return tuple(f"k{i}" for i in range(len(self.keys)))

    def oldest_contributing(self, state: State, name: str) -> int | None:
        """User code may remember anything, so its state rests on the whole stream."""
        return -FOREVER

    def reach_back(self) -> int:
        return FOREVER
