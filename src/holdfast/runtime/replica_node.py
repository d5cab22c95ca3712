"""A replica: the driver of ``core.replica`` on Spark, with its logs and its kept state.

A checkpoint is the driver's recovery record together with the state at its boundary, written
in the steps of ``state_directory``. The record says that the state depends on no input before
the boundary: what it depends on is in the packed state. So a replica that restarts unpacks the
state and reads its inputs from the boundary on, and producers may trim what came before.

With ``reconcile = undo`` no state is kept. The record then names the oldest input that still
contributes, and a restart computes from there. With continuous checkpoints the state is in the
output log (``kept_windows``), and only the record is written here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from holdfast.blocks import Block
from holdfast.core.effects import CancelJob, DropState, Effect, RunJob
from holdfast.core.events import Event, JobDone, JobFailed, RecoveryRecord
from holdfast.core.progress import Progress
from holdfast.core.replica import Replica
from holdfast.core.settings import Reconcile, ReplicaSettings
from holdfast.core.versions import Line
from holdfast.errors import StateError
from holdfast.fragments import stream_schema_of
from holdfast.log import Durability, LogOptions
from holdfast.network import Network
from holdfast.runtime.jobs import JobReport, Jobs
from holdfast.runtime.kept_windows import KeptWindows
from holdfast.runtime.loop import Driver
from holdfast.runtime.node import Node, Place
from holdfast.runtime.run import check_network, describe_network
from holdfast.runtime.spill import Spill
from holdfast.runtime.state_directory import StateDirectory
from holdfast.runtime.stream_store import StreamStore
from holdfast.runtime.warming import warm_up
from holdfast.spark.engine import Engine
from holdfast.spark.packing import pack, unpack
from holdfast.spark.state import EMPTY, State

LOG_OPTIONS = LogOptions(
    durability=Durability.INTERVAL,
    sync_interval_ms=20.0,
    segment_bytes=16 << 20,
    preallocate_bytes=1 << 20,
)


class ReplicaNode(Node):
    """One replica of a fragment."""

    kind = "replica"
    store: StreamStore

    def __init__(
        self,
        settings: ReplicaSettings,
        network: Network,
        directory: Path,
        place: Place,
        on_fatal: Callable[[BaseException], None],
        log_options: LogOptions = LOG_OPTIONS,
    ) -> None:
        """``network`` is the fragment's own (see ``fragments.fragment_network``)."""
        schemas = {
            name: stream_schema_of(stream.operator) for name, stream in network.outputs.items()
        }
        consumers = {one.stream: one.consumers for one in settings.outputs}
        super().__init__(settings.address, place, schemas, consumers, directory, on_fatal)
        self.listen_to(settings.partners)
        self._network = network
        self._kept = _how_kept(settings)
        self._keeps_state = self._kept == "state"
        self._directory = StateDirectory(directory / "state")
        record = self._read_record()
        self._engine = Engine(network, self._directory.engine)
        self.spill = Spill(directory / "received")
        self._checkpointed: State | None = None
        initial = self._read_state()
        self._stable_states: dict[int, State] = {}
        self._stable_jobs: set[int] = set()
        self.store = StreamStore(
            directory / "streams", schemas, log_options, self._post, self._save_record
        )
        if record is not None:
            self.store.check_reaches(dict(record.outputs), self._directory.path)
        self.windows = self._keep_windows(settings)
        if self.windows is not None and record is not None:
            record, initial = self.windows.restart(record)
            for moment, lsn in self.windows.window_places:
                self.store.note_window(settings.outputs[0].stream, moment, lsn)
        logged = tuple(self.store.logged(stream, complete=False) for stream in schemas)
        self.replica = Replica(settings, record, logged)
        self.loop = self.make_loop(_Watched(self))
        self.jobs = Jobs(
            network.spark,
            self._engine,
            initial,
            self._post,
            self._kept == "nothing",
            self._report,
            self.windows,
        )

    def _keep_windows(self, settings: ReplicaSettings) -> KeptWindows | None:
        if settings.continuous is None:
            return None
        output = settings.outputs[0].stream
        log = self.store.logs[output]
        return KeptWindows(self._engine, settings.continuous, self.name, log, output)

    @property
    def progress(self) -> Progress:
        return self.replica.progress

    def start(self) -> None:
        if self.windows is not None and not self.replica.versions.rebuilt:
            # While the input comes that has to be computed again: Spark's first job is slow.
            self.jobs.call(lambda: warm_up(self._engine))
        self.jobs.start()
        super().start()

    def stop(self) -> None:
        super().stop()
        self.jobs.close()
        if self.windows is not None:
            self.windows.close()
        self._engine.close()
        self._directory.close()

    def status(self) -> dict[str, Any]:
        replica = self.replica
        return {
            **super().status(),
            "state": replica.state.value,
            "boundary": replica.versions.stable_position,
            "received_bytes": self.spill.memory_bytes,
            "inputs": {
                stream: {
                    "from": None if one.main is None else one.main.peer,
                    "next_id": one.copy.next_id,
                    "boundary": one.copy.boundary,
                }
                for stream, one in replica.consumer.upstreams.items()
            },
            "outputs": {stream: one.next_id for stream, one in replica.soutputs.items()},
            **({} if self.windows is None else {"checkpoint": self.windows.status()}),
            "trimmed_below": {
                stream: one.first_id for stream, one in replica.provider.streams.items()
            },
        }

    def took(self, block: Block) -> None:
        self.spill.take(block)

    def carry_out(self, effect: Effect) -> None:
        match effect:
            case RunJob():
                running = self.replica.versions.job
                line = Line.LIVE if running is None else running[1].line
                if line is not Line.LIVE:
                    self._stable_jobs.add(effect.job)
                self.jobs.submit(effect, line)
            case CancelJob(job):
                self.jobs.cancel(job)
            case DropState():
                pass  # the last reference is gone with this order
            case _:
                super().carry_out(effect)

    def before(self, event: Event) -> None:
        """Note the states that a record may name."""
        if isinstance(event, JobFailed):
            self._stable_jobs.discard(event.job)
            self.journal.write("job failed", level="error", reason=event.reason)
        if isinstance(event, JobDone) and event.job in self._stable_jobs:
            self._stable_jobs.discard(event.job)
            assert isinstance(event.state, State)
            if self._keeps_state:
                self._stable_states[event.state.boundary] = event.state

    def after(self) -> None:
        self.in_state(self.replica.state.value)
        self.metrics.boundary.set(self.replica.versions.stable_position / 1e6)
        self.metrics.events_waiting.set(self.loop.waiting)

    def _report(self, report: JobReport) -> None:
        self.metrics.job_seconds.observe(report.seconds)
        self.metrics.tuples_in.inc(report.tuples_in)
        self.metrics.tuples_out.inc(report.tuples_out)

    # -- checkpoints --------------------------------------------------------------------

    def _read_record(self) -> RecoveryRecord | None:
        manifest = self._directory.manifest
        if manifest is None:
            return None
        check_network(self._directory, self._network)
        found = manifest["record"]
        if found["kept"] != self._kept:
            raise StateError(
                f"{self._directory.path} was written with another way to reconcile or to "
                f"checkpoint, which kept {found['kept']}; this one keeps {self._kept}. Use the "
                f"one it was written with, or a new data directory"
            )
        return RecoveryRecord(
            int(found["boundary"]),
            int(found["marker"]),
            tuple((stream, int(number)) for stream, number in found["inputs"]),
            tuple((stream, int(number)) for stream, number in found["outputs"]),
            int(found["extent"]),
        )

    def _read_state(self) -> State:
        state = EMPTY
        for packed in self._directory.read_state():
            state = unpack(self._engine, packed, state)
        if self._directory.manifest is not None and self._keeps_state:
            self._checkpointed = state
        return state

    def _save_record(self, record: RecoveryRecord) -> None:
        """In the disk's thread: the state at the record's boundary, then the record."""
        if self._keeps_state:
            state = self._stable_states[record.boundary]
            since = None if self._directory.wants_whole() else self._checkpointed
            # 1, 2: the state
            self._directory.write_state(pack(self._engine, state, since), {})
            self._checkpointed = state
        # 4, 5: the record makes it count
        self._directory.write_manifest(
            {
                "network": describe_network(self._network),
                "record": {**dataclasses.asdict(record), "kept": self._kept},
            }
        )
        for boundary in list(self._stable_states):
            if boundary < record.boundary:
                self._stable_states.pop(boundary, None)


def _how_kept(settings: ReplicaSettings) -> str:
    """What there is on disk beside the record."""
    if settings.continuous is not None:
        return "windows"
    return "state" if settings.reconcile is Reconcile.CHECKPOINT else "nothing"


class _Watched:
    """The replica's driver, with a look at what goes in."""

    def __init__(self, node: ReplicaNode) -> None:
        self._node = node
        self._driver: Driver = node.replica

    def handle(self, event: Event, now: int) -> list[Effect]:
        self._node.before(event)
        effects = self._driver.handle(event, now)
        self._node.after()
        return effects
