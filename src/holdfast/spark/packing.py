"""Packs a state into Arrow for the wire or the disk, and back.

A packed state is a list of parts, one for each operator, family and partition that has rows:
the newest row of every key that still matters. Packed since an older version, it has only
rows written after that version, among them the marks of rows that are gone; unpacking that
needs the older version to lay them on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.errors import StateError
from holdfast.packed import PackedPart, PackedState
from holdfast.spark.compaction import divided, merge
from holdfast.spark.lookups import Keys, lookup
from holdfast.spark.open_runs import OpenRun
from holdfast.spark.runs import (
    DEAD,
    HASH,
    SLOT,
    VERSION,
    numbers,
    one_array,
    read_run,
    run_name,
    write_run,
)
from holdfast.spark.state import EMPTY, Run, State, collect_runs
from holdfast.spark.stateful import Stateful
from holdfast.spark.task import FOREVER

if TYPE_CHECKING:
    from holdfast.spark.engine import Engine


# So many rows are merged at a time where jobs must not wait.
_PIECE_ROWS = 1 << 15


def pack(
    engine: Engine,
    state: State,
    since: State | None = None,
    breathe: Callable[[], None] | None = None,
) -> PackedState:
    """``state`` as Arrow; with ``since``, an earlier version of it, only what changed.

    Runs that both versions share are not even read. With ``breathe``, which is called before each
    of them, it is done in pieces of a few milliseconds.
    """
    shared = {id(run) for *_, run in since.all_runs()} if since is not None else set()
    operators = {operator.name: operator.stateful for operator in engine.stateful}
    first_open = engine.first_open(state.boundary)
    parts = []
    for operator, families in state.runs.items():
        for family, partitions in families.items():
            for partition, runs in enumerate(partitions):
                tables = [read_run(run.address) for run in runs if id(run) not in shared]
                if since is not None:
                    gone = _forgotten(
                        operators[operator], family, since, state, operator, partition
                    )
                    tables = [*gone, *(_newer(table, since.version) for table in tables)]
                tables = [table for table in tables if table.num_rows]
                if not tables:
                    continue
                oldest = first_open.get((operator, family), -FOREVER)
                keys = operators[operator].row_keys(family)
                opened = [OpenRun(each) for each in tables]
                merged = []
                for piece in [opened] if breathe is None else divided(opened, _PIECE_ROWS):
                    if breathe is not None:
                        breathe()
                    merged.append(merge(piece, keys, oldest, since is None).rows)
                rows = pa.concat_tables(merged)
                if rows.num_rows:
                    parts.append(PackedPart(operator, family, partition, rows))
    base = since.version if since else None
    return PackedState(state.version, state.boundary, base, parts, engine.partitions)


def unpack(engine: Engine, packed: PackedState, onto: State | None = None) -> State:
    """The state ``packed`` stands for, as runs of ``engine``."""
    if packed.since is not None and (onto is None or onto.version != packed.since):
        have = "none" if onto is None else str(onto.version)
        raise StateError(
            f"these changes continue version {packed.since}, but version {have} is here; ask "
            f"for the whole state"
        )
    if packed.partitions not in (None, engine.partitions):
        raise StateError(
            f"the packed state is of a network with {packed.partitions} partitions, this one has "
            f"{engine.partitions}; give both networks the same number"
        )
    known = {operator.name for operator in engine.stateful}
    base = onto if packed.since is not None and onto is not None else EMPTY
    directory = engine.step_directory()
    for part in packed.parts:
        if part.operator not in known or part.partition >= engine.partitions:
            raise StateError(
                f"the packed state has operator {part.operator!r}, partition {part.partition}, "
                f"which this network does not have; it was made by another network or another "
                f"version of it"
            )
        place = (part.operator, part.family, part.partition)
        name = run_name(place, 0, numbers(part.rows[SLOT]), directory.number)
        write_run(str(directory.path / name), part.rows)
    first_open = engine.first_open(packed.boundary)
    runs = collect_runs(base, directory, engine.partitions, first_open)
    engine.skip_versions(packed.version)
    return State(packed.version, packed.boundary, runs)


def _forgotten(
    stateful: Stateful, family: str, since: State, state: State, operator: str, partition: int
) -> list[pa.Table]:
    """Marks for the rows of ``since`` whose own marks a merge of all runs has dropped."""
    none: tuple[tuple[Run, ...], ...] = ((),) * (partition + 1)
    before = since.runs.get(operator, {}).get(family, none)[partition]
    after = state.runs[operator][family][partition]
    keys = stateful.row_keys(family)
    if keys is None or not before or {id(run) for run in before} & {id(run) for run in after}:
        return []
    old = merge([_open(run) for run in before], keys, -FOREVER, True).rows
    if DEAD not in old.column_names or not old.num_rows:
        return []
    columns = tuple(one_array(old[key]) for key in keys)
    wanted = Keys(numbers(old[SLOT]), numbers(old[HASH]), columns)
    found, _ = lookup([_open(run) for run in after], wanted, keys)
    marks = old.filter(pa.array(~found))
    dead = pa.array([True] * marks.num_rows, pa.bool_())
    versions = pa.array([state.version] * marks.num_rows, pa.int64())
    marks = marks.set_column(marks.column_names.index(DEAD), DEAD, dead)
    return [marks.set_column(marks.column_names.index(VERSION), VERSION, versions)]


def _open(run: Run) -> OpenRun:
    return OpenRun(read_run(run.address))


def _newer(table: pa.Table, version: int) -> pa.Table:
    return table.filter(pc.greater(table[VERSION], version))
