"""Watches the threads of a node: one that has work and gets no further is told of.

A thread may stand still without an error: a disk that hangs, a sink that never returns, a lock
that nobody opens. What it does is seen by its *turn*, a number that changes with everything it
begins, or None while it has nothing to do. A turn that lasts for ten seconds is a problem of the
node, so `status`, `top`, the metrics and `/health` say so. What does not go on for two minutes
will not go on by itself: the process ends, with the reason, if a new one may do better.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.errors import HoldfastError
from holdfast.nodes.problems import Problems

SAY_SECONDS = 10.0
END_SECONDS = 120.0
LOOK_SECONDS = 1.0
# A longer time between two looks is one during which this process did not run, either.
_LONGEST_STEP_SECONDS = 3.0


class StoodStill(HoldfastError):
    """A thread of this process does not go on."""


@dataclass(frozen=True)
class Watched:
    """A thread, or what it works on.

    turn  what it is about; None if it has nothing to do.
    ends  whether the process ends if it does not go on at all.
    """

    key: str
    what: str
    turn: Callable[[], object]
    ends: bool = True


class Standstill:
    """Counts for how long each of them has been about the same."""

    def __init__(
        self, watched: tuple[Watched, ...], problems: Problems, end: Callable[[BaseException], None]
    ) -> None:
        self._watched = watched
        self._problems = problems
        self._end = end
        # What each was about at the last look, and for how long.
        self._seen: dict[str, tuple[object, float]] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-standstill", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()

    def _run(self) -> None:
        looked = time.monotonic()
        while not self._stopping.wait(LOOK_SECONDS):
            now = time.monotonic()
            step, looked = now - looked, now
            self.look(step if step < _LONGEST_STEP_SECONDS else 0.0)

    def look(self, step_s: float) -> None:
        """So much time has passed in which this process ran."""
        for each in self._watched:
            turn = each.turn()
            before, stood_s = self._seen.get(each.key, (None, 0.0))
            stood_s = stood_s + step_s if turn is not None and turn == before else 0.0
            self._seen[each.key] = (turn, stood_s)
            text = f"{each.what} has not gone on for {stood_s:.0f} s"
            self._problems.set(each.key, text if stood_s >= SAY_SECONDS else None)
            if each.ends and stood_s >= END_SECONDS and not self._stopping.is_set():
                self._stopping.set()
                self._end(StoodStill(text))
