"""The windowed aggregate operator: ``groupBy(window, keys).agg(...)``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from holdfast.spark.aggregate_functions import Aggregation
from holdfast.spark.aggregate_state import GroupState
from holdfast.spark.count_aggregate import WINDOW, CountAggregate
from holdfast.spark.prepared import arrow_schema
from holdfast.spark.runs import SLOT
from holdfast.spark.session_aggregate import DEADLINES, SESSIONS, SessionAggregate, deadlines
from holdfast.spark.state import State
from holdfast.spark.stateful import TIMES, Spread, Stateful, attach, prepare, times
from holdfast.spark.task import FOREVER, Handler
from holdfast.spark.time_aggregate import FAMILY, TimeAggregate, first_open_slot
from holdfast.windows import CountWindow, SessionWindow, TimeWindow, Window


@dataclass(frozen=True)
class Aggregate(Stateful):
    """Folds tuples into windows; time windows close with the boundary, count windows when full."""

    window: Window
    keys: tuple[Column, ...]
    key_fields: StructType
    aggregations: tuple[Aggregation, ...]

    def build(self, name: str, inputs: Sequence[DataFrame], layout: Spread) -> DataFrame:
        values = [value for each in self.aggregations for value in each.values]
        frame = prepare(inputs[0], self.keys, values)
        emitted = attach(name, frame, self._handler(), self._emitted(frame), layout)
        keys = [F.col(f"k{i}").alias(field.name) for i, field in enumerate(self.key_fields.fields)]
        results = [each.finish.alias(each.field.name) for each in self.aggregations]
        return emitted.select(*times(), *self._window_column(), *keys, *results)

    def _group_state(self) -> GroupState:
        names = tuple(f"k{i}" for i in range(len(self.keys)))
        return GroupState(names, tuple(fold for each in self.aggregations for fold in each.folds))

    def _handler(self) -> Handler:
        if isinstance(self.window, CountWindow):
            return CountAggregate(self.window, self._group_state())
        if isinstance(self.window, SessionWindow):
            return SessionAggregate(self.window.gap, self._group_state())
        return TimeAggregate(self.window, self._group_state())

    def _emitted(self, frame: DataFrame) -> pa.Schema:
        """What the step emits: times, the window's start, keys, and the folds' columns."""
        before = arrow_schema(frame.schema)
        fields = [*TIMES]
        if not isinstance(self.window, CountWindow):
            fields.append(pa.field(SLOT, pa.int64()))
        if isinstance(self.window, SessionWindow):
            fields.append(pa.field("end", pa.int64()))
        fields += [before.field(f"k{i}") for i in range(len(self.keys))]
        for fold in self._group_state().folds:
            fields += fold.results
        return pa.schema(fields)

    def _window_column(self) -> list[Column]:
        start, window = F.col(SLOT), self.window
        if isinstance(window, CountWindow):
            return []
        end = F.col("end") if isinstance(window, SessionWindow) else start + F.lit(window.size)
        times = [F.timestamp_micros(start).alias("start"), F.timestamp_micros(end).alias("end")]
        return [F.struct(*times).alias("window")]

    @property
    def depends_on_order(self) -> bool:
        return isinstance(self.window, CountWindow) or self._group_state().depends_on_order

    @property
    def window_us(self) -> tuple[int, ...]:
        window = self.window
        return (window.size, window.advance) if isinstance(window, TimeWindow) else ()

    def row_keys(self, family: str) -> tuple[str, ...] | None:
        keys = self._group_state().key_names
        if family == DEADLINES:
            return None
        if isinstance(self.window, CountWindow) and family == FAMILY:
            return (*keys, WINDOW)
        return keys

    def replays(self) -> bool:
        return True

    def derived(self, family: str, rows: pa.Table) -> dict[str, pa.Table]:
        if not isinstance(self.window, SessionWindow) or family != SESSIONS:
            return {}
        return {DEADLINES: deadlines(rows, self.window.gap, self._group_state().key_names)}

    def first_open(self, boundary: int) -> dict[str, int]:
        if isinstance(self.window, TimeWindow):
            return {FAMILY: first_open_slot(self.window, boundary)}
        return {DEADLINES: boundary + 1} if isinstance(self.window, SessionWindow) else {}

    def due(self, state: State, name: str) -> int:
        if isinstance(self.window, CountWindow):
            return FOREVER
        if isinstance(self.window, TimeWindow):
            wanted, lasts = FAMILY, self.window.size
            first = first_open_slot(self.window, state.boundary)
        else:
            wanted, first, lasts = DEADLINES, state.boundary + 1, 0
        slots = (
            max(run.low, first)
            for operator, family, _, run in state.all_runs()
            if operator == name and family == wanted and run.high >= first
        )
        return min(slots, default=FOREVER - lasts) + lasts

    def reach_back(self) -> int:
        return self.window.size - 1 if isinstance(self.window, TimeWindow) else FOREVER

    def oldest_contributing(self, state: State, name: str) -> int | None:
        """A count window begins where the last one ended, and so on back to the first tuple."""
        if isinstance(self.window, CountWindow):
            return -FOREVER
        return super().oldest_contributing(state, name)
