"""What sinks have in common that keep the last tuple id themselves (``committing_writer``)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from holdfast.connect.sink import Sink
from holdfast.times import SECOND, Duration, microseconds


@dataclass(frozen=True, kw_only=True)
class CommittingSink(Sink):
    """A sink that commits the last tuple id with the tuples, for one who writes.

    commit_interval  how often a client commits what it has gathered.
    tentative        whether tentative tuples are written, too.
    writer           who writes: ids of another one are not those of this one.
    notes            a file of the writer's own, for what a sink begins.
    """

    commit_interval: Duration = "500 ms"
    tentative: bool = False
    writer: str = ""
    notes: Path | None = None

    def known_as(self, writer: str, notes: Path | None = None) -> Self:
        return replace(self, writer=writer, notes=notes)

    @property
    def can_go_back(self) -> bool:
        return False

    @property
    def flush_seconds(self) -> float:
        return microseconds(self.commit_interval) / SECOND
