"""Runs a network in this process: sources in, outputs out, checkpoints in between.

    holdfast.run(
        network,
        sources={"load": holdfast.read_csv("load.csv")},
        outputs={"busy": holdfast.write_jsonl("busy.jsonl")},
        state="state",
    )

The loop reads what has arrived, and when every source's boundary has passed the end of a
bucket, advances the network over it. When several buckets are complete by then, one advance
takes them all: the result is the same and the cost is one job's.

When every source has ended, the last checkpoint is taken first and the open windows are
flushed after it. A later run with the same state directory therefore finds the windows still
open: if the input has grown it cuts the flushed results off again and goes on, and its output
is that of one run over all the input.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path

from holdfast.connect.dead_letters import DeadLetters
from holdfast.connect.ingest import FOREVER
from holdfast.connect.sink import Sink
from holdfast.connect.source import Source
from holdfast.description import Gained, describe_query, describe_without
from holdfast.identity import refuse_changed
from holdfast.kept.state_directory import StateDirectory
from holdfast.network import Network
from holdfast.single.inputs import Inputs
from holdfast.single.outputs import Outputs
from holdfast.single.progress import default_observer
from holdfast.single.reports import AdvanceReport, Observer, RunSummary
from holdfast.single.stopping import Stop
from holdfast.spark.engine import Engine
from holdfast.spark.version import Version
from holdfast.times import SECOND, Duration, microseconds

_IDLE_SECONDS = 0.01
_LOG = logging.getLogger("holdfast")


def run(
    network: Network,
    sources: Mapping[str, Source],
    outputs: Mapping[str, Sink] | None = None,
    *,
    state: str | Path | None = None,
    checkpoint_interval: Duration = "10 seconds",
    advance_tuples: int = 100_000,
    dead_letters: str | Path | None = None,
    observer: Observer | None = None,
) -> RunSummary:
    """Run ``network`` until its sources end or the process is asked to stop.

    sources, outputs     what each source reads and each output writes; an output that is not
                         named goes to the console.
    state                a directory for checkpoints; with it, a second run goes on where the
                         first stopped. Without it, a run starts from the beginning.
    checkpoint_interval  the time between checkpoints.
    advance_tuples       about how many tuples of a source one advance takes at most.
    dead_letters         the file for rows that cannot become tuples.
    """
    network.check()
    directory = StateDirectory(state) if state is not None else None
    try:
        loop = _Loop(
            network,
            sources,
            outputs or {},
            directory,
            Path(dead_letters) if dead_letters else None,
        )
        loop.checkpoint_seconds = microseconds(checkpoint_interval) / SECOND
        loop.advance_tuples = advance_tuples
        return loop.run(observer or default_observer(network.name))
    finally:
        if directory is not None:
            directory.close()


class _Loop:
    """One run."""

    checkpoint_seconds = 10.0
    advance_tuples = 100_000

    def __init__(
        self,
        network: Network,
        sources: Mapping[str, Source],
        sinks: Mapping[str, Sink],
        directory: StateDirectory | None,
        dead_letters: Path | None,
    ) -> None:
        self._directory = directory
        manifest = directory.manifest if directory else None
        self._description = describe_query(network) if directory else ()
        self._columns = {name: one.schema.names for name, one in network.sources.items()}
        if directory and manifest:
            where = f"the state directory {str(directory.path)!r}"
            gained = _gained(network, manifest.get("columns", {}))
            now = describe_without(network, gained).lines if gained else self._description
            refuse_changed(manifest["network"], now, where)
        # How many tuples each output had when an earlier run came to the end of its input.
        self._problem: str | None = None
        self._finished_before: dict[str, int] | None = manifest and manifest["finished"]
        kept = manifest["dead_letters"] if manifest else {}
        path = dead_letters or (
            directory.dead_letters if directory else Path("dead-letters", f"{network.name}.jsonl")
        )
        self._dead_letters = DeadLetters(path, **kept)
        self._outputs = Outputs(
            network,
            sinks,
            manifest["outputs"] if manifest else None,
            directory.writer_id if directory else uuid.uuid4().hex,
            self._finished_before is not None,
            directory.sink if directory else None,
        )
        self._inputs = Inputs(network, sources, self._dead_letters, directory)
        self._engine = Engine(network, directory.engine if directory else None)
        self._version = Version(self._engine)
        for packed in directory.read_state() if directory else []:
            self._version.unpack(packed)
        self._inputs.forbid_before(self._version.boundary)
        self._checkpointed = self._version.snapshot() if manifest else None
        self._changed = manifest is None
        self._advances = 0
        self._started = self._last_checkpoint = time.monotonic()

    def run(self, observer: Observer) -> RunSummary:
        summary = None
        observer.started(resumed=self._checkpointed is not None)
        try:
            with Stop() as stop:
                if self._finished_before is None:
                    self._outputs.open()
                while not (stop.requested or self._inputs.ended):
                    self._turn(observer)
                    if observer.wants_stop:
                        stop.request()
                self._end(stop, observer)
            summary = self._summary(finished=not stop.requested)
            return summary
        finally:
            observer.ended(summary)
            self._close()

    def _turn(self, observer: Observer) -> None:
        """Read, advance if a bucket is complete, checkpoint if it is time."""
        rows = self._inputs.take(self.advance_tuples)
        self._changed |= rows > 0
        boundary = self._inputs.boundary
        # A run over input that had come to its end leaves its results alone until more comes.
        asleep = self._finished_before is not None and not self._changed
        if self._version.boundary < boundary < FOREVER and not asleep:
            self._advance(boundary, observer)
        elif rows == 0 and not self._inputs.ended:
            self._note(self._inputs.problem)
            time.sleep(_IDLE_SECONDS)
        if time.monotonic() - self._last_checkpoint >= self.checkpoint_seconds:
            self._checkpoint()
        observer.ticked()

    def _note(self, problem: str | None) -> None:
        """Something keeps a source from being read, or not any more: said once."""
        if problem != self._problem:
            self._problem = problem
            _LOG.warning("%s", problem or "the sources go on")

    def _end(self, stop: Stop, observer: Observer) -> None:
        """Checkpoint; then, if the sources have ended, flush what is still open."""
        if self._finished_before is not None and not self._changed:
            self._outputs.tuples.update(self._finished_before)
            return
        if not stop.requested and self._inputs.boundary_at_end > self._version.boundary:
            self._advance(self._inputs.boundary_at_end, observer)
        self._checkpoint()
        if not stop.requested:
            self._advance(FOREVER, observer)
            flushed = self._outputs.flush()
            if self._directory is not None:
                self._directory.finish({name: each["next_id"] for name, each in flushed.items()})
        self._dead_letters.flush()

    def _advance(self, boundary: int, observer: Observer) -> None:
        start = time.monotonic()
        released = self._inputs.release(self._version.boundary, boundary)
        tables = self._version.advance([released.bucket], boundary)
        written = self._outputs.write(tables)
        self._changed = True
        self._advances += 1
        now = time.monotonic()
        observer.advanced(
            AdvanceReport(
                boundary=boundary,
                tuples_in=released.tuples,
                tuples_out=written,
                bucket_seconds=now - start,
                latency_seconds=None if released.arrived is None else now - released.arrived,
                open_windows=self._engine.open_windows(self._version.snapshot()),
                dead_letters=self._dead_letters.count,
                outputs=tables,
            )
        )

    def _checkpoint(self) -> None:
        """The steps are those of ``state_directory``."""
        self._last_checkpoint = time.monotonic()
        if self._directory is None:
            self._outputs.flush()
        if self._directory is None or not self._changed or not self._outputs.ready:
            return
        snapshot = self._version.snapshot()
        since = None if self._directory.wants_whole() else self._checkpointed
        sources = self._inputs.save()
        # 1, 2: the state and the waiting tuples
        self._directory.write_state((self._version.pack(since),), self._inputs.waiting())
        # 3: outputs and dead letters
        outputs = self._outputs.flush()
        dead_letters = self._dead_letters.flush()
        # 4, 5: the manifest makes it count
        self._directory.write_manifest(
            {
                "network": list(self._description),
                "columns": self._columns,
                "finished": None,
                "sources": sources,
                "outputs": outputs,
                "dead_letters": dead_letters,
            }
        )
        self._inputs.checkpointed(sources)
        self._checkpointed = snapshot
        self._changed = False
        self._finished_before = None

    def _summary(self, finished: bool) -> RunSummary:
        return RunSummary(
            tuples_in=self._inputs.tuples,
            tuples_out=dict(self._outputs.tuples),
            dead_letters=self._dead_letters.count,
            dead_letter_file=self._dead_letters.path,
            advances=self._advances,
            seconds=time.monotonic() - self._started,
            finished=finished,
        )

    def _close(self) -> None:
        self._inputs.close()
        self._outputs.close()
        self._dead_letters.close()
        self._engine.close()


def _gained(network: Network, before: Mapping[str, Sequence[str]]) -> Gained:
    """The columns that sources have beside those they had ``before``, if all of them can be null.

    What was kept is as good without them where nothing that is computed names them.
    """
    found = {}
    for name, source in network.sources.items():
        had = before.get(name, source.schema.names)
        fresh = [field for field in source.schema.fields if field.name not in had]
        if fresh and all(field.nullable for field in fresh):
            found[name] = [field.name for field in fresh]
    return found
