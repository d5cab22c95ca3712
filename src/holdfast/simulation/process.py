"""A simulated process: it carries out the effects of a driver and reports what comes of it.

This is the simulator's counterpart of the runtime. It decides nothing about the protocol; it
only decides, by the seed, how long things take and whether they work.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from holdfast.core.admission import Admission
from holdfast.core.client import Client
from holdfast.core.consumer import Consumer
from holdfast.core.copy import Copy
from holdfast.core.effects import (
    Append,
    ApplyCheckpoint,
    BeginRunning,
    EndProcess,
    KeepConsumers,
    KeepEnd,
    Send,
    SetTimer,
    TrimLog,
)
from holdfast.core.entry import EntryPoint
from holdfast.core.events import (
    Appended,
    AppendFailed,
    ConsumersKept,
    ConsumersNotKept,
    Event,
    MessageArrived,
    Started,
    TimerFired,
)
from holdfast.core.machine import Machine
from holdfast.core.messages import (
    CheckpointShipped,
    CopyReply,
    FeedFrames,
    HeartbeatReply,
    HeartbeatRequest,
    SubscribeRefused,
)
from holdfast.core.records import ConsumersRecord
from holdfast.core.settings import SECOND_US
from holdfast.simulation.disk import Disk, Write
from holdfast.simulation.faults import Moment
from holdfast.simulation.packed_states import Kept

if TYPE_CHECKING:
    from holdfast.simulation.world import World

# What comes on calls that the process made itself.
ANSWERS = (FeedFrames, SubscribeRefused, HeartbeatReply, CopyReply)

DiskOrder = Append | ApplyCheckpoint | TrimLog | KeepEnd | BeginRunning


class Process(ABC):
    """A driver, its disk, and whether it is up, paused, slow or on a busy machine."""

    def __init__(self, world: World, address: str) -> None:
        self.world = world
        self.address = address
        self.disk = Disk(world.random, world.longest_append_us)
        self.up = False
        self.life = 0
        self.paused = 0
        self.slow = 0
        self.busy = 0
        self.disturbed_at = 0
        self.disk_lost = False
        # How far its time is ahead of the true one.
        self.clock = world.clocks[world.server_of[address]]
        self.ahead_us = self.clock.ahead_us
        self.driver: Copy | EntryPoint | Client
        self._waiting: deque[Event] = deque()
        self._disk_orders: deque[DiskOrder] = deque()
        self._timer = 0
        # How the orders of the driver are carried out, by their type.
        self.orders: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            SetTimer: self._set_timer,
            Append: self._order_disk,
            TrimLog: self._order_disk,
            KeepConsumers: lambda order: self._keep_consumers(order.record),
            EndProcess: lambda order: self._end(order.lasting),
        }

    @property
    def running(self) -> bool:
        return self.up and not self.paused

    @property
    def consumer(self) -> Consumer | None:
        """The part of it that reads from others, if it does now."""
        return None

    def is_at(self, moment: Moment) -> bool:
        """Whether it is doing that now."""
        return False

    @abstractmethod
    def make_driver(self) -> None:
        """Each kind of process makes its own."""

    def admission(self) -> Admission:
        """Whom it listens to now, as its node would find after the last event."""
        return Admission(self.address)

    def _refuses(self, event: Event) -> bool:
        """Whether its node would not even hand this to the driver; answers come on own calls."""
        if not isinstance(event, MessageArrived) or isinstance(event.message, ANSWERS):
            return False
        admission = self.admission()
        if isinstance(event.message, CheckpointShipped):
            refused = not admission.takes_states_of(event.sender)
        else:
            refused = admission.refusal(event.sender, event.message) is not None
        if refused:
            self.world.refused(event.sender, event.message)
        return refused

    def start(self) -> None:
        if self._disk_orders:
            self.crash()  # it was ending, and took too long
        self.world.network.restart(self.address)
        self.make_driver()
        self.ahead_us = self.clock.ahead_us
        self.up = True
        self.world.changes += 1
        self.disturbed_at = self.world.clock.now
        self.receive(Started())

    def crash(self, machine: bool = False) -> None:
        """Stop dead, alone or with its machine; what is not on disk is gone."""
        was_up = self.up
        if was_up:
            self._go_down(machine)
        if was_up or self._disk_orders:
            self.life += 1
            self._disk_orders.clear()
            self.disk.crash()
        if was_up:
            self.gone()

    def _go_down(self, machine: bool) -> None:
        self.world.network.crash(self.address, machine)
        self.world.coverage.collect(self.machines())
        self.up = False
        self._waiting.clear()
        self.disturbed_at = self.world.clock.now

    def _ended(self) -> None:
        """It has ended in order, and all that it ordered of its disk is done."""
        self.life += 1

    def gone(self) -> None:  # noqa: B027  not everybody looks
        """It has been up until now."""

    def stop(self) -> None:
        """End in order, where that is more than to stop dead."""
        self.crash()

    def _end(self, lasting: bool = False) -> None:
        """It has given up; whoever started it starts it again."""
        self.crash()
        self.world.changes += 1
        if lasting:
            return
        self.world.clock.after(SECOND_US, self._start_again, self.life)

    def _start_again(self, life: int) -> None:
        if life == self.life and not self.up and not self.world.is_down(self.address):
            self.start()

    def lose_disk(self) -> None:
        """While it is down: it will find nothing."""
        torn, self.disk = self.disk.torn, Disk(self.world.random, self.world.longest_append_us)
        self.disk.torn = torn
        self.disk_lost = True

    def suffers_as(self, other: Process) -> None:
        """It begins on the server of another one, whatever is the matter with that now."""
        self.paused, self.slow, self.busy = other.paused, other.slow, other.busy
        self.disk.full = other.disk.full

    def pause(self) -> None:
        self.paused += 1
        self.disturbed_at = self.world.clock.now

    def resume(self) -> None:
        self.paused -= 1
        self.disturbed_at = self.world.clock.now
        while self._waiting and self.running:
            self.receive(self._waiting.popleft())

    def receive(self, event: Event) -> None:
        """An event for the driver; it waits while the process is paused."""
        if not self.up:
            return
        if self.paused:
            self._waiting.append(event)
            return
        if self._refuses(event):
            return
        world, orders = self.world, self.orders
        world.events[type(event)] += 1
        for effect in self.driver.handle(event, world.clock.now + self.ahead_us):
            orders[type(effect)](effect)
            if not self.up:
                return
        if world.narrates:
            world.narrate(self)

    def kept_sizes(self) -> tuple[tuple[str, int], ...]:
        """How much of each stream is kept for good."""
        return self.disk.sizes()

    def tentative_sizes(self) -> tuple[tuple[str, int], ...]:
        """How much of tentative tuples is kept, by stream; entry points have none."""
        return ()

    def receive_in_life(self, life: int, event: Event) -> None:
        """An outcome of something an earlier life began means nothing to this one."""
        if life == self.life:
            self.receive(event)

    def _send(self, send: Send) -> None:
        if isinstance(send.message, HeartbeatRequest):
            self.world.joins.acknowledges(self.address, send.message)
        self.world.network.send(self.address, send.to, send.message)

    def _set_timer(self, order: SetTimer) -> None:
        self._timer += 1
        self.world.clock.at(order.at - self.ahead_us, self._fire, self.life, self._timer)

    # -- the disk: one order after the other ----------------------------------------------

    def _order_disk(self, order: DiskOrder) -> None:
        self._disk_orders.append(order)
        if len(self._disk_orders) == 1:
            self._next_on_disk()

    def _next_on_disk(self) -> None:
        while self._disk_orders:
            order = self._disk_orders[0]
            if isinstance(order, Append | ApplyCheckpoint):
                write = Write.of(order, self.packed(order))
                duration = self.disk.begin(write)
                self.world.clock.after(duration, self._written, self.life, order, write)
                return
            if isinstance(order, KeepEnd):
                self.disk.keep_end(order)
            elif isinstance(order, BeginRunning):
                self.disk.packed.begin(order.state)
            else:
                self.world.trims(self, order)
                self.disk.trim(order.stream, order.below_id, order.windows_from)
            self._disk_orders.popleft()
        if not self.up:
            self._ended()

    def _written(self, life: int, order: Append | ApplyCheckpoint, write: Write) -> None:
        if life != self.life:
            return
        self._disk_orders.popleft()
        taken = self.disk.finish(write)
        outcome = self.done(order) if taken is None else self.not_done(order, taken)
        self._next_on_disk()
        # The disk has a thread of its own: it may be further than the driver knows.
        delay = int(self.world.random.random() * 3_000)
        self.world.clock.after(delay, self.receive_in_life, self.life, outcome)

    def _keep_consumers(self, record: ConsumersRecord) -> None:
        """A small file of its own, which takes as long as a small append."""
        duration = 500 + int(self.world.random.random() * self.world.longest_append_us)
        self.world.clock.after(duration, self._consumers_written, self.life, record)

    def _consumers_written(self, life: int, record: ConsumersRecord) -> None:
        if life != self.life:
            return
        if self.disk.full:
            self.receive(ConsumersNotKept(record.number, "the disk is full"))
            return
        self.disk.consumers = record
        self.receive(ConsumersKept(record.number))

    def packed(self, order: Append | ApplyCheckpoint) -> Kept | None:
        """What is to be kept of a state with an order's record, now that it is its turn."""
        return None

    def done(self, order: Append | ApplyCheckpoint) -> Event:
        assert isinstance(order, Append)
        return Appended(order.append)

    def not_done(self, order: Append | ApplyCheckpoint, taken: tuple[str, ...]) -> Event:
        assert isinstance(order, Append)
        return AppendFailed(order.append, "the disk is full", taken)

    def _fire(self, life: int, timer: int) -> None:
        if life == self.life and timer == self._timer:
            self.receive(TimerFired())

    def machines(self) -> Iterator[Machine[Any, Any]]:
        return self.driver.machines()
