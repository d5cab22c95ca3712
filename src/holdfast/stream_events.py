"""What happens to an output stream, as whoever reads it is told, and the stream as it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from holdfast.core.frame import Why
from holdfast.core.why import together


@dataclass(frozen=True)
class Tuples:
    """Tuples of the stream: stime, tmax and its own columns.

    Stable tuples have ids from ``first_id`` on, for good. Tentative ones may be taken back;
    ``why`` says which inputs they lack, since when, and which share of the usual data they rest on.
    """

    stable: bool
    first_id: int
    table: pa.Table
    why: Why | None = None


@dataclass(frozen=True)
class Unordered:
    """Stable tuples in no particular order, each once: for a client that needs none.

    They have ids, but theirs need not be known yet.
    """

    table: pa.Table


@dataclass(frozen=True)
class Undo:
    """Tentative tuples older than ``below_stime`` are taken back; stable ones follow."""

    below_stime: int


@dataclass(frozen=True)
class Boundary:
    """The stable stream is complete up to this tuple time."""

    stime: int


ClientEvent: TypeAlias = Tuples | Unordered | Undo | Boundary


class View:
    """A stream as it stands: every stable tuple as it came, and tentative ones laid after them.

    ``stable_until`` is the tuple time up to which it is complete and final.
    """

    def __init__(self) -> None:
        self.stable_until = 0
        self._stable: list[pa.Table] = []
        self._tentative: list[tuple[pa.Table, Why | None]] = []
        self.undone = 0

    def apply(self, event: ClientEvent) -> None:
        """Take the next event of a client."""
        match event:
            case Tuples(True, _, table) | Unordered(table):
                self._stable.append(table)
            case Tuples(False, _, table, why):
                self._tentative.append((table, why))
            case Undo(below_stime):
                self._take_back(below_stime)
            case Boundary(stime):
                self.stable_until = stime

    def _take_back(self, below_stime: int) -> None:
        before = sum(table.num_rows for table, _ in self._tentative)
        kept = []
        for table, why in self._tentative:
            kept.append((not_older(table, below_stime), why))
        self._tentative = [(table, why) for table, why in kept if table.num_rows]
        self.undone += before - sum(table.num_rows for table, _ in self._tentative)

    @property
    def stable(self) -> pa.Table | None:
        """Every stable tuple, in order; None before the first."""
        return one_table(self._stable) if self._stable else None

    @property
    def tentative(self) -> pa.Table | None:
        """The tentative tuples that stand; None if there are none."""
        tables = [table for table, _ in self._tentative]
        return one_table(tables) if tables else None

    @property
    def why(self) -> Why | None:
        """What the tentative tuples that stand lack, all together; None if there are none."""
        return together(why for _, why in self._tentative) if self._tentative else None

    @property
    def table(self) -> pa.Table | None:
        """All that stands, with a column ``is_stable``."""
        parts = []
        tentative = [table for table, _ in self._tentative]
        for tables, stable in ((self._stable, True), (tentative, False)):
            for table in tables:
                flags = pa.array(np.full(table.num_rows, stable))
                parts.append(table.append_column("is_stable", flags))
        return one_table(parts) if parts else None


def one_table(tables: list[pa.Table]) -> pa.Table:
    """The tables one after the other; those of before the stream gained a column have nulls."""
    return pa.concat_tables(tables, promote_options="default")


def not_older(table: pa.Table, stime: int) -> pa.Table:
    """The tuples of this tuple time and later."""
    stimes = table["stime"].cast(pa.int64()).to_numpy()
    return table.filter(pa.array(stimes >= stime))
