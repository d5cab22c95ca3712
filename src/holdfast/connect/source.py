"""What every source is: something that can be opened at a position and read in chunks.

A source only finds rows and makes them columns. Whether they fit the schema, what time and
which id they have is decided in ``ingest``, the same for all.

A position is JSON: it goes into the checkpoint's manifest, and a reader opened with it goes on
exactly where the one that reported it stood.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.times import SECOND, Duration, microseconds

Position = dict[str, Any]

# What a source that comes to an end allows by default: waiting costs it nothing, because the
# end flushes every window. A live source does not wait unless told to.
FILE_LATENESS = 60 * SECOND


@dataclass(frozen=True)
class Reject:
    """A row that cannot become a tuple, and why."""

    reason: str
    row: object


@dataclass(frozen=True)
class Chunk:
    """Some rows, as the source's format has them, and the rows that are none."""

    table: pa.Table
    rejects: Sequence[Reject] = ()


class Reader(ABC):
    """An open source."""

    # True once no row can follow.
    ended: bool = False

    @property
    def problem(self) -> str | None:
        """What keeps it from reading on right now, if anything does; it tries again by itself."""
        return None

    @abstractmethod
    def read(self) -> Chunk | None:
        """The next rows, or None when there are none now (see ``ended``)."""

    @property
    @abstractmethod
    def position(self) -> Position:
        """Where a later reader must start to go on after the last chunk."""

    def checkpointed(self, position: Position) -> None:  # noqa: B027  most have nothing to drop
        """``position`` is durable: what lies before it will not be asked for again."""

    def close(self) -> None:  # noqa: B027  most hold nothing open between reads
        """Let go of files, threads and connections."""


@dataclass(frozen=True)
class Source(ABC):
    """A source as a user binds it.

    lateness  how much older than the newest tuple seen a tuple may be; it delays results by as
              much. None means a minute for files with an end, nothing for live sources.
    """

    lateness: Duration | int | None

    @property
    def live(self) -> bool:
        """Live sources are always read; others only when the network waits for them."""
        return True

    @property
    def identity(self) -> str:
        """What must be the same for a saved position to mean anything."""
        path = getattr(self, "path", None)
        return f"{type(self).__name__}{' ' + Path(path).name if path else ''}"

    @property
    def lateness_us(self) -> int:
        """The allowed lateness in microseconds."""
        if self.lateness is None:
            return 0 if self.live else FILE_LATENESS
        if isinstance(self.lateness, int):
            return self.lateness
        text = str(self.lateness).strip()
        if text.split(" ")[0] in ("0", "0s", "0ms") or text == "0:00:00":
            return 0
        return microseconds(self.lateness)

    @abstractmethod
    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        """Start reading rows of ``schema``, from the beginning or from a position.

        ``scratch`` is a directory that outlives the process, if the run has one.
        """

    @abstractmethod
    def __str__(self) -> str:
        """What it reads, for messages."""


def existing_file(path: str | Path) -> Path:
    """``path`` if it is a file that can be read, else InputError."""
    found = Path(path)
    if not found.exists():
        raise InputError(f"there is no file {str(path)!r}; check the path")
    if not found.is_file():
        raise InputError(f"{str(path)!r} is not a file; for a directory use read_directory")
    return found
