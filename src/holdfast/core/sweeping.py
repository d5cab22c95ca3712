"""The sweeping checkpointer: when a primary sends a checkpoint to another copy.

Theory of operation. A checkpoint is the stable state and the output queue, never the input
queue: what is not yet processed is still in the output queues of the producers, because the
copy that holds the checkpoint acknowledges to them only what the checkpoint has processed. A
producer trims its output queue to the slowest of its consumers, and right after that trim its
queue is as short as it will be: that is the moment for its own checkpoint (SWEEPING), which
lets the producers before it trim in turn. So checkpoints sweep through a network from its
clients to its sources, each with next to nothing in its queue.

Trims closer together than the interval share a checkpoint. New results make the queue longer, so
the checkpoint then waits for them to be trimmed: otherwise, where a bucket is as long as the
interval, every checkpoint would go out just after a result and have all of it in its queue. If
no trim comes for two intervals (nothing is produced, or nobody acknowledges) a checkpoint goes
out all the same: the state has moved, and the producers wait.

For comparison: INDIVIDUAL checkpoints go by the clock alone; SYNCHRONOUS ones too, and nothing
is processed from when one is taken until it is held by the other copy, or until it is clear
that this takes longer than tuples can wait.

Where there are several other copies, each has a checkpointer of its own: one that is slow or away
holds up nobody else's.

One checkpoint is under way at a time. Once one is taken, the next says only what has changed
since (its *base*); one that is refused because its base is missing is followed by a whole one.

One that is not taken for long is given up, and another one sent: it may be lost. But it may as well
be large, or the way long. So it counts whenever it is taken, however many went out after it; else
each would be taken after it was given up, and the other copy sent whole states for ever. The one
after it is given twice as long, and how long one took tells how long the next of its kind may take,
whole ones and changes each for themselves. After one that could not be sent, or not be kept there,
the next waits for as long as that one took in vain.

A copy that says that it holds nothing is sent a whole one though no result has come since the last:
while nothing comes in, it would be without a state until something does.

    RESTING ──ship──▶ SHIPPING ──taken, refused, timed out──▶ RESTING
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.machine import Machine
from holdfast.core.messages import Refusal
from holdfast.core.settings import Checkpointing
from holdfast.core.stream_copy import FAR_FUTURE

# How long the other copy may take to hold a checkpoint.
PATIENCE_US = 3_000_000
# The same where they have been seen to take long.
LONGEST_PATIENCE_US = 32 * PATIENCE_US
# How many that were sent are remembered: those of half an hour, if none is ever taken.
_REMEMBERED = 24
# How long processing waits for a synchronous checkpoint at most.
PAUSE_US = 200_000


class CheckpointerState(Enum):
    RESTING = "resting"
    SHIPPING = "shipping"


class Trigger(Enum):
    SHIP = "ship"
    TAKEN = "taken"
    REFUSED = "refused"
    TIMED_OUT = "timed out"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (CheckpointerState.RESTING, Trigger.SHIP): CheckpointerState.SHIPPING,
    (CheckpointerState.SHIPPING, Trigger.TAKEN): CheckpointerState.RESTING,
    (CheckpointerState.SHIPPING, Trigger.REFUSED): CheckpointerState.RESTING,
    (CheckpointerState.SHIPPING, Trigger.TIMED_OUT): CheckpointerState.RESTING,
}


@dataclass(frozen=True, slots=True)
class Trimmed:
    """Every consumer has acknowledged more of the output queue."""


@dataclass(frozen=True, slots=True)
class Grown:
    """New results are in the output queue."""


@dataclass(frozen=True, slots=True)
class Look:
    """May a checkpoint go out now? The newest one there could be reaches ``boundary``."""

    boundary: int


@dataclass(frozen=True, slots=True)
class Taken:
    number: int


@dataclass(frozen=True, slots=True)
class Refused:
    number: int
    reason: Refusal


@dataclass(frozen=True, slots=True)
class PartnerAnew:
    """The other copy, or this one's part, has changed: it holds nothing we know of."""


@dataclass(frozen=True, slots=True)
class HoldsNothing:
    """The other copy says so: it is in a new life, and what it held was in memory."""


CheckpointerEvent: TypeAlias = Trimmed | Grown | Look | Taken | Refused | PartnerAnew | HoldsNothing


@dataclass(frozen=True, slots=True)
class Ship:
    """Send a checkpoint under this number, built on ``base`` if there is one."""

    number: int
    base: int | None


@dataclass(frozen=True, slots=True)
class _Sent:
    """One that may be taken yet."""

    boundary: int
    base: int | None
    at: int


class Numbers:
    """Numbers of checkpoints, of which none was another one's, of any copy in any of its lives."""

    def __init__(self, copy: int, copies: int) -> None:
        """The numbers of one of so many copies, counted from 0."""
        self._copy = copy
        self._copies = copies
        self._last = 0

    def next(self, now: int) -> int:
        """One more."""
        above = max(self._last + 1, now)
        self._last = above + (self._copy - above) % self._copies
        return self._last


class SweepingCheckpointer(Machine[CheckpointerState, Trigger]):
    """The checkpoints that one primary sends to one other copy."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self, owner: str, checkpointing: Checkpointing, interval_us: int, numbers: Numbers
    ) -> None:
        super().__init__(f"{owner} checkpointer", CheckpointerState.RESTING)
        self.base: int | None = None
        self.confirmed = -1
        self._checkpointing = checkpointing
        self._interval_us = interval_us
        self._trimmed = False
        self._shipped_at = -FAR_FUTURE
        self._numbers = numbers
        self._awaited = -1
        self._pauses_until = 0
        self._boundary = -1
        self._sent: dict[int, _Sent] = {}
        # How long one may take, by whether it is a whole one.
        self._patience_us = {True: PATIENCE_US, False: PATIENCE_US}
        # After a failure: none before.
        self._rests_until = -FAR_FUTURE

    def pauses(self, now: int) -> bool:
        """Whether nothing may be processed now."""
        return now < self._pauses_until

    @property
    def deadline(self) -> int:
        """When to look again."""
        if self.state is CheckpointerState.SHIPPING:
            return self._pauses_until or self._given_up_at
        return self._due_at()

    def handle(self, event: CheckpointerEvent, now: int) -> list[Ship]:
        match event:
            case Trimmed():
                self._trimmed = True
            case Grown():
                self._trimmed = False
            case Look(boundary):
                return self._look(boundary, now)
            case Taken(number):
                if number in self._sent and number > (self.base or -1):
                    self._taken(number, now)
            case Refused(number, reason):
                if self._awaits(number):
                    self._refused(self._sent[number], reason, now)
            case PartnerAnew():
                self._forget()
            case HoldsNothing():
                # What is on its way it will answer.
                if self.state is CheckpointerState.RESTING:
                    self._forget()
        return []

    def _forget(self) -> None:
        self.base, self.confirmed, self._awaited = None, -1, -1
        self._sent.clear()

    def _awaits(self, number: int) -> bool:
        return self.state is CheckpointerState.SHIPPING and number == self._awaited

    @property
    def _given_up_at(self) -> int:
        """When the one that is under way has taken too long."""
        sent = self._sent.get(self._awaited)
        # One of an earlier part is awaited no more.
        patience_us = PATIENCE_US if sent is None else self._patience_us[sent.base is None]
        return self._shipped_at + patience_us

    def _taken(self, number: int, now: int) -> None:
        """However late: what the other copy holds is there to build on."""
        sent = self._sent[number]
        self.base, self.confirmed = number, sent.boundary
        self._sent = {other: one for other, one in self._sent.items() if other > number}
        took_us = 2 * (now - sent.at)
        self._patience_us[sent.base is None] = min(max(PATIENCE_US, took_us), LONGEST_PATIENCE_US)
        if self._awaits(number):
            self._pauses_until = 0
            self.move(Trigger.TAKEN, now)

    def _refused(self, sent: _Sent, reason: Refusal, now: int) -> None:
        if reason is Refusal.WHOLE_NEEDED and self.base == sent.base:
            # Unless one has been taken since: that is there to build on.
            self.base = None
        if reason is Refusal.FAILED:
            # As long as it took, but not as long as nobody could be reached.
            self._rests_until = now + min(now - sent.at, self._patience_us[sent.base is None])
        self._pauses_until = 0
        self.move(Trigger.REFUSED, now, reason.value)

    def _timed_out(self, now: int) -> None:
        """It may be taken yet; the next one is given longer."""
        sent = self._sent.get(self._awaited)
        if sent is not None:
            is_whole = sent.base is None
            longer_us = min(2 * self._patience_us[is_whole], LONGEST_PATIENCE_US)
            self._patience_us[is_whole] = longer_us
        self.move(Trigger.TIMED_OUT, now)

    def _due_at(self) -> int:
        if self._checkpointing is Checkpointing.SWEEPING and not self._trimmed:
            return max(self._rests_until, self._shipped_at + 2 * self._interval_us)
        return max(self._rests_until, self._shipped_at + self._interval_us)

    def _look(self, boundary: int, now: int) -> list[Ship]:
        if self.state is CheckpointerState.SHIPPING:
            if now >= self._pauses_until:
                self._pauses_until = 0
            if now < self._given_up_at:
                return []
            self._timed_out(now)
        if now < self._due_at() or boundary <= self.confirmed:
            return []
        self._trimmed = False
        self._shipped_at = now
        if self._checkpointing is Checkpointing.SYNCHRONOUS:
            self._pauses_until = now + PAUSE_US
        self._boundary = boundary
        self.move(Trigger.SHIP, now, f"up to {boundary}")
        self._awaited = self._numbers.next(now)
        newest = list(self._sent.items())[1 - _REMEMBERED :]
        self._sent = {**dict(newest), self._awaited: _Sent(boundary, self.base, now)}
        return [Ship(self._awaited, self.base)]

    def validate(self) -> None:
        self.require(self.confirmed <= self._boundary, "more is confirmed than was sent")
