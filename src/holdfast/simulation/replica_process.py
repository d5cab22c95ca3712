"""A simulated replica: jobs on the stand-in engine, and rounds of continuous checkpoints."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

from holdfast.core.admission import Admission
from holdfast.core.consumer import Consumer
from holdfast.core.continuous import Checked, LookAtWindows, Looked, RoundFailed
from holdfast.core.copy import Copy
from holdfast.core.effects import (
    Append,
    ApplyCheckpoint,
    BeginRunning,
    CancelJob,
    KeepEnd,
    Line,
    ReadWindows,
    RunAhead,
    RunEarly,
    RunJob,
    RunPairs,
    Send,
    StopRunning,
)
from holdfast.core.ending import was_whole
from holdfast.core.events import (
    AheadFailed,
    Beside,
    EarlyFailed,
    Ending,
    JobDone,
    JobFailed,
    PairsFailed,
    ProcessorsMeasured,
    WindowBlock,
    WindowsRead,
    WindowsTimed,
)
from holdfast.core.messages import FeedFrames
from holdfast.core.records import Found, InLog
from holdfast.core.replica import Replica
from holdfast.core.settings import Delivery, Keeping, ReplicaSettings
from holdfast.simulation import continuous as windows
from holdfast.simulation.checkers.jobs import JobChecks
from holdfast.simulation.checkers.kept import check_gap
from holdfast.simulation.executor import Computation, run_ahead, run_early, run_job, run_pairs
from holdfast.simulation.packed_states import Kept
from holdfast.simulation.process import DiskOrder, Process

if TYPE_CHECKING:
    from holdfast.simulation.world import World


# Of the jobs on a busy machine, how many are kept waiting for long, and for how much of X at most.
STALLS = 0.05
LONGEST_STALL = 0.15
# Of the jobs on a full disk, how many find no room.
NO_ROOM = 0.5


class ReplicaProcess(Process):
    """A replica with the stand-in executor."""

    driver: Copy

    def __init__(
        self, world: World, settings: ReplicaSettings, plan: Computation, job_us: int
    ) -> None:
        super().__init__(world, settings.address)
        self.settings = settings
        self.plan = plan
        self._job_us = job_us
        self._job_checks = JobChecks(self, plan)
        self.hung = 0
        # Whether it was told last that its machine is busy.
        self._told_busy = False
        self._held_back: list[tuple[int, JobDone | JobFailed | Beside]] = []
        # A passive copy has no engine until its first job has started one.
        self.starting_until = 0
        self.orders |= {
            RunJob: self._run,
            RunEarly: self._run_early,
            RunAhead: self._run_ahead,
            RunPairs: self._run_pairs,
            ReadWindows: self._read_windows,
            # Its result will come, and be dropped.
            CancelJob: lambda order: self._job_checks.cancelled(order.job),
            BeginRunning: self._order_disk,
            StopRunning: lambda order: None,
            KeepEnd: self._order_disk,
        }

    @property
    def replica(self) -> Replica | None:
        """The replica that runs here, if one does."""
        return self.driver.replica if self.up else None

    @property
    def consumer(self) -> Consumer | None:
        return None if self.replica is None else self.replica.consumer

    def admission(self) -> Admission:
        seen = self.driver.glance()
        return Admission(self.address, seen.partners, seen.others)

    def make_driver(self) -> None:
        self.driver = Copy(self.settings, self.found())
        self.driver.retired = lambda replica: self.world.coverage.collect(replica.machines())
        self.driver.joined = lambda machine: self.world.coverage.collect([machine])

    def stop(self) -> None:
        if not self.running:
            self.crash()  # it does not hear that it is to end, and is killed
            return
        self.receive(Ending())
        self._go_down(machine=False)
        self.gone()
        self.world.kept.ending(self)
        if not self._disk_orders:
            self._ended()

    def gone(self) -> None:
        self.world.kept.crashed(self)

    def _ended(self) -> None:
        super()._ended()
        self.world.kept.ended(self)

    def kept_sizes(self) -> tuple[tuple[str, int], ...]:
        if self.persists and self.settings.delivery is Delivery.EXACTLY_ONCE:
            return super().kept_sizes()
        if not self.up:
            return ()
        # No log has them.
        served = self.driver.served.items()
        return tuple((stream, 1_000 * len(one.stable)) for stream, one in served)

    def tentative_sizes(self) -> tuple[tuple[str, int], ...]:
        """As if every block had a thousand bytes."""
        if not self.up:
            return ()
        blocks = Counter(stream for stream, _ in self.driver.tentative_blocks())
        return tuple((stream, 1_000 * count) for stream, count in blocks.items())

    @property
    def persists(self) -> bool:
        """Whether what it holds is on its disk before it counts."""
        return True

    def found(self) -> Found:
        """What is on disk when the process starts."""
        logged = tuple(self.disk.open(output.stream) for output in self.settings.outputs)
        record = self.disk.record
        state = self.disk.packed.found(record, self.address)
        if record is not None and self.settings.keeping is Keeping.WINDOWS:
            state = InLog(record)
        ends = [self.disk.log_end(output.stream) for output in self.settings.outputs]
        ended = was_whole(self.disk.begin_life(), ends)
        return Found(record, state, logged, self.disk.consumers, ended)

    def packed(self, order: Append | ApplyCheckpoint) -> Kept | None:
        if self.settings.keeping is not Keeping.STATE or not isinstance(order, Append):
            return None
        return None if order.record is None else self.disk.packed.own(order.record, order.state)

    def _order_disk(self, order: DiskOrder) -> None:
        if isinstance(order, Append):
            served = self.driver.served
            unread = [name for name, one in served.items() if one.acknowledgements.abandoned]
            self.world.truth.check_append(self.address, order, unread)
            check_gap(self.address, order, served)
        super()._order_disk(order)

    def _send(self, send: Send) -> None:
        message = send.message
        if isinstance(message, FeedFrames) and self.settings.delivery is Delivery.EXACTLY_ONCE:
            for stream, served in self.driver.served.items():
                if served.feeds(send.to, message.feed):
                    truth, kept = self.world.truth, served.stable
                    truth.check_sent(self.address, stream, message.frames, kept)
        super()._send(send)

    def job_duration(self, job: RunJob) -> int:
        duration = int(self._job_us * (0.5 + self.world.random.random())) + 50 * len(job.slices)
        if self.busy:
            duration += self._taken_away(duration)
        return duration * (1 + 9 * self.slow)

    def _taken_away(self, duration: int) -> int:
        """For how long others have the processors meanwhile: often a little, at times for long."""
        random, most_us = self.world.random, LONGEST_STALL * self.settings.timing.delay_us
        stall = random.random() * most_us if random.random() < STALLS else 0.0
        return int(2 * duration * random.random() + stall)

    def _run(self, job: RunJob) -> None:
        if self.busy or self._told_busy:
            self._told_busy = bool(self.busy)
            used = ProcessorsMeasured(1.0 if self.busy else 0.4)
            self.world.clock.after(1_000, self.receive_in_life, self.life, used)
        self._job_checks.begins(job)
        random = self.world.random
        duration = self.job_duration(job)
        # A job writes its bucket and its state; sometimes there is room for what is small.
        no_room = self.disk.full and random.random() < NO_ROOM
        if no_room or random.random() < self.world.job_failure_rate:
            reason = "the disk is full" if no_room else "executor lost"
            failed = JobFailed(job.job, reason, no_room=no_room)
            self.world.clock.after(duration, self._job_ended, self.life, failed)
            return
        done = self._result(job)
        self.world.clock.after(duration, self._job_ended, self.life, done)

    def _run_early(self, order: RunEarly) -> None:
        self._beside(run_early(self.plan, order), EarlyFailed(order.job, "executor lost"))

    def _run_ahead(self, order: RunAhead) -> None:
        self._beside(run_ahead(self.plan, order), AheadFailed(order.job, "executor lost"))

    def _run_pairs(self, order: RunPairs) -> None:
        self._beside(run_pairs(self.plan, order), PairsFailed(order.job, "executor lost"))

    def _beside(self, ended: Beside, failed: Beside) -> None:
        """Beside the other jobs, and as quick as they are."""
        random = self.world.random
        duration = int(self._job_us * (0.5 + random.random())) * (1 + 9 * self.slow)
        if random.random() < self.world.job_failure_rate:
            ended = failed
        self.world.clock.after(duration, self._early_ended, self.life, ended)

    def _early_ended(self, life: int, ended: Beside) -> None:
        if life == self.life and self.hung:
            self._held_back.append((life, ended))
        else:
            self.receive_in_life(life, ended)

    def _result(self, job: RunJob) -> JobDone:
        keeping = self.settings.keeping
        if keeping is not Keeping.WINDOWS:
            done = run_job(self.plan, job)
            return replace(done, marker=job.stop) if keeping is Keeping.STATE else done
        restored = None
        if isinstance(job.state, InLog):
            rows = self.plan.read(job.slices)
            log = self.disk.windows(self.settings.outputs[0].stream)
            replayed = rows if job.line is Line.REBUILD else []
            # What one took to load: the same in the simulation for few and for many.
            load = WindowsTimed(20 + 200 * self.world.random.random())
            self.world.clock.after(1_000, self.receive_in_life, self.life, load)
            state, restored = windows.recover(self.plan, job.state.record, log, replayed)
            if job.line is Line.REBUILD:
                due = self.plan.due(state)
                return JobDone(job.job, state, job.stop, (), restored=restored, due=due)
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
        elif isinstance(order.order, LookAtWindows):
            answer = windows.look(self.plan, order.state, order.at, order.order)
        else:
            answer, blocks = windows.check(self.plan, order.state, order.at, order.order)
        duration = int(20_000 * self.world.random.random()) * (1 + 9 * self.slow)
        read = WindowsRead(order.round, answer, blocks)
        self.world.clock.after(duration, self.receive_in_life, self.life, read)

    def _job_ended(self, life: int, ended: JobDone | JobFailed) -> None:
        if life == self.life and self.hung:
            self._held_back.append((life, ended))
        else:
            self.receive_in_life(life, ended)
            if isinstance(ended, JobDone) and life == self.life and self.running:
                self._job_checks.done(ended.job)

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
            if isinstance(ended, Beside):
                self._early_ended(life, ended)
            else:
                self._job_ended(life, ended)
