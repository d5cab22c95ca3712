"""Continuous checkpoints of one fragment: the machine of ``core.cec``, carried out.

``advanced`` is told of every stable state and gives the window states that must go into the log
with it. What a round of checkpointing writes besides is read from that state, which is immutable,
beside the next Spark job, and handed out by ``finish_round`` before that job's results are. So
the job waits for a round only if the round takes longer than the job.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from holdfast.core.cec import (
    CecEvent,
    Checked,
    Checkpointer,
    CheckWindows,
    LookAtWindows,
    Looked,
    Measured,
    RoundFailed,
    StateReached,
)
from holdfast.core.frame import Kind
from holdfast.core.settings import Continuous
from holdfast.errors import StateError
from holdfast.spark.engine import Advance, Bucket, Engine
from holdfast.spark.eventual import Recovered
from holdfast.spark.runs import DEAD, Int64s, numbers
from holdfast.spark.state import EMPTY, State, without_times
from holdfast.spark.task import FOREVER, LAZY
from holdfast.spark.window_files import FamilyNews
from holdfast.spark.window_states import (
    Members,
    OpenRuns,
    WindowBatch,
    joined,
    live_rows,
    members_of,
    split_at,
)


def monotonic_us() -> int:
    return time.monotonic_ns() // 1000


@dataclass(frozen=True)
class Cost:
    """What a recovery from the log would cost, once all that was handed out is in it."""

    open_windows: int
    extent_from: int
    extent: int
    replay_from: int
    replay: int
    recovery_us: int


@dataclass
class _Look:
    """Windows just looked at: where they are, and their states."""

    members: Members
    rows: pa.Table


class ContinuousCheckpoints:
    """Keeps the window states of a fragment in its log."""

    def __init__(
        self,
        engine: Engine,
        settings: Continuous,
        owner: str,
        executor: Executor | None = None,
        clock: Callable[[], int] = monotonic_us,
    ) -> None:
        """Without ``executor`` rounds run when ``finish_round`` is called."""
        self._engine = engine
        self._clock = clock
        self._executor = executor
        self.machine = Checkpointer(owner, settings, EMPTY.boundary)
        self._operators = {each.name: each.stateful for each in engine.stateful}
        self._lazy = [each for each in engine.stateful if engine.keeps[each.name] == LAZY]
        self.cost = self._cost()
        self._generations: dict[int, list[Members]] = {}
        self._looks: list[_Look] = []
        self._others: list[Future[None]] = []
        self._round: Future[list[WindowBatch]] | Callable[[], list[WindowBatch]] | None = None

    # -- what goes into the log ---------------------------------------------------------

    def advanced(
        self, start: int, advance: Advance, inputs: int, results: int
    ) -> list[WindowBatch]:
        """A stable state was computed from ``start`` on; the window states it must keep."""
        assert self._round is None, "finish the round first"
        state = advance.state
        batches = []
        replayed = exact = 0
        windows = self.machine.open_windows + self._balance(advance.windows)
        for news in advance.windows:
            if news.rows is None:
                continue
            lazy = self._engine.keeps[news.operator] == LAZY
            kind = Kind.WINDOW_OPEN if lazy else Kind.WINDOW_CHECK
            batch = WindowBatch(kind, news.operator, news.family, start, state.boundary, news.rows)
            batches.append(batch)
            alive = _alive(news.rows)
            if alive.num_rows:
                where = members_of(news.operator, news.family, alive, state, state.boundary)
                self._generations.setdefault(state.boundary, []).append(where)
                replayed += where.count if lazy else 0
                exact += 0 if lazy else where.count
        written = sum(batch.rows.num_rows for batch in batches)
        reach = self._reach(state.boundary)
        reached = StateReached(
            state.boundary, inputs, results, replayed, exact, written, windows, reach
        )
        orders = self.machine.handle(reached, self._clock())
        # Before the round begins, which changes what is needed but is not in the log yet.
        self.cost = self._cost()
        for order in orders:
            self._begin_round(state, order)
        return batches

    def finish_round(self) -> list[WindowBatch]:
        """What the round beside the last job has written; waits for it."""
        while self._others:
            self._others.pop().result()
        begun, self._round = self._round, None
        if begun is None:
            return []
        return begun.result() if isinstance(begun, Future) else begun()

    def also(self, work: Callable[[], None]) -> None:
        """Do something beside the next job, too."""
        if self._executor is None:
            work()
        else:
            self._others.append(self._executor.submit(work))

    def told(self) -> dict[str, int]:
        """What is written beside the window states; ``holdfast log inspect`` shows it."""
        return asdict(self.cost)

    def _cost(self) -> Cost:
        machine = self.machine
        return Cost(
            machine.open_windows,
            machine.extent_from,
            machine.extent,
            machine.replay_from,
            machine.replay,
            machine.recovery_us,
        )

    def measured(
        self, load_us: float | None = None, job_us: float | None = None, tuples: int = 0
    ) -> None:
        """What loading a window state, or a job of so many tuples, really took."""
        self.machine.handle(Measured(load_us, job_us, tuples), self._clock())

    def _reach(self, boundary: int) -> int:
        return min([boundary, *(each.stateful.replay_from(boundary) for each in self._lazy)])

    def _balance(self, news: Sequence[FamilyNews]) -> int:
        return sum(
            each.opened - each.ended
            for each in news
            if self._operators[each.operator].counts(each.family)
        )

    # -- a round ------------------------------------------------------------------------

    def _begin_round(self, state: State, order: LookAtWindows | CheckWindows) -> None:
        if self._executor is None:
            self._round = lambda: self._carry_out(state, order)
        else:
            self._round = self._executor.submit(self._carry_out, state, order)

    def _carry_out(self, state: State, order: LookAtWindows | CheckWindows) -> list[WindowBatch]:
        batches: list[WindowBatch] = []
        orders = [order]
        runs = OpenRuns()
        while orders:
            match orders.pop():
                case LookAtWindows(moment, most):
                    event = self._try_to_look(state, moment, most, runs)
                case CheckWindows(moment):
                    event = self._check(state, moment, batches)
            orders += self.machine.handle(event, self._clock())
        return _one_for_each_family(batches)

    def _try_to_look(self, state: State, moment: int, most: int, runs: OpenRuns) -> CecEvent:
        """What was written so far must reach the log, whatever goes wrong after it."""
        try:
            return self._look(state, moment, most, runs)
        except (OSError, pa.ArrowException) as error:
            return RoundFailed(f"{type(error).__name__}: {error}")

    def _look(self, state: State, moment: int, most: int, runs: OpenRuns) -> Looked:
        first, rest = split_at(joined(self._generations[moment]), most)
        self._looks = []
        left: list[Members] = []
        alive = 0
        for members in first:
            if self._operators[members.operator].row_keys(members.family) is None:
                left += self._still_open(state, members)
                continue
            rows = live_rows(self._engine, state, members, runs)
            if rows is not None:
                found = members_of(members.operator, members.family, rows, state, moment)
                where = replace(found, written=members.written)
                self._looks.append(_Look(where, rows))
                alive += where.count
        # Those just looked at come first, so that they can be written next.
        kept = [*(look.members for look in self._looks), *rest, *left]
        self._set(moment, kept)
        unseen = sum(members.count for members in rest)
        return Looked(alive, *self._count(kept), unseen)

    def _check(self, state: State, moment: int, batches: list[WindowBatch]) -> Checked:
        looked = [look.members for look in self._looks]
        kept = self._generations[moment][len(looked) :]
        self._set(moment, kept)
        now = state.boundary
        for look in self._looks:
            operator, family = look.members.operator, look.members.family
            batches.append(WindowBatch(Kind.WINDOW_CHECK, operator, family, now, now, look.rows))
            where = members_of(operator, family, look.rows, state, now)
            self._generations.setdefault(now, []).append(where)
        self._looks = []
        return Checked(*self._count(looked))

    def _still_open(self, state: State, members: Members) -> list[Members]:
        """Rows that accumulate are written once; they count until their time is over."""
        slots = self._operators[members.operator].first_open(state.boundary)
        open_from = slots.get(members.family, -FOREVER)
        return [members] if (members.slot >= open_from).any() else []

    def _set(self, moment: int, kept: list[Members]) -> None:
        if kept:
            self._generations[moment] = kept
        else:
            self._generations.pop(moment, None)

    def _count(self, found: Sequence[Members]) -> tuple[int, int]:
        lazy = [members for members in found if self._engine.keeps[members.operator] == LAZY]
        replayed = sum(members.count for members in lazy)
        return replayed, sum(members.count for members in found) - replayed

    # -- recovery -----------------------------------------------------------------------

    def recover(self, recovered: Recovered, buckets: Sequence[Bucket]) -> State:
        """The state at the boundary of ``recovered``, from the input since its own."""
        boundary, partial = recovered.boundary, recovered.state
        begun = self._clock()
        if partial.boundary >= boundary:
            whole = State(partial.version, boundary, without_times(partial.runs))
            advance = Advance(whole, {})
        else:
            advance = self._engine.replay(partial, buckets, boundary)
        times = _input_times(buckets)
        self.measured(job_us=self._clock() - begun, tuples=len(times))
        counted = sum(
            each.count
            for found in recovered.generations.values()
            for each in found
            if self._operators[each.operator].counts(each.family)
        )
        windows = counted + self._balance(advance.windows)
        _check_count(recovered, windows)
        marks, frames = recovered.marks(times)
        self._generations = {time: list(each) for time, each in recovered.generations.items()}
        reach = self._reach(boundary)
        reached = StateReached(boundary, len(times), frames, 0, 0, 0, windows, reach)
        self.machine.restore(recovered.counts(self._engine), marks, reached)
        self.cost = self._cost()
        return advance.state


def _one_for_each_family(batches: Sequence[WindowBatch]) -> list[WindowBatch]:
    """What the looks of a round have written, as few frames: each has a price of its own."""
    found: dict[tuple[str, str], list[WindowBatch]] = {}
    for each in batches:
        found.setdefault((each.operator, each.family), []).append(each)
    return [
        replace(
            same[0],
            rows=pa.concat_tables([each.rows for each in same], promote_options="default"),
        )
        for same in found.values()
    ]


def _check_count(recovered: Recovered, windows: int) -> None:
    """The log says how many windows were open; it must have had a state of each."""
    told = recovered.open_windows
    if told is not None and told != windows:
        raise StateError(
            f"{told} windows were open at {recovered.boundary}, but the log and the replayed "
            f"input give {windows}; part of either is missing"
        )


def _alive(rows: pa.Table) -> pa.Table:
    if DEAD not in rows.column_names:
        return rows
    return rows.filter(pa.array(~numbers(rows[DEAD]).astype(np.bool_)))


def _input_times(buckets: Sequence[Bucket]) -> Int64s:
    columns = [
        numbers(table["stime"].cast(pa.int64()))
        for bucket in buckets
        for table in bucket.tables.values()
    ]
    return np.sort(np.concatenate(columns)) if columns else np.empty(0, dtype=np.int64)
