"""The last hour of a deployment: what came when, who was in which state, what happened.

Results are counted by the second in which they came; an hour of them is a few thousand numbers,
whatever the rate.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

STABLE, TENTATIVE, CORRECTED = "stable", "tentative", "corrected"
KEPT_SECONDS = 3600.0
_KEPT_EVENTS = 5_000
_KEPT_CONTROLS = 50
# What was written so long before a look is older than it; below that, clocks and files differ.
_LATE_SECONDS = 1.0
# So long after a control it is told what it did.
FOLLOWED_SECONDS = 120.0


@dataclass
class Arrivals:
    """What came of an output within one second.

    second   of the epoch
    delay_s  the longest time between a tuple's time and its coming
    why      what was wrong when tentative ones came
    """

    second: int
    kind: str
    count: int = 0
    delay_s: float = 0.0
    why: list[str] = field(default_factory=list)

    def plain(self) -> list[Any]:
        return [self.second, self.kind, self.count, round(self.delay_s, 3), self.why]


@dataclass
class Control:
    """Something that was done on the page."""

    number: int
    at: float
    by: str
    text: str
    said: str
    failed: bool


class History:
    """Any thread may write and read."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._arrivals: dict[str, deque[Arrivals]] = {}
        self._states: dict[str, deque[tuple[float, str]]] = {}
        self._events: deque[tuple[float, str, str, str]] = deque(maxlen=_KEPT_EVENTS)
        self._controls: deque[Control] = deque(maxlen=_KEPT_CONTROLS)
        self._count = 0
        self._fresh: dict[str, Any] = {}

    def came(
        self, output: str, at: float, kind: str, count: int, delay_s: float, why: Iterable[str] = ()
    ) -> None:
        """Tuples of an output came."""
        second = int(at)
        with self._lock:
            kept = self._arrivals.setdefault(output, deque())
            same = [each for each in list(kept)[-3:] if (each.second, each.kind) == (second, kind)]
            found = same[0] if same else Arrivals(second, kind)
            if not same:
                kept.append(found)
            found.count += count
            found.delay_s = max(found.delay_s, delay_s)
            found.why = found.why or list(why)
            while kept and kept[0].second < at - KEPT_SECONDS:
                kept.popleft()
            self._fresh.setdefault("arrivals", {}).setdefault(output, {})[second, kind] = found

    def in_state(self, node: str, at: float, state: str) -> None:
        """A node is in a state from a moment on; nothing if it was in it before."""
        with self._lock:
            kept = self._states.setdefault(node, deque())
            if kept and at < kept[-1][0] - _LATE_SECONDS:
                self._was_in_state(kept, node, at, state)
                return
            if kept and kept[-1][1] == state:
                return
            at = max(at, kept[-1][0]) if kept else at
            kept.append((at, state))
            # The state at the beginning of the hour is still needed.
            while len(kept) > 1 and kept[1][0] < at - KEPT_SECONDS:
                kept.popleft()
            self._fresh.setdefault("states", []).append([node, round(at, 3), state])

    def _was_in_state(
        self, kept: deque[tuple[float, str]], node: str, at: float, state: str
    ) -> None:
        """It is heard of late: what a process wrote before anybody looked."""
        place = sum(1 for each, _ in kept if each <= at)
        if place == 0 or kept[place - 1][1] != state:
            kept.insert(place, (at, state))
            self._fresh.setdefault("states", []).append([node, round(at, 3), state])

    def state(self, node: str) -> str | None:
        with self._lock:
            kept = self._states.get(node)
            return kept[-1][1] if kept else None

    def happened(self, at: float, node: str, text: str, level: str = "info") -> None:
        """Something to be read."""
        with self._lock:
            self._events.append((round(at, 3), node, text, level))
            self._fresh.setdefault("events", []).append([round(at, 3), node, text, level])

    def controlled(self, at: float, by: str, text: str, said: str, failed: bool) -> None:
        """Something was done on the page."""
        with self._lock:
            self._count += 1
            self._controls.append(Control(self._count, at, by, text, said, failed))
        self.happened(at, "", f"{by}: {text}", "control")

    def fresh(self) -> dict[str, Any]:
        """What was added since this was asked last."""
        with self._lock:
            found, self._fresh = self._fresh, {}
            if "arrivals" in found:
                found["arrivals"] = {
                    output: [each.plain() for each in bins.values()]
                    for output, bins in found["arrivals"].items()
                }
            return found

    def whole(self) -> dict[str, Any]:
        """Everything that is kept."""
        with self._lock:
            return {
                "arrivals": {
                    output: [each.plain() for each in bins]
                    for output, bins in self._arrivals.items()
                },
                "states": [
                    [node, round(at, 3), state]
                    for node, kept in self._states.items()
                    for at, state in kept
                ],
                "events": [list(each) for each in self._events],
            }

    def controls(self, now: float) -> list[dict[str, Any]]:
        """What was done on the page and what came of it, the newest last."""
        with self._lock:
            kept = list(self._controls)
            found = []
            for place, each in enumerate(kept):
                next_at = kept[place + 1].at if place + 1 < len(kept) else now
                found.append(self._control(each, min(next_at, each.at + FOLLOWED_SECONDS)))
            return found

    def _control(self, control: Control, until: float) -> dict[str, Any]:
        within = [
            each
            for bins in self._arrivals.values()
            for each in bins
            if int(control.at) <= each.second <= until
        ]
        return {
            "number": control.number,
            "at": round(control.at, 3),
            "by": control.by,
            "text": control.text,
            "said": control.said,
            "failed": control.failed,
            "until": round(until, 1),
            **{
                kind: sum(each.count for each in within if each.kind == kind)
                for kind in (STABLE, TENTATIVE, CORRECTED)
            },
            "longest_s": round(
                max((each.delay_s for each in within if each.kind != CORRECTED), default=0.0), 2
            ),
            "states": [
                [node, round(at - control.at, 2), state]
                for node, kept in self._states.items()
                for at, state in kept
                if control.at <= at <= until
            ][:20],
        }
