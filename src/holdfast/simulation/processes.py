"""Simulated processes: they carry out the effects of a driver and report what comes of it.

This is the simulator's counterpart of the runtime. It decides nothing about the protocol; it
only decides, by the seed, how long things take and whether they work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

from holdfast.core.client import Client, ClientSettings
from holdfast.core.consumer import Consumer
from holdfast.core.continuous import Checked, LookAtWindows, Looked, RoundFailed
from holdfast.core.copy import Copy
from holdfast.core.effects import (
    AcceptTuples,
    Append,
    ApplyCheckpoint,
    BeginRunning,
    CancelJob,
    DeliverBoundary,
    DeliverTuples,
    DeliverUndo,
    DropState,
    EndProcess,
    Line,
    ReadWindows,
    RefuseBatch,
    RunJob,
    Send,
    SetTimer,
    StopRunning,
    TrimLog,
)
from holdfast.core.entry import EntryPoint, EntrySettings
from holdfast.core.events import (
    Appended,
    AppendFailed,
    Event,
    JobDone,
    JobFailed,
    SourceBatch,
    SourceReached,
    Started,
    TimerFired,
    WindowBlock,
    WindowsRead,
    WindowsTimed,
)
from holdfast.core.machine import Machine
from holdfast.core.records import Found, InLog
from holdfast.core.replica import Replica
from holdfast.core.settings import SECOND_US, Keeping, ReplicaSettings
from holdfast.simulation import continuous as windows
from holdfast.simulation.disk import Disk, Write
from holdfast.simulation.executor import Plan, Row, read_slice, run_job
from holdfast.simulation.own_time import OwnTimeSource

if TYPE_CHECKING:
    from holdfast.simulation.world import World


class Process:
    """A driver, its disk, and whether it is up, paused or slow."""

    def __init__(self, world: World, address: str) -> None:
        self.world = world
        self.address = address
        self.disk = Disk(world.random, world.longest_append_us)
        self.up = False
        self.life = 0
        self.paused = 0
        self.slow = 0
        self.disturbed_at = 0
        self.disk_lost = False
        # How far its time is ahead of the true one.
        self.clock = world.clocks[world.server_of[address]]
        self.ahead_us = self.clock.ahead_us
        self.driver: Copy | EntryPoint | Client
        self._waiting: deque[Event] = deque()
        self._disk_orders: deque[Append | ApplyCheckpoint | TrimLog] = deque()
        self._timer = 0
        # How the orders of the driver are carried out, by their type.
        self.orders: dict[type, Callable[[Any], None]] = {
            Send: self._send,
            SetTimer: self._set_timer,
            Append: self._order_disk,
            TrimLog: self._order_disk,
            EndProcess: lambda order: self._end(),
        }

    @property
    def running(self) -> bool:
        return self.up and not self.paused

    @property
    def consumer(self) -> Consumer | None:
        """The part of it that reads from others, if it does now."""
        return None

    def make_driver(self) -> None:
        raise NotImplementedError("each kind of process makes its own")

    def start(self) -> None:
        self.world.network.restart(self.address)
        self.make_driver()
        self.ahead_us = self.clock.ahead_us
        self.up = True
        self.world.changes += 1
        self.disturbed_at = self.world.clock.now
        self.receive(Started())

    def crash(self, machine: bool = False) -> None:
        """Stop dead, alone or with its machine; what is not on disk is gone."""
        if not self.up:
            return
        self.world.network.crash(self.address, machine)
        self.world.coverage.collect(self.driver.machines())
        self.up = False
        self.life += 1
        self._waiting.clear()
        self._disk_orders.clear()
        self.disk.crash()
        self.disturbed_at = self.world.clock.now

    def _end(self) -> None:
        """It has given up; whoever started it starts it again."""
        self.crash()
        self.world.changes += 1
        self.world.clock.after(SECOND_US, self._start_again, self.life)

    def _start_again(self, life: int) -> None:
        if life == self.life and not self.up and not self.world.is_down(self.address):
            self.start()

    def lose_disk(self) -> None:
        """While it is down: it will find nothing."""
        torn, self.disk = self.disk.torn, Disk(self.world.random, self.world.longest_append_us)
        self.disk.torn = torn
        self.disk_lost = True

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
        world, orders = self.world, self.orders
        world.events[type(event)] += 1
        for effect in self.driver.handle(event, world.clock.now + self.ahead_us):
            orders[type(effect)](effect)
            if not self.up:
                return
        if world.narrates:
            world.narrate(self)

    def receive_in_life(self, life: int, event: Event) -> None:
        """An outcome of something an earlier life began means nothing to this one."""
        if life == self.life:
            self.receive(event)

    def _send(self, send: Send) -> None:
        self.world.network.send(self.address, send.to, send.message)

    def _set_timer(self, order: SetTimer) -> None:
        self._timer += 1
        self.world.clock.at(order.at - self.ahead_us, self._fire, self.life, self._timer)

    # -- the disk: one order after the other ----------------------------------------------

    def _order_disk(self, order: Append | ApplyCheckpoint | TrimLog) -> None:
        self._disk_orders.append(order)
        if len(self._disk_orders) == 1:
            self._next_on_disk()

    def _next_on_disk(self) -> None:
        while self._disk_orders:
            order = self._disk_orders[0]
            if not isinstance(order, TrimLog):
                write = Write.of(order, self.state_kept(order))
                duration = self.disk.begin(write)
                self.world.clock.after(duration, self._written, self.life, order, write)
                return
            self.disk.trim(order.stream, order.below_id, order.windows_from)
            self._disk_orders.popleft()

    def _written(self, life: int, order: Append | ApplyCheckpoint, write: Write) -> None:
        if life != self.life:
            return
        self._disk_orders.popleft()
        outcome = self.done(order) if self.disk.finish(write) else self.not_done(order)
        self._next_on_disk()
        # The disk has a thread of its own: it may be further than the driver knows.
        delay = int(self.world.random.random() * 3_000)
        self.world.clock.after(delay, self.receive_in_life, self.life, outcome)

    def state_kept(self, order: Append | ApplyCheckpoint) -> object:
        """The state that is kept with an order's record, as jobs take it."""
        assert isinstance(order, Append)
        return order.state

    def done(self, order: Append | ApplyCheckpoint) -> Event:
        assert isinstance(order, Append)
        return Appended(order.append)

    def not_done(self, order: Append | ApplyCheckpoint) -> Event:
        assert isinstance(order, Append)
        return AppendFailed(order.append, "the disk is full")

    def _fire(self, life: int, timer: int) -> None:
        if life == self.life and timer == self._timer:
            self.receive(TimerFired())

    def machines(self) -> Iterator[Machine[Any, Any]]:
        return self.driver.machines()


class ReplicaProcess(Process):
    """A replica with the stand-in executor."""

    driver: Copy

    def __init__(self, world: World, settings: ReplicaSettings, plan: Plan, job_us: int) -> None:
        super().__init__(world, settings.address)
        self.settings = settings
        self.plan = plan
        self._job_us = job_us
        self.hung = 0
        self._held_back: list[tuple[int, JobDone | JobFailed]] = []
        # A passive copy has no engine until its first job has started one.
        self.starting_until = 0
        self.orders |= {
            RunJob: self._run,
            ReadWindows: self._read_windows,
            CancelJob: lambda order: None,  # its result will come, and be dropped
            DropState: lambda order: None,
            BeginRunning: lambda order: None,
            StopRunning: lambda order: None,
        }

    @property
    def replica(self) -> Replica | None:
        """The replica that runs here, if one does."""
        return self.driver.replica if self.up else None

    @property
    def consumer(self) -> Consumer | None:
        return None if self.replica is None else self.replica.consumer

    def make_driver(self) -> None:
        self.driver = Copy(self.settings, self.found())

    def found(self) -> Found:
        """What is on disk when the process starts."""
        logged = tuple(self.disk.open(output.stream) for output in self.settings.outputs)
        record, state = self.disk.record, self.disk.state
        if record is not None and self.settings.keeping is Keeping.WINDOWS:
            state = InLog(record)
        return Found(record, state, logged)

    def _order_disk(self, order: Append | ApplyCheckpoint | TrimLog) -> None:
        if isinstance(order, Append):
            self.world.truth.check_append(self.address, order)
        super()._order_disk(order)

    def job_duration(self, job: RunJob) -> int:
        duration = int(self._job_us * (0.5 + self.world.random.random())) + 50 * len(job.slices)
        return duration * (1 + 9 * self.slow)

    def _run(self, job: RunJob) -> None:
        random = self.world.random
        duration = self.job_duration(job)
        if random.random() < self.world.job_failure_rate:
            failed = JobFailed(job.job, "executor lost")
            self.world.clock.after(duration, self._job_ended, self.life, failed)
            return
        done = self._result(job)
        self.world.clock.after(duration, self._job_ended, self.life, done)

    def _result(self, job: RunJob) -> JobDone:
        keeping = self.settings.keeping
        if keeping is not Keeping.WINDOWS:
            done = run_job(self.plan, job)
            return replace(done, marker=job.stop) if keeping is Keeping.STATE else done
        restored = None
        if isinstance(job.state, InLog):
            rows = [row for piece in job.slices for row in read_slice(piece)]
            log = self.disk.windows(self.settings.outputs[0].stream)
            replayed = rows if job.line is Line.REBUILD else []
            # What one took to load: the same in the simulation for few and for many.
            load = WindowsTimed(20 + 200 * self.world.random.random())
            self.world.clock.after(1_000, self.receive_in_life, self.life, load)
            state, restored = windows.recover(self.plan, job.state.record, log, replayed)
            if job.line is Line.REBUILD:
                return JobDone(job.job, state, job.stop, (), restored=restored)
            job = replace(job, state=state)
        done = run_job(self.plan, job)
        if job.line is not Line.STABLE:
            return done
        results = sum(block.count + block.skipped for block in done.outputs)
        opened, reached = windows.news(
            self.plan, job.state, done.state, job.stop, len(job.slices), results
        )
        return replace(done, windows=opened, reached=reached, restored=restored)

    def _read_windows(self, order: ReadWindows) -> None:
        blocks: tuple[WindowBlock, ...] = ()
        answer: Looked | Checked | RoundFailed
        if self.world.random.random() < self.world.job_failure_rate:
            answer = RoundFailed("executor lost")
        else:
            replica = self.replica
            assert replica is not None, "only a running replica orders rounds"
            time = replica.versions.stable_position
            if isinstance(order.order, LookAtWindows):
                answer = windows.look(self.plan, order.state, time, order.order)
            else:
                answer, blocks = windows.check(self.plan, order.state, time, order.order)
        duration = int(20_000 * self.world.random.random()) * (1 + 9 * self.slow)
        read = WindowsRead(order.round, answer, blocks)
        self.world.clock.after(duration, self.receive_in_life, self.life, read)

    def _job_ended(self, life: int, ended: JobDone | JobFailed) -> None:
        if life == self.life and self.hung:
            self._held_back.append((life, ended))
        else:
            self.receive_in_life(life, ended)

    def hang(self) -> None:
        """The engine stands still: no job ends, while the process answers."""
        self.hung += 1
        self.slow += 1
        self.disturbed_at = self.world.clock.now

    def go_on(self) -> None:
        self.hung -= 1
        self.slow -= 1
        self.disturbed_at = self.world.clock.now
        held_back, self._held_back = self._held_back, []
        for life, ended in held_back:
            self._job_ended(life, ended)


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

    def make_driver(self) -> None:
        self.driver = EntryPoint(self.settings, self.disk.open(self.settings.stream, complete=True))

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
            for batch in self.source.offers(None if own_time else now + self.ahead_us):
                self.receive(batch)
            if own_time and self.source.all_taken:
                self.receive(SourceReached(self.source.reached))
        interval = int(self._interval_us * (0.5 + self.world.random.random()))
        self.world.clock.after(interval, self._produce, life)


class Source:
    """Makes tuples, counts them, and offers them until they are accepted.

    Tuples get their time when they are taken, or bring the time they were made at, which may be
    up to ``LATENESS_US`` before that of a tuple made earlier.
    """

    LATENESS_US = 150_000

    def __init__(self, random: Random, quiet: bool = False) -> None:
        self._random = random
        # Some sources are quiet for seconds: only their boundaries say that they are there.
        some, few = [0, 1, 1, 2, 3], [0] * 20 + [1, 2]
        self._counts = few if quiet else random.choice([some, some, few])
        self._batches: deque[tuple[int, tuple[tuple[int, int], ...]]] = deque()
        self.made: list[tuple[int, int]] = []
        # When each batch was made, and the time of its tuples, by the batch's first id.
        self._times: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._made_at = 0
        self._offered = 0

    @property
    def reached(self) -> int:
        """No tuple to come is older."""
        return max(0, self._made_at - self.LATENESS_US)

    @property
    def all_taken(self) -> bool:
        return not self._batches

    @property
    def waiting_since(self) -> int | None:
        """When the oldest tuple was made that its entry point has not accepted."""
        return self._times[self._batches[0][0]][0] if self._batches else None

    def produce(self, now: int) -> None:
        self._made_at = now
        count = self._random.choice(self._counts)
        values = tuple(
            (self._random.randrange(4), self._random.randrange(1 << 30)) for _ in range(count)
        )
        if values:
            late = [int(self._random.random() * self.LATENESS_US) for _ in values]
            stimes = tuple(max(0, now - each) for each in late)
            self._times[len(self.made)] = (now, stimes)
            self._batches.append((len(self.made), values))
            self.made += values

    def offers(self, now: int | None) -> list[SourceBatch]:
        """Batches not yet offered; their tuples carry the present time, or else their own."""
        found = []
        for first_id, values in self._batches:
            if first_id >= self._offered:
                made_at, stimes = self._times[first_id]
                reached = max(0, made_at - self.LATENESS_US)
                if now is not None:
                    stimes, reached = tuple(now + index for index in range(len(values))), 0
                block = tuple((at, *value) for at, value in zip(stimes, values, strict=True))
                times = (min(stimes), max(stimes))
                found.append(SourceBatch(first_id, len(values), *times, block, reached))
                self._offered = first_id + len(values)
        return found

    def offer_from(self, next_id: int) -> None:
        self._offered = min(self._offered, next_id)

    def accepted(self, next_id: int) -> None:
        while self._batches and self._batches[0][0] + len(self._batches[0][1]) <= next_id:
            self._times.pop(self._batches.popleft()[0])
        self._offered = max(self._offered, next_id)


class ClientProcess(Process):
    """A client whose application remembers everything it was told."""

    driver: Client

    def __init__(self, world: World, settings: ClientSettings) -> None:
        super().__init__(world, settings.address)
        self.settings = settings
        self.stable: list[Row] = []
        self.tentative: list[Row] = []
        self.tentative_count = 0
        self.first_tentative_at: int | None = None
        self.boundary = 0
        self.orders |= {
            DeliverTuples: self._tuples,
            DeliverUndo: self._undo,
            DeliverBoundary: self._complete,
        }

    @property
    def consumer(self) -> Consumer:
        return self.driver.consumer

    def make_driver(self) -> None:
        self.driver = Client(self.settings)

    def _undo(self, undo: DeliverUndo) -> None:
        self.tentative = [row for row in self.tentative if row[0] >= undo.below_stime]

    def _complete(self, complete: DeliverBoundary) -> None:
        self.boundary = complete.boundary

    def _tuples(self, effect: DeliverTuples) -> None:
        block: tuple[Row, ...] = effect.block  # type: ignore[assignment]
        rows = [row for row in block[effect.skip :] if row[0] >= effect.stime_from]
        if effect.header.kind is effect.header.kind.STABLE:
            first_id = effect.header.first_id + effect.skip
            self.world.client_checks.stable(self, first_id, rows)
            self.stable += rows
        else:
            self.world.client_checks.tentative(self, rows)
            self.tentative += rows
            self.tentative_count += len(rows)
            if rows and self.first_tentative_at is None:
                self.first_tentative_at = self.world.clock.now
