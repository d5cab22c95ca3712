"""What every sink is: something that takes an output's tuples and can go back to a position.

A file sink opened with a position cuts off what was written after it. The position and the
state that produced the output up to it are in one checkpoint, so a run that goes on after a
crash writes every tuple exactly once. Console and callback cannot take anything back: after a
crash they see the tuples since the last checkpoint again, with the same ``seq``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import pyarrow as pa

Position = dict[str, Any]


class Writer(ABC):
    """An open sink."""

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Take tuples: the columns seq (the tuple id), stime, and the output's own."""

    def flush(self) -> Position:
        """Make what was written durable; the position to go on from."""
        return {}

    def close(self) -> None:  # noqa: B027  most hold nothing open
        """Let go of files; nothing is lost that was flushed."""


class Sink(ABC):
    """A sink as a user binds it to an output."""

    @abstractmethod
    def open(self, output: str, schema: pa.Schema, position: Position | None) -> Writer:
        """Start writing, anew (replacing what an earlier run wrote) or from a position."""

    @property
    def identity(self) -> str:
        """What must be the same for a saved position to mean anything."""
        path = getattr(self, "path", None)
        return f"{type(self).__name__}{' ' + Path(path).name if path else ''}"

    @abstractmethod
    def __str__(self) -> str:
        """Where it writes, for messages."""
