"""The windowed join operator: equal keys within a time distance, plus any condition."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from holdfast.spark.join_step import ROLE, SIDES, JoinStep
from holdfast.spark.prepared import arrow_schema
from holdfast.spark.state import State
from holdfast.spark.stateful import TIMES, Spread, Stateful, attach, prepare, times
from holdfast.spark.task import FOREVER

OUTER = {"inner": (False, False), "left": (True, False), "full": (True, True)}


@dataclass(frozen=True)
class Join(Stateful):
    """Pairs of tuples with equal keys, the right at most before/after µs from the left.

    ``columns`` are the output columns: name, side (0 left, 1 right) and name on that side.
    """

    keys: tuple[tuple[str, str], ...]
    before: int
    after: int
    how: str
    condition: Column | None
    schemas: tuple[StructType, StructType]
    columns: tuple[tuple[str, int, str], ...]

    blocks = True

    def build(self, name: str, inputs: Sequence[DataFrame], layout: Spread) -> DataFrame:
        sides = [self._side(frame, side) for side, frame in enumerate(inputs)]
        frame = sides[0].unionByName(sides[1], allowMissingColumns=True)
        step = self._step()
        emitted = attach(name, frame, step, self._emitted(frame), layout)
        if step.outer == (False, False):
            if self.condition is not None:
                emitted = self._with_user_names(emitted).where(self.condition)
                return self._output(self._with_step_names(emitted))
            return self._output(emitted)
        met = F.lit(True) if self.condition is None else F.coalesce(self.condition, F.lit(False))
        judged = self._with_user_names(emitted).withColumn(_hidden("met"), met)
        judged = self._with_step_names(judged)
        return self._output(layout.resolve(name, judged))

    def _step(self) -> JoinStep:
        names = (
            tuple(f"l{i}" for i in range(len(self.schemas[0]))),
            tuple(f"r{i}" for i in range(len(self.schemas[1]))),
        )
        keys = tuple(f"k{i}" for i in range(len(self.keys)))
        return JoinStep(self.before, self.after, OUTER[self.how], keys, names)

    def _side(self, frame: DataFrame, side: int) -> DataFrame:
        letter = "lr"[side]
        keys = [F.col(pair[side]) for pair in self.keys]
        values = [
            F.col(field.name).alias(f"{letter}{i}")
            for i, field in enumerate(self.schemas[side].fields)
        ]
        return prepare(frame, keys, [F.lit(side).alias("side"), *values])

    def _emitted(self, frame: DataFrame) -> pa.Schema:
        before = arrow_schema(frame.schema)
        fields = [
            *TIMES,
            pa.field(ROLE, pa.int32()),
            pa.field("left_seq", pa.int64()),
            pa.field("right_seq", pa.int64()),
        ]
        for letter, schema in zip("lr", self.schemas, strict=True):
            fields += [before.field(f"{letter}{i}").with_nullable(True) for i in range(len(schema))]
        return pa.schema(fields)

    def _sources(self) -> list[tuple[str, str]]:
        """Each side's columns: the name in the step, and side-qualified for the condition."""
        return [
            (f"{'lr'[side]}{i}", f"{SIDES[side]}__{field.name}")
            for side, schema in enumerate(self.schemas)
            for i, field in enumerate(schema.fields)
        ]

    def _with_user_names(self, frame: DataFrame) -> DataFrame:
        """The step's columns under the names a condition uses: output names, or left.x, right.x.

        The step's own names step aside, for a user may have columns of the same names.
        """
        system = [F.col(name) for name in ("stime", "tmax", "seq")]
        kept = [F.col(name).alias(_hidden(name)) for name in self._step_names()]
        named = [
            F.col(f"{'lr'[side]}{self.schemas[side].fieldNames().index(source)}").alias(name)
            for name, side, source in self.columns
        ]
        qualified = []
        for side in (0, 1):
            inner = [
                F.col(f"{'lr'[side]}{i}").alias(field.name)
                for i, field in enumerate(self.schemas[side].fields)
            ]
            if SIDES[side] not in (name for name, *_ in self.columns):
                qualified.append(F.struct(*inner).alias(SIDES[side]))
        return frame.select(*system, *kept, *named, *qualified)

    def _with_step_names(self, frame: DataFrame) -> DataFrame:
        names = self._step_names()
        names += ["met"] if _hidden("met") in frame.columns else []
        return frame.select(
            "stime", "tmax", "seq", *(F.col(_hidden(name)).alias(name) for name in names)
        )

    def _step_names(self) -> list[str]:
        return [ROLE, "left_seq", "right_seq", *(step for step, _ in self._sources())]

    def _output(self, frame: DataFrame) -> DataFrame:
        columns = []
        for name, side, source in self.columns:
            own = F.col(f"{'lr'[side]}{self.schemas[side].fieldNames().index(source)}")
            if self.how == "full" and (source, source) in self.keys:
                # A key that both sides have under one name is known from either.
                own = F.coalesce(own, F.col(f"r{self.schemas[1].fieldNames().index(source)}"))
            columns.append(own.alias(name))
        return frame.select(*times(), *columns)

    def first_open(self, boundary: int) -> dict[str, int]:
        oldest = self._step().first_open_slot(boundary)
        return dict.fromkeys(SIDES, oldest)

    def due(self, state: State, name: str) -> int:
        """When a tuple of an outer side may be passed by the boundary without a partner."""
        step = self._step()
        sides = zip(SIDES, (self.after, self.before), step.outer, strict=True)
        reach = {side: distance for side, distance, outer in sides if outer}
        passed = (
            max(run.low + reach[side], state.boundary) + 1
            for operator, side, _, run in state.all_runs()
            if operator == name and side in reach
            if run.high + step.grain + reach[side] > state.boundary
        )
        return min(passed, default=FOREVER)

    def replays(self) -> bool:
        return True

    def replay_from(self, boundary: int) -> int:
        """What a join remembers is its input: it is taken from the producers again."""
        return self._step().first_open_slot(boundary)

    def reach_back(self) -> int:
        # A tuple without a partner is emitted ``after`` its time, and one from ``before`` it
        # would have been a partner.
        return max(self.before, self.after) if self.how == "inner" else self.before + self.after

    def row_keys(self, family: str) -> None:
        return None

    def time_column(self, family: str) -> str:
        return "stime"


def _hidden(name: str) -> str:
    return f"__{name}"
