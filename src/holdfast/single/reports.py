"""What a run tells whoever watches it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa


@dataclass(frozen=True)
class AdvanceReport:
    """One advance.

    bucket_seconds   how long the engine and the sinks took.
    latency_seconds  from the arrival of the tuple that waited longest to its results being
                     written; None if the advance had no tuple.
    """

    boundary: int
    tuples_in: int
    tuples_out: int
    bucket_seconds: float
    latency_seconds: float | None
    open_windows: int
    dead_letters: int
    outputs: Mapping[str, pa.Table]


@dataclass(frozen=True)
class RunSummary:
    """What came of a run. Counts are of the whole stream, earlier runs included.

    finished  every source has ended and every window is flushed; False after a stop.
    """

    tuples_in: int
    tuples_out: Mapping[str, int]
    dead_letters: int
    dead_letter_file: Path
    advances: int
    seconds: float
    finished: bool


class Observer:
    """Gets told what a run does; the default does not listen."""

    # Set it to end the run as Ctrl-C would.
    wants_stop = False

    def started(self, resumed: bool) -> None:
        """The loop begins."""

    def advanced(self, report: AdvanceReport) -> None:
        """A bucket, or several, went through."""

    def ticked(self) -> None:
        """The loop went round."""

    def ended(self, summary: RunSummary | None) -> None:
        """The run is over; without a summary it failed."""
