"""Undo/redo, operator by operator: what a state has given up, and how it is made again.

While an input has failed, the operators below it have counted tentative tuples. With undo/redo no
state from before is kept of them: they begin with nothing and read the input since their stream
marker again, the oldest that still shapes their state. The other operators keep theirs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import State


@dataclass(frozen=True)
class Undone:
    """What is left of a state: that of the operators that are not ``gone``."""

    left: State
    gone: frozenset[str]


def give_up(engine: Engine, state: State | Undone, inputs: Collection[str]) -> tuple[Undone, int]:
    """What is left of ``state`` without the operators below ``inputs``, and from when on the input
    is needed to make again what was not given up before."""
    had = state if isinstance(state, Undone) else Undone(state, frozenset())
    more = engine.below(inputs) - had.gone
    if not more:
        return had, had.left.boundary
    marker = engine.oldest_contributing(had.left, more)
    runs = {name: runs for name, runs in had.left.runs.items() if name not in more}
    left = State(had.left.version, had.left.boundary, runs)
    return Undone(left, had.gone | more), marker


def rebuild(engine: Engine, undone: Undone, buckets: Sequence[Bucket]) -> State:
    """The whole state again, from the input since the stream marker."""
    return engine.rebuild(undone.left, undone.gone, buckets, undone.left.boundary)
