"""The engine: advances a fragment's state by buckets, one Spark job for each.

    advance(state, buckets, boundary) -> (state', output)

An advance from boundary B0 to B takes every tuple with ``B0 <= stime < B`` and emits, for
each output, exactly its tuples in that interval, in one total order: tuple time, then ``seq``,
then the columns. Therefore advancing by several buckets at once gives the output of advancing
by one after the other, and two engines fed the same buckets give the same bytes.

States are values. An advance leaves the old state as it was; keep it and it is a checkpoint,
advance it twice and it is a fork.
"""

from __future__ import annotations

import contextlib
import copy
import json
import shutil
import tempfile
import threading
import weakref
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.operators import Operator, SourceOperator, StatefulOperator, upstream
from holdfast.spark.aside import Aside
from holdfast.spark.bucket_checks import check_inputs, checked_boundary
from holdfast.spark.columns import ColumnRunner
from holdfast.spark.continuous_files import FamilyNews, collect_news
from holdfast.spark.groups import in_stream_order
from holdfast.spark.prepared import arrow_schema
from holdfast.spark.rejected import STOP, Rejected, collect_rejected
from holdfast.spark.resident import residents_of
from holdfast.spark.session import activate
from holdfast.spark.stages import Wave, full_schema, plan_waves
from holdfast.spark.state import EMPTY, State, collect_runs, without_times
from holdfast.spark.stateful import Spread
from holdfast.spark.step_directories import StepDirectories, StepDirectory
from holdfast.spark.task import EAGER, FOREVER, LAZY, PROPERTY, conform

if TYPE_CHECKING:
    from holdfast.network import Network


@dataclass(frozen=True)
class Sharding:
    """When a job is spread over one task for each partition, with a shuffle before it.

    Jobs of so many ``rows`` gain by it: measured on two cores, an average of 200,000 tuples takes
    277 ms in two tasks and 358 ms in one, one of 30,000 takes 84 and 81 ms. But that form must be
    planned first, which takes seconds, and both cores. So the first large jobs go in one task:
    after a failure there are one or two, a redo, at the moment when there is no time for that.
    Jobs on columns need no such plan and no shuffle, and gain from ``column_rows`` on.
    """

    rows: int
    first_large: int
    column_rows: int


_SHARDING = Sharding(rows=200_000, first_large=2, column_rows=20_000)


@dataclass(frozen=True)
class Bucket:
    """The tuples of all inputs with ``start <= stime < end``.

    Tables have the columns stime, tmax, seq and the source's own; an input without tuples may
    be left out.
    """

    start: int
    end: int
    tables: Mapping[str, pa.Table]


@dataclass(frozen=True)
class Advance:
    """What an advance gives: the new state, and each output's tuples in order.

    ``windows``, if asked for: the window states to be kept, and how many opened and ended.
    ``rejected``: the rows that were left out, where ``on_error`` says so.
    """

    state: State
    outputs: Mapping[str, pa.Table]
    windows: tuple[FamilyNews, ...] = ()
    rejected: tuple[Rejected, ...] = ()


class Engine:
    """Runs one network (or fragment of one) on Spark."""

    def __init__(
        self,
        network: Network,
        directory: Path | None = None,
        columns: bool = True,
        on_error: str = STOP,
        here: bool = False,
    ) -> None:
        """``columns`` False: every part of the network is one Spark plan, over rows.

        ``on_error`` "dead-letter": rows on which a function of ``process`` raises are left out.
        ``here``: what few tuples give by themselves, or joined, is computed in this process.
        """
        self._here = here
        self._on_error = on_error
        network.check()
        self._network = network
        self._spark = network.spark
        self._outputs = {name: each.operator for name, each in network.outputs.items()}
        self._schemas = {name: input_schema(each) for name, each in self._outputs.items()}
        # Most outputs of a bucket are, and to make even that takes 30 µs.
        self._empty = {name: schema.empty_table() for name, schema in self._schemas.items()}
        self._waves = plan_waves(list(self._outputs.values()))
        self._inputs = {
            op.name: input_schema(op) for op in network.operators if isinstance(op, SourceOperator)
        }
        self._stateful = [op for op in network.operators if isinstance(op, StatefulOperator)]
        self.keeps = {op.name: _how_to_keep(op) for op in self._stateful}
        # Absolute, because the JVM and the workers may have another working directory.
        made = (directory or Path(tempfile.mkdtemp(prefix="holdfast-"))).absolute()
        made.mkdir(parents=True, exist_ok=True)
        self._directory = Path(tempfile.mkdtemp(prefix="engine-", dir=made))
        self._step_directories = StepDirectories(self._directory)
        self._clean = weakref.finalize(
            self, shutil.rmtree, str(made if directory is None else self._directory), True
        )
        # Two versions of the fragment may advance at once, in two threads.
        self._lock = threading.Lock()
        self._plan_lock = threading.Lock()
        self._last_step = 0
        self._large_jobs = 0
        self._newest_version = 0
        self._cores = max(1, self._spark.sparkContext.defaultParallelism)
        self._aside = Aside(self, self._spark.sparkContext, self._cores)
        self._on_columns = columns
        self._columns: ColumnRunner | None = None

    @property
    def input_schemas(self) -> Mapping[str, pa.Schema]:
        """The schema of each input's tables, system columns first."""
        return self._inputs

    @property
    def stateful(self) -> Sequence[StatefulOperator]:
        return self._stateful

    @property
    def partitions(self) -> int:
        return self._network.partitions

    @property
    def directory(self) -> Path:
        return self._directory

    def next_step(self) -> int:
        """A number no earlier step of this engine has had."""
        with self._lock:
            self._last_step += 1
            return self._last_step

    def step_directory(self) -> StepDirectory:
        """Where another step leaves what it makes."""
        return self._step_directories.take(self.next_step())

    def next_version(self, state: State) -> int:
        """A version newer than ``state`` and all earlier ones."""
        with self._lock:
            self._newest_version = max(self._newest_version, state.version) + 1
            return self._newest_version

    def skip_versions(self, version: int) -> None:
        """Make all later states newer than ``version``, which came from another engine."""
        with self._lock:
            self._newest_version = max(self._newest_version, version)

    def activate(self) -> None:
        """Make its session that of this thread."""
        activate(self._spark)

    def apart(self) -> contextlib.AbstractContextManager[None]:
        """Meanwhile, jobs of this thread begin tasks that stay of their own."""
        return residents_of(self._spark.sparkContext).apart()

    def part(self, outputs: Iterable[str]) -> Engine:
        """An engine of its own for some of the outputs, with the inputs that they need.

        It is for small jobs: what few tuples give by themselves, or joined, it computes in this
        process.
        """
        network, whole = copy.copy(self._network), self._network
        network._outputs = {name: whole.outputs[name] for name in outputs}
        used = {operator.name for operator in network.operators}
        network._sources = {name: one for name, one in whole.sources.items() if name in used}
        return Engine(network, self._directory.parent, self._on_columns, self._on_error, here=True)

    def close(self) -> None:
        """Delete the engine's files; its states are gone with them."""
        self._clean()

    def advance(
        self,
        state: State,
        buckets: Sequence[Bucket],
        boundary: int | None = None,
        windows: bool = False,
        large: bool = False,
    ) -> Advance:
        """Process ``buckets`` and everything that closes up to ``boundary``.

        ``boundary`` defaults to the end of the last bucket. ``windows``: also give the states
        of the windows that opened, for continuous checkpoints. ``large``: as if tuples were many.
        """
        boundary = checked_boundary(state, buckets, boundary)
        inputs = self._merge_inputs(buckets)
        version = self.next_version(state)
        state = self._aside.put_in_place(state)
        if not self._anything_to_do(state, inputs, boundary):
            return Advance(State(version, boundary, state.runs), self._nothing())
        told: dict[str, Any] = {"keeps": self.keeps if windows else {}, "on_error": self._on_error}
        rows = sum(table.num_rows for table in inputs.values())
        told["long_rows"] = self._aside.long_rows(rows // self.partitions)
        directory = self.step_directory()
        streams = self._run_waves(state, version, boundary, inputs, directory, told, large)
        news, rejected = collect_news(directory), collect_rejected(directory)
        runs = collect_runs(state, directory, self.partitions, self.first_open(boundary))
        after = State(version, boundary, runs)
        self._aside.begin(after)
        return Advance(after, self._named(streams), news, rejected)

    def settled(self, state: State) -> State:
        """The same state once its long runs are merged, for which buckets do not wait."""
        return self._aside.settled(state)

    def look(
        self, state: State, buckets: Sequence[Bucket], boundary: int
    ) -> Mapping[str, pa.Table]:
        """What an advance would emit. No state comes of it, and none is written.

        Joins say nothing of tuples without a partner: one may still come.
        """
        boundary = checked_boundary(state, buckets, boundary)
        inputs = self._merge_inputs(buckets)
        if not self._anything_to_do(state, inputs, boundary):
            return self._nothing()
        told = {"keeps": {}, "on_error": self._on_error, "look": True}
        directory = self.step_directory()
        version = self.next_version(state)
        streams = self._run_waves(state, version, boundary, inputs, directory, told)
        collect_rejected(directory)  # they are told of when they are computed in order
        return self._named(streams)

    def replay(self, partial: State, buckets: Sequence[Bucket], boundary: int) -> Advance:
        """The state at ``boundary`` from window states of different ages; emits nothing.

        ``partial`` has, beside every family, since when its windows count tuples (``replay``).
        The buckets are the input from the boundary of ``partial`` on.
        """
        boundary = checked_boundary(partial, buckets, boundary)
        inputs = self._merge_inputs(buckets)
        directory = self.step_directory()
        version = self.next_version(partial)
        lazy = sorted(name for name, how in self.keeps.items() if how == LAZY)
        told = {"keeps": dict.fromkeys(lazy, LAZY), "replay": lazy, "on_error": self._on_error}
        self._run_waves(partial, version, boundary, inputs, directory, told)
        news = collect_news(directory)
        collect_rejected(directory)  # they were told of when they first came
        base = State(version, boundary, without_times(partial.runs))
        runs = collect_runs(base, directory, self.partitions, self.first_open(boundary))
        return Advance(State(version, boundary, runs), self._nothing(), news)

    def rebuild(
        self, left: State, gone: Collection[str], buckets: Sequence[Bucket], boundary: int
    ) -> State:
        """The state at ``boundary`` from what is ``left`` of it, without the operators ``gone``.

        The buckets are the input since their stream marker, ``oldest_contributing``. Only they are
        computed, and what they read from; it emits nothing.
        """
        needed = list(upstream([each for each in self._stateful if each.name in gone]))
        names = {each.name for each in needed}
        wanted = [
            Bucket(each.start, each.end, {k: v for k, v in each.tables.items() if k in names})
            for each in buckets
        ]
        inputs = self._merge_inputs(wanted)
        version = self.next_version(left)
        directory = self.step_directory()
        told = {"keeps": {}, "on_error": self._on_error, "only": sorted(names)}
        self._run_waves(EMPTY, version, boundary, inputs, directory, told)
        collect_news(directory)
        collect_rejected(directory)  # they were told of when they first came
        made = collect_runs(EMPTY, directory, self.partitions, self.first_open(boundary))
        rebuilt = {operator: runs for operator, runs in made.items() if operator in gone}
        return State(version, boundary, {**left.runs, **rebuilt})

    def below(self, inputs: Collection[str]) -> frozenset[str]:
        """The operators with state that some of the inputs reach."""
        return frozenset(
            each.name
            for each in self._stateful
            if any(above.name in inputs for above in upstream([each]))
        )

    def oldest_contributing(self, state: State, of: Collection[str] | None = None) -> int:
        """The oldest input tuple time that still shapes ``state``: where a rebuild must start.

        An operator below another one rests on older input than its own tuples tell: whatever
        can reach its open slots must come out right, and reaches back further still. ``of``: for a
        rebuild of these operators alone.
        """
        first_open = self.first_open(state.boundary)
        if not any(
            run.rows and run.high >= first_open.get((operator, family), run.high)
            for operator, family, _, run in state.all_runs()
            if of is None or operator in of
        ):
            return state.boundary
        oldest = state.boundary
        reach: dict[str, int] = {}
        for operator in self._network.operators:
            above = max((reach[each.name] for each in operator.inputs), default=0)
            reach[operator.name] = above
            if isinstance(operator, StatefulOperator):
                reach[operator.name] += operator.stateful.reach_back()
                found = operator.stateful.oldest_contributing(state, operator.name)
                if above:
                    slots = operator.stateful.first_open(state.boundary)
                    found = min(slots.values(), default=-FOREVER)
                if found is not None and (of is None or operator.name in of):
                    oldest = min(oldest, found - above)
        return max(oldest, -FOREVER)

    def due(self, state: State) -> int:
        """When a state may have a result though no tuple comes, as some window ends."""
        return min((op.stateful.due(state, op.name) for op in self._stateful), default=FOREVER)

    def open_windows(self, state: State) -> int:
        """How many rows of state there are, an upper bound on open windows."""
        return state.rows()

    def _merge_inputs(self, buckets: Sequence[Bucket]) -> dict[str, pa.Table]:
        merged: dict[str, pa.Table] = {}
        check_inputs(buckets, self._inputs)
        for name, schema in self._inputs.items():
            tables = [bucket.tables[name] for bucket in buckets if name in bucket.tables]
            tables = [conform(table, schema) for table in tables]
            merged[name] = pa.concat_tables(tables) if tables else schema.empty_table()
        return merged

    def _anything_to_do(self, state: State, inputs: Mapping[str, pa.Table], boundary: int) -> bool:
        if any(table.num_rows for table in inputs.values()):
            return True
        return any(op.stateful.due(state, op.name) <= boundary for op in self._stateful)

    def _named(self, streams: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        there = {
            name: conform(streams[operator.name], self._schemas[name])
            for name, operator in self._outputs.items()
            if streams[operator.name].num_rows
        }
        return {name: there.get(name, nothing) for name, nothing in self._empty.items()}

    def _nothing(self) -> dict[str, pa.Table]:
        return dict(self._empty)

    def first_open(self, boundary: int) -> dict[tuple[str, str], int]:
        """For every state family whose slots are times: the oldest slot needed."""
        return {
            (op.name, family): slot
            for op in self._stateful
            for family, slot in op.stateful.first_open(boundary).items()
        }

    def _run_waves(
        self,
        state: State,
        version: int,
        boundary: int,
        inputs: Mapping[str, pa.Table],
        directory: StepDirectory,
        told: Mapping[str, Any],
        large: bool = False,
    ) -> dict[str, pa.Table]:
        try:
            told = self._told(state, version, boundary, directory, told)
            if self._on_columns:
                return self._run_columns(state, boundary, inputs, told, large)
            with self._job_property(told):
                streams = dict(inputs)
                for wave in self._waves:
                    for name, rows in self._run_wave(wave, streams).items():
                        streams[name] = _in_order(rows)
                return streams
        except BaseException:
            directory.remove()
            raise

    def _run_columns(
        self,
        state: State,
        boundary: int,
        inputs: Mapping[str, pa.Table],
        told: Mapping[str, Any],
        large: bool,
    ) -> dict[str, pa.Table]:
        steps = {op.name: op.stateful for op in self._stateful}
        large |= sum(table.num_rows for table in inputs.values()) >= _SHARDING.column_rows
        sharded = large and self.partitions > 1 and self._cores > 1
        made = self._column_runner().run(
            inputs,
            sharded,
            lambda name: steps[name].due(state, name) > boundary,
            str(self._directory / f"job-{self.next_step()}"),
            told,
        )
        return {name: _in_order(rows) for name, rows in made.items()}

    def _column_runner(self) -> ColumnRunner:
        with self._plan_lock:
            if self._columns is None:
                outputs = list(self._outputs.values())
                self._columns = ColumnRunner(
                    outputs, self.partitions, self._spark, self._directory, self._here
                )
            return self._columns

    def _run_wave(self, wave: Wave, streams: Mapping[str, pa.Table]) -> dict[str, pa.Table]:
        rows = sum(streams[each.name].num_rows for each in wave.reads)
        layout = Spread(self.partitions, self._is_sharded(rows))
        number = self.next_step()
        inputs = {
            each.name: (
                streams[each.name],
                self._directory / f"input-{number}-{each.name}.arrows",
            )
            for each in wave.reads
        }
        try:
            return wave.run(self._spark, layout, self._directory, inputs)
        finally:
            for _, path in inputs.values():
                path.unlink(missing_ok=True)

    def _is_sharded(self, rows: int) -> bool:
        if rows < _SHARDING.rows or self.partitions == 1 or self._cores == 1:
            return False
        with self._lock:
            self._large_jobs += 1
            return self._large_jobs > _SHARDING.first_large

    def _told(
        self,
        state: State,
        version: int,
        boundary: int,
        directory: StepDirectory,
        more: Mapping[str, Any],
    ) -> dict[str, Any]:
        """What the tasks of a job are told: where the state is, and what is to become of it."""
        return {
            "before": state.boundary,
            "boundary": boundary,
            "version": version,
            "directory": str(directory.path),
            "step": directory.number,
            "runs": state.paths(),
            **more,
        }

    @contextlib.contextmanager
    def _job_property(self, told: Mapping[str, Any]) -> Iterator[None]:
        """Tell the tasks of this thread's jobs; see ``task``."""
        context = self._spark.sparkContext
        context.setLocalProperty(PROPERTY, json.dumps(told))
        try:
            yield
        finally:
            context.setLocalProperty(PROPERTY, "")


def _in_order(rows: pa.Table) -> pa.Table:
    return in_stream_order(rows) if rows.num_rows > 1 else rows


def input_schema(operator: Operator) -> pa.Schema:
    """The schema of a stream's tables inside the engine."""
    return arrow_schema(full_schema(operator))


def _how_to_keep(operator: StatefulOperator) -> str:
    """Only what comes from the inputs alone can be replayed: nobody logs what lies between."""
    above = upstream(list(operator.inputs))
    chained = any(isinstance(each, StatefulOperator) for each in above)
    return LAZY if operator.stateful.replays() and not chained else EAGER
