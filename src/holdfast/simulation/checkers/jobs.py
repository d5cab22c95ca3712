"""What a replica makes of its jobs: a wait that leaves time for them, and names of what lacks.

- *Out by X*: where α adapts, a tuple that waits αX is out by X if its job is as slow as the last;
  unless α is as low as it may be.
- *Where the trouble is*: tentative results name streams that had not come as far as a live job
  went, or what the tentative tuples of their inputs say themselves that they lack. They do not name
  a stream that was there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from holdfast.core.effects import Line, RunJob
from holdfast.core.replica import Replica
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Computation

if TYPE_CHECKING:
    from holdfast.simulation.replica_process import ReplicaProcess


class JobChecks:
    """Checks when a job of one process begins, and when it is done."""

    def __init__(self, process: ReplicaProcess, plan: Computation) -> None:
        self._process = process
        self._reading: Mapping[str, tuple[str, ...]] = {
            stream: operator.inputs for stream, operator in plan.outputs
        }
        self._replica: Replica | None = None
        # The jobs under way: when each began, and whether it is one to learn from.
        self._begun: dict[int, tuple[RunJob, int, bool]] = {}
        # For each input, what may be named on its account while there is a live version.
        self._lacking: dict[str, set[str]] = {}

    def begins(self, job: RunJob) -> None:
        """A job was ordered just now."""
        replica = self._process.replica
        assert replica is not None, "only a running replica orders jobs"
        if replica is not self._replica:
            self._replica, self._begun, self._lacking = replica, {}, {}
        versions, timing = replica.versions, replica.timing
        is_redo = job.line is not Line.LIVE and versions.live_position is not None
        is_usual = not is_redo and job.stop - job.start <= timing.alpha_x_us
        self._begun[job.job] = (job, self._now, is_usual)
        if versions.live_position is None:
            self._lacking = {}
        elif job.line is Line.LIVE:
            self._look(replica, job.start, job.stop)

    def done(self, job: int) -> None:
        """A job's result was handed to the replica just now."""
        replica, begun = self._process.replica, self._begun.pop(job, None)
        if replica is None or replica is not self._replica or begun is None:
            return
        running = replica.versions.running
        if running is not None and running.job == job:
            return  # it waits for what it needs from the log, and nobody has learned of it yet
        order, began, is_usual = begun
        if is_usual and replica.timing.alpha_adapts:
            self._check_wait(replica, self._now - began)
        if order.line is Line.LIVE:
            self._check_names(replica)

    def cancelled(self, job: int) -> None:
        """Whatever comes of the job is dropped."""
        self._begun.pop(job, None)

    @property
    def _now(self) -> int:
        return self._process.world.clock.now + self._process.ahead_us

    def _look(self, replica: Replica, start: int, stop: int) -> None:
        """What is missing of each input as a live job begins."""
        for name, copy in replica.copies.items():
            if copy.boundary >= stop:
                continue
            lacking = self._lacking.setdefault(name, set())
            says = copy.why if copy.tentative_boundary > max(copy.boundary, start) else None
            if says is not None:
                lacking |= {one.stream for one in says.missing}
            if copy.live_boundary < stop or says is None or not says.missing:
                lacking.add(name)

    def _check_wait(self, replica: Replica, took_us: int) -> None:
        timing, waits_us = replica.timing, replica.patience.alpha_x_us
        out_us = waits_us + took_us
        if out_us > timing.delay_us and waits_us > timing.least_alpha_x_us:
            raise Violation(
                "out by X",
                f"{self._process.address} lets tuples wait {waits_us / 1e6:.3f} s, though its last "
                f"job took {took_us / 1e6:.3f} s; X is {timing.delay_us / 1e6:.3f} s",
            )

    def _check_names(self, replica: Replica) -> None:
        """Of the outputs that the live version has made tentative, by now."""
        for stream in replica.versions.tainted:
            why = replica.soutputs[stream].why
            if why is None:
                continue
            inputs = self._reading[stream]
            lacking = {each for name in inputs for each in self._lacking.get(name, ())}
            named = {one.stream for one in why.missing}
            if not named <= lacking:
                raise Violation(
                    "tentative tuples say why",
                    f"{stream} of {self._process.address} is said to lack {sorted(named)}; there "
                    f"lacks {sorted(lacking)}",
                )
