"""The benchmarking detector: is one machine fast enough, judged by a standard set of data.

Theory of operation. How long the fragment takes for a standard set of tuples is measured once on
an idle machine: the benchmark. A machine that has just started is hardly idle, so a quicker time
later takes its place. From then on the machine's CPU load is looked at at a fine
interval. When it passes a threshold the machine is SUSPECTED and the standard set is timed
again; if that takes longer than a multiple of the benchmark, the machine counts as DOWN, though
it may answer heartbeats. A set that is not through by then is too slow already. Until it is, the
load is not looked at: it says less than the set. The machine is UP again when the set is as fast
as it should be, or the load low before it is timed again.

It needs no heartbeats and is as fast, but bursts of input look like load to it: it raises more
false alarms than missed heartbeats do. It is here to be compared, and says nothing of a machine
that is gone: heartbeats go on beside it.

    UNKNOWN ──set timed──▶ UP ──load──▶ SUSPECTED ──slow──▶ DOWN
       SUSPECTED ──quick──▶ UP; DOWN ──quick, calm──▶ UP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.detector import AskPeer, DetectorEffect, PeerBack, PeerLost, PeerState
from holdfast.core.machine import Machine


class Trigger(Enum):
    MEASURED = "benchmark measured"
    LOADED = "load above the threshold"
    SLOW = "standard set too slow"
    QUICK = "standard set in time"
    CALM = "load below the threshold"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (PeerState.UNKNOWN, Trigger.MEASURED): PeerState.UP,
    (PeerState.UP, Trigger.LOADED): PeerState.SUSPECTED,
    (PeerState.SUSPECTED, Trigger.SLOW): PeerState.DOWN,
    (PeerState.SUSPECTED, Trigger.QUICK): PeerState.UP,
    (PeerState.DOWN, Trigger.QUICK): PeerState.UP,
    (PeerState.DOWN, Trigger.CALM): PeerState.UP,
}


@dataclass(frozen=True, slots=True)
class LoadSeen:
    """The share of the machine's CPU time that was used since the last look."""

    load: float


@dataclass(frozen=True, slots=True)
class SetTimed:
    """The standard set took so long; asked for by AskPeer, or measured at the start."""

    took_us: int


BenchmarkEvent: TypeAlias = LoadSeen | SetTimed


class BenchmarkDetector(Machine[PeerState, Trigger]):
    """The speed of one machine. AskPeer means: time the standard set."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self, peer: str, interval_us: int, load_threshold: float, slowdown: float, owner: str
    ) -> None:
        """``slowdown``: how many times the benchmark is too slow."""
        super().__init__(f"{owner} benchmark of {peer}", PeerState.UNKNOWN)
        self.peer = peer
        self.next_ask_at = 0
        self.benchmark_us: int | None = None
        self._interval_us = interval_us
        self._load_threshold = load_threshold
        self._slowdown = slowdown
        # Since when the set is being timed.
        self._asked_at: int | None = None

    @property
    def reachable(self) -> bool:
        """Whether the machine is fast enough to be waited for."""
        return self.state in (PeerState.UP, PeerState.SUSPECTED)

    def handle(self, event: BenchmarkEvent, now: int) -> list[DetectorEffect]:
        if isinstance(event, SetTimed):
            return self._timed(event.took_us, now)
        if now < self.next_ask_at or self.state is PeerState.UNKNOWN:
            return []
        self.next_ask_at = now + self._interval_us
        if self._asked_at is not None:
            running_us = now - self._asked_at
            return self._slow(running_us, now) if self._is_slow(running_us) else []
        if event.load < self._load_threshold:
            return self._fine(Trigger.CALM, now, f"load {event.load:.0%}")
        if self.state is PeerState.UP:
            self.move(Trigger.LOADED, now, f"load {event.load:.0%}")
        self._asked_at = now
        return [AskPeer(self.peer)]

    def _timed(self, took_us: int, now: int) -> list[DetectorEffect]:
        self._asked_at = None
        if self.benchmark_us is None:
            self.benchmark_us = took_us
            self.move(Trigger.MEASURED, now, f"{took_us} us")
            return [PeerBack(self.peer)]
        self.benchmark_us = min(self.benchmark_us, took_us)
        if self._is_slow(took_us):
            return self._slow(took_us, now)
        return self._fine(Trigger.QUICK, now, f"{took_us} us")

    def _is_slow(self, took_us: int) -> bool:
        assert self.benchmark_us is not None
        return took_us > self.benchmark_us * self._slowdown

    def _slow(self, took_us: int, now: int) -> list[DetectorEffect]:
        if self.state is PeerState.DOWN:
            return []
        self.move(Trigger.SLOW, now, f"{took_us} us, {self.benchmark_us} us on an idle machine")
        return [PeerLost(self.peer)]

    def _fine(self, trigger: Trigger, now: int, detail: str) -> list[DetectorEffect]:
        if self.state is PeerState.UP:
            return []
        was = self.state
        self.move(trigger, now, detail)
        return [PeerBack(self.peer)] if was is PeerState.DOWN else []

    def validate(self) -> None:
        self.require(
            (self.state is PeerState.UNKNOWN) == (self.benchmark_us is None),
            "nothing is known without the benchmark",
        )
