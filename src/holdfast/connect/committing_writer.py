"""A writer for sinks that keep the last tuple id themselves, in the commit that has the tuples.

Such a sink never has a stable tuple twice, whatever its client knows: before each commit it is
asked how far it is, and what it has is left out. What the position says is only a check that the
sink is the one that was written before. A commit of which nobody knows whether it was taken is
settled the same way, by asking; so every error that passes is an OSError, after which the sink is
opened anew and given everything again.

Who writes is part of what is kept: the ids of another life of a deployment, or of another run, are
not those of this one.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.connect.sink import Position, Writer
from holdfast.core.frame import Why
from holdfast.errors import StateError


@dataclass(frozen=True)
class StableRows:
    """Tuples for good, with their ids in the column ``seq``."""

    table: pa.Table


@dataclass(frozen=True)
class TentativeRows:
    """Tuples that may be taken back."""

    table: pa.Table
    why: Why | None


@dataclass(frozen=True)
class TakeBack:
    """Tentative tuples that are older are taken back."""

    below_stime: int


Step = StableRows | TentativeRows | TakeBack


class CommittingWriter(Writer):
    """Gathers tuples until a flush, and commits them together with the id after the last."""

    def __init__(self, sink: str, position: Position | None, tentative: bool) -> None:
        """``sink`` names it in messages; ``tentative`` says whether it takes such tuples."""
        self._sink = sink
        self._written = int((position or {}).get("next_id", 0))
        self._steps: list[Step] = []
        # Tentative tuples of older times than this may stand; 0 if none does.
        self._tentative_until = 0
        if tentative and position is not None:
            # Also what was committed after the position, of which nobody knows: up to now.
            told_before = int(position.get("tentative_until", 0))
            self._steps.append(TakeBack(max(told_before, time.time_ns() // 1000)))

    @abstractmethod
    def committed(self) -> int:
        """The id after the last tuple the sink has of this writer: asked before every commit."""

    @abstractmethod
    def commit(self, steps: list[Step], next_id: int) -> None:
        """Take the steps and ``next_id`` together, or nothing. OSError: it may work later."""

    def write(self, table: pa.Table) -> None:
        if table.num_rows:
            self._steps.append(StableRows(table))

    def write_tentative(self, table: pa.Table, why: Why | None) -> None:
        if table.num_rows:
            newest = int(pc.max(table["stime"].cast(pa.int64())).as_py())
            self._tentative_until = max(self._tentative_until, newest + 1)
            self._steps.append(TentativeRows(table, why))

    def undo(self, below_stime: int) -> None:
        if below_stime >= self._tentative_until:
            self._tentative_until = 0
        self._steps.append(TakeBack(below_stime))

    def flush(self) -> Position:
        if self._steps:
            committed = self._checked(self.committed())
            steps = [step for step in (_rest(each, committed) for each in self._steps) if step]
            next_id = max(committed, self._written, *map(_next_id, self._steps))
            if steps:
                self.commit(steps, next_id)
            self._steps.clear()
            self._written = next_id
        return {"next_id": self._written, "tentative_until": self._tentative_until}

    def _checked(self, committed: int) -> int:
        if committed < self._written:
            raise StateError(
                f"{self._sink} has tuples up to id {committed}, but {self._written} were written "
                f"before: it was replaced or set back; put it back, or start over with a new state "
                f"or data directory"
            )
        return committed


def stable_rows(steps: list[Step]) -> pa.Table | None:
    """All stable tuples of the steps as one table; None if there are none."""
    tables = [step.table for step in steps if isinstance(step, StableRows)]
    return pa.concat_tables(tables) if tables else None


def _next_id(step: Step) -> int:
    return int(step.table["seq"][-1].as_py()) + 1 if isinstance(step, StableRows) else 0


def _rest(step: Step, committed: int) -> Step | None:
    """What of a step the sink has not yet."""
    if not isinstance(step, StableRows) or int(step.table["seq"][0].as_py()) >= committed:
        return step
    table = step.table.filter(pc.greater_equal(step.table["seq"], committed))
    return StableRows(table) if table.num_rows else None
