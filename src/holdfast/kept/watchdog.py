"""Calls off what does not get on, however long it takes in all.

A large state over a slow link takes minutes, and nothing is wrong with it while piece after piece
gets out. Flight knows a deadline for a whole call only, and has no way to end one that stands
still: so the call is left to itself, and who waits for it is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class Watchdog:
    """``with`` it one step is done; whoever watches is told of one that takes too long, once."""

    def __init__(self, name: str, seconds: float, on_stuck: Callable[[], None]) -> None:
        self._seconds = seconds
        self._on_stuck = on_stuck
        self._changed = threading.Condition()
        # Since when the step that is under way is, and whether somebody was told of it.
        self._since: float | None = None
        self._told = False
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"{name} watchdog", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def __enter__(self) -> None:
        with self._changed:
            self._since, self._told = time.monotonic(), False
            self._changed.notify()

    def __exit__(self, *_: object) -> None:
        with self._changed:
            self._since = None

    def _run(self) -> None:
        while self._wait():
            self._on_stuck()

    def _wait(self) -> bool:
        """Until a step takes too long; False if there will be none any more."""
        with self._changed:
            while not self._closed:
                left = None
                if self._since is not None and not self._told:
                    left = self._since + self._seconds - time.monotonic()
                    if left <= 0:
                        self._told = True
                        return True
                self._changed.wait(left)
        return False
