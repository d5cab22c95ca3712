"""What every source is: something that can be opened at a position and read in chunks.

A source only finds rows and makes them columns. Whether they fit the schema, what time and
which id they have is decided in ``ingest``, the same for all.

A position is JSON: it goes into the checkpoint's manifest, and a reader opened with it goes on
exactly where the one that reported it stood.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypedDict

import pyarrow as pa

from holdfast.core.source_time import Late, TimeSettings
from holdfast.errors import InputError
from holdfast.times import SECOND, Duration, microseconds

Position = dict[str, Any]

# What a source that comes to an end allows by default: waiting costs it nothing, because the
# end flushes every window. A live source does not wait unless told to.
FILE_LATENESS = 60 * SECOND
# How far ahead of the clock the rows of a live source may be by default.
FUTURE_LIMIT = 60 * SECOND
OFF = "off"
_NO_PLACES = pa.schema([])


@dataclass(frozen=True)
class Reject:
    """A row that cannot become a tuple, and why."""

    reason: str
    row: object


@dataclass(frozen=True)
class Chunk:
    """Some rows, as the source's format has them, and the rows that are none.

    lane  which of the reader's lanes they came through, if it has several.
    """

    table: pa.Table
    rejects: Sequence[Reject] = ()
    lane: str = ""


class TimeOptions(TypedDict, total=False):
    """The options about time that every source takes beside ``lateness``; see ``Source``."""

    idle_after: Duration | int | None
    future_limit: Duration | int | None
    late: str


class Reader(ABC):
    """An open source."""

    # True once no row can follow.
    ended: bool = False

    @property
    def problem(self) -> str | None:
        """What keeps it from reading on right now, if anything does; it tries again by itself."""
        return None

    @property
    def lanes(self) -> Sequence[str]:
        """The parts that are read beside each other, each with a time of its own, if it has any."""
        return ()

    @property
    def behind(self) -> Collection[str]:
        """Lanes that may have rows by now that were not yet read: these are not quiet."""
        return ()

    @property
    def finished(self) -> Collection[str]:
        """Lanes of which no row can follow, while others go on."""
        return ()

    def hold(self, lanes: Collection[str]) -> None:  # noqa: B027  most have no lanes
        """Bring no rows of these lanes until told otherwise: they are ahead of the others."""

    def look_further(self) -> None:  # noqa: B027  most look at every start where their end is
        """An earlier run came to the end: what there is by now behind it is wanted, too."""

    @property
    def places(self) -> pa.Schema:
        """Columns of its chunks that say where a row came from; dead letters show them."""
        return _NO_PLACES

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

    The rest is for sources whose rows bring their own time (``core.source_time``):

    lateness      how much older than the newest tuple seen a tuple may be; it delays results by
                  as much. None means a minute for files with an end, nothing for live sources.
    idle_after    a source that is quiet for so long holds nobody back. None: it does.
    future_limit  rows further ahead of the clock are dead letters; "off" for no limit. None means
                  a minute for live sources and no limit for files with an end.
    late          "drop": late rows are dead letters. "take": they take the boundary as their time.
    """

    lateness: Duration | int | None
    idle_after: Duration | int | None = field(default=None, kw_only=True)
    future_limit: Duration | int | None = field(default=None, kw_only=True)
    late: str = field(default="drop", kw_only=True)

    @property
    def live(self) -> bool:
        """Live sources are always read; others only when the network waits for them."""
        return True

    @property
    def is_pushed(self) -> bool:
        """Whether producers hand rows over, each through a lane of its own."""
        return False

    @property
    def has_lanes(self) -> bool:
        """Whether it is read through lanes of its own, such as a topic's partitions."""
        return False

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
        return _length(self.lateness)

    @property
    def future_limit_us(self) -> int | None:
        """How far ahead of the clock a row may be; None if as far as it likes."""
        if self.future_limit is None:
            return FUTURE_LIMIT if self.live else None
        return None if self.future_limit == OFF else _length(self.future_limit)

    def time_settings(self, bucket_us: int, lane_idle_us: int | None = None) -> TimeSettings:
        """How the rows' own time is judged."""
        try:
            late = Late(self.late)
        except ValueError:
            raise InputError(f"late is 'drop' or 'take'; got {self.late!r}") from None
        return TimeSettings(
            bucket_us,
            self.lateness_us,
            None if self.idle_after is None else _length(self.idle_after),
            lane_idle_us,
            self.future_limit_us,
            late,
        )

    def check(self) -> None:  # noqa: B027  most are somewhere else, and may come later
        """InputError if it is known already that it cannot be opened: there is no such file."""

    def check_columns(self, schema: pa.Schema) -> None:  # noqa: B027  most name none
        """InputError if it is known already that it does not have the columns of ``schema``."""

    @abstractmethod
    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        """Start reading rows of ``schema``, from the beginning or from a position.

        ``scratch`` is a directory that outlives the process, if the run has one.
        """

    @abstractmethod
    def __str__(self) -> str:
        """What it reads, for messages."""


def _length(duration: Duration | int) -> int:
    """Microseconds, which may be none."""
    if isinstance(duration, int):
        return duration
    text = str(duration).strip()
    if text.split(" ")[0] in ("0", "0s", "0ms") or text == "0:00:00":
        return 0
    return microseconds(duration)


def existing_file(path: str | Path) -> Path:
    """``path`` if it is a file that can be read, else InputError."""
    found = Path(path)
    if not found.exists():
        raise InputError(f"there is no file {str(path)!r}; check the path")
    if not found.is_file():
        raise InputError(f"{str(path)!r} is not a file; for a directory use read_directory")
    return found
