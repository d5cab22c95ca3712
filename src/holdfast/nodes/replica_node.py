"""A replica as a process's node: the driver of ``core.copy`` on Spark, whatever its protection.

A replica without a partner runs as long as its process does. One of two copies of a passive or
hybrid fragment sleeps and wakes as ``core.protected`` says. A hybrid copy has its engine from the
start: Spark is up, the job is planned and has run once, and is run again now and then so that
Spark's Python workers stay; checkpoints are unpacked as they come. So waking is a message and a
job. A passive copy starts Spark with its first job.

What it has on disk is in ``replica_disk``.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pyarrow.flight as flight

from holdfast.blocks import Block
from holdfast.core.consistency import NodeState
from holdfast.core.copy import Copy
from holdfast.core.effects import (
    Append,
    ApplyCheckpoint,
    BeginRunning,
    CancelJob,
    Effect,
    EndProcess,
    KeepConsumers,
    KeepEnd,
    Line,
    OfClients,
    OfEntryPoints,
    ReadWindows,
    RunAhead,
    RunEarly,
    RunJob,
    RunPairs,
    Send,
    SetTimer,
    StartOver,
    StopRunning,
    TimeStandardSet,
    TrimLog,
)
from holdfast.core.events import (
    Beside,
    BusyMeasured,
    CheckpointFailed,
    Ending,
    Event,
    JobDone,
    JobFailed,
    LoadMeasured,
    MessageArrived,
    ProcessorsMeasured,
    StandardSetTimed,
)
from holdfast.core.messages import CheckpointRefused, CheckpointShipped, CopyState, Refusal
from holdfast.core.progress import Work
from holdfast.core.protected import LOOK_US, ProtectedReplica
from holdfast.core.records import Membership
from holdfast.core.settings import (
    Keeping,
    Protection,
    ReplicaSettings,
    StandbySettings,
)
from holdfast.core.succession import peers_of
from holdfast.flight.server import PutBatch
from holdfast.kept.packed_codec import decode_checkpoint
from holdfast.kept.shipper import Shipper, Shippers
from holdfast.kept.state_directory import keep_newest_aside, put_aside
from holdfast.log import Durability, LogOptions
from holdfast.network import Network
from holdfast.nodes.early_jobs import EarlyJobs
from holdfast.nodes.hosted import Place
from holdfast.nodes.jobs import JobReport, Jobs
from holdfast.nodes.left_out import LeftOut
from holdfast.nodes.load import CpuLoad
from holdfast.nodes.node import GaveUp, Node
from holdfast.nodes.pace import Busy, Pace, tell_pace
from holdfast.nodes.problems import of_another_query, tell_crowded, tell_early, tell_work
from holdfast.nodes.replica_disk import ReplicaDisk
from holdfast.nodes.replica_status import (
    copy_status,
    lent_status,
    shard_status,
    streams_status,
    tentative_bytes,
)
from holdfast.nodes.spill import Spill
from holdfast.plans.fragment_plans import FragmentPlan
from holdfast.spark.chains import Handle, Workshop
from holdfast.spark.merging import Merge
from holdfast.spark.rejected import STOP

WARM_SECONDS = 20.0

LOG_OPTIONS = LogOptions(
    durability=Durability.INTERVAL,
    sync_interval_ms=20.0,
    segment_bytes=16 << 20,
    preallocate_bytes=1 << 20,
    direct_bytes=1 << 20,
)

# In these it has what it goes on from: what it had before is of no use to it.
_HAS_PLACE = (NodeState.STABLE.value, CopyState.SUSPENDED.value)


class ReplicaNode(Node):
    """One replica of a fragment, alone or one of several copies."""

    kind = "replica"
    last_event: Event | None = Ending()

    def __init__(
        self,
        settings: ReplicaSettings,
        pair: StandbySettings | None,
        plan: FragmentPlan,
        load: Callable[[], Network | Merge],
        directory: Path,
        place: Place,
        on_fatal: Callable[[BaseException], None],
        on_error: str = STOP,
    ) -> None:
        """``load`` gives the fragment's network, and starts Spark if it has to; see ``Workshop``.

        ``on_error``: what happens to rows on which the query's own code raises.
        """
        schemas = {output.stream: output.schema for output in plan.outputs}
        super().__init__(settings.address, place, schemas, directory, on_fatal)
        others = () if pair is None else pair.others_than(settings.address)
        self._listens_to = peers_of(settings, Membership())
        self.listen_to(self._listens_to, others)
        self._settings = settings
        self._fragment = plan.name
        self._shard = plan.shard
        self._pace = Pace(settings.timing.alpha_x_us)
        self._busy = Busy(time.monotonic())
        self._processors = CpuLoad(nice=False)
        # Set when jobs are quick, or when there will be none before it is needed.
        self.warm = threading.Event()
        if pair is not None:
            self.warm.set()
        self._pair = pair
        # The other copies, if they stand by for one another.
        self._others = others
        self.spill = Spill(directory / "received", self.problems.set)
        self._queued = Spill(directory / "queued", self.problems.set, "results")
        self._tentative = Spill(directory / "tentative", self.problems.set, "tentative results")
        engine = (directory / "engine").absolute()  # the JVM may have another working directory
        shutil.rmtree(engine, ignore_errors=True)  # worthless once the process has ended
        self.workshop = Workshop(load, engine, on_error)
        self.left_out = LeftOut(directory / "dead-letters.jsonl", self.journal)
        self._disk = ReplicaDisk(
            settings,
            pair,
            plan,
            directory,
            self.workshop,
            load,
            LOG_OPTIONS,
            self._post,
            self.problems.set,
        )
        self.store = self._disk.store
        found = self._disk.found
        self.copy: Copy = (
            Copy(settings, found) if pair is None else ProtectedReplica(settings, pair, found)
        )
        self._bounded = bool(settings.bounds)
        self.loop = self.make_loop(self.copy)
        windows = self._disk.windows if settings.keeping is Keeping.WINDOWS else None
        self.jobs = Jobs(
            self.workshop,
            settings.keeping,
            self._post,
            self._report,
            self._job_begins,
            windows,
            self.left_out.take,
            None if plan.shard is None else plan.shard.share,
            self._resulted,
            place.quiet,
        )
        self.early = EarlyJobs(self.workshop, settings.outputs, self._post, self._queued.take)
        self._shippers = Shippers(self._make_shipper, others)
        # Whether it says how fast the standard set goes, for the copy that is to run here.
        self._benchmarks = pair is not None and pair.benchmarks
        self._load = CpuLoad()
        self._taken = 0
        self._runs = False
        self._awaits_job = self._awaits_result = False
        self._said = ""
        self._has_place = False

    # -- what it is made of -----------------------------------------------------------------

    def _make_shipper(self, partner: str) -> Shipper:
        return Shipper(
            self.name,
            partner,
            self._disk.sent(lent=partner not in self._others),
            lambda: self.place.book[partner],
            self.place.security,
            self.links,
            self._post,
            self._peer_problem,
            self.place.quiet,
        )

    @property
    def hybrid(self) -> bool:
        return self._pair is not None and self._pair.protection is Protection.HYBRID

    # -- living -----------------------------------------------------------------------------

    def work(self) -> Work:
        return self.copy.work()

    def look(self) -> None:
        super().look()
        tell_work(self.problems, self.metrics, self.work(), self._fragment)
        reach, view = self.copy.reach(), self.copy.view()
        recovering = view.state is NodeState.RECOVERING
        self.say_beyond(view.beyond, view.full, view.lapsed)
        tell_crowded(self.problems, view.outputs, self._settings.timing.tentative_frames)
        tell_pace(self._pace, self.metrics, self.problems, self.loop.now(), reach, recovering)
        self.metrics.alpha.set(view.alpha)
        self.loop.post(ProcessorsMeasured(self._processors.look()))
        if self._pair is not None and self._pair.by_load:
            share = self.place.at_work.share(time.monotonic())
            self.loop.post(BusyMeasured(share or 0.0))
        whys = dict(view.tentative)
        for stream in self.schemas:
            self.metrics.rests_on(stream, whys.get(stream))

    def kept_sizes(self) -> dict[str, int]:
        if self._disk.logs_results:
            return super().kept_sizes()
        return {one.stream: one.kept_bytes for one in self.copy.view().outputs}

    def tentative_sizes(self) -> dict[str, int]:
        return tentative_bytes(self.copy)

    def start(self) -> None:
        if self._pair is None:
            self.workshop.engine()
            # While the first input comes: Spark's first jobs are slow.
            self.jobs.warm_up(self.warm.set, goes_on=self._disk.found.record is not None)
        elif self.hybrid:
            self.jobs.warm_apart()
            held: Handle = self._disk.found.state  # type: ignore[assignment]
            if isinstance(held, tuple):
                self.workshop.state(held)
        self.jobs.start()
        self.early.start()
        self._shippers.start()
        super().start()
        if self.hybrid:
            self.loop.call(self._warm_later)
        if self._benchmarks:
            self.jobs.call(self.jobs.warm)  # the benchmark is not what planning takes
            self._time_set()
            self.loop.call(self._look_at_load)

    def stop(self) -> None:
        self.spill.close()
        self._queued.close()
        self._tentative.close()
        super().stop()
        self._shippers.close()
        self.jobs.close()
        self.left_out.close()
        self.early.close()
        self.workshop.close()

    def _warm_later(self) -> None:
        """Spark lets go of Python workers that are idle for a minute."""
        if not self._runs:
            self.jobs.call(self.jobs.warm)
        self.loop.call_later(int(WARM_SECONDS * 1e6), self._warm_later)

    def _look_at_load(self) -> None:
        self.loop.post(LoadMeasured(self._load.look()))
        self.loop.call_later(LOOK_US, self._look_at_load)

    def _time_set(self) -> None:
        self.jobs.call(lambda: self._post(StandardSetTimed(self.jobs.time_set())))

    # -- what others see --------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        view, seen, windows = self.copy.view(), self.copy.glance(), self.jobs.windows
        return {
            **super().status(),
            "state": view.which.value if view.state is None else view.state.value,
            "boundary": max(0, view.boundary),
            "epoch": view.epoch,
            "incarnation": view.incarnation,
            "received_bytes": self.spill.memory_bytes,
            "dead_letters": self.left_out.count,
            "behind_s": round(self._pace.behind_us / 1e6, 3),
            "input_ratio": round(min(self._pace.ratio, 1e6), 3),
            "busy": self._busy.share(time.monotonic()),
            **streams_status(view),
            "delivery": self._settings.delivery.value,
            "delay_s": self._settings.timing.delay_us / 1e6,
            "alpha": round(view.alpha, 3),
            "need_s": None if view.need_us is None else round(view.need_us / 1e6, 3),
            "operators": self.jobs.state_sizes(),
            **({} if windows is None else {"checkpoint": windows.status()}),
            **({"why": seen.why} if seen.joining else {}),
            **lent_status(self._shippers.total_lent),
            **shard_status(self._shard, view.neighbours),
            **copy_status(self.copy, self._pair, self._shippers.total, self._runs, self._taken),
        }

    # -- what comes in ----------------------------------------------------------------------

    def put(
        self, sender: str, stream: str, options: dict[str, Any], batches: Iterator[PutBatch]
    ) -> None:
        others = (*self._others, *self._listens_to)
        if not others and self._pair is None:
            super().put(sender, stream, options, batches)
            return
        if not options.get("checkpoint") or not self.admission.takes_states_of(sender):
            raise flight.FlightServerError(
                f"{self.name} takes checkpoints of {' and '.join(others)} and nothing else"
            )
        checkpoint = decode_checkpoint((each.batch, each.options) for each in batches)
        for queue in checkpoint.queues:
            for frame in queue.frames:
                if isinstance(frame.block, Block):
                    self._queued.take(frame.block)
        self.loop.post(MessageArrived(sender, CheckpointShipped(checkpoint)))

    def took(self, block: Block) -> None:
        self.spill.take(block)

    def _resulted(self, line: Line, block: Block) -> None:
        """A job has made results; in the thread of the jobs."""
        if line is Line.LIVE:
            self._tentative.take(block)
        elif not self._disk.logs_results:
            self._queued.take(block)

    def before(self, event: Event) -> None:
        match event:
            case JobFailed(_, reason):
                self.journal.write("job failed", level="error", reason=reason)
            case _ if isinstance(event, Beside):
                tell_early(self.problems, event)
            case CheckpointFailed(_, reason):
                self.journal.write("checkpoint not held", level="error", reason=reason)
            case JobDone(_, _, _, outputs) if self._pair is not None and self._awaits_result:
                if any(output.count for output in outputs):
                    self._awaits_result = False
                    self.journal.write("first result")

    def after(self) -> None:
        seen = self.copy.glance()
        if (seen.partners, seen.others) != (self._listens_to, self._others):
            self._listens_to, self._others = seen.partners, seen.others
            self._shippers.turn_to(seen.others)
            self.listen_to(self._listens_to, self._others)
        self.in_state(seen.state)
        if not self._has_place and not seen.joining and seen.state in _HAS_PLACE:
            self._has_place = True
            # A large state takes long to remove, and nobody is to wait for that.
            state = self._directory / "state"
            threading.Thread(target=keep_newest_aside, args=(state,), daemon=True).start()
        if seen.why != self._said:
            self._said = seen.why
            if seen.why:
                self.journal.write("copy", copy=seen.state, why=seen.why)
            self.problems.set("joining", seen.why if seen.joining else None)
        if seen.boundary is not None:
            self.metrics.boundary.set(seen.boundary / 1e6)
        self.metrics.events_waiting.set(self.loop.waiting)

    # -- what goes out ----------------------------------------------------------------------

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case RunJob():
                self.jobs.submit(effect)
            case RunEarly() | RunAhead() | RunPairs():
                self.early.submit(effect)
            case ReadWindows():
                self.jobs.read_windows(effect)
            case CancelJob(job):
                self.jobs.cancel(job)
            case BeginRunning(_, state):
                self._runs = self._awaits_job = self._awaits_result = True
                self.store.call(lambda: self._disk.state.begin(state))
                self.jobs.begin()
            case StopRunning():
                self._runs = False
            case Send(to, CheckpointRefused(_, reason)) if reason is Refusal.OTHER_QUERY:
                self.problems.set("query", of_another_query(to))
                self.carry_out_common(effect)
            case ApplyCheckpoint():
                self.problems.over("query")
                self._taken += 1
                self.store.put(effect)
            case Append() | TrimLog() | KeepEnd():
                self.store.put(effect)
            case Send(to, CheckpointShipped(checkpoint)):
                self._shippers.ship(to, checkpoint)
            case StartOver(reason):
                self.store.call(lambda: self._start_over(reason))
            case TimeStandardSet():
                self._time_set()
            case Send() | SetTimer() | EndProcess() | KeepConsumers():
                self.carry_out_common(effect)
            case _:
                self._not_ordered(effect)

    def _not_ordered(self, effect: OfEntryPoints | OfClients) -> NoReturn:
        raise AssertionError(f"a replica does not order {effect}")

    def _start_over(self, reason: str) -> None:
        """Put the kept state where nobody looks for it, and let the process begin without it."""
        aside = put_aside(self._directory / "state")
        self._on_fatal(GaveUp(f"{reason}. Its state is put aside as {aside}; it joins anew"))

    def _job_begins(self) -> None:
        if self._awaits_job:
            self._awaits_job = False
            if self._pair is not None:
                self.journal.write("first job")

    def _report(self, report: JobReport) -> None:
        self.metrics.job_seconds.observe(report.seconds)
        self._busy.note(time.monotonic(), report.seconds)
        self.place.at_work.note(time.monotonic(), report.seconds)
        self.metrics.tuples_in.inc(report.tuples_in)
        self.metrics.tuples_out.inc(report.tuples_out)
