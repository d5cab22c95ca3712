"""The driver of one copy of a fragment: a replica that can be put down and taken up again.

    what was found on disk ─▶ what is held: record, state, output queues ─wake─▶ Replica

Alone, a copy wakes when its process starts and runs until it ends. One of several sleeps and
wakes as the other fails and returns (``core.protected``); everything else about them is the same.

Waking is a restart: a ``Replica`` is made from the held record and state and the streams as they
are served, and goes on from there.

A copy that holds nothing wakes with the empty state. If its producers have trimmed what that would
need, it is put down and joins (``core.joining``): it takes the state of a partner and wakes again.
Its partners lend theirs (``core.lending``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any, assert_never

from holdfast.core import joining
from holdfast.core.beginning import Beginning, at_record, has_begun, serve, whole_frames
from holdfast.core.bounds import BoundWatch
from holdfast.core.copy_view import CopyView, Glance
from holdfast.core.delivery import begin_anew, of_use
from holdfast.core.effects import (
    ApplyCheckpoint,
    BeginRunning,
    CancelJob,
    Effect,
    EndProcess,
    Send,
    SetTimer,
    StartOver,
    StopRunning,
    TrimLog,
)
from holdfast.core.ending import EarlierLives, last_orders
from holdfast.core.events import (
    CheckpointApplied,
    CheckpointFailed,
    CheckpointNotSent,
    ConsumersKept,
    ConsumersNotKept,
    Ending,
    Event,
    JobDone,
    KeptMeasured,
    MembershipTold,
    MessageArrived,
    Started,
    TimerFired,
    WindowsRead,
)
from holdfast.core.joining import Apply, BeginEmpty, JoinAnew, Joining
from holdfast.core.lending import Lender, refusal, to_lend
from holdfast.core.machine import Machine
from holdfast.core.membership import Consumers, Word, replaced, told_to_go
from holdfast.core.messages import (
    ABOUT_STATE,
    ASKED,
    CheckpointRefused,
    CheckpointShipped,
    CheckpointTaken,
    CopyState,
    FeedFrames,
    HeartbeatReply,
    JoinReply,
    JoinRequest,
    Message,
    StreamState,
    Unsubscribe,
)
from holdfast.core.progress import Work
from holdfast.core.provider import Provider
from holdfast.core.racing import make_replica
from holdfast.core.records import Checkpoint, Found, Membership, RecoveryRecord
from holdfast.core.replica import Replica
from holdfast.core.settings import Delivery, Keeping, ReplicaSettings
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.core.succession import joining_of, peers_of

Held = tuple[RecoveryRecord, object]


class Copy:
    """A copy that runs alone."""

    # Subscribers may come before it has caught up: it is no more than a replica that is behind.
    OPEN_AT_ONCE = False

    def __init__(self, settings: ReplicaSettings, found: Found | None = None) -> None:
        found = of_use(settings, found)
        self.settings = settings
        self.replica: Replica | None = None
        self.held: Held | None = None if found.record is None else (found.record, found.state)
        self.acks: dict[str, int] = dict(found.record.inputs) if found.record else {}
        self.incarnation = 0 if found.record is None else found.record.incarnation
        self.joining: Joining | None = None
        self.consumers = Consumers(found.consumers)
        self.earlier_lives = EarlierLives(found, settings.timing.delay_us)
        self._word = Word()
        self._obeyed = 0
        logs = {one.stream: at_record(whole_frames(one), found.record) for one in found.queues}
        self.served = {
            one.stream: serve(settings, one, logs.get(one.stream)) for one in settings.outputs
        }
        # Called with a replica that is put down, for those who count transitions.
        self.retired: Callable[[Replica], None] = lambda replica: None
        self.joined: Callable[[Joining], None] = lambda machine: None
        # Answers while no replica runs.
        self.bounds = BoundWatch(dict(settings.bounds))
        rest = (self._state_at_rest, self.consumers, self.bounds)
        self._provider = Provider(self.served, *rest)
        self._lender = Lender(settings.lent_tuples_max, settings.query)
        self._applying: Checkpoint | None = None
        # Since when nobody who can be heard has what is needed.
        self._lacks_since: int | None = None
        self._numbers = (1, 1)
        self._replica_timer = FAR_FUTURE
        self._timer_at = FAR_FUTURE

    @property
    def state(self) -> CopyState:
        """Which of several it is; alone, it is the primary, unless it joins."""
        return CopyState.PRIMARY if self.joining is None else CopyState.JOINING

    def _state_at_rest(self, stream: str) -> StreamState:
        """What is said of a stream while no replica runs."""
        return StreamState.RECOVERING

    def machines(self) -> Iterator[Machine[Any, Any]]:
        if self.joining is not None:
            yield self.joining
        if self.replica is not None:
            yield from self.replica.machines()

    def view(self) -> CopyView:
        """How it is now."""
        return CopyView.of(self)

    def tentative_blocks(self) -> Iterator[tuple[str, object]]:
        """What is kept of tentative tuples, for whoever measures it, with the stream."""
        for name, served in self.served.items():
            yield from ((name, one.block) for one in served.tentative if one.block is not None)

    def work(self) -> Work:
        """The work of the replica, while one runs."""
        return Work() if self.replica is None else self.replica.progress.view()

    def reach(self) -> tuple[int, int] | None:
        """How far its inputs have come and how far they are processed; None while it sleeps."""
        if self.replica is None:
            return None
        arrived = min(one.live_boundary for one in self.replica.copies.values())
        versions = self.replica.versions
        return arrived, max(versions.stable_position, versions.live_position or 0)

    def glance(self) -> Glance:
        return Glance.of(self, peers_of(self.settings, self.consumers.membership))

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Take a fact, return orders. The only way anything here changes."""
        effects: list[Effect] = []
        if isinstance(event, TimerFired):
            self._timer_at = FAR_FUTURE
        effects += self.consumers.tell(self._word.heard(event))
        match event:
            case ConsumersKept() | ConsumersNotKept():
                effects += self.consumers.handle(event)
                self._obey(now, effects)
            case Started():
                self._obey(now, effects)
                if not any(isinstance(effect, EndProcess) for effect in effects):
                    self._take(event, now, effects)
            case MembershipTold():
                pass
            case Ending():
                unwritten = None if self.replica is None else self.replica.keeper.unwritten
                return last_orders(self.settings, self.served, self.earlier_lives, unwritten)
            case KeptMeasured():
                effects += self._provider.look(event, now)
            case _ if not self._is_of_one_who_left(event):
                self._take(event, now, effects)
        self._set_timer(now, effects)
        if self.settings.keeping is Keeping.WINDOWS:
            effects = self._keeping_windows(effects)
        return self._word.stamped(effects, self.consumers.membership)

    # -- who takes part -------------------------------------------------------------------

    def _obey(self, now: int, effects: list[Effect]) -> None:
        """Go on with those who take part, now that it is on disk who does."""
        membership = self.consumers.membership
        if membership.epoch == self._obeyed:
            return
        self._obeyed = membership.epoch
        gone = told_to_go(self.settings.address, membership)
        if gone is not None:
            effects.append(EndProcess(gone, lasting=True))
            return
        effects += self._provider.obey(membership)
        self.settings = self._among(membership)
        if self.replica is not None:
            self.replica.manager.go_on_with(self.settings)
            self._drive(MembershipTold(membership), now, effects)
        self._ask_those_who_are_left(now)

    def _ask_those_who_are_left(self, now: int) -> None:
        """Join as anew if others are to be asked now: for who has come nobody holds anything yet.

        What has come already is gone on from.
        """
        machine = self.joining
        if machine is None or self._applying is not None or machine.asks(self._lenders()):
            return
        self.joined(machine)
        self._join_as(max(now, self.incarnation + 1), machine.lacks, now)

    def _among(self, membership: Membership) -> ReplicaSettings:
        return self.settings.among(membership)

    def _is_of_one_who_left(self, event: Event) -> bool:
        """Whether it is said by one who is gone, and is no question: that one is answered."""
        if not self._obeyed or not isinstance(event, MessageArrived):
            return False
        asks = isinstance(event.message, ASKED)
        return not asks and self.consumers.membership.gone_since(event.sender) is not None

    def _take(self, event: Event, now: int, effects: list[Effect]) -> None:
        match event:
            case MessageArrived(_, message) if not isinstance(message, ABOUT_STATE):
                self._drive_or_join(event, now, effects)  # most of what comes
            case Started() if self.held is None and not self.settings.begins_empty:
                self._join_as(max(now, 1), "it is new, and takes over from others", now)
            case Started():
                self._wake(now, effects)
            case MessageArrived(sender, JoinRequest() as request):
                self._lend(sender, request, now, effects)
            case MessageArrived(_, CheckpointTaken(number) | CheckpointRefused(number)):
                self._lender.over(number)
            case CheckpointNotSent(number, _):
                self._lender.not_sent(number, now)
            case MessageArrived(sender, CheckpointShipped(checkpoint)) if self.joining is None:
                effects.append(Send(sender, refusal(checkpoint, self.settings.query)))
            case _:
                self._drive_or_join(event, now, effects)
        self._look_at_loans(now)

    def _look_at_loans(self, now: int) -> None:
        self._lender.look(now)
        if self.replica is not None:
            self.replica.sunion.stop_at(self._lender.stops)

    def _drive_or_join(self, event: Event, now: int, effects: list[Effect]) -> None:
        if self.joining is not None:
            self._join(self.joining, event, now, effects)
            return
        self._drive(event, now, effects)
        if isinstance(event, MessageArrived) and isinstance(event.message, HeartbeatReply):
            self._look_at_producers(now, effects)

    def _lend(self, sender: str, request: JoinRequest, now: int, effects: list[Effect]) -> None:
        """Answer one that wants the state; one that is about to have some says nothing."""
        if self._applying is None and sender in peers_of(self.settings, self.consumers.membership):
            newest, reached = to_lend(self.replica, request)
            effects += self._lender.asked(sender, request, newest, self.served, now, reached)

    def _drive(self, event: Event, now: int, effects: list[Effect]) -> None:
        """Let the replica take an event, if there is one."""
        if self.replica is None:
            return
        for effect in self.replica.handle(event, now):
            if isinstance(effect, SetTimer):
                self._replica_timer = effect.at
            else:
                effects.append(effect)
        self.earlier_lives.look(self.replica)
        # With continuous checkpoints a job's result may have waited for windows to be read.
        if isinstance(event, JobDone | WindowsRead) and self._lender.stops:
            effects += self._lender.reached(self.replica.computed, self.served, now)

    def _wake(self, now: int, effects: list[Effect]) -> None:
        record, state = self.held or (begin_anew(self.settings, self.served, now), None)
        effects += self._provider.obey(self.consumers.membership)  # also for streams begun anew
        effects.append(BeginRunning(record, state))
        begun = has_begun(self.settings, self.held)
        # What is held may not be on disk: only what was acknowledged before still counts.
        begin = Beginning(
            state,
            self.served,
            dict(self.acks),
            *self._numbers,
            self.OPEN_AT_ONCE and begun,
            self.consumers,
            self.incarnation,
            self.bounds,
            not self.OPEN_AT_ONCE,  # nobody else goes on from its disk
            self.OPEN_AT_ONCE and not begun,
        )
        self.replica = make_replica(self.settings, record, begin)
        for served in self.served.values():
            effects += served.wake()
        self._drive(Started(), now, effects)

    def _put_down(self, effects: list[Effect]) -> None:
        """The replica goes; what it has come to is held."""
        replica = self.replica
        assert replica is not None, "only a running copy is put down"
        self.replica = None
        self._replica_timer = FAR_FUTURE
        self.retired(replica)
        self.held = replica.newest
        # The log must not end before the queue: it is what a restart makes the queue of.
        effects += replica.keeper.last()
        self.acks = dict(replica.consumer.acks)
        self._numbers = (replica.versions.next_job, replica.appender.next_append)
        if replica.versions.job is not None:
            effects.append(CancelJob(replica.versions.job[0]))
        effects.append(StopRunning())
        for upstream in replica.consumer.upstreams.values():
            effects += [Send(feed.peer, Unsubscribe(feed.id)) for feed in upstream.feeds()]

    # -- joining ------------------------------------------------------------------------

    def _look_at_producers(self, now: int, effects: list[Effect]) -> None:
        """Whether this is the life that counts, and whether its input can be had."""
        replica = self.replica
        if replica is None:
            return
        consumer = replica.consumer
        if self._is_replaced(consumer.newest_life, now, effects):
            return
        lacking = consumer.out_of_reach()
        if lacking is None:
            self._lacks_since = None
            return
        if self._lacks_since is None:
            self._lacks_since = now
        stream, first_id = lacking
        if self.settings.delivery is Delivery.AT_MOST_ONCE:
            replica.copies[stream].forget_ids()
        elif self._has_nothing:
            lacks = f"nothing is here, and {stream} cannot be had from before {first_id}"
            self._begin_joining(lacks, now, effects)
        elif self.settings.can_join and now - self._lacks_since > self.settings.timing.delay_us:
            needed = consumer.upstreams[stream].copy.next_id
            reason = f"{stream} is needed from {needed} on and begins at {first_id}"
            effects.append(StartOver(f"{self.settings.address}: {reason}"))

    @property
    def _has_nothing(self) -> bool:
        running = self.replica
        return self.held is None and (running is None or running.appender.durable is None)

    def _is_replaced(self, newest_life: int, now: int, effects: list[Effect]) -> bool:
        """Whether a producer knows of a later life than this one, which ends then."""
        if newest_life <= self.incarnation:
            return False
        if self._has_nothing:
            # Of whoever went by this name before, nothing is left.
            self.incarnation = max(now, newest_life + 1)
            if self.replica is not None:
                self.replica.consumer.live_as(self.incarnation)
        else:
            lives = (self.incarnation, newest_life)
            effects.append(EndProcess(replaced(self.settings.address, *lives)))
        return True

    def _begin_joining(self, lacks: str, now: int, effects: list[Effect]) -> None:
        self._put_down(effects)
        self.held = None
        self._lacks_since = None
        for served in self.served.values():
            served.let_in(False)
        self._join_as(max(now, self.incarnation + 1), lacks, now)

    def _join_as(self, incarnation: int, lacks: str, now: int) -> None:
        self.incarnation = incarnation
        self.earlier_lives.begin_again()
        self.joining = joining_of(self._lenders(), incarnation, lacks, now)

    def _lenders(self) -> ReplicaSettings:
        """Whom to take the state from."""
        return self.settings

    def _join(self, machine: Joining, event: Event, now: int, effects: list[Effect]) -> None:
        fact: joining.JoinEvent = joining.TimePassed()
        match event:
            case MessageArrived(sender, HeartbeatReply() as reply):
                fact = joining.ProducerSaid(sender, reply)
            case MessageArrived(sender, JoinReply() as reply):
                fact = joining.PartnerSaid(sender, reply)
            case MessageArrived(sender, CheckpointShipped(checkpoint)):
                fact = joining.CheckpointCame(sender, checkpoint)
            case CheckpointApplied(number, state):
                self._joined(machine, number, state, now, effects)
                return
            case CheckpointFailed(number, _):
                fact = joining.NotApplied(number)
                self._applying = None
            case MessageArrived(sender, message):
                self._at_rest(sender, message, now, effects)
        refused = [] if not isinstance(fact, joining.CheckpointCame) else [fact]
        for order in machine.handle(fact, now):
            match order:
                case Send():
                    effects.append(order)
                case Apply(checkpoint):
                    refused.clear()
                    record = replace(checkpoint.record, incarnation=machine.incarnation)
                    self._applying = replace(checkpoint, record=record)
                    effects.append(ApplyCheckpoint(self._applying))
                case JoinAnew(known):
                    self.joined(machine)
                    self._join_as(max(now, known + 1), machine.lacks, now)
                case BeginEmpty():
                    self._end_joining(machine, now, effects)
                    return
                case _:
                    assert_never(order)
        refused = [one for one in refused if not machine.keeps(one.checkpoint)]
        effects += [Send(one.peer, refusal(one.checkpoint, self.settings.query)) for one in refused]
        self._ask_those_who_are_left(now)

    def _joined(
        self, machine: Joining, number: int, state: object, now: int, effects: list[Effect]
    ) -> None:
        """The checkpoint is on disk: go on from it."""
        checkpoint = self._applying
        if checkpoint is None or checkpoint.number != number:
            return
        self._applying = None
        for queue in checkpoint.queues:
            effects += self.served[queue.stream].extend(queue)
        self.held = (checkpoint.record, state)
        self.acks = dict(checkpoint.record.inputs)
        effects += [Send(lender, CheckpointTaken(lent)) for lender, lent in machine.lent]
        self._end_joining(machine, now, effects)

    def _end_joining(self, machine: Joining, now: int, effects: list[Effect]) -> None:
        self.joined(machine)
        self.joining = None
        self._wake(now, effects)

    def _at_rest(self, sender: str, message: Message, now: int, effects: list[Effect]) -> None:
        """Answer whoever asks while no replica runs."""
        if isinstance(message, FeedFrames):
            effects.append(Send(sender, Unsubscribe(message.feed)))
        elif isinstance(message, ASKED):
            effects += self._provider.handle(sender, message, now)

    # -- what must stay on disk -----------------------------------------------------------

    def _keeping_windows(self, effects: list[Effect]) -> list[Effect]:
        """Say with every trim which window states are needed all the same."""
        return [
            replace(effect, windows_from=self._windows_from())
            if isinstance(effect, TrimLog)
            else effect
            for effect in effects
        ]

    def _windows_from(self) -> int:
        """The time of the oldest window states that some record needs which may be used."""
        return min((record.extent for record in self._usable_records()), default=0)

    def _usable_records(self) -> Iterable[RecoveryRecord]:
        """What a restart, or another copy, may go on from."""
        if self.replica is not None:
            yield self.replica.newest[0]
        elif self.held is not None:
            yield self.held[0]
        if self._applying is not None:
            # The other copy's may reach further back than this one's own.
            yield self._applying.record
        yield from self._lender.records()

    # -- time ---------------------------------------------------------------------------

    def _deadlines(self, now: int) -> list[int]:
        """When something has to be looked at."""
        if self.joining is not None:
            return [max(self.joining.deadline, now + 1)]
        return [max(self._replica_timer, now + 1)] if self.replica is not None else []

    def _set_timer(self, now: int, effects: list[Effect]) -> None:
        at = min((time for time in self._deadlines(now) if time > now), default=FAR_FUTURE)
        if at not in (self._timer_at, FAR_FUTURE):
            self._timer_at = at
            effects.append(SetTimer(at))

    def validate(self) -> None:
        """Every invariant of every machine; the simulator and the tests call it."""
        self._provider.validate()
        if self.joining is not None:
            self.joining.validate()
        if self.replica is not None:
            self.replica.validate()
