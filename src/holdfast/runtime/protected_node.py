"""A copy of a passive or hybrid fragment: the driver of ``core.protected`` as a process's node.

A hybrid copy has its engine from the start: Spark is up, the job is planned and has run once,
and is run again now and then so that Spark's Python workers stay; checkpoints are unpacked as
they come. So waking is a message and a job. A passive copy starts Spark with its first job.

Where checkpoints are persisted, ``state/`` holds the last one: its own or the other copy's. With
continuous checkpoints the state is in the output log, and the other copy is fed with that
(``log_copies``).
"""

from __future__ import annotations

import hashlib
import shutil
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.flight as flight

from holdfast.blocks import Block
from holdfast.core.effects import (
    Append,
    ApplyCheckpoint,
    CancelJob,
    DropState,
    Effect,
    RunJob,
    Send,
    TimeStandardSet,
)
from holdfast.core.events import (
    CheckpointFailed,
    Event,
    JobDone,
    JobFailed,
    LoadMeasured,
    MessageArrived,
    StandardSetTimed,
)
from holdfast.core.messages import CheckpointShipped
from holdfast.core.progress import Progress
from holdfast.core.protected import LOOK_US, ProtectedReplica
from holdfast.core.records import RecoveryRecord
from holdfast.core.settings import Protection, ReplicaSettings, StandbySettings
from holdfast.core.versions import Line
from holdfast.flight.checkpoints import decode_checkpoint
from holdfast.flight.server import PutBatch
from holdfast.fragment_plans import FragmentPlan
from holdfast.network import Network
from holdfast.runtime.copy_jobs import CopyJobs
from holdfast.runtime.jobs import JobReport
from holdfast.runtime.keeper import Keeper, OwnCheckpoint
from holdfast.runtime.kept_windows import KeptWindows
from holdfast.runtime.load import LoadWatch
from holdfast.runtime.log_copies import LogKeeper, LogShipper
from holdfast.runtime.loop import Driver
from holdfast.runtime.node import Node, Place
from holdfast.runtime.replica_node import LOG_OPTIONS
from holdfast.runtime.shipper import Shipper
from holdfast.runtime.spill import Spill
from holdfast.runtime.state_directory import StateDirectory
from holdfast.spark.chains import Handle, Workshop

WARM_SECONDS = 20.0


class ProtectedNode(Node):
    """One of the two copies of a fragment."""

    kind = "copy"

    def __init__(
        self,
        settings: ReplicaSettings,
        pair: StandbySettings,
        plan: FragmentPlan,
        load: Callable[[], Network],
        directory: Path,
        place: Place,
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        """``load`` gives the fragment's network, and starts Spark if it has to."""
        schemas = {output.stream: output.schema for output in plan.outputs}
        consumers = {one.stream: one.consumers for one in settings.outputs}
        super().__init__(settings.address, place, schemas, consumers, directory, on_fatal)
        self.listen_to(settings.partners, pair.partner_of(settings.address))
        self._pair = pair
        self._plan = plan
        self.spill = Spill(directory / "received")
        self._queued = Spill(directory / "queued")
        keeps_state = pair.persist and settings.continuous is None
        self._state_directory = StateDirectory(directory / "state") if keeps_state else None
        engine = (directory / "engine").absolute()
        shutil.rmtree(engine, ignore_errors=True)  # worthless once the process has ended
        self.workshop = Workshop(load, engine)
        self.keeper = self._make_keeper(settings, directory, identity_of(plan, schemas))
        self.store = self.keeper
        found = self.keeper.found()
        if found is None:
            self.copy = ProtectedReplica(settings, pair)
        else:
            self.copy = ProtectedReplica(settings, pair, found.record, found.queues, found.state)
        self.loop = self.make_loop(_Watched(self))
        self.jobs = CopyJobs(self.workshop, self._post, self._report, self._job_begins)
        self.shipper = self._make_shipper(place)
        self._watch = (
            LoadWatch(LOOK_US / 1e6, lambda load: self.loop.post(LoadMeasured(load)))
            if pair.benchmarks
            else None
        )
        self._taken = 0
        self._replica_seen: object = None
        self._awaits_job = self._awaits_result = False
        self._said_state = ""

    def _make_keeper(
        self, settings: ReplicaSettings, directory: Path, identity: str
    ) -> Keeper | LogKeeper:
        if settings.continuous is None:
            return Keeper(self.workshop, self._state_directory, identity, self._post)
        # What one way to checkpoint has left, another cannot read.
        identity += " in its log"
        return LogKeeper(directory, self.schemas, LOG_OPTIONS, identity, self._post)

    def _make_shipper(self, place: Place) -> Shipper:
        arguments: dict[str, Any] = {
            "name": self.name,
            "partner": self.copy.partner,
            "locate": lambda: place.book[self.copy.partner],
            "security": place.security,
            "links": self.links,
            "workshop": self.workshop,
            "post": self._post,
            "on_problem": self._peer_problem,
            "receiver_merges": self.hybrid,
        }
        if isinstance(self.keeper, LogKeeper):
            return LogShipper(self.keeper, **arguments)
        return Shipper(**arguments)

    @property
    def progress(self) -> Progress | None:
        return None if self.copy.replica is None else self.copy.replica.progress

    @property
    def hybrid(self) -> bool:
        return self._pair.protection is Protection.HYBRID

    def start(self) -> None:
        if self.hybrid:
            self.jobs.warm()
            if self.copy.held is not None:
                held: Handle = self.copy.held[1]  # type: ignore[assignment]
                self.workshop.state(held)
        self.jobs.start()
        self.shipper.start()
        super().start()
        if self.hybrid:
            self.loop.call(self._warm_later)
        if self._watch is not None:
            self.jobs.call(self.jobs.warm)  # the benchmark is not what planning takes
            self.jobs.call(lambda: self._post(StandardSetTimed(self.jobs.time_set())))
            self._watch.start()

    def stop(self) -> None:
        if self._watch is not None:
            self._watch.close()
        super().stop()
        self.shipper.close()
        self.jobs.close()
        self.workshop.close()
        if self._state_directory is not None:
            self._state_directory.close()

    def _warm_later(self) -> None:
        """Spark lets go of Python workers that are idle for a minute."""
        if self.copy.replica is None:
            self.jobs.call(self.jobs.warm)
        self.loop.call_later(int(WARM_SECONDS * 1e6), self._warm_later)

    def status(self) -> dict[str, Any]:
        copy, report = self.copy, self.copy.report()
        replica = copy.replica
        total = self.shipper.total
        upstreams = {} if replica is None else replica.consumer.upstreams
        return {
            **super().status(),
            "state": copy.state.value if replica is None else replica.state.value,
            "protection": self._pair.protection.value,
            "copy": copy.state.value,
            "awake": replica is not None,
            "term": copy.switch.term,
            "why": copy.switch.reason,
            "overloaded": copy.overloaded,
            "changes": {f"{state}: {why}": n for (state, why), n in copy.switch.visits.items()},
            "benchmark": dict(
                Counter(why for (_, why), n in copy.benchmark.visits.items() for _ in range(n))
            ),
            "boundary": max(0, report.boundary),
            "received_bytes": self.spill.memory_bytes,
            "inputs": {
                stream: {
                    "from": None if one.main is None else one.main.peer,
                    "next_id": one.copy.next_id,
                    "boundary": one.copy.boundary,
                }
                for stream, one in upstreams.items()
            },
            "outputs": {stream: one.next_id for stream, one in copy.served.items()},
            "queued": {
                stream: sum(frame.header.count for frame in one.stable)
                for stream, one in copy.served.items()
            },
            "checkpoints": {
                "sent": total.checkpoints,
                "whole": total.whole,
                "elements": total.elements,
                "bytes": total.bytes,
                "seconds": round(total.seconds, 3),
                "taken": self._taken,
                "confirmed": copy.checkpointer.confirmed,
            },
            **({} if self.jobs.windows is None else {"checkpoint": self.jobs.windows.status()}),
        }

    # -- what comes in ------------------------------------------------------------------

    def put(
        self, sender: str, stream: str, options: dict[str, Any], batches: Iterator[PutBatch]
    ) -> None:
        if not options.get("checkpoint") or sender != self.copy.partner:
            raise flight.FlightServerError(
                f"{self.name} takes checkpoints of {self.copy.partner} and nothing else"
            )
        checkpoint = decode_checkpoint((each.batch, each.options) for each in batches)
        for queue in checkpoint.queues:
            for frame in queue.frames:
                if isinstance(frame.block, Block):
                    self._queued.take(frame.block)
        self.loop.post(MessageArrived(sender, CheckpointShipped(checkpoint)))

    def took(self, block: Block) -> None:
        self.spill.take(block)

    def before(self, event: Event) -> None:
        match event:
            case JobFailed(_, reason):
                self.journal.write("job failed", level="error", reason=reason)
            case CheckpointFailed(_, reason):
                self.journal.write("checkpoint not held", level="error", reason=reason)
            case JobDone(_, _, _, outputs):
                for output in outputs:
                    if isinstance(output.block, Block):
                        self._queued.take(output.block)
                if self._awaits_result and any(output.count for output in outputs):
                    self._awaits_result = False
                    self.journal.write("first result")

    def after(self) -> None:
        copy = self.copy
        report = copy.report()
        self.in_state(report.state.value)
        self._say_why()
        if copy.replica is not None:
            self.metrics.boundary.set(copy.replica.versions.stable_position / 1e6)
        self.metrics.events_waiting.set(self.loop.waiting)

    def _say_why(self) -> None:
        switch = self.copy.switch
        overloaded = self.copy.overloaded
        said = f"{switch.term} {switch.state.value} {switch.reason} {overloaded}"
        if said != self._said_state:
            self._said_state = said
            self.journal.write("copy", copy=switch.state.value, term=switch.term, why=switch.reason)

    def noticed(self) -> None:
        """Before orders are carried out: a replica that was not there goes on from what is held."""
        replica = self.copy.replica
        if replica is not self._replica_seen:
            self._replica_seen = replica
            if replica is not None:
                self._awaits_job = self._awaits_result = True
                record, state = replica.newest
                self._goes_on_from(record, state)  # type: ignore[arg-type]

    def _goes_on_from(self, record: RecoveryRecord, state: Handle) -> None:
        keeper, settings = self.keeper, self.copy.settings
        if isinstance(keeper, Keeper):
            keeper.woke(state)
            return
        keeper.woke(record)
        knobs, name = settings.continuous, self.name
        assert knobs is not None
        log, stream = keeper.log, keeper.stream
        self.jobs.begin_from(
            lambda engine: KeptWindows(engine, knobs, name, log, stream, two_wrote=True), record
        )

    # -- what goes out ------------------------------------------------------------------

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case RunJob():
                running = None if self.copy.replica is None else self.copy.replica.versions.job
                self.jobs.submit(effect, Line.LIVE if running is None else running[1].line)
            case CancelJob(job):
                self.jobs.cancel(job)
            case DropState():
                pass  # the last reference is gone with this order
            case Append():
                self._append(effect)
            case TimeStandardSet():
                self.jobs.call(lambda: self._post(StandardSetTimed(self.jobs.time_set())))
            case ApplyCheckpoint():
                self._taken += 1
                self.keeper.apply(effect)
            case Send(_, CheckpointShipped(checkpoint)):
                self.shipper.ship(checkpoint)
            case _:
                super().carry_out(effect)

    def _append(self, append: Append) -> None:
        replica = self.copy.replica
        state: Handle = None
        if append.record is not None and replica is not None:
            record, newest = replica.newest
            # A record is that of the newest stable state when it is ordered; see core/appender.py.
            assert record == append.record, (record, append.record)
            state = newest  # type: ignore[assignment]
        self.keeper.keep(OwnCheckpoint(append, state, self.copy.queues()))

    def _job_begins(self) -> None:
        if self._awaits_job:
            self._awaits_job = False
            self.journal.write("first job")

    def _report(self, report: JobReport) -> None:
        self.metrics.job_seconds.observe(report.seconds)
        self.metrics.tuples_in.inc(report.tuples_in)
        self.metrics.tuples_out.inc(report.tuples_out)


def identity_of(plan: FragmentPlan, schemas: Mapping[str, pa.Schema]) -> str:
    """What must be equal for a life to go on with the checkpoint of another."""
    text = [plan.name]
    for each in (plan.inputs, schemas):
        text += [f"{name}: {schema.to_string()}" for name, schema in sorted(each.items())]
    return hashlib.sha256("\n".join(text).encode()).hexdigest()


class _Watched:
    """The copy's driver, with a look at what goes in."""

    def __init__(self, node: ProtectedNode) -> None:
        self._node = node
        self._driver: Driver = node.copy

    def handle(self, event: Event, now: int) -> list[Effect]:
        self._node.before(event)
        effects = self._driver.handle(event, now)
        self._node.noticed()
        self._node.after()
        return effects
