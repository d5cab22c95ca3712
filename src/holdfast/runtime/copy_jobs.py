"""The jobs of a copy that stands by: its engine is made when it is needed, and kept warm.

With continuous checkpoints, the first job after waking reads the state from the copy's log.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from holdfast.core.effects import RunJob
from holdfast.core.events import Event, JobDone, RecoveryRecord
from holdfast.core.versions import Line
from holdfast.runtime.jobs import JobReport, Jobs, activate
from holdfast.runtime.kept_windows import KeptWindows
from holdfast.runtime.warming import warm_up
from holdfast.spark.chains import Handle, Workshop
from holdfast.spark.engine import Engine
from holdfast.spark.state import EMPTY

MakeWindows = Callable[[Engine], KeptWindows]


class CopyJobs(Jobs):
    """Runs jobs from states that may be packed."""

    def __init__(
        self,
        workshop: Workshop,
        post: Callable[[Event], None],
        on_report: Callable[[JobReport], None],
        on_begin: Callable[[], None] = lambda: None,
    ) -> None:
        """``on_begin`` is called when a job begins, with Spark up and its state unpacked."""
        super().__init__(None, None, EMPTY, post, False, on_report)
        self._workshop = workshop
        self._on_begin = on_begin
        self._restart: tuple[MakeWindows, RecoveryRecord] | None = None

    def begin_from(self, make: MakeWindows, record: RecoveryRecord) -> None:
        """The next job begins from the window states in the log that ``record`` needs."""

        def note() -> None:
            self._restart = (make, record)

        self.call(note)

    @property
    def windows(self) -> KeptWindows | None:
        """Continuous checkpoints, once a job has begun."""
        return self._windows

    def close(self) -> None:
        super().close()
        if self._windows is not None:
            self._windows.close()

    def time_set(self) -> int:
        """How long the standard set takes, in microseconds."""
        started = time.monotonic()
        self.warm()
        return int((time.monotonic() - started) * 1e6)

    def warm(self) -> None:
        """Plan the job and run it on the standard set: some made-up tuples, whose result goes."""
        warm_up(self._open())

    def _prepare(self) -> None:
        if self._workshop.is_open:
            activate(self._workshop.network().spark)

    def _open(self) -> Engine:
        engine = self._workshop.engine()
        activate(self._workshop.network().spark)
        return engine

    def _carry_out(self, job: RunJob, line: Line) -> JobDone:
        self._engine = self._open()
        if self._restart is not None:
            self._read_log(self._engine, *self._restart)
            self._restart = None
        if self._windows is not None:
            self._on_begin()
            return super()._carry_out(job, line)
        handle: Handle = job.state  # type: ignore[assignment]
        state = self._workshop.state(handle)
        self._on_begin()
        return super()._carry_out(replace(job, state=state), line)

    def _read_log(self, engine: Engine, make: MakeWindows, record: RecoveryRecord) -> None:
        if self._windows is not None:
            self._windows.close()
        windows = make(engine)
        _, self._initial = windows.restart(record)
        self._windows = windows
