"""One simulated server of a cluster: the product's ``Seat``, a disk, a clock, and crashes."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, assert_never

from holdfast.core.cluster_messages import (
    Answer,
    ClusterFact,
    ClusterMessage,
    ClusterOrder,
    ClusterRecord,
    Heard,
    KeepRecord,
    Met,
    Obey,
    RecordKept,
    RecordNotKept,
    Tell,
    TimePassed,
    Version,
    WakeAt,
)
from holdfast.core.seat import Seat

if TYPE_CHECKING:
    from holdfast.simulation.cluster_world import ClusterWorld


class SimulatedServer:
    """Carries out what a seat orders, as the product's server does."""

    def __init__(
        self, world: ClusterWorld, name: str, first: ClusterRecord, random: Random
    ) -> None:
        self.name = name
        self.seat: Seat | None = None
        self.record = first
        self.disk_full = False
        self.paused = False
        # What it was told is settled, in this life: it is what it would run.
        self.obeyed: tuple[Version, str] = (Version(), "")
        self.on_answer: dict[int, Callable[[Answer], None]] = {}
        self._world = world
        self._random = random
        self._life = 0
        self._wakes_at = 0
        self._waiting: list[ClusterFact] = []
        # Its clock gains or loses up to a thousandth.
        self._gains = random.uniform(-1e-3, 1e-3)

    @property
    def up(self) -> bool:
        return self.seat is not None

    @property
    def running(self) -> bool:
        return self.seat is not None and not self.paused

    def now(self) -> int:
        return int(self._world.clock.now * (1 + self._gains))

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        if self.seat is not None:
            return
        self._life += 1
        self._wakes_at = 0
        self.seat = Seat(
            self.name, self._world.timing, self._random.random, self.record, self.now()
        )
        self.obeyed = (Version(), "")
        self._world.started(self)
        self.take(Met(tuple(self._world.names)))

    def crash(self) -> None:
        """The process ends; what was being written is on disk, or is not."""
        if self.seat is None:
            return
        self._world.collect(self.seat)
        self.seat = None
        self._life += 1
        self.paused = False
        self._waiting.clear()
        self.on_answer.clear()

    def pause(self) -> None:
        if self.seat is not None:
            self.paused = True

    def go_on(self) -> None:
        self.paused = False
        waiting, self._waiting = self._waiting, []
        for fact in waiting:
            self.take(fact)

    # -- facts and orders ----------------------------------------------------------------

    def receive(self, sender: str, message: ClusterMessage) -> None:
        self.take(Heard(sender, message))

    def take(self, fact: ClusterFact) -> None:
        if self.seat is None:
            return
        if self.paused:
            self._waiting.append(fact)
            return
        coordinated = self.seat.election.is_coordinating
        orders = self.seat.handle(fact, self.now())
        if self.seat.election.is_coordinating and not coordinated:
            self._world.elected(self)
        for order in orders:
            self._carry_out(order)
        if self.seat is not None:
            self.seat.validate()

    def _carry_out(self, order: ClusterOrder) -> None:
        match order:
            case Tell(to, message):
                self._world.send(self.name, to, message)
            case KeepRecord():
                delay = 500 + int(self._random.random() * self._world.longest_write_us)
                self._world.clock.after(delay, self._written, self._life, order)
            case WakeAt(at) if at == self._wakes_at:
                pass
            case WakeAt(at):
                self._wakes_at = at
                due = int(at / (1 + self._gains)) + 1
                self._world.clock.at(due, self._wake, self._life, at)
            case Obey(version, value):
                self._world.checker.obeys(self.name, self.obeyed[0], version, value)
                self.obeyed = (version, value)
                self._world.obeyed(self)
            case Answer():
                self.on_answer.pop(order.offer)(order)
            case _:
                assert_never(order)

    def _wake(self, life: int, at: int) -> None:
        if life == self._life and at == self._wakes_at:
            self._wakes_at = 0
            self.take(TimePassed())

    def _written(self, life: int, order: KeepRecord) -> None:
        if life != self._life:
            # It crashed meanwhile: all of it is there, or nothing; nobody was told.
            if self.seat is None and not self.disk_full and self._random.random() < 0.5:
                self._keep(order.record)
            return
        if self.disk_full:
            self.take(RecordNotKept(order.number))
            return
        self._keep(order.record)
        self.take(RecordKept(order.number))

    def _keep(self, record: ClusterRecord) -> None:
        self._world.checker.keeps(self.name, self.record, record)
        self.record = record
