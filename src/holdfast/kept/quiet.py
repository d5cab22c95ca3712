"""What can wait is done between the jobs of a process, one thing at a time.

To pack a whole state takes the time of a bucket's job or more, and a process that shares its nodes
with another lends the states of all of them at the same moment when that one comes back empty. Done
beside jobs, results come later by as much. Most of the time no job runs; so each piece of such work
begins when none does, and no two of them are under way at once.

Nothing waits for ever: who has waited for its patience in all goes on beside whatever runs.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

# Less than what anybody waits for a checkpoint.
PATIENCE_SECONDS = 1.0


class Quiet:
    """Whether jobs of a process run, and whose turn it is when none does."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        self._jobs = 0
        self._changed = threading.Condition()
        # For how long jobs have run, up to the last of them that ended; since when one runs.
        self._busy_seconds = 0.0
        self._busy_since = 0.0

    @contextmanager
    def job(self) -> Iterator[None]:
        """A job runs."""
        with self._changed:
            if not self._jobs:
                self._busy_since = time.monotonic()
            self._jobs += 1
        try:
            yield
        finally:
            with self._changed:
                self._jobs -= 1
                if not self._jobs:
                    self._busy_seconds += time.monotonic() - self._busy_since
                    self._changed.notify_all()

    @property
    def busy_seconds(self) -> float:
        """For how long one job or more have run so far."""
        with self._changed:
            running = time.monotonic() - self._busy_since if self._jobs else 0.0
            return self._busy_seconds + running

    def wait(self, seconds: float) -> None:
        """Until no job runs, but no longer than that."""
        with self._changed:
            self._changed.wait_for(lambda: not self._jobs, seconds)


class Unhurried:
    """Work in pieces that can wait: ``with`` it a piece is done, and ``breathe`` is between two."""

    def __init__(self, quiet: Quiet, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._quiet = quiet
        self._left = patience_seconds
        self._has_turn = False
        # For how long jobs ran beside it.
        self.beside_seconds = 0.0
        self._busy_before = 0.0

    def __enter__(self) -> None:
        began = time.monotonic()
        self._has_turn = self._quiet.turn.acquire(timeout=max(0.0, self._left))
        self._spent(began)
        self._let_jobs_end()

    def __exit__(self, *_: object) -> None:
        self.beside_seconds += self._quiet.busy_seconds - self._busy_before
        if self._has_turn:
            self._has_turn = False
            self._quiet.turn.release()

    def breathe(self) -> None:
        """Let jobs that run end first."""
        self.beside_seconds += self._quiet.busy_seconds - self._busy_before
        self._let_jobs_end()

    def _let_jobs_end(self) -> None:
        began = time.monotonic()
        self._quiet.wait(max(0.0, self._left))
        self._spent(began)
        self._busy_before = self._quiet.busy_seconds

    def _spent(self, began: float) -> None:
        self._left -= time.monotonic() - began


def at_once() -> Unhurried:
    """Work that waits for nobody."""
    return Unhurried(Quiet(), 0.0)
