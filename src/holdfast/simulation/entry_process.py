"""A simulated entry point and the source that feeds it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.core.effects import (
    AcceptTuples,
    RefuseBatch,
)
from holdfast.core.entry import EntryPoint, EntrySettings
from holdfast.core.events import (
    SourceReached,
)
from holdfast.core.machine import Machine
from holdfast.simulation.own_time import OwnTimeSource
from holdfast.simulation.process import Process
from holdfast.simulation.source import Source

if TYPE_CHECKING:
    from holdfast.simulation.world import World


class EntryProcess(Process):
    """An entry point and the source that feeds it."""

    driver: EntryPoint

    def __init__(self, world: World, settings: EntrySettings, interval_us: int) -> None:
        super().__init__(world, settings.address)
        self.settings = settings
        self.silent = 0
        self.source: Source | OwnTimeSource = (
            OwnTimeSource(world.random, world.spec.timing)
            if settings.lane_idle_us is not None
            else Source(world.random, world.schedule.quiet)
        )
        self._interval_us = interval_us
        self.orders |= {
            AcceptTuples: self._accepted,
            RefuseBatch: lambda order: self.source.offer_from(order.next_id),
        }

    @property
    def says_nothing(self) -> bool:
        """Whether nobody knows how far its stream is: only its source's tuples tell the time."""
        return bool(self.silent) and self.settings.own_time and isinstance(self.source, Source)

    def machines(self) -> Iterator[Machine[Any, Any]]:
        yield from super().machines()
        if isinstance(self.source, OwnTimeSource):
            yield from self.source.time.machines()

    def make_driver(self) -> None:
        log = self.disk.open(self.settings.stream, complete=True)
        self.driver = EntryPoint(self.settings, log, self.disk.consumers)

    def start(self) -> None:
        super().start()
        # A life before this one has promised so much; where the clock was set ahead meanwhile,
        # everybody who merges this stream waits for the others to get there.
        promised = self.driver.served.boundary - self.world.clock.now
        if self.ahead_us > self.world.skew_us + self.world.spec.timing.alpha_x_us // 2:
            self.world.give_up(f"{self.address} starts {self.ahead_us / 1e6:.1f} s ahead")
        self.ahead_us = max(self.ahead_us, promised)
        self.world.truth.learn(self.settings.stream, self.driver.served.stable)
        # The source knows only what it was told: it may offer what is on disk already.
        self.source.offer_from(0)
        if isinstance(self.source, OwnTimeSource):
            self.source.start(self.driver.served.boundary, self.world.clock.now)
            self._look(self.life)
        self._produce(self.life)

    def _accepted(self, order: AcceptTuples) -> None:
        self.source.accepted(order.next_id)
        self.world.truth.learn_new(self.settings.stream, self.driver.served.stable)

    def _produce(self, life: int) -> None:
        if life != self.life:
            return
        if self.running:
            now = self.world.clock.now
            if not self.silent and now < self.world.source_stop:
                self.source.produce(now)
            if isinstance(self.source, OwnTimeSource):
                self.source.look_for_idle(now)
            if self.world.random.random() < 0.01:
                self.source.offer_from(0)  # it has lost patience, or its connection
            own_time = self.settings.own_time
            # Where too much is kept, its source waits.
            if not self.driver.view().full:
                for batch in self.source.offers(None if own_time else now + self.ahead_us):
                    self.receive(batch)
            if own_time and self.source.all_taken:
                self.receive(SourceReached(self.source.reached))
        interval = int(self._interval_us * (0.5 + self.world.random.random()))
        self.world.clock.after(interval, self._produce, life)

    def _look(self, life: int) -> None:
        """Who is idle is looked at as often as boundaries go out, whatever pace the source has."""
        if life != self.life:
            return
        if self.running and isinstance(self.source, OwnTimeSource):
            self.source.look_for_idle(self.world.clock.now)
            if self.source.all_taken:
                self.receive(SourceReached(self.source.reached))
        self.world.clock.after(self.settings.boundary_interval_us, self._look, life)
