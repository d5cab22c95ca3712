"""A simulated copy of a passive or hybrid fragment: its engine, its load, its disk."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.effects import Append, ApplyCheckpoint, RunJob, TimeStandardSet
from holdfast.core.events import (
    BusyMeasured,
    CheckpointApplied,
    Event,
    LoadMeasured,
    MessageArrived,
    StandardSetTimed,
)
from holdfast.core.messages import CheckpointShipped
from holdfast.core.protected import ProtectedReplica
from holdfast.core.settings import SECOND_US, Protection, ReplicaSettings, StandbySettings
from holdfast.simulation.checkpointing import CheckpointingProcess
from holdfast.simulation.executor import Computation
from holdfast.simulation.faults import Moment
from holdfast.simulation.process import DiskOrder

if TYPE_CHECKING:
    from holdfast.simulation.world import World


class ProtectedProcess(CheckpointingProcess):
    """One of the copies of a fragment."""

    def __init__(
        self,
        world: World,
        settings: ReplicaSettings,
        pair: StandbySettings,
        plan: Computation,
        job_us: int,
        start_us: int,
    ) -> None:
        super().__init__(world, settings, plan, job_us)
        self.pair = pair
        self._start_us = start_us
        self.speeds = job_us, start_us
        self._cold = False
        self.orders[TimeStandardSet] = lambda order: self._time_set(self.life)
        # When it last went on from a checkpoint while it ran, and what waited for the disk then.
        self._jumped_at = -SECOND_US
        # When a checkpoint came last: a sign of life, however long it was under way.
        self.told_at = -SECOND_US
        self._overtaken: list[object] = []

    @property
    def copy(self) -> ProtectedReplica:
        driver = self.driver
        assert isinstance(driver, ProtectedReplica)
        return driver

    def make_driver(self) -> None:
        self._forget()
        self._cold = self.pair.protection is Protection.PASSIVE
        made = ProtectedReplica(self.settings, self.pair, self.found())
        made.retired = lambda replica: self.world.coverage.collect(replica.machines())
        self.driver = made

    @property
    def persists(self) -> bool:
        return self.pair.persist

    @property
    def has_engine(self) -> bool:
        return not self._cold

    def is_at(self, moment: Moment) -> bool:
        if moment is Moment.TAKING:
            return bool(self._disk_orders) and isinstance(self._disk_orders[0], ApplyCheckpoint)
        # What was ordered before that has come to the disk after it.
        waiting = any(one is old for one in self._disk_orders for old in self._overtaken)
        return self.up and not waiting and self.world.clock.now - self._jumped_at < SECOND_US // 2

    def lose_disk(self) -> None:
        super().lose_disk()
        if self.world.schedule.spares:
            self.settings = replace(self.settings, begins_empty=False)
        self.world.standby.forgot(self)

    def gone(self) -> None:
        super().gone()
        self.world.standby.crashed(self)

    def receive(self, event: Event) -> None:
        if isinstance(event, CheckpointApplied) and self.up and self.copy.replica is not None:
            self._jumped_at = self.world.clock.now
            self._overtaken = list(self._disk_orders)
        if isinstance(event, MessageArrived) and isinstance(event.message, CheckpointShipped):
            self.told_at = self.world.clock.now
        super().receive(event)
        if self.up:
            self.world.standby.after(self)

    def start(self) -> None:
        super().start()
        if self.pair.by_load:
            self._look_at_work(self.life)
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

    def _look_at_work(self, life: int) -> None:
        """Loads that come and go, so that those who compare them seldom agree for long."""
        if life == self.life:
            self.receive(BusyMeasured(self.world.random.random() ** 2))
            self.world.clock.after(SECOND_US // 4, self._look_at_work, life)

    # -- jobs ---------------------------------------------------------------------------

    def job_duration(self, job: RunJob) -> int:
        duration = super().job_duration(job)
        if self._cold:
            self._cold = False
            duration += self._start_us
            self.starting_until = self.world.clock.now + duration
        return duration

    # -- disk ---------------------------------------------------------------------------

    def _order_disk(self, order: DiskOrder) -> None:
        if self.pair.persist:
            super()._order_disk(order)
        elif isinstance(order, Append | ApplyCheckpoint):
            if isinstance(order, ApplyCheckpoint):
                self.take(order)
            self.world.clock.after(200, self.receive_in_life, self.life, self.done(order))

    def confirmed(self) -> None:
        self.world.standby.confirmed(self)
        self.world.kept.confirmed(self)

    def pack_us(self) -> int:
        return int(self.world.random.random() ** 2 * self.world.longest_pack_us)
