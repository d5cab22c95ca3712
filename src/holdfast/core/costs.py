"""What a recovery takes, in microseconds, learned from what jobs and loads have taken.

A recovery loads so many window states and then computes so many tuples in one large job. Loads
are timed as such. What a tuple of a large job takes is not seen while jobs are small: most of a
small job is fixed. So a line is laid through the sizes and times of all jobs, older ones counting
less. Sizes that hardly differ say little about its slope; the slope is therefore taken two
standard errors too steep, up to where nothing is fixed at all. A recovery is rather expected to
take too long than too short.
"""

from __future__ import annotations

from dataclasses import dataclass

_KEEP = 0.99  # how much a job still counts after the next one
_ERRORS = 2.0


@dataclass(frozen=True, slots=True)
class Costs:
    """A fixed part, and what a window state read and a tuple computed again take."""

    fixed_us: float = 50_000.0
    load_us: float = 2.0
    replay_us: float = 20.0

    def expected_us(self, extent: float, replay: float) -> float:
        return self.fixed_us + self.load_us * extent + self.replay_us * replay


class JobLine:
    """The line through the sizes and times of jobs."""

    def __init__(self) -> None:
        self._weight = 0.0
        self._tuples = 0.0
        self._took = 0.0
        self._tuples_2 = 0.0
        self._took_2 = 0.0
        self._product = 0.0

    def add(self, tuples: int, took_us: float) -> None:
        """A job took its time."""
        self._weight = _KEEP * self._weight + 1.0
        self._tuples = _KEEP * self._tuples + tuples
        self._took = _KEEP * self._took + took_us
        self._tuples_2 = _KEEP * self._tuples_2 + tuples * tuples
        self._took_2 = _KEEP * self._took_2 + took_us * took_us
        self._product = _KEEP * self._product + tuples * took_us

    def fixed_and_each_us(self) -> tuple[float, float]:
        """The fixed part of a job, and what each tuple adds, rather too much."""
        tuples, took = self._tuples / self._weight, self._took / self._weight
        steepest = took / tuples
        spread = self._tuples_2 / self._weight - tuples * tuples
        if spread <= 0 or self._weight < 3:
            return 0.0, steepest
        slope = (self._product / self._weight - tuples * took) / spread
        rest = self._took_2 / self._weight - took * took - slope * slope * spread
        error: float = (max(0.0, rest) / spread / (self._weight - 2)) ** 0.5
        each = min(max(0.0, slope) + _ERRORS * error, steepest)
        return took - each * tuples, each
