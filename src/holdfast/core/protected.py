"""The driver of one copy of a passive or hybrid fragment: a replica that sleeps and wakes.

    heartbeats of the other copy ─▶ StandbySwitch ─wake, sleep─▶ Replica, or none
    the other copy's checkpoints ─▶ what is held: record, state, output queue
    trims of the output queue    ─▶ SweepingCheckpointer ─▶ checkpoints to the other copy

While the copy sleeps it holds a record, a state and its output queues; it answers heartbeats,
grants feeds that carry nothing, and acknowledges to its producers what the held record has
processed, and no more: that is what lets them trim. Waking is what a copy does that runs alone
(``core.copy``), and nobody else needs to know.

Each copy acknowledges only what it could itself go on from, so a producer, which keeps what
the slower of the two needs, can serve either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core import detector, standby, sweeping
from holdfast.core.benchmark_detector import (
    BenchmarkDetector,
    BenchmarkEvent,
    LoadSeen,
    SetTimed,
)
from holdfast.core.consistency import NodeState
from holdfast.core.copy import Copy
from holdfast.core.copy_view import Glance
from holdfast.core.detector import AskPeer, FailureDetector, PeerLost
from holdfast.core.effects import (
    ApplyCheckpoint,
    Effect,
    Send,
    TimeStandardSet,
    TrimLog,
)
from holdfast.core.events import (
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
from holdfast.core.machine import Machine
from holdfast.core.messages import (
    CheckpointRefused,
    CheckpointShipped,
    CheckpointTaken,
    CopyReply,
    CopyReport,
    CopyRequest,
    CopyState,
    HeartbeatReply,
    HeartbeatRequest,
    Message,
    Refusal,
    StateRequest,
    StreamState,
)
from holdfast.core.records import Checkpoint, Found, RecoveryRecord
from holdfast.core.replica import Replica
from holdfast.core.settings import ReplicaSettings, StandbySettings
from holdfast.core.standby import ReadState, Sleep, StandbySwitch, Wake
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.core.sweeping import SweepingCheckpointer

# How long a state that was asked for may take to come.
READ_PATIENCE_US = 3_000_000
# How often the load of the machine is looked at, where it is.
LOOK_US = 50_000


@dataclass(frozen=True, slots=True)
class PairView:
    """A copy as one of two, for status and tests."""

    state: CopyState
    term: int
    reason: str
    overloaded: bool
    confirmed: int
    changes: tuple[tuple[tuple[str, str], int], ...]
    benchmark: tuple[tuple[tuple[str, str], int], ...]


class ProtectedReplica(Copy):
    """One of the two copies of a fragment."""

    OPEN_AT_ONCE = True

    def __init__(
        self, settings: ReplicaSettings, pair: StandbySettings, found: Found | None = None
    ) -> None:
        super().__init__(settings, found)
        self.pair = pair
        self.partner = pair.partner_of(settings.address)
        self.overloaded = False
        self.base: int | None = None
        for stream in self.served.values():
            stream.suspended = True
        timing = settings.timing
        self.switch = StandbySwitch(settings.address, pair, 2 * timing.bucket_us)
        self.checkpointer = SweepingCheckpointer(
            settings.address, pair.checkpointing, pair.checkpoint_interval_us
        )
        self.detector = FailureDetector(
            self.partner,
            pair.heartbeat_interval_us,
            pair.misses_until_awake,
            settings.address,
            patient=True,
        )
        self.benchmark = BenchmarkDetector(
            settings.address, LOOK_US, pair.load_threshold, pair.slowdown, settings.address
        )
        # What was sent last, whose pieces the runtime may still be reading.
        self._sent: RecoveryRecord | None = None
        self._next_ids: dict[int, dict[str, int]] = {}
        self._read_at = -FAR_FUTURE
        self._replies: dict[str, tuple[int, HeartbeatReply]] = {}
        self._keep_at = 0

    @property
    def state(self) -> CopyState:
        return self.switch.state

    def machines(self) -> Iterator[Machine[Any, Any]]:
        yield self.switch
        yield self.checkpointer
        yield self.detector
        yield self.benchmark
        yield from super().machines()

    def glance(self) -> Glance:
        switch, seen = self.switch, super().glance()
        why = f"term {switch.term}: {switch.reason}"
        why += ", overloaded" if self.overloaded else ""
        return Glance(switch.state.value, why, seen.boundary, seen.partners, seen.joining)

    def pair_view(self) -> PairView:
        return PairView(
            self.state,
            self.switch.term,
            self.switch.reason,
            self.overloaded,
            self.checkpointer.confirmed,
            tuple(self.switch.visits.items()),
            tuple(self.benchmark.visits.items()),
        )

    def report(self) -> CopyReport:
        """What the other copy is told."""
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
        )

    def _take(self, event: Event, now: int, effects: list[Effect]) -> None:
        match event:
            case Started():
                self._switch(standby.Begun(self.report()), now, effects)
            case MessageArrived(sender, message) if sender == self.partner:
                self._partner_says(message, now, effects)
            case PeerUnreachable(peer) if peer == self.partner:
                self._detect(detector.Unreachable(), now, effects)
            case CheckpointApplied(number, state):
                self._applied(number, state, now, effects)
            case CheckpointFailed(number, _):
                if self._applying is not None and self._applying.number == number:
                    self._applying = None
                    self._tell(CheckpointRefused(number, Refusal.FAILED), effects)
            case LoadMeasured(load):
                self._benchmark(LoadSeen(load), now, effects)
            case StandardSetTimed(took_us):
                self._benchmark(SetTimed(took_us), now, effects)
            case CheckpointNotSent(number, _):
                self.checkpointer.handle(sweeping.Refused(number, Refusal.FAILED), now)
                self._resume(now, effects)
            case MessageArrived(sender, message) if self.replica is None:
                self._at_rest(sender, message, now, effects)
            case _:
                self._drive(event, now, effects)
        self._tick(now, effects)

    def _drive(self, event: Event, now: int, effects: list[Effect]) -> None:
        next_ids = [one.next_id for one in self.served.values()]
        before = len(effects)
        super()._drive(event, now, effects)
        if any(isinstance(effect, TrimLog) for effect in effects[before:]):
            self.checkpointer.handle(sweeping.Trimmed(), now)
        if [one.next_id for one in self.served.values()] != next_ids:
            self.checkpointer.handle(sweeping.Grown(), now)

    def _at_rest(self, sender: str, message: Message, now: int, effects: list[Effect]) -> None:
        if isinstance(message, HeartbeatReply):
            self._replies[sender] = (now, message)
        else:
            super()._at_rest(sender, message, now, effects)

    def _state_at_rest(self, stream: str) -> StreamState:
        return StreamState.SUSPENDED

    # -- the other copy -----------------------------------------------------------------

    def _tell(self, message: Message, effects: list[Effect]) -> None:
        effects.append(Send(self.partner, message))

    def _partner_says(self, message: Message, now: int, effects: list[Effect]) -> None:
        # Whatever it says, it is there, unless it says that it gets nothing done.
        if not (isinstance(message, CopyRequest | CopyReply) and message.report.stalled):
            self.detector.handle(detector.Replied(), now)
        match message:
            case CopyRequest(report):
                self._reported(report, now, effects)
                self._tell(CopyReply(self.report()), effects)
            case CopyReply(report):
                self._reported(report, now, effects)
            case CheckpointShipped(checkpoint):
                self._shipped(checkpoint, now, effects)
            case CheckpointTaken(number):
                self.checkpointer.handle(sweeping.Taken(number), now)
                self._resume(now, effects)
            case CheckpointRefused(number, reason):
                self.checkpointer.handle(sweeping.Refused(number, reason), now)
                self._resume(now, effects)
            case StateRequest(boundary):
                if self.report().boundary > boundary:
                    self._ship(self.checkpointer.next_number(now), None, True, effects)

    def _reported(self, report: CopyReport, now: int, effects: list[Effect]) -> None:
        self._switch(standby.PartnerSaid(report, self.report()), now, effects)
        self.checkpointer.handle(sweeping.Taken(report.holds), now)
        self._resume(now, effects)

    def _switch(self, event: standby.SwitchEvent, now: int, effects: list[Effect]) -> None:
        before = self.state
        for order in self.switch.handle(event, now):
            match order:
                case Wake():
                    self._wake(now, effects)
                case Sleep():
                    self._sleep(now, effects)
                case ReadState():
                    if now - self._read_at > READ_PATIENCE_US and self._applying is None:
                        self._read_at = now
                        self._tell(StateRequest(self.report().boundary), effects)
        if self.state is not before and self.state is CopyState.PRIMARY:
            self.checkpointer.handle(sweeping.PartnerAnew(), now)

    def _wake(self, now: int, effects: list[Effect]) -> None:
        super()._wake(now, effects)
        # What the producers said a moment ago saves asking them first.
        for producer, (heard_at, reply) in self._replies.items():
            if now - heard_at <= 2 * self.settings.timing.heartbeat_interval_us:
                self._drive(MessageArrived(producer, reply), now, effects)
        self._replies.clear()

    def _sleep(self, now: int, effects: list[Effect]) -> None:
        self._put_down(effects)
        for served in self.served.values():
            served.suspend()

    # -- checkpoints from the other copy ------------------------------------------------

    def _shipped(self, checkpoint: Checkpoint, now: int, effects: list[Effect]) -> None:
        reason = self._refusal(checkpoint)
        if reason is not None:
            self._tell(CheckpointRefused(checkpoint.number, reason), effects)
            return
        checkpoint = replace(checkpoint, record=self._raised(checkpoint.record))
        self._applying = checkpoint
        if self.replica is None and self._continues(checkpoint):
            # Stable frames are right whoever has them, so they need not wait for the state.
            self._extend(checkpoint, effects)
        effects.append(ApplyCheckpoint(checkpoint))

    def _raised(self, record: RecoveryRecord) -> RecoveryRecord:
        """The record, asking for nothing that this copy has acknowledged already.

        Which id a time begins with is known only to the frame, and frames differ between copies:
        the other's later record may begin before what an earlier one of ours allowed to trim.
        """
        acks = self.acks if self.replica is None else self.replica.consumer.acks
        inputs = tuple((name, max(first, acks.get(name, 0))) for name, first in record.inputs)
        return replace(record, inputs=inputs)

    def _continues(self, checkpoint: Checkpoint) -> bool:
        """Whether its queues begin where the streams end here, or before."""
        return all(
            queue.first_id <= self.served[queue.stream].next_id for queue in checkpoint.queues
        )

    def _extend(self, checkpoint: Checkpoint, effects: list[Effect]) -> None:
        for queue in checkpoint.queues:
            effects += self.served[queue.stream].extend(queue)

    def _refusal(self, checkpoint: Checkpoint) -> Refusal | None:
        if checkpoint.term < self.switch.term:
            return Refusal.OLD_TERM
        if self._applying is not None:
            return Refusal.BUSY
        if checkpoint.record.boundary <= self.report().boundary:
            return Refusal.NOT_NEWER
        if self.replica is not None and not checkpoint.wanted:
            return Refusal.BUSY
        if checkpoint.base is not None and checkpoint.base != self.base:
            return Refusal.WHOLE_NEEDED
        return None

    def _applied(self, number: int, state: object, now: int, effects: list[Effect]) -> None:
        checkpoint = self._applying
        if checkpoint is None or checkpoint.number != number:
            return
        self._applying = None
        newer = checkpoint.record.boundary > self.report().boundary
        if self.replica is not None and not (checkpoint.wanted and newer):
            self._tell(CheckpointRefused(number, Refusal.BUSY), effects)
            return
        jumps = self.replica is not None
        if jumps:
            self._sleep(now, effects)
        self._extend(checkpoint, effects)
        if newer:
            self.held = (checkpoint.record, state)
            self.base = number
            for stream, first_needed in checkpoint.record.inputs:
                self.acks[stream] = max(first_needed, self.acks.get(stream, 0))
            self._keep_at = now  # the producers may trim, and the sooner the shorter their queues
        self._tell(CheckpointTaken(number), effects)
        self._read_at = -FAR_FUTURE
        if jumps:
            self._wake(now, effects)
        else:
            self._switch(standby.StateHeld(), now, effects)

    # -- checkpoints to the other copy --------------------------------------------------

    def _ship(self, number: int, base: int | None, wanted: bool, effects: list[Effect]) -> None:
        held = self.held if self.replica is None else self.replica.newest
        if held is None:
            return
        record, state = held
        had = self._next_ids.get(base, {}) if base is not None else {}
        queues = tuple(one.queue(had.get(name, 0)) for name, one in self.served.items())
        if len(self._next_ids) > 8:
            self._next_ids = {n: self._next_ids[n] for n in sorted(self._next_ids)[-4:]} | (
                {} if base is None else {base: had}
            )
        self._next_ids[number] = {name: one.next_id for name, one in self.served.items()}
        self._sent = record
        checkpoint = Checkpoint(number, self.switch.term, base, record, queues, state, wanted)
        self._tell(CheckpointShipped(checkpoint), effects)

    def _usable_records(self) -> Iterable[RecoveryRecord]:
        yield from super()._usable_records()
        if self._sent is not None:
            yield self._sent

    def _resume(self, now: int, effects: list[Effect]) -> None:
        """A synchronous checkpoint is over: go on processing."""
        if self.replica is not None and self.replica.pauses and not self.checkpointer.pauses(now):
            self.replica.resume()
            self._drive(TimerFired(), now, effects)

    # -- time ---------------------------------------------------------------------------

    def _tick(self, now: int, effects: list[Effect]) -> None:
        if now >= self.detector.next_ask_at:
            self._detect(detector.TimePassed(), now, effects)
        if now >= self.switch.deadline:
            self._switch(standby.TimePassed(self.report()), now, effects)
        if self.replica is None:
            self._keep_connections(now, effects)
        else:
            if self.state is CopyState.PRIMARY:
                self._checkpoint(self.replica, now, effects)
            self._resume(now, effects)

    def _detect(self, event: detector.DetectorEvent, now: int, effects: list[Effect]) -> None:
        """Let the failure detector take a fact about the other copy."""
        for effect in self.detector.handle(event, now):
            if isinstance(effect, AskPeer):
                self._tell(CopyRequest(self.report()), effects)
            elif isinstance(effect, PeerLost):
                self._switch(standby.PartnerMissed(self.report()), now, effects)

    def _checkpoint(self, replica: Replica, now: int, effects: list[Effect]) -> None:
        heard_at = self.switch.heard_at
        if heard_at is None or now - heard_at > self.pair.promote_after_us:
            return  # there is nobody to hold it
        boundary = replica.newest[0].boundary
        for order in self.checkpointer.handle(sweeping.Look(boundary), now):
            self._ship(order.number, order.base, False, effects)
        if self.checkpointer.pauses(now):
            replica.pause()

    def _keep_connections(self, now: int, effects: list[Effect]) -> None:
        """Heartbeats to the producers: the connection stays open, and they may trim."""
        if now < self._keep_at:
            return
        self._keep_at = now + self.settings.timing.heartbeat_interval_us
        streams_at: dict[str, list[str]] = {}
        for one in self.settings.inputs:
            for producer in one.producers:
                streams_at.setdefault(producer, []).append(one.stream)
        for producer, streams in streams_at.items():
            acks = tuple((name, self.acks[name]) for name in streams if name in self.acks)
            request = HeartbeatRequest(tuple(streams), acks, (), now)
            effects.append(Send(producer, request))

    def _benchmark(self, event: BenchmarkEvent, now: int, effects: list[Effect]) -> None:
        """This copy's own judgement of its machine; the other copy hears of it."""
        for effect in self.benchmark.handle(event, now):
            if isinstance(effect, AskPeer):
                effects.append(TimeStandardSet())
            else:
                self.overloaded = isinstance(effect, PeerLost)
                self._tell(CopyRequest(self.report()), effects)

    def _deadlines(self, now: int) -> list[int]:
        times = [self.detector.next_ask_at, self.switch.deadline, *super()._deadlines(now)]
        times.append(self._keep_at if self.replica is None else self.checkpointer.deadline)
        return times

    def validate(self) -> None:
        """Every invariant of every machine; the simulator and the tests call it."""
        self.switch.validate()
        self.checkpointer.validate()
        self.detector.validate()
        self.benchmark.validate()
        self.switch.require(self.switch.running == (self.replica is not None), "runs or sleeps")
        super().validate()
