"""Continuous checkpoints of an engine without a replica around it, for tests and benchmarks.

The machine is the product's (``core.continuous``), and what it orders is read as the product reads
it (``kept.continuous_reader``); only who hands orders and answers to and fro is another.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future

from holdfast.core.continuous import CecEffect, Checkpointer, Measured
from holdfast.core.settings import Continuous
from holdfast.kept.continuous_reader import WindowReader
from holdfast.kept.continuous_recovery import Recovered
from holdfast.spark.continuous_states import WindowBatch
from holdfast.spark.engine import Advance, Bucket, Engine
from holdfast.spark.state import EMPTY, State


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000


class Rounds:
    """Keeps the window states of a fragment in its log."""

    def __init__(
        self,
        engine: Engine,
        settings: Continuous,
        executor: Executor | None = None,
        clock: Callable[[], int] = monotonic_us,
    ) -> None:
        """Without ``executor`` rounds run when ``finish_round`` is called."""
        self.machine = Checkpointer("test", settings, EMPTY.boundary)
        self._reader = WindowReader(engine)
        self._executor = executor
        self._clock = clock
        self._round: Future[list[WindowBatch]] | Callable[[], list[WindowBatch]] | None = None

    def advanced(
        self, before: State, start: int, advance: Advance, inputs: int, results: int
    ) -> list[WindowBatch]:
        """A stable state was computed from ``start`` on; the window states it must keep."""
        assert self._round is None, "finish the round first"
        batches, reached = self._reader.news(before, start, advance, inputs, results)
        orders = self.machine.handle(reached, self._clock())
        # Before the round, which changes what is needed but is not in the log yet.
        self.extent_from, self.replay_from = self.machine.extent_from, self.machine.replay_from
        if orders and self._executor is not None:
            self._round = self._executor.submit(self._carry_out, advance.state, orders)
        elif orders:
            self._round = lambda: self._carry_out(advance.state, orders)
        return batches

    def finish_round(self) -> list[WindowBatch]:
        """What the round beside the last job has written; waits for it."""
        begun, self._round = self._round, None
        if begun is None:
            return []
        return begun.result() if isinstance(begun, Future) else begun()

    def _carry_out(self, state: State, orders: list[CecEffect]) -> list[WindowBatch]:
        written: list[WindowBatch] = []
        while orders:
            answer, batches = self._reader.carry_out(state, orders.pop())
            written += batches
            orders += self.machine.handle(answer, self._clock())
        return written

    def measured(
        self, load_us: float | None = None, job_us: float | None = None, tuples: int = 0
    ) -> None:
        """What loading a window state, or a job of so many tuples, really took."""
        self.machine.handle(Measured(load_us, job_us, tuples), self._clock())

    def told(self) -> dict[str, int]:
        """What is written beside the window states."""
        machine = self.machine
        return {
            "open_windows": machine.open_windows,
            "extent_from": machine.extent_from,
            "extent": machine.extent,
            "replay_from": machine.replay_from,
            "replay": machine.replay,
            "recovery_us": machine.recovery_us,
        }

    def recover(self, recovered: Recovered, buckets: Sequence[Bucket]) -> State:
        """The state at the boundary of ``recovered``, from the input since its own."""
        begun = self._clock()
        state, restored = self._reader.recover(recovered, buckets)
        self.measured(job_us=self._clock() - begun, tuples=restored.reached.inputs)
        self.machine.restore(restored)
        return state
