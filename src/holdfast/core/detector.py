"""The failure detector: is one peer there, judged by its heartbeats.

Theory of operation. The detector asks its peer at a fixed interval. When the time for the
next question comes and the last one is still unanswered, that is a miss; one miss makes the
peer SUSPECTED, ``misses_until_down`` in a row make it DOWN. Any answer, however late, makes
it UP again: a slow peer is a peer. However long this process itself was away (paused by its
machine, say), it counts one miss at most for the time it was away, because it cannot tell
whose silence that was; where one miss is too often, it counts none. A question that cannot
even be put, because nobody listens there, is a miss at once.

The detectors of copies that stand by are *patient*: on a busy machine answers come late though
nothing failed, and whoever takes over then makes it busier. So they watch how long answers take,
as TCP does: their mean and mean deviation. A question is missed when it is unanswered after the
mean plus four deviations, but not before one interval and not after three. Where answers come
quickly, that is one interval. After a false alarm they wait longer, for some ten answers; an
outage, silence beyond three intervals, says nothing of how long answers take. One that comes late
itself (its own machine is busy) first takes what may have come meanwhile.

    UNKNOWN ──replied──▶ UP ──missed──▶ SUSPECTED ──missed too often──▶ DOWN
       any state ──replied──▶ UP
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

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

# A patient detector waits for so many intervals at most.
LONGEST_INTERVALS = 3


class FailureDetector(Machine[PeerState, Trigger]):
    """Heartbeats to one peer."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self,
        peer: str,
        interval_us: int,
        misses_until_down: int,
        owner: str,
        patient: bool = False,
    ) -> None:
        super().__init__(f"{owner} detector of {peer}", PeerState.UNKNOWN)
        self._patient = patient
        self.peer = peer
        self.next_ask_at = 0
        self._interval_us = interval_us
        self._misses_until_down = misses_until_down
        self._misses = 0
        self._unanswered = False
        self._asked_at = 0
        # Since when there is no answer, how long answers take, and how much that varies.
        self._silent_since = 0
        self._mean_us = 0.0
        self._deviation_us = 0.0
        self._came_late = False

    @property
    def patience_us(self) -> int:
        """How long an answer may take."""
        if not self._patient:
            return self._interval_us
        wanted = int(self._mean_us + 4 * self._deviation_us)
        return min(max(wanted, self._interval_us), LONGEST_INTERVALS * self._interval_us)

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
        if now < self.next_ask_at or self._waits(now):
            return []
        effects: list[DetectorEffect] = []
        was_away = self._misses_until_down == 1 and now - self.next_ask_at > self._interval_us
        if self._unanswered and not was_away:
            effects += self._missed(now)
        if was_away or not self._unanswered:
            self._silent_since = now
        self._unanswered, self._came_late = True, False
        self._asked_at = now
        self.next_ask_at = now + self._interval_us
        effects.append(AskPeer(self.peer))
        return effects

    def _waits(self, now: int) -> bool:
        """Whether a patient detector gives the last question more time."""
        if not self._patient or not self._unanswered or self.state is PeerState.DOWN:
            return False
        late_us = now - self.next_ask_at
        if self._asked_at + self.patience_us > now:
            self.next_ask_at = self._asked_at + self.patience_us
            return True
        if self._interval_us // 4 < late_us <= self._interval_us and not self._came_late:
            self._came_late = True
            self.next_ask_at = now + self._interval_us // 4
            return True
        return False

    def _replied(self, now: int) -> list[DetectorEffect]:
        if self._unanswered:
            self._learn(now - self._silent_since)
            self.next_ask_at = min(self.next_ask_at, max(now, self._asked_at + self._interval_us))
        self._unanswered = False
        self._misses = 0
        if self.state is PeerState.UP:
            return []
        was_reachable = self.reachable
        self.move(Trigger.REPLIED, now)
        return [] if was_reachable else [PeerBack(self.peer)]

    def _learn(self, took_us: int) -> None:
        """How long an answer took; an outage is no measure of it."""
        if took_us > LONGEST_INTERVALS * self._interval_us:
            return
        off = took_us - self._mean_us
        self._mean_us += off / 8
        self._deviation_us += (abs(off) - self._deviation_us) / 4

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
