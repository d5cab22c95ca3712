"""The operators of a network, as a graph: what to run, not how."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Who takes in tuples runs no Spark.
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from holdfast.spark.stateful import Stateful


@dataclass(frozen=True)
class Declaration:
    """What the network says of a source, as far as rows become tuples by it.

    stime  the column that has the tuple time, or None: then it is the time of arrival.
    keys   columns that must not be null.
    """

    name: str
    stime: str | None
    keys: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class Operator:
    """One operator; ``schema`` are its output columns without the system columns.

    name      unique in the network, e.g. ``join_3``.
    label     what ``describe`` shows, e.g. ``join on server within 5 s``.
    fragment  the fragment it belongs to.
    """

    name: str
    label: str
    inputs: tuple[Operator, ...]
    schema: StructType
    fragment: str


@dataclass(frozen=True, eq=False)
class SourceOperator(Operator):
    """Where tuples enter; ``stime`` and ``keys`` as in its ``Declaration``."""

    stime: str | None
    keys: tuple[str, ...]

    @property
    def declaration(self) -> Declaration:
        return Declaration(self.name, self.stime, self.keys)


@dataclass(frozen=True, eq=False)
class StatelessOperator(Operator):
    """Any function of DataFrames that looks at one tuple at a time.

    branch_bits  of a union: how many bits below ``seq`` say by which input a tuple came.
    """

    apply: Callable[[Sequence[DataFrame]], DataFrame]
    branch_bits: int = 0


@dataclass(frozen=True, eq=False)
class StatefulOperator(Operator):
    """An operator that remembers tuples."""

    stateful: Stateful


def upstream(operators: Sequence[Operator]) -> Iterator[Operator]:
    """The operators and everything above them, each once, inputs before what reads them."""
    seen: set[int] = set()
    stack: list[tuple[Operator, bool]] = [(each, False) for each in reversed(operators)]
    while stack:
        operator, ready = stack.pop()
        if ready:
            yield operator
        elif id(operator) not in seen:
            seen.add(id(operator))
            stack.append((operator, True))
            stack.extend((each, False) for each in reversed(operator.inputs))
