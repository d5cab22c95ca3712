"""The failure detector: is one peer there, judged by its heartbeats.

Theory of operation. The detector asks its peer at a fixed interval. When the time for the
next question comes and the last one is still unanswered, that is a miss; one miss makes the
peer SUSPECTED, ``misses_until_down`` in a row make it DOWN. Any answer, however late, makes
it UP again: a slow peer is a peer. However long this process itself was away (paused by its
machine, say), it counts one miss at most for the time it was away, because it cannot tell
whose silence that was; where one miss is too often, it counts none. A question that cannot
even be put, because nobody listens there, is a miss at once.

    UNKNOWN ──replied──▶ UP ──missed──▶ SUSPECTED ──missed too often──▶ DOWN
       any state ──replied──▶ UP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol, TypeAlias, TypeVar

from holdfast.core.machine import Machine


class PeerState(Enum):
    UNKNOWN = "unknown"
    UP = "up"
    SUSPECTED = "suspected"
    DOWN = "down"


class Trigger(Enum):
    REPLIED = "replied"
    MISSED = "missed"
    MISSED_TOO_OFTEN = "missed too often"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (PeerState.UNKNOWN, Trigger.REPLIED): PeerState.UP,
    (PeerState.UNKNOWN, Trigger.MISSED): PeerState.UNKNOWN,
    (PeerState.UNKNOWN, Trigger.MISSED_TOO_OFTEN): PeerState.DOWN,
    (PeerState.UP, Trigger.MISSED): PeerState.SUSPECTED,
    (PeerState.UP, Trigger.MISSED_TOO_OFTEN): PeerState.DOWN,  # where one miss is too often
    (PeerState.SUSPECTED, Trigger.REPLIED): PeerState.UP,
    (PeerState.SUSPECTED, Trigger.MISSED): PeerState.SUSPECTED,
    (PeerState.SUSPECTED, Trigger.MISSED_TOO_OFTEN): PeerState.DOWN,
    (PeerState.DOWN, Trigger.REPLIED): PeerState.UP,
}


@dataclass(frozen=True, slots=True)
class TimePassed:
    """Time went on; the question may be due."""


@dataclass(frozen=True, slots=True)
class Replied:
    """The peer answered."""


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The question could not be put."""


@dataclass(frozen=True, slots=True)
class AskPeer:
    """Send the peer a heartbeat request."""

    peer: str


@dataclass(frozen=True, slots=True)
class PeerLost:
    """The peer has been silent for too long."""

    peer: str


@dataclass(frozen=True, slots=True)
class PeerBack:
    """The peer answers, for the first time or again."""

    peer: str


DetectorEvent: TypeAlias = TimePassed | Replied | Unreachable
DetectorEffect: TypeAlias = AskPeer | PeerLost | PeerBack

E = TypeVar("E", contravariant=True)


class Detector(Protocol[E]):
    """What every failure detector is to whoever uses it; ``handle`` takes its own events."""

    peer: str
    next_ask_at: int

    @property
    def reachable(self) -> bool: ...

    def handle(self, event: E, now: int) -> list[DetectorEffect]: ...


class FailureDetector(Machine[PeerState, Trigger]):
    """Heartbeats to one peer."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(self, peer: str, interval_us: int, misses_until_down: int, owner: str) -> None:
        super().__init__(f"{owner} detector of {peer}", PeerState.UNKNOWN)
        self.peer = peer
        self.next_ask_at = 0
        self._interval_us = interval_us
        self._misses_until_down = misses_until_down
        self._misses = 0
        self._unanswered = False

    @property
    def reachable(self) -> bool:
        """Whether the peer is worth talking to."""
        return self.state in (PeerState.UP, PeerState.SUSPECTED)

    def handle(self, event: DetectorEvent, now: int) -> list[DetectorEffect]:
        if isinstance(event, Replied):
            return self._replied(now)
        if isinstance(event, Unreachable):
            # Only once for each question.
            asked, self._unanswered = self._unanswered, False
            return self._missed(now) if asked else []
        if now < self.next_ask_at:
            return []
        effects: list[DetectorEffect] = []
        away = self._misses_until_down == 1 and now - self.next_ask_at > self._interval_us
        if self._unanswered and not away:
            effects += self._missed(now)
        self._unanswered = True
        self.next_ask_at = now + self._interval_us
        effects.append(AskPeer(self.peer))
        return effects

    def _replied(self, now: int) -> list[DetectorEffect]:
        self._unanswered = False
        self._misses = 0
        if self.state is PeerState.UP:
            return []
        was_reachable = self.reachable
        self.move(Trigger.REPLIED, now)
        return [] if was_reachable else [PeerBack(self.peer)]

    def _missed(self, now: int) -> list[DetectorEffect]:
        self._misses += 1
        if self.state is PeerState.DOWN:
            return []
        if self._misses >= self._misses_until_down:
            self.move(Trigger.MISSED_TOO_OFTEN, now, f"{self._misses} in a row")
            return [PeerLost(self.peer)]
        self.move(Trigger.MISSED, now)
        return []

    def validate(self) -> None:
        self.require(self._misses >= 0, "misses are not negative")
        self.require(
            self.state is not PeerState.UP or self._misses == 0,
            f"an UP peer has no misses; has {self._misses}",
        )
