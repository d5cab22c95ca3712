"""The driver of one copy of a passive or hybrid fragment: a replica that sleeps and wakes.

    heartbeats of the other copies ─▶ StandbySwitch ─wake, sleep─▶ Replica, or none
    the primary's checkpoints      ─▶ what is held: record, state, output queue
    trims of the output queue      ─▶ SweepingCheckpointer ─▶ checkpoints to each other copy

While the copy sleeps it holds a record, a state and its output queues; it answers heartbeats,
grants feeds that carry nothing, and acknowledges to its producers what the held record has
processed, and no more: that is what lets them trim. Waking is what a copy does that runs alone
(``core.copy``), and nobody else needs to know.

Each copy acknowledges only what it could itself go on from, so a producer, which keeps what
the slowest of them needs, can serve any.

Who the other copies are may change (``core.membership``). One that is about to go is relieved
first: the next one begins a term of its own. A new copy has the place of one that is gone. It
*arrives*: it joins as a replica does (``core.joining``), with what another copy lends it, because
its producers may have trimmed what an empty state would need; with what it was lent it stands by.
Its acknowledgements count under its own incarnation. So does a copy whose machine is gone and that
has another in its place, under the same name: were it sent a checkpoint as one that has lost its
state is, the earlier one might still run, cut off from everybody but the producers, and acknowledge
in its name what it needs itself. The producers tell the earlier one, which ends, asleep or not.

Copies of a new shard arrive as well: the first takes over from those that had its slots before
(``core.succession``), the others join it. Of the old shards' copies one that runs lends its state
at the boundary that the new one has named; one that sleeps says that it cannot.

At most once (``core.delivery``) no checkpoints are sent and none is held: a copy that wakes goes on
from now, as one that starts does, and a copy that sleeps needs nothing that was sent before.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, assert_never

from holdfast.core import detector, standby, sweeping
from holdfast.core.acknowledgements import NOTHING_NEEDED
from holdfast.core.beginning import has_begun
from holdfast.core.benchmark_detector import (
    BenchmarkDetector,
    BenchmarkEvent,
    LoadSeen,
    SetTimed,
)
from holdfast.core.consistency import NodeState
from holdfast.core.copy_view import Glance, PairView
from holdfast.core.detector import AskPeer, PeerLost
from holdfast.core.effects import Effect, Send, TimeStandardSet, TrimLog
from holdfast.core.events import (
    BusyMeasured,
    CheckpointApplied,
    CheckpointFailed,
    CheckpointNotSent,
    Event,
    LoadMeasured,
    MessageArrived,
    PeerUnreachable,
    StandardSetTimed,
    Started,
    TimerFired,
)
from holdfast.core.joining import Joining
from holdfast.core.machine import Machine
from holdfast.core.messages import (
    ABOUT_STATE,
    CheckpointRefused,
    CheckpointShipped,
    CheckpointTaken,
    CopyReply,
    CopyReport,
    CopyRequest,
    CopyState,
    HeartbeatReply,
    HeartbeatRequest,
    JoinRequest,
    Message,
    Refusal,
    StateRequest,
    StreamState,
)
from holdfast.core.other_copy import OtherCopy
from holdfast.core.records import Checkpoint, Found, Membership, RecoveryRecord
from holdfast.core.replica import Replica
from holdfast.core.settings import Delivery, ReplicaSettings, StandbySettings
from holdfast.core.shipping import ShippingCopy
from holdfast.core.standby import ReadState, Sleep, StandbySwitch, SwitchEvent, Wake
from holdfast.core.sweeping import Numbers

# How long a state that was asked for may take to come.
READ_PATIENCE_US = 3_000_000
# How often the load of the machine is looked at, where it is.
LOOK_US = 50_000
# What one that takes a place hears; the rest is as ever.
OF_JOINING = (MessageArrived, CheckpointApplied, CheckpointFailed, TimerFired)


class ProtectedReplica(ShippingCopy):
    """One of the copies of a fragment."""

    OPEN_AT_ONCE = True

    def __init__(
        self, settings: ReplicaSettings, pair: StandbySettings, found: Found | None = None
    ) -> None:
        super().__init__(settings, found)
        self.pair = pair
        at = pair.copies.index(settings.address)
        self._checkpoint_numbers = Numbers(at, len(pair.copies))
        self.others = {name: self._make_other(name) for name in pair.others_than(settings.address)}
        self.lossy = settings.delivery is Delivery.AT_MOST_ONCE
        self.overloaded, self.load = False, 0
        for stream in self.served.values():
            stream.suspend()
        slack_us = 2 * settings.timing.bucket_us
        self.switch = StandbySwitch(settings.address, pair, slack_us, self.lossy)
        self.benchmark = BenchmarkDetector(
            settings.address, LOOK_US, pair.load_threshold, pair.slowdown, settings.address
        )
        self._replies: dict[str, tuple[int, HeartbeatReply]] = {}

    def _make_other(self, name: str) -> OtherCopy:
        return OtherCopy(name, self.settings.address, self.pair, self._checkpoint_numbers)

    @property
    def state(self) -> CopyState:
        return self.switch.state

    def machines(self) -> Iterator[Machine[Any, Any]]:
        yield self.switch
        for other in self.others.values():
            yield from other.machines()
        yield self.benchmark
        yield from super().machines()

    def glance(self) -> Glance:
        switch, seen = self.switch, super().glance()
        why = f"term {switch.term}: {switch.reason}"
        why += ", overloaded" if self.overloaded else ""
        told = (
            seen.why if seen.joining else why,
            seen.boundary,
            seen.partners,
            seen.joining,
            tuple(self.others),
        )
        return Glance(switch.state.value, *told)

    def pair_view(self) -> PairView:
        return PairView.of(self)

    def report(self) -> CopyReport:
        boundary, live, ready = -1, -1, False
        if self.replica is not None:
            boundary = self.replica.versions.stable_position
            live = max(boundary, self.replica.versions.live_position or 0)
            ready = self.replica.state is not NodeState.RECOVERING
        elif self.held is not None:
            boundary = live = self.held[0].boundary
        stalled = self.replica is not None and self.replica.progress.stalled
        return CopyReport(
            self.switch.term,
            self.state,
            boundary,
            live,
            ready,
            self.overloaded,
            self.base or 0,
            stalled,
            self.switch.hears,
            self.load,
            self.joining is not None,
        )

    def _take(self, event: Event, now: int, effects: list[Effect]) -> None:
        arrives = self.held is None and not self.settings.begins_empty and not self.lossy
        match event:
            case Started() if arrives:
                self._join_as(max(now, 1), "it is new, and takes the place of another copy", now)
            case _ if self.joining is not None and isinstance(event, OF_JOINING):
                self._arrive(self.joining, event, now, effects)
            case MessageArrived(_, HeartbeatReply(incarnation=newest_life)):
                self._stand_by(event, now, effects)
                self._is_replaced(newest_life, now, effects)
            case _:
                self._stand_by(event, now, effects)
        self._look_at_loans(now)
        self._tick(now, effects)

    def _stand_by(self, event: Event, now: int, effects: list[Effect]) -> None:
        match event:
            case Started():
                self._switch(standby.Begun(self.report()), now, effects)
            case MessageArrived(sender, message) if sender in self.others:
                self._other_says(self.others[sender], message, now, effects)
            case PeerUnreachable(peer) if peer in self.others:
                self._detect(self.others[peer], detector.Unreachable(), now, effects)
            case CheckpointApplied(number, state):
                self._applied(number, state, now, effects)
            case CheckpointFailed(number, _):
                if self._applying is not None and self._applying.number == number:
                    self._applying = None
                    refused = CheckpointRefused(number, Refusal.FAILED)
                    effects.append(Send(self._sender, refused))
            case BusyMeasured(share):
                self.load = round(1000 * share)
            case LoadMeasured(load):
                self._benchmark(LoadSeen(load), now, effects)
            case StandardSetTimed(took_us):
                self._benchmark(SetTimed(took_us), now, effects)
            case CheckpointNotSent(number, _):
                self._lender.not_sent(number, now)
                self._all_checkpointers(sweeping.Refused(number, Refusal.FAILED), now)
                self._resume(now, effects)
            case MessageArrived(sender, message) if isinstance(message, ABOUT_STATE):
                self._successor_says(sender, message, now, effects)
            case MessageArrived(sender, message) if self.replica is None:
                self._at_rest(sender, message, now, effects)
            case _:
                self._drive(event, now, effects)
                self._take_up()

    def _take_up(self) -> None:
        """Go on anywhere with what nobody has any more; nothing was kept while this one slept."""
        if self.lossy and self.replica is not None:
            lacking = self.replica.consumer.out_of_reach()
            if lacking is not None:
                self.replica.copies[lacking[0]].forget_ids()

    def _drive(self, event: Event, now: int, effects: list[Effect]) -> None:
        next_ids = [one.next_id for one in self.served.values()]
        before = len(effects)
        super()._drive(event, now, effects)
        if any(isinstance(effect, TrimLog) for effect in effects[before:]):
            self._all_checkpointers(sweeping.Trimmed(), now)
        if [one.next_id for one in self.served.values()] != next_ids:
            self._all_checkpointers(sweeping.Grown(), now)

    def _at_rest(self, sender: str, message: Message, now: int, effects: list[Effect]) -> None:
        if isinstance(message, HeartbeatReply):
            self._replies[sender] = (now, message)
        else:
            super()._at_rest(sender, message, now, effects)

    def _state_at_rest(self, stream: str) -> StreamState:
        # Of one that holds nothing nobody knows yet where its streams begin.
        begun = has_begun(self.settings, self.held)
        return StreamState.SUSPENDED if begun else StreamState.RECOVERING

    # -- the other copies ---------------------------------------------------------------

    def _all_checkpointers(self, event: sweeping.CheckpointerEvent, now: int) -> None:
        for other in self.others.values():
            other.checkpointer.handle(event, now)

    def _other_says(
        self, other: OtherCopy, message: Message, now: int, effects: list[Effect]
    ) -> None:
        # Whatever it says, it is there, unless it says that it gets nothing done.
        if not (isinstance(message, CopyRequest | CopyReply) and message.report.stalled):
            other.detector.handle(detector.Replied(), now)
        match message:
            case CopyRequest(report):
                self._reported(other, report, now, effects)
                effects.append(Send(other.address, CopyReply(self.report())))
            case CopyReply(report):
                self._reported(other, report, now, effects)
            case CheckpointShipped(checkpoint):
                self._shipped(other.address, checkpoint, effects)
            case JoinRequest():
                self._lend(other.address, message, now, effects)
            case CheckpointTaken(number):
                self._lender.over(number)
                other.checkpointer.handle(sweeping.Taken(number), now)
                self._resume(now, effects)
            case CheckpointRefused(number, reason):
                self._lender.over(number)
                other.checkpointer.handle(sweeping.Refused(number, reason), now)
                self._resume(now, effects)
            case StateRequest(boundary):
                if self.report().boundary > boundary:
                    number = self._checkpoint_numbers.next(now)
                    self._ship(other, number, None, True, effects)

    def _reported(
        self, other: OtherCopy, report: CopyReport, now: int, effects: list[Effect]
    ) -> None:
        if self.replica is None and self.held is not None:
            self.earlier_lives.heard(report, self.held[0].boundary)
        said = standby.PartnerSaid(other.address, report, self.report())
        self._switch(said, now, effects)
        other.reported(report, now)
        self._resume(now, effects)

    def _switch(self, event: SwitchEvent, now: int, effects: list[Effect]) -> None:
        before = self.state
        for order in self.switch.handle(event, now):
            match order:
                case Wake():
                    self._wake(now, effects)
                case Sleep():
                    self._sleep(now, effects)
                case ReadState(peer):
                    patient = now - self._read_at <= READ_PATIENCE_US or self._applying is not None
                    if not patient and not self.lossy:
                        self._read_at = now
                        effects.append(Send(peer, StateRequest(self.report().boundary)))
                case _:
                    assert_never(order)
        if self.state is not before and self.state is CopyState.PRIMARY:
            self._all_checkpointers(sweeping.PartnerAnew(), now)

    def _wake(self, now: int, effects: list[Effect]) -> None:
        super()._wake(now, effects)
        # What the producers said a moment ago saves asking them first.
        for producer, (heard_at, reply) in self._replies.items():
            if now - heard_at <= 2 * self.settings.timing.heartbeat_interval_us:
                self._drive(MessageArrived(producer, reply), now, effects)
        self._replies.clear()

    def _sleep(self, now: int, effects: list[Effect]) -> None:
        self._put_down(effects)
        if self.lossy:
            self.held, self.acks = None, {}
        for served in self.served.values():
            served.suspend()

    # -- who the other copies are -----------------------------------------------------------

    def _among(self, membership: Membership) -> ReplicaSettings:
        # The other copies sleep, and are no partners that could go on while this one reconciles.
        return replace(super()._among(membership), partners=())

    def _obey(self, now: int, effects: list[Effect]) -> None:
        before = self._obeyed
        super()._obey(now, effects)
        membership, address = self.consumers.membership, self.settings.address
        if self._obeyed == before or membership.gone_since(address) is not None:
            return
        self.pair = self.pair.among(membership)
        gone = {name for name in self.pair.copies if membership.gone_since(name) is not None}
        there = [name for name in self.pair.others_than(address) if name not in gone]
        if there != [*self.others]:
            self._turn_to(there, now)
        # Of several that were asked to go, earlier ones have stayed after all.
        since, last = max((membership.leaves_since(one), one) for one in self.pair.copies)
        leaving = frozenset(gone | {last} if since else gone)
        self._switch(standby.CopiesChanged(self.pair, leaving, self.report()), now, effects)
        self._resume(now, effects)

    def _turn_to(self, there: list[str], now: int) -> None:
        """These are the other copies now."""
        self.others = {name: self.others.get(name) or self._make_other(name) for name in there}
        self._ask_those_who_are_left(now)

    def _lenders(self) -> ReplicaSettings:
        return replace(self.settings, partners=tuple(self.others))

    def _arrive(self, machine: Joining, event: Event, now: int, effects: list[Effect]) -> None:
        """Take a place; what the other copies say of themselves tells the term."""
        match event:
            case MessageArrived(sender, CopyRequest(report) | CopyReply(report)):
                if sender in self.others:
                    self.others[sender].detector.handle(detector.Replied(), now)
                    self._switch(standby.TermHeard(sender, report.term), now, effects)
                    if isinstance(event.message, CopyRequest):
                        effects.append(Send(sender, CopyReply(self.report())))
            case MessageArrived(sender, JoinRequest() as request) if sender in self.others:
                self._lend(sender, request, now, effects)
            case _:
                self._join(machine, event, now, effects)

    def _end_joining(self, machine: Joining, now: int, effects: list[Effect]) -> None:
        self.joined(machine)
        self.joining = None
        self._keep_at = now  # the producers hear of it at once, and let their holds go
        # Who was missed meanwhile is to be missed again.
        self.others = {name: self._make_other(name) for name in self.others}
        self._switch(standby.Begun(self.report()), now, effects)

    def _lend(self, sender: str, request: JoinRequest, now: int, effects: list[Effect]) -> None:
        """Answer another copy that arrives; one that arrives itself has nothing either."""
        held = self.held if self.replica is None else self.replica.newest
        if self._applying is None:
            effects += self._lender.asked(sender, request, held, self.served, now)

    # -- checkpoints to the other copies ------------------------------------------------

    def _ship(
        self, to: OtherCopy, number: int, base: int | None, wanted: bool, effects: list[Effect]
    ) -> None:
        held = self.held if self.replica is None else self.replica.newest
        if held is None:
            return
        record, state = held
        about = (number, self.switch.term, base)
        checkpoint = Checkpoint(*about, record, (), state, wanted, query=self.settings.query)
        effects.append(Send(to.address, CheckpointShipped(to.packed(checkpoint, self.served))))

    def _usable_records(self) -> Iterable[RecoveryRecord]:
        yield from super()._usable_records()
        yield from (one.sent for one in self.others.values() if one.sent is not None)

    def _resume(self, now: int, effects: list[Effect]) -> None:
        """A synchronous checkpoint is over: go on processing."""
        if self.replica is not None and self.replica.pauses and not self._pauses(now):
            self.replica.resume()
            self._drive(TimerFired(), now, effects)

    def _pauses(self, now: int) -> bool:
        return any(one.checkpointer.pauses(now) for one in self.others.values())

    # -- time ---------------------------------------------------------------------------

    def _tick(self, now: int, effects: list[Effect]) -> None:
        for other in self.others.values():
            if now >= other.detector.next_ask_at:
                self._detect(other, detector.TimePassed(), now, effects)
        if self.joining is not None:
            return
        if now >= self.switch.deadline:
            self._switch(standby.TimePassed(self.report()), now, effects)
        if self.replica is None:
            self._keep_connections(now, effects)
        else:
            if self.state is CopyState.PRIMARY:
                self._checkpoint(self.replica, now, effects)
            self._resume(now, effects)

    def _detect(
        self, other: OtherCopy, event: detector.DetectorEvent, now: int, effects: list[Effect]
    ) -> None:
        """Let the failure detector take a fact about another copy."""
        for effect in other.detector.handle(event, now):
            if isinstance(effect, AskPeer):
                effects.append(Send(other.address, CopyRequest(self.report())))
            elif isinstance(effect, PeerLost):
                self._switch(standby.PartnerMissed(other.address, self.report()), now, effects)

    def _checkpoint(self, replica: Replica, now: int, effects: list[Effect]) -> None:
        if self.lossy:
            return
        boundary = replica.newest[0].boundary
        for other in self.others.values():
            if not self.switch.takes_checkpoints(other.address, now):
                continue
            for order in other.checkpointer.handle(sweeping.Look(boundary), now):
                self._ship(other, order.number, order.base, False, effects)
        if self._pauses(now):
            replica.pause()

    def _keep_connections(self, now: int, effects: list[Effect]) -> None:
        """Heartbeats to the producers: the connection stays open, and they may trim."""
        if now < self._keep_at:
            return
        self._keep_at = now + self.settings.timing.heartbeat_interval_us
        life, full = self.incarnation, self.bounds.waits(now)
        streams_at: dict[str, list[str]] = {}
        for one in self.settings.inputs:
            for producer in one.producers:
                streams_at.setdefault(producer, []).append(one.stream)
        for producer, streams in streams_at.items():
            acks = tuple((name, self.acks[name]) for name in streams if name in self.acks)
            if self.lossy:
                acks = tuple((name, NOTHING_NEEDED) for name in streams)
            request = HeartbeatRequest(tuple(streams), acks, (), now, life, full=full)
            effects.append(Send(producer, request))

    def _benchmark(self, event: BenchmarkEvent, now: int, effects: list[Effect]) -> None:
        """This copy's own judgement of its machine; the other copies hear of it."""
        for effect in self.benchmark.handle(event, now):
            if isinstance(effect, AskPeer):
                effects.append(TimeStandardSet())
            else:
                self.overloaded = isinstance(effect, PeerLost)
                effects += [Send(name, CopyRequest(self.report())) for name in self.others]

    def _deadlines(self, now: int) -> list[int]:
        times = [self.switch.deadline, *super()._deadlines(now)]
        times += [one.detector.next_ask_at for one in self.others.values()]
        if self.joining is not None:
            return times
        if self.replica is None:
            return [*times, self._keep_at]
        return [*times, *(one.checkpointer.deadline for one in self.others.values())]

    def validate(self) -> None:
        """Every invariant of every machine; the simulator and the tests call it."""
        self.switch.validate()
        for other in self.others.values():
            other.checkpointer.validate()
            other.detector.validate()
        self.benchmark.validate()
        self.switch.require(self.switch.running == (self.replica is not None), "runs or sleeps")
        super().validate()
