"""The load of benchmark failover as CSV files, for systems whose replayable source they are."""

from __future__ import annotations

from pathlib import Path

from benchmarks.failover_load import numbers_of
from benchmarks.streams_arrivals import TUPLES_PER_TURN

TURNS_PER_FILE = 10


class Files:
    """One file every 100 ms, whole or not at all."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir()
        self._directory = directory
        self._lines: list[str] = []
        self._files = 0
        self.sent = 0

    def send(self, first: int, made: int) -> None:
        """A turn of arrivals."""
        numbers = numbers_of(first)
        self._lines += [f"{number},{made},{number**0.5}\n" for number in numbers.tolist()]
        self.sent = first + TUPLES_PER_TURN
        if len(self._lines) >= TURNS_PER_FILE * TUPLES_PER_TURN:
            self.write()

    def write(self) -> None:
        """What is not in a file yet."""
        if self._lines:
            hidden = self._directory / f".{self._files:06}.csv"
            hidden.write_text("".join(self._lines))
            hidden.rename(self._directory / f"{self._files:06}.csv")
            self._files += 1
            self._lines = []
