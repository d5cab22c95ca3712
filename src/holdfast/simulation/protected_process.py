"""A simulated copy of a passive or hybrid fragment: memory, disk, and checkpoints on the way.

What travels is packed here as the product packs it: a checkpoint with a base is only good for
a receiver that has exactly the state its sender thinks it has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from holdfast.core.effects import (
    Append,
    ApplyCheckpoint,
    RunJob,
    Send,
    TimeStandardSet,
    TrimLog,
)
from holdfast.core.events import (
    Appended,
    CheckpointApplied,
    CheckpointFailed,
    CheckpointNotSent,
    Event,
    LoadMeasured,
    StandardSetTimed,
)
from holdfast.core.frame import StreamFrame
from holdfast.core.messages import CheckpointShipped, CheckpointTaken
from holdfast.core.protected import ProtectedReplica
from holdfast.core.records import Checkpoint, InLog, LoggedStream
from holdfast.core.settings import Keeping, Protection, ReplicaSettings, StandbySettings
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Plan
from holdfast.simulation.replica_process import ReplicaProcess

if TYPE_CHECKING:
    from holdfast.simulation.world import World


@dataclass(frozen=True)
class Packed:
    """A state on its way, and the one its changes are laid on."""

    base: object
    state: object


class ProtectedProcess(ReplicaProcess):
    """One of two copies."""

    def __init__(
        self,
        world: World,
        settings: ReplicaSettings,
        pair: StandbySettings,
        plan: Plan,
        job_us: int,
        start_us: int,
    ) -> None:
        super().__init__(world, settings, plan, job_us)
        self.pair = pair
        self._start_us = start_us
        self._cold = False
        self._shipped: dict[int, object] = {}
        self._bases: dict[int, object] = {}
        self._held: set[int] = set()
        self._ends: dict[int, StreamFrame | None] = {}
        self.orders |= {
            ApplyCheckpoint: self._apply,
            TimeStandardSet: lambda order: self._time_set(self.life),
        }

    @property
    def copy(self) -> ProtectedReplica:
        driver = self.driver
        assert isinstance(driver, ProtectedReplica)
        return driver

    def make_driver(self) -> None:
        self._shipped, self._bases, self._held, self._ends = {}, {}, set(), {}
        self._cold = self.pair.protection is Protection.PASSIVE
        made = ProtectedReplica(self.settings, self.pair, self.found())
        made.retired = lambda replica: self.world.coverage.collect(replica.machines())
        self.driver = made

    def lose_disk(self) -> None:
        super().lose_disk()
        self.world.standby.forgot(self)

    def crash(self, machine: bool = False) -> None:
        was_up = self.up
        super().crash(machine)
        if was_up:
            self.world.standby.crashed(self)

    def receive(self, event: Event) -> None:
        if isinstance(event, CheckpointApplied):
            self._held.add(event.number)
        super().receive(event)
        if self.up:
            self.world.standby.after(self)

    def start(self) -> None:
        super().start()
        if self.pair.benchmarks:
            self._time_set(self.life)
            self._look_at_load(self.life)

    # -- the benchmarking detector: a slow server is a loaded one -------------------------

    def _time_set(self, life: int) -> None:
        duration = int(self._job_us * (0.9 + 0.2 * self.world.random.random()))
        duration *= 1 + 9 * self.slow
        timed = StandardSetTimed(duration)
        self.world.clock.after(duration, self.receive_in_life, life, timed)

    def _look_at_load(self, life: int) -> None:
        if life == self.life:
            # Bursts look like load, now and then; what was slow has a backlog for a moment.
            burst = self.world.random.random() < 0.02
            backlog = self.world.clock.now - self.disturbed_at < 300_000
            self.receive(LoadMeasured(0.99 if self.slow or burst or backlog else 0.4))
            self.world.clock.after(100_000, self._look_at_load, life)

    # -- jobs ---------------------------------------------------------------------------

    def job_duration(self, job: RunJob) -> int:
        duration = super().job_duration(job)
        if self._cold:
            self._cold = False
            duration += self._start_us
            self.starting_until = self.world.clock.now + duration
        return duration

    # -- disk ---------------------------------------------------------------------------

    def _order_disk(self, order: Append | ApplyCheckpoint | TrimLog) -> None:
        if self.pair.persist:
            super()._order_disk(order)
        elif not isinstance(order, TrimLog):
            self.world.clock.after(200, self.receive_in_life, self.life, self.done(order))

    def state_kept(self, order: Append | ApplyCheckpoint) -> object:
        if isinstance(order, ApplyCheckpoint):
            return self._bases[order.checkpoint.number]
        return order.state

    def done(self, order: Append | ApplyCheckpoint) -> Event:
        if isinstance(order, Append):
            return Appended(order.append)
        number = order.checkpoint.number
        return CheckpointApplied(number, self._bases[number])

    def not_done(self, order: Append | ApplyCheckpoint) -> Event:
        if isinstance(order, Append):
            return super().not_done(order)
        return CheckpointFailed(order.checkpoint.number, "the disk is full")

    # -- checkpoints --------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        message = send.message
        if isinstance(message, CheckpointShipped) and not self.world.processes[send.to].up:
            # Nobody listens there.
            lost = CheckpointNotSent(message.checkpoint.number, "cannot be reached")
            self.world.clock.after(1_000, self.receive_in_life, self.life, lost)
            return
        if isinstance(message, CheckpointShipped):
            sent = message.checkpoint
            if self.settings.keeping is Keeping.WINDOWS:
                self._send_piece(send.to, sent)
                return
            base = None if sent.base is None else self._shipped[sent.base]
            self._shipped[sent.number] = sent.state
            packed = replace(sent, state=Packed(base, sent.state))
            send = Send(send.to, CheckpointShipped(packed))
        elif isinstance(message, CheckpointTaken):
            if message.number not in self._held:
                raise Violation("standby", f"{self.address} confirms what it does not hold")
            self.world.standby.confirmed(self)
        super()._send(send)

    def _send_piece(self, to: str, sent: Checkpoint) -> None:
        """With continuous checkpoints the log has the state: what of it the record needs."""
        stream = self.settings.outputs[0].stream
        after = None if sent.base is None else self._ends.get(sent.base)
        piece = self.disk.piece(stream, sent.record, after)
        if piece is None:
            gone = CheckpointNotSent(sent.number, "the log has not got it any more")
            self.world.clock.after(200, self.receive_in_life, self.life, gone)
            return
        self._ends[sent.number] = self.disk.end(stream)
        super()._send(Send(to, CheckpointShipped(replace(sent, state=piece))))

    def _apply(self, order: ApplyCheckpoint) -> None:
        checkpoint = order.checkpoint
        if isinstance(checkpoint.state, LoggedStream):
            self._bases[checkpoint.number] = InLog(checkpoint.record)
            self._order_disk(order)
            return
        packed = checkpoint.state
        assert isinstance(packed, Packed)
        if checkpoint.base is not None and self._bases.get(checkpoint.base) != packed.base:
            raise Violation("standby", f"{self.address}: changes laid on the wrong state")
        self._bases[checkpoint.number] = packed.state
        self._order_disk(order)
