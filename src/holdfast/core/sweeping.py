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

    def pauses(self, now: int) -> bool:
        """Whether nothing may be processed now."""
        return now < self._pauses_until

    @property
    def deadline(self) -> int:
        """When to look again."""
        if self.state is CheckpointerState.SHIPPING:
            return self._pauses_until or self._shipped_at + PATIENCE_US
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
                if number == self._awaited:
                    self._taken(number, now)
            case Refused(number, reason):
                if self._awaits(number):
                    if reason is Refusal.WHOLE_NEEDED:
                        self.base = None
                    self._pauses_until = 0
                    self.move(Trigger.REFUSED, now, reason.value)
            case PartnerAnew():
                self._forget()
            case HoldsNothing():
                # What is on its way it will answer.
                if self.state is CheckpointerState.RESTING:
                    self._forget()
        return []

    def _forget(self) -> None:
        self.base, self.confirmed, self._awaited = None, -1, -1

    def _awaits(self, number: int) -> bool:
        return self.state is CheckpointerState.SHIPPING and number == self._awaited

    def _taken(self, number: int, now: int) -> None:
        """However late: what the other copy holds is there to build on."""
        self.base, self.confirmed = number, self._boundary
        if self.state is CheckpointerState.SHIPPING:
            self._pauses_until = 0
            self.move(Trigger.TAKEN, now)

    def _due_at(self) -> int:
        if self._checkpointing is Checkpointing.SWEEPING and not self._trimmed:
            return self._shipped_at + 2 * self._interval_us
        return self._shipped_at + self._interval_us

    def _look(self, boundary: int, now: int) -> list[Ship]:
        if self.state is CheckpointerState.SHIPPING:
            if now >= self._pauses_until:
                self._pauses_until = 0
            if now < self._shipped_at + PATIENCE_US:
                return []
            self.move(Trigger.TIMED_OUT, now)
        if now < self._due_at() or boundary <= self.confirmed:
            return []
        self._trimmed = False
        self._shipped_at = now
        if self._checkpointing is Checkpointing.SYNCHRONOUS:
            self._pauses_until = now + PAUSE_US
        self._boundary = boundary
        self.move(Trigger.SHIP, now, f"up to {boundary}")
        self._awaited = self._numbers.next(now)
        return [Ship(self._awaited, self.base)]

    def validate(self) -> None:
        self.require(self.confirmed <= self._boundary, "more is confirmed than was sent")
