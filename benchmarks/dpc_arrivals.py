"""What reaches the client of a DPC benchmark, and the paper's figures from it.

Every tuple carries its number and the moment it was made. The client notes when each arrives
and with which label.

- Delay_new: the longest time from the making of a tuple to the first result of it, stable or
  tentative, over all tuples that were to be had: those of a source that is cut off count only
  when they had come to all replicas before the cut, or are made after the link has healed.
- N_tentative: the tentative tuples the client received.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks.dpc_setting import FAILED, SOURCES
from holdfast.client import Boundary, Client, Tuples, Undo

FAILED_INDEX = SOURCES.index(FAILED)
# Tuples made so shortly before the cut may still have been on their way, where nobody was asked.
ON_THEIR_WAY_US = 500_000


@dataclass(frozen=True)
class Seen:
    """All tuples that came, one row for each arrival."""

    number: npt.NDArray[np.int64]
    made: npt.NDArray[np.int64]
    came: npt.NDArray[np.int64]
    stable: npt.NDArray[np.bool_]

    @property
    def source(self) -> npt.NDArray[np.int64]:
        return self.number % len(SOURCES)


@dataclass(frozen=True)
class Failure:
    """A cut of the link to the failing source, in microseconds of the clock.

    had  how many tuples of the source every replica had while it was cut, if they were asked.
    """

    cut: int
    healed: int
    had: int | None = None


@dataclass(frozen=True)
class Figures:
    """The paper's figures for one failure."""

    delay_new_s: float
    tentative: int
    delay_p50_s: float
    new_tuples: int


class Arrivals:
    """Reads a client until it is closed."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._parts: list[tuple[Tuples, int]] = []
        self.stable_until = 0
        self.outstanding_until = 0
        self.undone_at: list[int] = []
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                event = self._client.read(0.1)
                now = time.time_ns() // 1000
                if isinstance(event, Tuples):
                    with self._lock:
                        self._parts.append((event, now))
                elif isinstance(event, Boundary):
                    self.stable_until = event.stime
                elif isinstance(event, Undo):
                    self.undone_at.append(now)
        except BaseException as error:
            self._failure = error

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(10.0)
        if self._failure is not None:
            raise self._failure

    def explained(self, since: int, missing: str) -> tuple[int, int]:
        """Of the tentative blocks since a moment, how many there are and how many name it."""
        with self._lock:
            events = [event for event, now in self._parts if now >= since and not event.stable]
        right = [
            event
            for event in events
            if event.why is not None and missing in {one.stream for one in event.why.missing}
        ]
        return len(events), len(right)

    def seen(self, since: int = 0) -> Seen:
        """What came since a moment."""
        if self._failure is not None:
            raise self._failure
        with self._lock:
            parts = [(event, now) for event, now in self._parts if now >= since]
        empty = [np.zeros(0, np.int64)]
        tables = [event.table for event, _ in parts]
        return Seen(
            np.concatenate(empty + [each["number"].to_numpy() for each in tables]),
            np.concatenate(empty + [each["made"].to_numpy() for each in tables]),
            np.concatenate(empty + [np.full(e.table.num_rows, now) for e, now in parts]),
            np.concatenate(
                [np.zeros(0, np.bool_)] + [np.full(e.table.num_rows, e.stable) for e, _ in parts]
            ),
        )


def first_arrivals(seen: Seen) -> Seen:
    """Of each tuple the first result."""
    order = np.argsort(seen.came, kind="stable")
    _, first = np.unique(seen.number[order], return_index=True)
    rows = order[first]
    return Seen(seen.number[rows], seen.made[rows], seen.came[rows], seen.stable[rows])


def available(seen: Seen, failure: Failure) -> npt.NDArray[np.bool_]:
    """Which tuples were to be had although the failing source was cut off."""
    made = seen.made
    if failure.had is None:
        away = (made > failure.cut - ON_THEIR_WAY_US) & (made < failure.healed)
    else:
        away = (seen.number // len(SOURCES) >= failure.had) & (made < failure.healed)
    kept: npt.NDArray[np.bool_] = ~((seen.source == FAILED_INDEX) & away)
    return kept


def delays_s(seen: Seen, failure: Failure, until: int) -> npt.NDArray[np.float64]:
    """How long each tuple that was to be had took to its first result."""
    first = first_arrivals(seen)
    since = failure.cut - 1_000_000
    counted = available(first, failure) & (first.made >= since) & (first.made < until)
    found: npt.NDArray[np.float64] = (first.came - first.made)[counted] / 1e6
    return found


def figures(seen: Seen, failure: Failure, until: int) -> Figures:
    """The figures of a failure, from shortly before the cut until a later moment."""
    delays = delays_s(seen, failure, until)
    tentative = int(((~seen.stable) & (seen.came >= failure.cut)).sum())
    return Figures(
        round(float(delays.max()), 3) if len(delays) else 0.0,
        tentative,
        round(float(np.median(delays)), 3) if len(delays) else 0.0,
        len(delays),
    )
