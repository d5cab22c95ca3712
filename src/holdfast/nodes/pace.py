"""Whether a replica keeps up: how fast its input comes, and how fast it is processed.

Both are measured in stream time over the last seconds, so that quiet and busy streams count alike.
A replica that is behind and falls further behind is overloaded, and how much faster its input
comes than it is processed says by how much. One that is behind and catches up is not; but if it
gets nothing done for a while, because it recovers or one large job takes long, it says that.
"""

from __future__ import annotations

import threading
from collections import deque

from holdfast.nodes.metrics import NodeMetrics
from holdfast.nodes.problems import Problems

_WINDOW_US = 10_000_000
_LEAST_US = 3_000_000
# Less than this is what a busy moment does.
_TOO_FAST = 1.1


class Busy:
    """The share of the last seconds in which a replica ran jobs."""

    def __init__(self, now: float) -> None:
        self._since = now
        # When each job has ended, and what it took; jobs are told of by their own thread.
        self._jobs: deque[tuple[float, float]] = deque()
        self._lock = threading.Lock()

    def note(self, now: float, seconds: float) -> None:
        """A job has ended that took so long."""
        with self._lock:
            self._jobs.append((now, seconds))
            self._forget(now)

    def share(self, now: float) -> float | None:
        """None as long as it cannot be known."""
        passed = min(now - self._since, _WINDOW_US / 1e6)
        if passed < _LEAST_US / 1e6:
            return None
        with self._lock:
            self._forget(now)
            begins = now - passed
            spent = sum(min(seconds, ended - begins) for ended, seconds in self._jobs)
        return min(1.0, spent / passed)

    def _forget(self, now: float) -> None:
        while self._jobs and now - self._jobs[0][0] > _WINDOW_US / 1e6:
            self._jobs.popleft()


class Pace:
    """How a replica keeps up with its input; told twice a second."""

    def __init__(self, allowed_us: int) -> None:
        """``allowed_us`` is how far behind a replica may be."""
        self._allowed_us = allowed_us
        self._seen: deque[tuple[int, int, int]] = deque()
        # When something was processed last, or it began to run.
        self._moved: int | None = None

    def note(self, now: int, arrived: int, processed: int) -> None:
        """The input has come up to one time, and is processed up to another; 0 is nothing yet."""
        seen = self._seen
        if not seen or processed > seen[-1][2]:
            self._moved = now
        if seen and (arrived < seen[-1][1] or processed < seen[-1][2] or min(seen[-1][1:]) <= 0):
            seen.clear()  # another life, or its first step: from nothing there is no distance
        seen.append((now, arrived, processed))
        while seen[-1][0] - seen[0][0] > _WINDOW_US:
            seen.popleft()

    def forget(self) -> None:
        """Nothing runs now."""
        self._seen.clear()
        self._moved = None

    @property
    def behind_us(self) -> int:
        """How much of the input is not processed; 0 as long as that cannot be known."""
        if not self._seen:
            return 0
        _, arrived, processed = self._seen[-1]
        return max(0, arrived - processed) if processed > 0 else 0

    @property
    def ratio(self) -> float:
        """How many times as fast the input comes as it is processed; 1 where both keep up.

        Infinite if input comes and nothing is processed.
        """
        if len(self._seen) < 2 or self._seen[-1][0] - self._seen[0][0] < _LEAST_US:
            return 1.0
        _, first_arrived, first_processed = self._seen[0]
        _, last_arrived, last_processed = self._seen[-1]
        came, done = last_arrived - first_arrived, last_processed - first_processed
        if came <= 0:
            return 1.0 if done <= 0 else 0.0
        return came / done if done > 0 else float("inf")

    @property
    def overload(self) -> str | None:
        """What to say of a replica that cannot keep up."""
        if self.behind_us <= self._allowed_us or self.ratio < _TOO_FAST:
            return None
        ratio = self.ratio
        how = (
            "and nothing of it is"
            if ratio == float("inf")
            else f"{ratio:.1f} times as fast as it is"
        )
        return (
            f"input comes {how} processed: {self.behind_us / 1e6:.1f} s of it wait. Give the "
            f"process more cores (spark.master), make the query cheaper, or split it into fragments"
        )

    def standing(self, now: int, recovering: bool) -> str | None:
        """What to say of a replica that has work and gets nothing done."""
        if self._moved is None or not (recovering or self.behind_us > 0):
            return None
        idle_us = now - self._moved
        if idle_us <= 2 * self._allowed_us:
            return None
        what = "it recovers, and " if recovering else ""
        waits = f"; {self.behind_us / 1e6:.1f} s of input wait" if self.behind_us else ""
        return (
            f"{what}nothing was processed for {idle_us / 1e6:.0f} s{waits}. Results go on when "
            f"what is under way is done"
        )


def tell_pace(
    pace: Pace,
    metrics: NodeMetrics,
    problems: Problems,
    now: int,
    reach: tuple[int, int] | None,
    recovering: bool = False,
) -> None:
    """Note how far a replica is, and say so where anybody looks."""
    if reach is None or (min(reach) <= 0 and not recovering):
        pace.forget()
    else:
        pace.note(now, *reach)
    metrics.behind.set(pace.behind_us / 1e6)
    metrics.input_ratio.set(pace.ratio)
    # Who recovers and has not done anything yet may have been away: more cores are no help.
    begins = recovering and pace.ratio == float("inf")
    overload = None if begins else pace.overload
    problems.set("overload", overload)
    problems.set("behind", None if overload else pace.standing(now, recovering))
