"""What every sink is: something that takes an output's tuples and can go back to a position.

A file sink opened with a position cuts off what was written after it. The position and the
state that produced the output up to it are in one checkpoint, so a run that goes on after a
crash writes every tuple exactly once. Console and callback cannot take anything back: after a
crash they see the tuples since the last checkpoint again, with the same ``seq``.

A sink that takes tentative tuples is told of them, of what takes them back and of boundaries, too,
in the order of the stream. They are not part of a position: a stream tells again what is tentative
when it is read anew, so a writer that is opened with a position begins by taking back whatever it
had shown tentatively before (``connect.changes`` does that for sinks that write rows).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.core.frame import Why
from holdfast.errors import InputError

Position = dict[str, Any]


class Writer(ABC):
    """An open sink."""

    @abstractmethod
    def write(self, table: pa.Table) -> None:
        """Take tuples: the columns seq (the tuple id), stime, and the output's own."""

    def write_tentative(self, table: pa.Table, why: Why | None) -> None:  # noqa: B027
        """Take tuples that may be taken back, without seq; ``why`` says what they lack.

        This and the next two are called only if the sink takes tentative tuples.
        """

    def undo(self, below_stime: int) -> None:  # noqa: B027
        """Take back the tentative tuples that are older; stable ones follow in their place."""

    def boundary(self, stime: int) -> None:  # noqa: B027
        """The stable tuples are complete up to this tuple time."""

    @property
    def ready(self) -> bool:
        """Whether it can be flushed: what an earlier life began may have to come again first."""
        return True

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

    def check_columns(self, names: Sequence[str]) -> None:
        """Raise InputError if the output, with these columns of its own, is none it can write."""
        known = ["seq", "stime", *(name for name in names if name not in ("seq", "stime"))]
        for each in getattr(self, "key", ()):
            if each not in known:
                raise InputError(f"there is no column {each!r} to be the key; there are {known}")

    def known_as(self, writer: str, notes: Path | None = None) -> Sink:
        """The same sink for one who writes: the id of a state directory or of a client.

        Only sinks that keep the last tuple id themselves must know. ``notes`` is a file of the
        writer's own, which one process has at a time, in which a sink may note what it begins.
        """
        return self

    @property
    def can_go_back(self) -> bool:
        """Whether opening it with a position takes back what was written after that."""
        return True

    @property
    def flush_seconds(self) -> float:
        """How often a client makes what it wrote durable."""
        return 0.5

    @property
    def takes_tentative(self) -> bool:
        """Whether it is told of tentative tuples and their corrections, too."""
        return bool(getattr(self, "tentative", False))

    @property
    def identity(self) -> str:
        """What must be the same for a saved position to mean anything."""
        path = getattr(self, "path", None)
        return f"{type(self).__name__}{' ' + Path(path).name if path else ''}"

    @abstractmethod
    def __str__(self) -> str:
        """Where it writes, for messages."""
