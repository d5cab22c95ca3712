"""The entry point: where a source's tuples get their ids, safely on disk, and boundaries.

Theory of operation. A source counts its tuples and hands them over in batches; the count is
the tuple id. A batch is taken if it continues the log, so that a batch offered twice (the
source did not hear the answer, or the entry point restarted) is taken once. Batches are
appended in groups; only when a group is on disk are its tuples published and accepted. An id
that anyone has seen is therefore never given to another tuple, and none is skipped. A batch none
of whose rows became a tuple is in a group all the same: that it came is on disk before it is
accepted.

Every group ends with a boundary, and when the source is silent a group is a boundary alone: a
promise, also on disk, that no older tuple follows. The boundary is the present time; or, if tuples
bring their own time, what their source promises with each batch. A batch with an older tuple came
too late and is refused. What could not be written was promised to nobody.

After a crash the log is cut after its last boundary: what follows it was never published.

    IDLE ──something to write──▶ WRITING ──appended──▶ IDLE
                                    │ failed             ▲
                                    └────▶ PAUSED ──retry┘
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from holdfast.core.beginning import whole_frames
from holdfast.core.bounds import BoundWatch
from holdfast.core.effects import (
    AcceptTuples,
    Append,
    Effect,
    RefuseBatch,
    SetTimer,
)
from holdfast.core.events import (
    Appended,
    AppendFailed,
    ConsumersKept,
    ConsumersNotKept,
    Event,
    KeptMeasured,
    LoggedStream,
    MessageArrived,
    SourceBatch,
    SourceReached,
    Started,
    TimerFired,
)
from holdfast.core.frame import Header, Kind
from holdfast.core.machine import Machine
from holdfast.core.membership import Consumers, Word
from holdfast.core.messages import StreamFrame, StreamState
from holdfast.core.provider import Provider
from holdfast.core.records import ConsumersRecord
from holdfast.core.serving import ServedStream
from holdfast.core.settings import Bound


class EntryState(Enum):
    IDLE = "idle"
    WRITING = "writing"
    PAUSED = "paused"


class Trigger(Enum):
    WRITE = "something to write"
    APPENDED = "appended"
    FAILED = "append failed"
    RETRY = "retry"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (EntryState.IDLE, Trigger.WRITE): EntryState.WRITING,
    (EntryState.WRITING, Trigger.APPENDED): EntryState.IDLE,
    (EntryState.WRITING, Trigger.FAILED): EntryState.PAUSED,
    (EntryState.PAUSED, Trigger.RETRY): EntryState.IDLE,
}


@dataclass(frozen=True, slots=True)
class EntrySettings:
    """One entry point: its stream, who must acknowledge it, and its times.

    own_time      tuples bring their time; the source says how far it is.
    lane_idle_us  how long one of several producers may be quiet while others are not.
    bound         how much is kept for somebody who is away; None for all of it.
    """

    address: str
    stream: str
    consumers: tuple[str, ...]
    boundary_interval_us: int = 100_000
    own_time: bool = False
    retry_us: int = 100_000
    lane_idle_us: int | None = None
    bound: Bound | None = None


@dataclass(frozen=True, slots=True)
class EntryView:
    """What others may know of an entry point: how far its stream is, and whom it obeys.

    beyond   what is kept beyond its bound, and for whom nothing is any more, in words.
    full     for whom the source has to wait, and why: too much is kept, here or by whoever reads
             from here.
    lapsed   (stream, consumer) of those for whom nothing is kept for now.
    """

    state: EntryState
    next_id: int
    first_id: int
    boundary: int
    epoch: int
    beyond: str
    full: str
    lapsed: frozenset[tuple[str, str]]


class EntryPoint(Machine[EntryState, Trigger]):
    """The driver of one entry point."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self,
        settings: EntrySettings,
        logged: LoggedStream | None = None,
        consumers: ConsumersRecord | None = None,
    ) -> None:
        super().__init__(f"{settings.address} entry point", EntryState.IDLE)
        self.settings = settings
        log = whole_frames(logged or LoggedStream(settings.stream, 0, ()))
        served = ServedStream(
            settings.stream, settings.consumers, log.first_id, log.frames, durable=True
        )
        self.served = served
        self.consumers = Consumers(consumers)
        self._word = Word()
        bounds = {} if settings.bound is None else {settings.stream: settings.bound}
        self.bounds = BoundWatch(bounds)
        self.provider = Provider(
            {settings.stream: served},
            lambda stream: StreamState.STABLE,
            self.consumers,
            self.bounds,
        )
        self._promised = served.boundary
        self._reached = served.boundary
        self._waiting: list[SourceBatch] = []
        self._waiting_id = served.next_id
        self._writing: Append | None = None
        # The append under way has batches, not just a boundary.
        self._accepts = False
        self._next_append = 1
        self._boundary_at = 0
        self._retry_at = 0
        self._timer_at = 0

    def machines(self) -> Iterator[Machine[Any, Any]]:
        yield self

    def view(self) -> EntryView:
        """How it is now."""
        served, epoch = self.served, self.consumers.membership.epoch
        place = (served.next_id, served.first_id, served.boundary)
        bounds = (self.bounds.beyond, self.bounds.full, self.bounds.lapsed)
        return EntryView(self.state, *place, epoch, *bounds)

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects = self.consumers.tell(self._word.heard(event))
        match event:
            case Started():
                # The log is whole: see whole_frames.
                effects += self.provider.obey(self.consumers.membership)
            case SourceBatch():
                effects += self._offered(event)
            case SourceReached(stime):
                self._reached = max(self._reached, stime)
            case MessageArrived(sender, message):
                effects += self.provider.handle(sender, message, now)
            case ConsumersKept() | ConsumersNotKept():
                effects += self.consumers.handle(event)
                effects += self.provider.obey(self.consumers.membership)
            case KeptMeasured():
                effects += self.provider.look(event, now)
            case Appended(append):
                effects += self._appended(append, now)
            case AppendFailed(append, reason):
                effects += self._failed(append, reason, now)
            case TimerFired():
                self._timer_at = 0
                if self.state is EntryState.PAUSED and now >= self._retry_at:
                    self.move(Trigger.RETRY, now)
        self.bounds.forget_who_is_away(now)
        effects += self._write(now)
        at = self._retry_at if self.state is EntryState.PAUSED else self._boundary_at
        if at > now and at != self._timer_at:
            self._timer_at = at
            effects.append(SetTimer(at))
        return effects

    def _offered(self, batch: SourceBatch) -> list[Effect]:
        if batch.count and batch.first_id + batch.count <= self.served.next_id:
            return [AcceptTuples(self.served.next_id)]
        if batch.first_id != self._waiting_id:
            if batch.first_id + batch.count <= self._waiting_id:
                return []  # being written; accepted when it is
            reason = f"tuple {self._waiting_id} is next, offered {batch.first_id}"
            return [RefuseBatch(self._waiting_id, reason)]
        if batch.count and batch.stime_min < self._promised:
            reason = f"stime {batch.stime_min} is below the boundary {self._promised}"
            return [RefuseBatch(self._waiting_id, reason)]
        self._waiting.append(batch)
        self._waiting_id += batch.count
        return []

    def _write(self, now: int) -> list[Effect]:
        due = bool(self._waiting) or now >= self._boundary_at
        if self.state is not EntryState.IDLE or not due:
            return []
        self.move(Trigger.WRITE, now, f"{len(self._waiting)} batches")
        self._boundary_at = now + self.settings.boundary_interval_us
        frames = []
        for batch in self._waiting:
            self._reached = max(self._reached, batch.reached)
            if not batch.count:
                continue
            header = Header(
                Kind.STABLE,
                batch.first_id,
                batch.count,
                batch.stime_min,
                batch.stime_max,
                batch.stime_max,
            )
            frames.append(StreamFrame(header, batch.block))
        self._promised = max(self._promised, self._reached if self.settings.own_time else now)
        stime = self._promised
        frames.append(StreamFrame(Header(Kind.BOUNDARY, self._waiting_id, 0, stime, stime, stime)))
        self._accepts = bool(self._waiting)
        self._waiting = []
        self._writing = Append(self._next_append, ((self.settings.stream, tuple(frames)),))
        self._next_append += 1
        return [self._writing]

    def _appended(self, append: int, now: int) -> list[Effect]:
        if self._writing is None or append != self._writing.append:
            return []
        frames = self._writing.frames[0][1]
        self._writing = None
        self.move(Trigger.APPENDED, now)
        effects = self.served.publish(frames)
        if self._accepts:
            effects.append(AcceptTuples(self.served.next_id))
        return effects

    def _failed(self, append: int, reason: str, now: int) -> list[Effect]:
        """Ids and boundary were seen by nobody: the source offers the same tuples again."""
        if self._writing is None or append != self._writing.append:
            return []
        self._writing = None
        self._waiting = []
        self._waiting_id = self.served.next_id
        self._promised = self._reached = self.served.boundary
        self._retry_at = now + self.settings.retry_us
        self.move(Trigger.FAILED, now, reason)
        return [RefuseBatch(self._waiting_id, reason)]

    def validate(self) -> None:
        self.require((self.state is EntryState.WRITING) == (self._writing is not None), "writing")
        self.require(self._promised >= self.served.boundary, "published more than promised")
        self.provider.validate()
