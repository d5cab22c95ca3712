"""Runs a network on columns: as few Spark jobs for a bucket as its expressions allow.

The parts of a network (``cuts``) become stages. A stage on columns runs, in one job, every part
that workers can compute from what is there, step after step; a stage in the JVM computes, in one
job, the expressions only Spark can. A network whose expressions workers know is a single job,
whatever its queries. Where tuples are many, a job has several tasks, each with some partitions
of every step; then a step below another one waits for the next stage, because the tuples between
them change partitions. Where tuples are few and steps that do not depend on each other are many,
the tasks share the steps instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from holdfast.operators import Operator
from holdfast.spark.column_job import ColumnJob
from holdfast.spark.cuts import CutPart, cut, output_stream
from holdfast.spark.prepared import PreparedQuery, arrow_schema, write_stream
from holdfast.spark.stages import split_union, union

Streams = dict[str, pa.Table]

# Another task takes as long to begin as this many steps of few tuples take.
_STEPS_A_TASK = 2


@dataclass
class Stage:
    """Parts that one job computes: in the JVM, or else on columns."""

    in_jvm: bool
    parts: list[CutPart] = field(default_factory=list)
    # Prepared on first use.
    query: PreparedQuery | None = None
    jobs: dict[int, ColumnJob] = field(default_factory=dict)

    def makes(self, part: CutPart) -> str:
        return part.feed if self.in_jvm else part.name

    @cached_property
    def reads(self) -> dict[str, set[str]]:
        """The streams it needs from the driver, with the columns of each, once it has its parts."""
        found: dict[str, set[str]] = {}
        own = {self.makes(part) for part in self.parts}
        for part in self.parts:
            uses = {each: set() for each in part.reads} if self.in_jvm else part.uses
            for stream, names in uses.items():
                if stream not in own:
                    found.setdefault(stream, set()).update(names)
        return found


def plan_stages(parts: Sequence[CutPart], sharded: bool) -> list[Stage]:
    """The stages in their order. Those in the JVM have even places, those on columns odd ones."""
    made_at: dict[str, int] = {}
    stages: dict[int, Stage] = {}

    def place(part: CutPart, at: int) -> None:
        stage = stages.setdefault(at, Stage(at % 2 == 0))
        stage.parts.append(part)
        made_at[stage.makes(part)] = at

    def after(streams: Iterable[str], jvm: bool, waits: bool) -> int:
        """The first stage of a kind at which the streams are there."""
        found = 0 if jvm else 1
        for at in (made_at.get(each, -1) for each in streams):
            same_kind = at >= 0 and (at % 2 == 0) == jvm
            found = max(found, at + 1 if not same_kind else at + 2 if jvm or waits else at)
        return found

    for part in parts:
        reads: Iterable[str] = part.reads
        if part.plan is None:
            place(part, after(part.reads, True, True))
            reads = [part.feed]
        if part.plan is not None or part.step is not None or part.resolve:
            place(part, after(reads, False, sharded and part.step is not None))
    return [stages[at] for at in sorted(stages)]


def share_steps(parts: Sequence[CutPart], cores: int) -> tuple[frozenset[str], ...]:
    """The parts that each of several tasks computes; nothing where another task does not pay.

    Parts that read each other stay together, so no tuple goes from one task to another.
    """
    groups: list[list[CutPart]] = []
    for part in parts:
        names = {*part.reads, part.name}
        linked = [group for group in groups if any(one.name in names for one in group)]
        groups = [group for group in groups if group not in linked]
        groups.append([*(one for group in linked for one in group), part])
    steps = sum(part.step is not None for part in parts)
    tasks = min(cores, len(groups), steps // _STEPS_A_TASK)
    if tasks < 2:
        return ()
    shares: list[set[str]] = [set() for _ in range(tasks)]
    reads: list[set[str]] = [set() for _ in range(tasks)]
    loads = [0] * tasks
    for group in sorted(groups, key=lambda group: -_load(group)):
        names, read = {one.name for one in group}, set().union(*(one.reads for one in group))
        # Of those with as little to do, the one that has more of the tuples at hand already.
        least = min(range(tasks), key=lambda task: (loads[task], -len(reads[task] & read)))
        shares[least] |= names
        reads[least] |= read
        loads[least] += _load(group)
    return tuple(frozenset(share) for share in shares)


def _load(group: Sequence[CutPart]) -> int:
    """What a few tuples take: measured, a step with a key as long as two without, or nearly."""
    return sum(2 if _has_key(one) else 1 for one in group if one.step is not None)


def _has_key(part: CutPart) -> bool:
    return part.step is not None and any(name.startswith("k") for name in part.step.given.names)


class ColumnRunner:
    """A network's stages, for small buckets and for large ones."""

    def __init__(
        self,
        outputs: Sequence[Operator],
        partitions: int,
        spark: SparkSession,
        scratch: Path,
        here: bool = False,
    ) -> None:
        """``here``: few tuples that no step but joins takes are computed in this process."""
        self._here = here
        self._outputs = {each.name: output_stream(each) for each in outputs}
        self._partitions = partitions
        self._spark = spark
        self._cores = max(1, spark.sparkContext.defaultParallelism)
        self._parts, self._leaves = cut(outputs, partitions, spark, scratch)
        self._stages = {sharded: plan_stages(self._parts, sharded) for sharded in (False, True)}
        by_name = {part.name: part for part in self._parts}
        self._made = {
            name: stream if by_name[stream].plan is not None else by_name[stream].feed
            for name, stream in self._outputs.items()
        }

    def run(
        self,
        inputs: Mapping[str, pa.Table],
        sharded: bool,
        idle: Callable[[str], bool],
        at: str,
        told: Mapping[str, Any],
    ) -> Streams:
        """The outputs' streams by operator; files are called by what ``at`` begins with.

        ``idle`` tells whether a step without tuples does nothing, ``told`` is for the steps.
        """
        streams = dict(inputs)
        stages = self._stages[sharded]
        for number, stage in enumerate(stages):
            if self._is_idle(stage, streams, idle):
                made = {stage.makes(part): _nothing(part, stage) for part in stage.parts}
            elif stage.in_jvm:
                made = self._in_jvm(stage, streams, sharded, f"{at}-{number}")
            else:
                tasks = min(self._partitions, self._cores) if sharded else 1
                job = self._job(stage, stages, tasks)
                given = {
                    name: streams[name].select(sorted(used)) for name, used in stage.reads.items()
                }
                made = job.run(given, f"{at}-{number}", told)
            streams.update(made)
        return {name: streams[stream] for name, stream in self._made.items()}

    def _is_idle(self, stage: Stage, streams: Streams, idle: Callable[[str], bool]) -> bool:
        if any(streams[each].num_rows for each in stage.reads):
            return False
        return stage.in_jvm or all(idle(part.name) for part in stage.parts if part.step is not None)

    def _in_jvm(self, stage: Stage, streams: Streams, sharded: bool, at: str) -> Streams:
        reads = sorted(stage.reads)
        if stage.query is None:
            leaves: dict[str, DataFrame] = {each: self._leaves[each] for each in reads}
            stage.query = PreparedQuery(union([part.frame for part in stage.parts]), leaves)
        paths = {name: Path(f"{at}-input{index}.arrows") for index, name in enumerate(reads)}
        try:
            for name, path in paths.items():
                used = streams[name].select(stage.query.columns(name))
                write_stream(path, used, self._cores if sharded else 1)
            result = stage.query.execute(paths)
        finally:
            for path in paths.values():
                path.unlink(missing_ok=True)
        tables = split_union(result, [part.frame.columns for part in stage.parts])
        return {part.feed: table for part, table in zip(stage.parts, tables, strict=True)}

    def _job(self, stage: Stage, stages: Sequence[Stage], tasks: int) -> ColumnJob:
        if tasks not in stage.jobs:
            own = {part.name for part in stage.parts}
            nodes = tuple(part.node(part.resolve and not part.reads & own) for part in stage.parts)
            read = {stream for each in stages if each is not stage for stream in each.reads}
            asked = own & (read | set(self._outputs.values()))
            wanted = {
                part.name: _nothing(part, stage)
                for part in sorted(stage.parts, key=lambda part: part.name)
                if part.name in asked
            }
            shares = share_steps(stage.parts, self._cores) if tasks == 1 else ()
            stage.jobs[tasks] = ColumnJob(
                self._spark, nodes, wanted, tasks, shares, here=self._here
            )
        return stage.jobs[tasks]


def _nothing(part: CutPart, stage: Stage) -> pa.Table:
    if not stage.in_jvm and part.step is not None:
        return part.step.output.empty_table()
    return arrow_schema(part.frame.schema).empty_table()
