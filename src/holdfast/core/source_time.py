"""The time of a source whose tuples bring their own: boundaries, and what is late, idle, ahead.

Theory of operation. A source's rows come through lanes: one for each producer, or one for what an
entry point reads itself. A lane is as far as its newest row, less the lateness that is allowed; or
as far as it has promised, if that is further. The source is as far as the least of its lanes, down
to a bucket: that is its boundary, which never goes back. A row is judged by the rows before it:

- *future*: it is further ahead of the clock than the limit. It is no tuple, and moves nothing.
- *late*: it is older than the boundary. It is no tuple, or takes the boundary as its time.
- else it is *in time*, in whatever order it came.

A lane that is quiet for a while is idle and holds nobody back: the others are the source. It counts
again with its next row, which may be late by then. If the user has said after which time that is,
it is so though all lanes are quiet, and then the boundary goes on with the clock, always that time
and the lateness behind: it does not jump, and a row that comes as fresh as those before it is in
time. Without the user's word a lane is idle only if others are not: when nobody says anything the
boundary stays, because rows of another day may follow.

What the clock decides here is decided once. The boundary goes into the log before anyone sees it;
what was late or ahead is in no log. Nothing behind the log looks at a clock. Time in which this
process stood still or had no room is not held against a lane (``excuse``).

    ACTIVE ──quiet──▶ IDLE ──heard──▶ ACTIVE
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

from holdfast.core.machine import Machine

FAR = 2**62


class LaneState(Enum):
    ACTIVE = "active"
    IDLE = "idle"


class Trigger(Enum):
    QUIET = "quiet"
    HEARD = "heard"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (LaneState.ACTIVE, Trigger.QUIET): LaneState.IDLE,
    (LaneState.IDLE, Trigger.HEARD): LaneState.ACTIVE,
}


class Late(Enum):
    """What becomes of a late row."""

    DROP = "drop"
    TAKE = "take"


class TimeVerdict(Enum):
    IN_TIME = "in time"
    LATE = "late"
    FUTURE = "future"


@dataclass(frozen=True, slots=True)
class TimeSettings:
    """How one source's own time is judged.

    lateness_us      how much older than the newest row of its lane a row may be.
    idle_after_us    how long a lane, or all of them, may be quiet; None: without end.
    lane_idle_us     without it, how long one lane may be quiet while others are not.
    future_limit_us  how far ahead of the clock a row may be; None: as far as it likes.
    """

    bucket_us: int
    lateness_us: int = 0
    idle_after_us: int | None = None
    lane_idle_us: int | None = None
    future_limit_us: int | None = None
    late: Late = Late.DROP

    @property
    def quiet_us(self) -> int | None:
        """After which time a lane is idle."""
        return self.lane_idle_us if self.idle_after_us is None else self.idle_after_us


@dataclass(frozen=True, slots=True)
class Rules:
    """What the rows of one batch of one lane are judged by.

    floor     the boundary when the batch came.
    cap       how far the other lanes are.
    newest    the newest row of the lane before the batch; promised what it has promised.
    latest    a row after that is ahead of the clock by more than the limit.
    """

    settings: TimeSettings
    floor: int
    cap: int
    newest: int
    promised: int
    latest: int

    def boundary(self, newest: int) -> int:
        """The boundary once the lane has rows up to ``newest``."""
        low = min(self.cap, max(newest - self.settings.lateness_us, self.promised))
        bucket = self.settings.bucket_us
        return max(self.floor, low // bucket * bucket)


class Lane(Machine[LaneState, Trigger]):
    """What is known of one lane."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(self, name: str, newest: int, promised: int, heard_at: int) -> None:
        super().__init__(f"lane {name!r}", LaneState.ACTIVE)
        self.newest = newest
        self.promised = promised
        self.heard_at = heard_at

    def low(self, lateness_us: int) -> int:
        """Nothing older will come."""
        return max(self.newest - lateness_us, self.promised)


class SourceTime:
    """The lanes of one source and the boundary they give."""

    def __init__(self, settings: TimeSettings, boundary: int = -FAR) -> None:
        self.settings = settings
        self.boundary = boundary
        self._lanes: dict[str, Lane] = {}
        self._heard_last = -FAR

    def machines(self) -> Iterator[Lane]:
        """The lanes, for those who count transitions."""
        yield from self._lanes.values()

    def open(self, name: str, now: int, newest: int = -FAR, promised: int = -FAR) -> None:
        """A lane is there, and holds the boundary where it is until it says more.

        ``newest`` and ``promised`` are what an earlier life knew of it.
        """
        if name not in self._lanes:
            self._lanes[name] = Lane(name, newest, max(promised, self.boundary), now)
        self._heard(self._lanes[name], now)

    def rules(self, name: str, now: int) -> Rules:
        """What the rows of a batch of this lane, which comes now, are judged by."""
        self.open(name, now)
        lane, limit = self._lanes[name], self.settings.future_limit_us
        lows = [other.low(self.settings.lateness_us) for other in self._active() if other != lane]
        return Rules(
            self.settings,
            self.boundary,
            min(lows, default=FAR),
            lane.newest,
            lane.promised,
            FAR if limit is None else now + limit,
        )

    def took(self, name: str, newest: int) -> None:
        """The batch is judged; ``newest`` is its newest row that is not ahead of the clock."""
        lane = self._lanes[name]
        lane.newest = max(lane.newest, newest)
        self._advance()

    def judge(self, name: str, stime: int, now: int) -> TimeVerdict:
        """One row alone, by the same rules: what a batch must agree with."""
        rules = self.rules(name, now)
        if stime > rules.latest:
            return TimeVerdict.FUTURE
        is_late = stime < rules.boundary(rules.newest)
        self.took(name, stime)
        return TimeVerdict.LATE if is_late else TimeVerdict.IN_TIME

    def promise(self, name: str, stime: int, now: int) -> None:
        """The lane will bring nothing older than ``stime``."""
        self.open(name, now)
        lane = self._lanes[name]
        lane.promised = max(lane.promised, stime)
        self._advance()

    def forbid_before(self, boundary: int) -> None:
        """A boundary that was promised already, in an earlier life."""
        self.boundary = max(self.boundary, boundary)

    def excuse(self, passed_us: int) -> None:
        """Nothing could be heard for so long: that is not the lanes' fault."""
        self._heard_last += passed_us
        for lane in self._lanes.values():
            lane.heard_at += passed_us

    def tick(self, now: int) -> None:
        """Look at who is quiet."""
        quiet_us = self.settings.quiet_us
        if quiet_us is None:
            return
        until = self._heard_last if self.settings.idle_after_us is None else now
        for lane in list(self._active()):
            if until - lane.heard_at >= quiet_us:
                lane.move(Trigger.QUIET, now)
        self._advance(now)

    def lane(self, name: str) -> Lane | None:
        return self._lanes.get(name)

    @property
    def leading(self) -> list[str]:
        """The lanes that are further than the one that holds the boundary back."""
        lateness = self.settings.lateness_us
        lows = [lane.low(lateness) for lane in self._active()]
        least = min(lows, default=-FAR)
        return [name for name, lane in self._lanes.items() if lane.low(lateness) > least]

    @property
    def idle(self) -> list[str]:
        """The lanes that hold nobody back."""
        return [name for name, each in self._lanes.items() if each.state is LaneState.IDLE]

    @property
    def newest(self) -> int:
        """The newest row so far."""
        return max((lane.newest for lane in self._lanes.values()), default=-FAR)

    def _active(self) -> Iterator[Lane]:
        return (lane for lane in self._lanes.values() if lane.state is LaneState.ACTIVE)

    def _heard(self, lane: Lane, now: int) -> None:
        quiet_us = self.settings.lane_idle_us
        if quiet_us is not None and now - self._heard_last >= quiet_us:
            self.excuse(now - self._heard_last)  # all were quiet: who comes first is not ahead
        lane.heard_at = self._heard_last = max(self._heard_last, now)
        if lane.state is LaneState.IDLE:
            lane.move(Trigger.HEARD, now)

    def _advance(self, now: int | None = None) -> None:
        """The boundary as the lanes have it; with a clock, also if none of them is active."""
        lateness = self.settings.lateness_us
        lows = [lane.low(lateness) for lane in self._active()]
        low = min(lows, default=-FAR)
        idle_after = self.settings.idle_after_us
        if not lows and self._lanes and now is not None and idle_after is not None:
            low = max(lane.low(lateness) for lane in self._lanes.values())
            low = max(low, now - idle_after - lateness)
        bucket = self.settings.bucket_us
        self.boundary = max(self.boundary, low // bucket * bucket)
