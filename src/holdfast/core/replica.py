"""A replica that runs: all its machines, wired; events in, orders to the runtime out.

A runtime calls ``core.copy``, which has one while it is awake.

How the machines hang together:

    messages ─▶ Consumer ─frames─▶ SUnion ─failure, correction─▶ ConsistencyManager
                                     │ buckets                       │ fork, drop, policy
                                     ▼                               ▼
                                  Versions ─jobs─▶ runtime ─▶ SOutput per output ─▶ Provider

A durable step is: publish and append the frames of a stable result (1), then the recovery
record (2), then acknowledge to the producers what the record no longer needs (3). Publishing
does not wait for the disk: a replica that loses the frames computes the same ones again,
because their input is acknowledged only in step 3. Another network would not: see ``core.ending``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, assert_never

from holdfast.core import consistency, soutput, sunion, versions
from holdfast.core.appender import Appender
from holdfast.core.beginning import EMPTY_RECORD, Beginning, serve
from holdfast.core.consistency import ConsistencyManager, NodeState
from holdfast.core.consumer import Consumer, ConsumerEvent
from holdfast.core.continuous_rounds import WindowRounds, window_frames
from holdfast.core.delivery import begin_copies, keeper_of
from holdfast.core.effects import CancelJob, Effect, RunJob, Send, SetTimer
from holdfast.core.events import (
    Appended,
    AppendFailed,
    Event,
    FeedLost,
    JobDone,
    JobFailed,
    MembershipTold,
    MessageArrived,
    ProcessorsMeasured,
    RecoveryRecord,
    Started,
    TimerFired,
    WindowBlock,
    WindowsRead,
    WindowsTimed,
)
from holdfast.core.machine import Machine
from holdfast.core.messages import AMONG_PARTNERS, ASKED, StreamFrame, StreamState
from holdfast.core.patience import Patience
from holdfast.core.progress import Progress
from holdfast.core.provider import Provider
from holdfast.core.records import InLog
from holdfast.core.serving import ServedStream
from holdfast.core.settings import Keeping, Policy, Reconcile, ReplicaSettings
from holdfast.core.soutput import SOutput, SOutputState
from holdfast.core.stream_copy import FAR_FUTURE, GapFound
from holdfast.core.sunion import SUnion
from holdfast.core.upstream_events import JudgeSource, TakeFrames
from holdfast.core.versions import Advanced, Line, Versions, VersionsEffect
from holdfast.core.why import Basis


class Replica:
    """One running copy of a fragment."""

    def __init__(
        self,
        settings: ReplicaSettings,
        record: RecoveryRecord | None = None,
        begin: Beginning | None = None,
    ) -> None:
        begin = begin or Beginning()
        self.settings = settings
        self.timing = timing = settings.timing
        record = record or EMPTY_RECORD
        self.copies = begin_copies(settings, record)
        address = settings.address
        eager = settings.while_failed is Policy.PROCESS
        self.consumer = Consumer(address, settings.inputs, self.copies, timing, begin.bounds.waits)
        self.consumer.live_as(begin.incarnation)
        delays = Policy.DELAY in (settings.while_failed, settings.while_stabilizing)
        self.patience, position = Patience(timing, delays), record.boundary
        released = (eager, self.patience, settings.while_stabilizing is Policy.SUSPEND)
        self.sunion = SUnion(address, self.copies, self.timing, position, *released)
        self.manager = ConsistencyManager(settings, self.sunion)
        self.basis = Basis(self.copies)
        begun = (position, record.marker, begin.state, begin.first_job)
        self.versions = Versions(address, *begun, self.basis, self.patience)
        self.sunion.handle(sunion.ResultDue(self.versions.due), 0)
        self.appender = Appender(timing.retry_us, timing.record_interval_us, begin.first_append)
        if begin.acks is not None:
            self.consumer.acknowledge_as(begin.acks)
        self.windows = WindowRounds.of(settings, record.boundary)
        self._began = self._newest = (record, begin.state)
        self._pauses = False
        self._reached_by = {one.stream: one.reached_by for one in settings.outputs}
        self.soutputs: dict[str, SOutput] = {}
        served: dict[str, ServedStream] = {}
        self.keeper = keeper_of(settings, self.appender, served, self.consumer, begin.patient)
        for one in settings.outputs:
            stream = begin.served.get(one.stream) or serve(settings, one)
            stream.let_in(begin.open, begin.opens)
            served[one.stream] = stream
            base_id = dict(record.outputs).get(one.stream, 0)
            if one.stream in begin.served and stream.next_id:
                self.keeper.begin(stream.queue())
            self.soutputs[one.stream] = SOutput(
                address, one.stream, stream.next_id, stream.boundary, base_id
            )
        self.provider = Provider(served, self._state_of, begin.consumers, begin.bounds)
        self.progress = Progress(address, self.timing)
        self._retry_job_at, self._live_had_turn = 0, False
        # ``_look_at``: when what to compute next may change though nothing arrives.
        self._timer_at, self._look_at = FAR_FUTURE, 0

    @property
    def state(self) -> NodeState:
        return self.manager.state

    def machines(self) -> Iterator[Machine[Any, Any]]:
        """Every machine of the replica, for those who count transitions."""
        yield self.sunion
        yield self.manager
        yield self.versions
        yield from self.soutputs.values()
        yield from self.consumer.machines()
        if self.windows is not None:
            yield self.windows.machine

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Take a fact, return orders. The only way anything here changes."""
        effects: list[Effect] = []
        decide = True
        match event:
            case MessageArrived(sender, message):
                if isinstance(message, ASKED):
                    return self.provider.handle(sender, message, now)
                if isinstance(message, AMONG_PARTNERS):
                    self._manage(consistency.PartnerSaid(sender, message), now, effects)
                elif not self._consume(event, now, effects) and not self._may_act(now):
                    return effects
            case TimerFired():
                self._timer_at = FAR_FUTURE
                before = self.manager.state
                decide = self._consume(event, now, effects) or self._may_act(now)
                self._manage(consistency.TimePassed(), now, effects)
                decide |= self.manager.state is not before
            case Started():
                self._consume(TimerFired(), now, effects)
            case ProcessorsMeasured(used):
                self.patience.measured(used)
                decide = self._may_act(now)
            case FeedLost() | MembershipTold():
                self._consume(event, now, effects)
            case JobDone():
                self._job_done(event, now, effects)
            case WindowsRead() | WindowsTimed():
                self._windows_read(event, now, effects)
            case JobFailed():
                self._retry_job_at = self.progress.failed(event, self.versions.running, now)
                self.versions.handle(event, now)
            case Appended() | AppendFailed():
                acknowledged = self.appender.handle(event, now)
                self.consumer.acknowledge(dict(acknowledged))
                decide = self._may_act(now)
        if decide:
            self._decide(now, effects)
        effects += self.keeper.flush(now)
        effects += self.progress.look(now, self.versions.running, self.appender.under_way)
        self._set_timer(now, effects)
        return effects

    @property
    def newest(self) -> tuple[RecoveryRecord, object]:
        """The newest record and its state; where that is in the log, what is on disk of it."""
        if self.settings.keeping is not Keeping.WINDOWS:
            return self._newest
        durable = self.appender.durable
        return self._began if durable is None else (durable, InLog(durable))

    @property
    def computed(self) -> tuple[RecoveryRecord, object]:
        """The newest record, on disk or not, and the very state, wherever it is kept."""
        record, state = self._newest
        return record, state if self.windows is None else self.versions.stable_state

    @property
    def pauses(self) -> bool:
        """Whether no job begins for now."""
        return self._pauses

    def pause(self) -> None:
        """Begin no job until ``resume``."""
        self._pauses = True

    def resume(self) -> None:
        """Begin jobs again; the next timer looks what there is to do."""
        self._pauses = False
        self._look_at = 0

    def _may_act(self, now: int) -> bool:
        """Whether there can be something to start though no input has changed."""
        return now >= self._look_at or self.manager.state is NodeState.RECOVERING

    # -- what comes in ------------------------------------------------------------------

    def _consume(self, event: ConsumerEvent, now: int, effects: list[Effect]) -> bool:
        """Take what a producer says; whether it changes anything but what is sent."""
        broken: set[int] = set()
        changed = False
        for effect in self.consumer.handle(event, now):
            match effect:
                case Send():
                    effects.append(effect)
                case TakeFrames(stream, frames, feed):
                    changed = True
                    try:
                        self._take(stream, frames, now)
                    except GapFound:
                        broken.add(feed)
                case JudgeSource(stream, hopeless):
                    changed = True
                    self.sunion.handle(sunion.SourceJudged(stream, hopeless), now)
                case _:
                    assert_never(effect)
        for feed in broken:
            self._consume(FeedLost(feed), now, effects)
        return changed

    def _take(self, stream: str, frames: tuple[StreamFrame, ...], now: int) -> None:
        self.sunion.handle(sunion.FramesArrived(stream, frames), now)

    def _job_done(self, done: JobDone, now: int, effects: list[Effect]) -> None:
        running = self.versions.running
        if self.windows is not None:
            if self.windows.must_wait(done, running):
                return
            done = self.windows.took(done, running, now)
        self._carry_on(self.versions.handle(done, now), now, effects)
        if self.windows is not None:
            effects += self.windows.begin()

    def _windows_read(
        self, event: WindowsRead | WindowsTimed, now: int, effects: list[Effect]
    ) -> None:
        if self.windows is not None:
            read = self.windows.read(event, now)
            self._keep_windows(read.windows)
            effects += read.orders
            if read.waiting is not None:
                self._job_done(read.waiting, now, effects)

    def _advanced(self, advanced: Advanced, now: int, effects: list[Effect]) -> None:
        blocks, stop = {block.stream: block for block in advanced.outputs}, advanced.stop
        self.progress.done(advanced.line)
        self.sunion.handle(sunion.ResultDue(self.versions.due), now)
        if advanced.line is Line.REBUILD:
            return
        for stream, output in self.soutputs.items():
            block = blocks.get(stream)
            if advanced.line is Line.STABLE:
                self._emit(output.handle(soutput.StableComputed(stop, block), now), effects)
            else:
                tainted = stream in advanced.tainted
                why = self.basis.why(self._reached_by[stream]) if tainted else None
                event = soutput.LiveComputed(stop, block, tainted, why)
                self._emit(output.handle(event, now), effects)
        if advanced.line is Line.LIVE:
            self.sunion.handle(sunion.LiveTaken(stop), now)
            return
        self._keep_windows(advanced.windows)
        live = self.versions.live_position
        if live is not None and live <= stop:
            self._drop_live(now, effects)
        keep_from = self.versions.marker if self.settings.reconcile is Reconcile.UNDO else stop
        self.sunion.handle(sunion.StableTaken(stop, keep_from), now)
        record = RecoveryRecord(
            stop,
            self.versions.marker,
            tuple(
                (name, copy.first_id_needed(self.versions.marker))
                for name, copy in self.copies.items()
            ),
            tuple((name, one.base_id) for name, one in self.soutputs.items()),
            0 if self.windows is None else self.windows.extent,
            self.consumer.incarnation,
        )
        keeps = self.settings.keeping is Keeping.STATE
        self._newest = (record, self.versions.stable_state if keeps else None)
        self.keeper.describe(*self._newest)

    def _keep_windows(self, windows: tuple[WindowBlock, ...]) -> None:
        """Window states go into the log of the first output; no consumer sees them."""
        if windows:
            stream, output = next(iter(self.soutputs.items()))
            self.appender.add(stream, window_frames(windows, output.next_id))

    def _emit(self, emitted: list[soutput.EmitFrames], effects: list[Effect]) -> None:
        for one in emitted:
            effects += self.provider.streams[one.stream].publish(one.frames)
            self.keeper.emitted(one.stream, one.frames)

    # -- what the manager orders --------------------------------------------------------

    def _manage(self, event: consistency.ManagerEvent, now: int, effects: list[Effect]) -> None:
        for order in self.manager.handle(event, now):
            match order:
                case consistency.ForkLive():
                    if self.versions.live_position is None:
                        undo = self.settings.reconcile is Reconcile.UNDO
                        self.versions.handle(versions.Fork(undo), now)
                        self.sunion.handle(sunion.LiveTaken(self.versions.stable_position), now)
                case consistency.DropLive():
                    self._drop_live(now, effects)
                case consistency.ChooseRelease(release):
                    self.sunion.handle(sunion.ReleaseChosen(release), now)
                case consistency.EndReconciliation(healed):
                    self.sunion.handle(sunion.Reconciled(healed), now)
                    for output in self.soutputs.values():
                        ended = soutput.ReconciliationEnded(healed)
                        self._emit(output.handle(ended, now), effects)
                case consistency.OpenStreams():
                    for stream in self.provider.streams.values():
                        stream.let_in()
                case consistency.TellPartner(partner, message):
                    effects.append(Send(partner, message))
                case _:
                    assert_never(order)

    def _drop_live(self, now: int, effects: list[Effect]) -> None:
        if self.versions.live_position is not None:
            self._carry_on(self.versions.handle(versions.ForgetLive(), now), now, effects)
        self.sunion.handle(sunion.LiveGone(self.versions.due), now)

    # -- what to compute next -----------------------------------------------------------

    def _decide(self, now: int, effects: list[Effect]) -> None:
        """Between two jobs: notice what has changed, then start the next job."""
        self.patience.look(self.manager.corrects(now))
        if self._pauses:
            return
        while self.versions.job is None and now >= self._retry_job_at:
            before = self.manager.state
            match before:
                case NodeState.RECOVERING if self._has_caught_up():
                    self._manage(consistency.CaughtUp(healed=True), now, effects)
                case NodeState.RECOVERING | NodeState.STABLE:
                    if self._begin_stable(now, effects):
                        return
                    if self.versions.rebuilt:
                        self._look(now, effects)
                case NodeState.STABILIZATION:
                    if not self._has_reconciled() and self._begin_redo(now, effects):
                        return
                    live = self.versions.live_position
                    outstanding = any(one.outstanding for one in self.soutputs.values())
                    healed = live is None and not outstanding
                    self._manage(consistency.CaughtUp(healed), now, effects)
                case _:
                    self._look(now, effects)
                    unchanged = self.manager.state is before
                    if unchanged and self._begin_live(now, effects):
                        return
            if self.manager.state is before:
                return

    def _look(self, now: int, effects: list[Effect]) -> None:
        for effect in self.sunion.handle(sunion.LookAtBuckets(), now):
            match effect:
                case sunion.ReportFailure():
                    self._manage(consistency.InputFailed(), now, effects)
                case sunion.RequestReconciliation():
                    live = self.versions.live_position
                    touched = live is not None and live > self.versions.stable_position
                    touched |= any(one.outstanding for one in self.soutputs.values())
                    self._manage(consistency.InputsCorrected(touched), now, effects)
                case sunion.WithdrawRequest():
                    self._manage(consistency.CorrectionWithdrawn(), now, effects)
                case _:
                    assert_never(effect)

    def _begin_redo(self, now: int, effects: list[Effect]) -> bool:
        """A redo job, or first a job of the live version beside it if that is due."""
        self.sunion.handle(sunion.LookAtBuckets(reconciling=True), now)
        target = self.sunion.stable_target()
        live = self.versions.live_position
        last_job = live is not None and self.sunion.redo_stop(target) >= max(live, target)
        if live is not None and not last_job and not self._live_had_turn:
            self._live_had_turn = self._begin_live(now, effects)
            if self._live_had_turn:
                return True
        self._live_had_turn = False
        return self._begin_stable(now, effects)

    def _begin_stable(self, now: int, effects: list[Effect]) -> bool:
        position = self.versions.stable_position
        target = self.sunion.stable_target()
        if not self.versions.rebuilt:
            if target < position:
                return False
            slices = self.sunion.slices(self.versions.rebuild_from, position, stable_only=True)
            discard = tuple((name, FAR_FUTURE) for name in self.soutputs)
            begin = versions.Begin(Line.REBUILD, position, slices, discard)
        else:
            if target <= position:
                return False
            stop = self.sunion.redo_stop(target)
            slices = self.sunion.slices(position, stop, stable_only=True)
            emit_from = tuple((name, one.emit_from(False)) for name, one in self.soutputs.items())
            begin = versions.Begin(Line.STABLE, stop, slices, emit_from)
        self._carry_on(self.versions.handle(begin, now), now, effects)
        return True

    def _begin_live(self, now: int, effects: list[Effect]) -> bool:
        position = self.versions.live_position
        if position is None:
            return False
        stop = self.sunion.live_target(now)
        if stop <= position:
            return False
        unstable = self.sunion.unstable_inputs(stop)
        tainted = frozenset(
            name for name, reached_by in self._reached_by.items() if reached_by & unstable
        )
        every_tainted = tainted | self.versions.tainted
        emit_from = tuple(
            (name, one.emit_from(name in every_tainted)) for name, one in self.soutputs.items()
        )
        slices = self.sunion.slices(position, stop, stable_only=False)
        begin = versions.Begin(Line.LIVE, stop, slices, emit_from, tainted, unstable)
        self._carry_on(self.versions.handle(begin, now), now, effects)
        return True

    def _carry_on(self, orders: list[VersionsEffect], now: int, effects: list[Effect]) -> None:
        for order in orders:
            match order:
                case Advanced():
                    self._advanced(order, now, effects)
                case RunJob():
                    note = () if self.windows is None else self.windows.note()
                    effects.append(replace(order, note=note))
                case CancelJob():
                    effects.append(order)
                case _:
                    assert_never(order)

    def _has_caught_up(self) -> bool:
        """Whether the rebuilt state is about where the producers are, for every input."""
        return self._is_near() and all(
            one.main is not None
            and one.newest_boundary - one.copy.boundary <= self.timing.alpha_x_us
            for one in self.consumer.upstreams.values()
        )

    def _has_reconciled(self) -> bool:
        """Whether nothing tentative is left."""
        outstanding = any(one.outstanding for one in self.soutputs.values())
        return self._is_near() and self.versions.live_position is None and not outstanding

    def _is_near(self) -> bool:
        """Whether no more is left to do than of a STABLE replica; something always is."""
        behind_us = self.sunion.stable_target() - self.versions.stable_position
        return self.versions.rebuilt and behind_us <= self.timing.alpha_x_us

    # -- what others are told, and when to look again -----------------------------------

    def _state_of(self, stream: str) -> StreamState:
        if self.manager.state is NodeState.RECOVERING and not self.provider.streams[stream].open:
            return StreamState.RECOVERING
        output, suspends = self.soutputs[stream], self.sunion.release is sunion.Release.SUSPEND
        if suspends and self.manager.state is NodeState.STABILIZATION:
            return StreamState.STABILIZATION
        if suspends and output.state is SOutputState.STABLE:
            return StreamState.UP_FAILURE
        return output.reported_state()

    def _deadlines(self) -> tuple[int, ...]:
        return (self.manager.deadline, self.appender.retry_at, self._look_at)

    def _set_timer(self, now: int, effects: list[Effect]) -> None:
        self._look_at = FAR_FUTURE
        if self.versions.job is None:
            self._look_at = self.sunion.next_deadline()
            if now < self._retry_job_at:
                self._look_at = self._retry_job_at
        at = min([self.consumer.next_due, *(each for each in self._deadlines() if now < each)])
        if at != self._timer_at and at > now:
            self._timer_at = at
            effects.append(SetTimer(at))

    def validate(self) -> None:
        """Every invariant of every machine; the simulator and the tests call it."""
        for machine in (self.sunion, self.manager, self.versions, self.consumer, self.provider):
            machine.validate()
        for output in self.soutputs.values():
            output.validate()
        if self.windows is not None:
            self.windows.machine.validate()
