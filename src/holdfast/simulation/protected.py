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
    AppendFailed,
    CheckpointApplied,
    CheckpointFailed,
    Event,
    LoadMeasured,
    LoggedStream,
    RecoveryRecord,
    StandardSetTimed,
)
from holdfast.core.messages import CheckpointShipped, CheckpointTaken
from holdfast.core.protected import ProtectedReplica
from holdfast.core.replica import Replica
from holdfast.core.settings import Protection, ReplicaSettings, StandbySettings
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Plan
from holdfast.simulation.processes import ReplicaProcess

if TYPE_CHECKING:
    from holdfast.simulation.world import World


@dataclass(frozen=True)
class Packed:
    """A state on its way, and the one its changes are laid on."""

    base: object
    state: object


@dataclass(frozen=True)
class OnDisk:
    """A checkpoint as a disk keeps it: all of it or nothing."""

    record: RecoveryRecord
    state: object
    queues: tuple[LoggedStream, ...]


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
        self.keeps_state = True
        self.kept: OnDisk | None = None
        self._start_us = start_us
        self._cold = False
        self._writing: OnDisk | None = None
        self._shipped: dict[int, object] = {}
        self._bases: dict[int, object] = {}
        self._held: set[int] = set()
        self.orders |= {
            ApplyCheckpoint: self._apply,
            TrimLog: lambda order: None,  # the queue on disk is that of the last record
            TimeStandardSet: lambda order: self._time_set(self.life),
        }

    @property
    def copy(self) -> ProtectedReplica:
        driver = self.driver
        assert isinstance(driver, ProtectedReplica)
        return driver

    @property
    def replica(self) -> Replica | None:
        return self.copy.replica if self.up else None

    def make_driver(self) -> None:
        self._stable_states = {}
        self._shipped, self._bases, self._held = {}, {}, set()
        self.disk_state = None
        self._cold = self.pair.protection is Protection.PASSIVE
        kept = self.kept
        if kept is None:
            made = ProtectedReplica(self.settings, self.pair)
        else:
            made = ProtectedReplica(self.settings, self.pair, kept.record, kept.queues, kept.state)
        made.retired = lambda replica: self.world.coverage.collect(replica.machines())
        self.driver = made

    def crash(self) -> None:
        was_up = self.up
        super().crash()
        if was_up:
            writing, self._writing = self._writing, None
            if writing is not None and not self.disk.full and self.world.random.random() < 0.4:
                self._keep(writing)
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

    def _append(self, append: Append) -> None:
        self.world.truth.check_append(self.address, append)
        record = append.record
        kept = None
        if record is not None:
            self._stable_states = {
                stop: state
                for stop, state in self._stable_states.items()
                if stop >= record.boundary
            }
            kept = OnDisk(record, self._stable_states[record.boundary], self.copy.queues())
        self._write(kept, Appended(append.append), AppendFailed(append.append, "the disk is full"))

    def _write(
        self,
        kept: OnDisk | None,
        done: Appended | CheckpointApplied,
        failed: AppendFailed | CheckpointFailed,
    ) -> None:
        if not self.pair.persist:
            self.world.clock.after(200, self.receive_in_life, self.life, done)
            return
        duration = 500 + int(self.world.random.random() * self.world.longest_append_us)
        self._writing = kept
        self.world.clock.after(duration, self._written, self.life, kept, done, failed)

    def _written(
        self,
        life: int,
        kept: OnDisk | None,
        done: Appended | CheckpointApplied,
        failed: AppendFailed | CheckpointFailed,
    ) -> None:
        if life != self.life:
            return
        self._writing = None
        if self.disk.full:
            self.receive(failed)
            return
        if kept is not None:
            self._keep(kept)
        self.receive(done)

    def _keep(self, kept: OnDisk) -> None:
        # One thread writes in order, so an older record never replaces a newer one.
        if self.kept is None or kept.record.boundary >= self.kept.record.boundary:
            self.kept = kept

    # -- checkpoints --------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        message = send.message
        if isinstance(message, CheckpointShipped):
            sent = message.checkpoint
            base = None if sent.base is None else self._shipped[sent.base]
            self._shipped[sent.number] = sent.state
            packed = replace(sent, state=Packed(base, sent.state))
            send = Send(send.to, CheckpointShipped(packed))
        elif isinstance(message, CheckpointTaken):
            if message.number not in self._held:
                raise Violation("standby", f"{self.address} confirms what it does not hold")
            self.world.standby.confirmed(self)
        super()._send(send)

    def _apply(self, order: ApplyCheckpoint) -> None:
        checkpoint = order.checkpoint
        packed = checkpoint.state
        assert isinstance(packed, Packed)
        if checkpoint.base is not None and self._bases.get(checkpoint.base) != packed.base:
            raise Violation("standby", f"{self.address}: changes laid on the wrong state")
        self._bases[checkpoint.number] = packed.state
        number = checkpoint.number
        kept = OnDisk(checkpoint.record, packed.state, order.queues)
        failed = CheckpointFailed(number, "the disk is full")
        self._write(kept, CheckpointApplied(number, packed.state), failed)
