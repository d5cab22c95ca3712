"""The client view: an output stream with its corrections applied.

Theory of operation. A client reads a stream as a replica does: it follows one of the
providers, or two at once while one of them sends corrections, and takes each stable tuple
once, by id, and each tentative tuple only about times nothing was said about. It hands the
application stable tuples, tentative tuples and undos: an undo says which tentative tuples are
taken back, by time, because the stable ones that follow stand in their place. Nothing can
take back a stable tuple, because stable tuples are only ever appended.

What was handed over is not safe: the application may be lost before it has made it durable, and
then asks for it again. So a client acknowledges what the application has committed, and no more.

    CORRECT ──tentative──▶ PROVISIONAL ──first correction──▶ CORRECTING ──last──▶ CORRECT
                                ▲                                │
                                └───────────tentative────────────┘
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, assert_never

from holdfast.core.consumer import Consumer, ConsumerEvent
from holdfast.core.copy_view import InputView
from holdfast.core.effects import (
    DeliverBoundary,
    DeliverTuples,
    DeliverUndo,
    Effect,
    EndProcess,
    Send,
    SetTimer,
)
from holdfast.core.events import (
    Committed,
    Event,
    FeedLost,
    MembershipTold,
    MessageArrived,
    Started,
    TimerFired,
)
from holdfast.core.frame import Kind
from holdfast.core.machine import Machine
from holdfast.core.membership import Word, told_to_go
from holdfast.core.messages import NotServed, StreamFrame, SubscribeRefused
from holdfast.core.records import Membership
from holdfast.core.settings import Input, Timing
from holdfast.core.stream_copy import GapFound, StreamCopy
from holdfast.core.upstream_events import JudgeSource, TakeFrames


class ClientState(Enum):
    CORRECT = "correct"
    PROVISIONAL = "provisional"
    CORRECTING = "correcting"


class Trigger(Enum):
    TENTATIVE_TAKEN = "tentative taken"
    CORRECTED_IN_PART = "corrected in part"
    CORRECTED = "corrected"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (ClientState.CORRECT, Trigger.TENTATIVE_TAKEN): ClientState.PROVISIONAL,
    (ClientState.PROVISIONAL, Trigger.TENTATIVE_TAKEN): ClientState.PROVISIONAL,
    (ClientState.PROVISIONAL, Trigger.CORRECTED_IN_PART): ClientState.CORRECTING,
    (ClientState.PROVISIONAL, Trigger.CORRECTED): ClientState.CORRECT,
    (ClientState.CORRECTING, Trigger.TENTATIVE_TAKEN): ClientState.PROVISIONAL,
    (ClientState.CORRECTING, Trigger.CORRECTED_IN_PART): ClientState.CORRECTING,
    (ClientState.CORRECTING, Trigger.CORRECTED): ClientState.CORRECT,
}


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """One client of one stream. ``next_id`` is where an earlier life of it got to.

    since  how far in time that was. Who provides the stream now may be behind that, and the ids of
           a lossy stream do not last.
    """

    address: str
    input: Input
    next_id: int = 0
    timing: Timing = field(default_factory=Timing)
    since: int = 0


class Client(Machine[ClientState, Trigger]):
    """The driver of one client."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(f"{settings.address} client", ClientState.CORRECT)
        self.settings = settings
        stream = settings.input.stream
        self.stream = stream
        self.copy = StreamCopy(stream, settings.next_id, settings.input.lossy, settings.since)
        self.consumer = Consumer(
            settings.address, (settings.input,), {stream: self.copy}, settings.timing
        )
        self.membership = Membership()
        self._word = Word()
        self._delivered_boundary = 0
        # Up to which id the application will not ask again, whatever becomes of it.
        self._committed = settings.next_id
        self._timer_at = 0

    def machines(self) -> Iterator[Machine[Any, Any]]:
        yield self
        yield from self.consumer.machines()

    def follows(self) -> str | None:
        """The process the stream comes from now."""
        feed = self.consumer.upstreams[self.stream].main
        return None if feed is None else feed.peer

    def view(self) -> InputView:
        """How its stream comes."""
        return InputView.of(self.consumer.upstreams[self.stream])

    def is_final(self, refusal: SubscribeRefused) -> bool:
        """Whether nobody can give what is needed, now that one has refused it."""
        # What is not here, or not yet, another one may have that is silent now.
        elsewhere = refusal.why is NotServed.NOT_HERE and self.consumer.out_of_reach() is None
        return refusal.why.is_lasting and not elsewhere and self.consumer.needs(refusal.feed)

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        match event:
            case Started() | TimerFired():
                self._timer_at = 0
                self._consume(TimerFired(), now, effects)
            case MessageArrived(sender, _) if self.membership.gone_since(sender) is not None:
                pass  # it is left, and what it sent before is still on its way
            case MessageArrived() | FeedLost():
                self._consume(event, now, effects)
            case Committed(next_id):
                self._committed = max(self._committed, next_id)
        self._look_at_membership(self._word.heard(event), now, effects)
        self.copy.forget_delivered()
        self.consumer.acknowledge({self.stream: self._safe()})
        at = self.consumer.next_due
        if at > now and at != self._timer_at:
            self._timer_at = at
            effects.append(SetTimer(at))
        return self._word.stamped(effects, self.membership)

    def _safe(self) -> int:
        """The first id that may be asked for again."""
        return max(0, min(self._committed, self.copy.next_id))

    def _look_at_membership(
        self, heard: Membership | None, now: int, effects: list[Effect]
    ) -> None:
        """Whether this client, and those it reads from, still take part."""
        if heard is None or heard.epoch <= self.membership.epoch:
            return
        self.membership = heard
        gone = told_to_go(self.settings.address, heard)
        if gone is not None:
            effects.append(EndProcess(gone, lasting=True))
        else:
            self._consume(MembershipTold(heard), now, effects)

    def _consume(self, event: ConsumerEvent, now: int, effects: list[Effect]) -> None:
        broken: set[int] = set()
        for effect in self.consumer.handle(event, now):
            match effect:
                case Send():
                    effects.append(effect)
                case TakeFrames():
                    try:
                        for frame in effect.frames:
                            self._take(frame, now, effects)
                    except GapFound:
                        broken.add(effect.feed)
                case JudgeSource():
                    pass  # it waits for nothing: whoever merges streams decides by that
                case _:
                    assert_never(effect)
        for feed in broken:
            self._consume(FeedLost(feed), now, effects)

    def _take(self, frame: StreamFrame, now: int, effects: list[Effect]) -> None:
        first_id = frame.header.first_id if self.copy.next_id < 0 else self.copy.next_id
        oldest, cut = self.copy.tentative.oldest, self.copy.cut
        held = self.copy.take(frame, now)
        if held is not None and held.header.kind is Kind.TENTATIVE:
            self.move(Trigger.TENTATIVE_TAKEN, now)
        elif oldest is not None and self.copy.cut > max(cut, oldest):
            whole = not self.copy.tentative
            self.move(Trigger.CORRECTED if whole else Trigger.CORRECTED_IN_PART, now)
            effects.append(DeliverUndo(self.stream, first_id, self.copy.cut))
        if held is not None:
            place = (held.skip, held.stime_from)
            effects.append(DeliverTuples(self.stream, held.header, held.block, *place, frame.why))
            held.block = None  # its place is needed until it is corrected, its tuples are not
        if self.copy.boundary > self._delivered_boundary:
            self._delivered_boundary = self.copy.boundary
            effects.append(DeliverBoundary(self.stream, self.copy.boundary))

    def validate(self) -> None:
        self.consumer.validate()
        self.require(
            (self.state is ClientState.CORRECT) == (not self.copy.tentative),
            "correct exactly when no tentative tuple is held",
        )
