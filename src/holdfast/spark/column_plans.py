"""Plans without state that workers run on Arrow: scans, projections, filters, unions.

They are what is left of a Spark plan once ``translation`` has read it. A plan gives rows; a
task that has only some partitions of the state asks for those rows alone, and hashes before it
does anything else to them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa

from holdfast.spark.expressions import Expression, HashedOnce, Rows, attributes
from holdfast.spark.runs import Bools, numbers, one_array

# Which rows of a step's input a task takes, told by their hashes.
Route = Callable[[pa.Array], Bools]


class Memory:
    """The streams a task has, and what plans have made of them so far."""

    def __init__(self, streams: Mapping[str, pa.Table]) -> None:
        self.streams = dict(streams)
        self._made: dict[ColumnPlan, Rows] = {}

    def rows(self, plan: ColumnPlan) -> Rows:
        """What a plan gives; plans that several operators share are run once."""
        if plan not in self._made:
            self._made[plan] = plan.run(self)
        return self._made[plan]


class ColumnPlan(HashedOnce, ABC):
    """A plan; equal plans give the same rows."""

    @abstractmethod
    def run(self, memory: Memory) -> Rows:
        """All its rows."""

    def routed(self, memory: Memory, position: int, route: Route) -> Rows:
        """The rows whose column at ``position``, the hash, is on the route."""
        rows = memory.rows(self)
        output = self.output
        mask = route(rows.columns[output[position]])
        return rows.take(pa.array(np.flatnonzero(mask)), set(output))

    @property
    @abstractmethod
    def output(self) -> tuple[int, ...]:
        """Spark's numbers for its columns, in their order."""

    @abstractmethod
    def scans(self) -> list[Scan]:
        """The scans at the bottom."""

    def table(self, memory: Memory, names: Sequence[str]) -> pa.Table:
        rows = memory.rows(self)
        return pa.table([rows.columns[number] for number in self.output], names=list(names))


@dataclass(frozen=True)
class Scan(ColumnPlan):
    """A stream's columns: Spark's numbers and the names."""

    stream: str
    columns: tuple[tuple[int, str], ...]

    __hash__ = HashedOnce.__hash__

    def run(self, memory: Memory) -> Rows:
        table = memory.streams[self.stream]
        there = set(table.column_names)
        arrays = {n: one_array(table[name]) for n, name in self.columns if name in there}
        return Rows(table.num_rows, arrays)

    @property
    def output(self) -> tuple[int, ...]:
        return tuple(number for number, _ in self.columns)

    def scans(self) -> list[Scan]:
        return [self]


@dataclass(frozen=True)
class Wider(ColumnPlan):
    """A stream with the columns that Spark has added to it, row by row (``added``).

    They are in a stream of their own, in which their names are the numbers that plans know them by.
    """

    scan: Scan
    added: str

    __hash__ = HashedOnce.__hash__

    def run(self, memory: Memory) -> Rows:
        rows, table = memory.rows(self.scan), memory.streams[self.added]
        made = {int(name): one_array(table[name]) for name in table.column_names}
        assert all(len(each) == rows.count for each in made.values()), "a value for every row"
        return Rows(rows.count, {**rows.columns, **made})

    @property
    def output(self) -> tuple[int, ...]:
        return self.scan.output

    def scans(self) -> list[Scan]:
        return [self.scan, Scan(self.added, ())]


@dataclass(frozen=True)
class Project(ColumnPlan):
    """Expressions over the rows below, each with the number of the column it makes."""

    below: ColumnPlan
    columns: tuple[tuple[int, Expression], ...]

    __hash__ = HashedOnce.__hash__

    def run(self, memory: Memory) -> Rows:
        return self._project(memory.rows(self.below))

    def _project(self, rows: Rows) -> Rows:
        made = {number: rows.evaluate(expression) for number, expression in self.columns}
        return Rows(rows.count, made)

    def routed(self, memory: Memory, position: int, route: Route) -> Rows:
        rows = memory.rows(self.below)
        mask = route(rows.evaluate(self.columns[position][1]))
        return self._project(rows.take(pa.array(np.flatnonzero(mask)), self.looks_at))

    @cached_property
    def looks_at(self) -> set[int]:
        return set().union(*(attributes(expression) for _, expression in self.columns))

    @property
    def output(self) -> tuple[int, ...]:
        return tuple(number for number, _ in self.columns)

    def scans(self) -> list[Scan]:
        return self.below.scans()


@dataclass(frozen=True)
class Filter(ColumnPlan):
    """The rows for which a condition is true."""

    below: ColumnPlan
    condition: Expression

    __hash__ = HashedOnce.__hash__

    def run(self, memory: Memory) -> Rows:
        rows = memory.rows(self.below)
        kept = rows.evaluate(self.condition)
        mask = numbers(kept.fill_null(False)).astype(np.bool_)
        return rows.take(pa.array(np.flatnonzero(mask)), set(rows.columns))

    @property
    def output(self) -> tuple[int, ...]:
        return self.below.output

    def scans(self) -> list[Scan]:
        return self.below.scans()


@dataclass(frozen=True)
class Union(ColumnPlan):
    """The rows of several plans, column by column."""

    parts: tuple[ColumnPlan, ...]
    columns: tuple[int, ...]
    kinds: tuple[pa.DataType, ...]

    __hash__ = HashedOnce.__hash__

    def run(self, memory: Memory) -> Rows:
        return self._unite([memory.rows(part) for part in self.parts])

    def routed(self, memory: Memory, position: int, route: Route) -> Rows:
        return self._unite([part.routed(memory, position, route) for part in self.parts])

    def _unite(self, found: Sequence[Rows]) -> Rows:
        made = {}
        for at, (number, kind) in enumerate(zip(self.columns, self.kinds, strict=True)):
            sides = zip(found, self.parts, strict=True)
            if not all(part.output[at] in rows.columns for rows, part in sides):
                continue  # nobody looks at it
            arrays = [
                rows.columns[part.output[at]].cast(kind)
                for rows, part in zip(found, self.parts, strict=True)
            ]
            made[number] = pa.concat_arrays(arrays)
        return Rows(sum(rows.count for rows in found), made)

    @property
    def output(self) -> tuple[int, ...]:
        return self.columns

    def scans(self) -> list[Scan]:
        return [scan for part in self.parts for scan in part.scans()]


def used_columns(plan: ColumnPlan, wanted: set[int] | None = None) -> dict[str, set[str]]:
    """For each stream the plan scans, the columns it looks at; ``wanted`` None means all."""
    wanted = set(plan.output) if wanted is None else wanted
    if isinstance(plan, Scan):
        return {plan.stream: {name for number, name in plan.columns if number in wanted}}
    if isinstance(plan, Wider):
        more = {str(number) for number in wanted - set(plan.output)}
        return {**used_columns(plan.scan, wanted), plan.added: more}
    if isinstance(plan, Project):
        return used_columns(plan.below, plan.looks_at)
    if isinstance(plan, Filter):
        return used_columns(plan.below, wanted | attributes(plan.condition))
    assert isinstance(plan, Union)
    found: dict[str, set[str]] = {}
    at = [position for position, number in enumerate(plan.output) if number in wanted]
    for part in plan.parts:
        for stream, names in used_columns(part, {part.output[i] for i in at}).items():
            found.setdefault(stream, set()).update(names)
    return found
