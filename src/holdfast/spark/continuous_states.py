"""The states of single windows, read from the runs: what continuous checkpoints are made of.

A window is found by its operator, family, partition, slot and hash. Of a *generation* of
windows, those whose states were kept at the same time, some close, and others take their
place under the same key; a look at the runs tells. Everything works on columns of many windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.blocks import one_batch
from holdfast.core.frame import Header, Kind
from holdfast.frames import Frame
from holdfast.spark.aggregate_state import OLDEST
from holdfast.spark.compaction import merge
from holdfast.spark.continuous_files import PARTITION
from holdfast.spark.engine import Engine
from holdfast.spark.open_runs import OpenRun
from holdfast.spark.runs import HASH, SLOT, VERSION, Bools, Int64s, numbers, read_run
from holdfast.spark.state import State
from holdfast.spark.task import FOREVER, LAZY

OPERATOR, FAMILY_NAME, START = b"operator", b"family", b"start"


@dataclass(frozen=True)
class WindowBatch:
    """States of windows of one family, all of one time; ``rows`` have their partition, too.

    ``start``: the states changed since then, where all that change are kept.
    """

    kind: Kind
    operator: str
    family: str
    start: int
    time: int
    rows: pa.Table

    def batch(self, told: Mapping[str, int]) -> pa.RecordBatch:
        """What goes into the log; ``told`` is written beside it, for those who inspect it."""
        numbers = {key.encode(): str(value).encode() for key, value in told.items()}
        metadata = {
            OPERATOR: self.operator.encode(),
            FAMILY_NAME: self.family.encode(),
            START: str(self.start).encode(),
            **numbers,
        }
        return one_batch(self.rows.replace_schema_metadata(metadata))

    def header(self, first_id: int) -> Header:
        return Header(self.kind, first_id, self.rows.num_rows, self.time, self.time, self.time)

    @classmethod
    def of(cls, frame: Frame) -> WindowBatch:
        """The states in a frame of a log."""
        assert frame.batch is not None
        told = frame.batch.schema.metadata
        operator, family = told[OPERATOR].decode(), told[FAMILY_NAME].decode()
        rows = pa.Table.from_batches([frame.batch]).replace_schema_metadata(None)
        time = frame.header.stime_min
        return cls(frame.kind, operator, family, int(told[START]), time, rows)


@dataclass(frozen=True)
class Members:
    """Windows of one family, by where they are in its runs.

    ``written``  the version of the state they were kept from.
    ``time``     its boundary.
    """

    operator: str
    family: str
    written: int
    time: int
    partition: npt.NDArray[np.int32]
    slot: Int64s
    hash: Int64s

    @property
    def count(self) -> int:
        return len(self.hash)

    def at(self, places: Int64s | slice) -> Members:
        """Some of them."""
        arrays = (self.partition[places], self.slot[places], self.hash[places])
        return Members(self.operator, self.family, self.written, self.time, *arrays)


def members_of(operator: str, family: str, rows: pa.Table, state: State, time: int) -> Members:
    """The windows whose states ``rows`` are."""
    return Members(
        operator,
        family,
        state.version,
        time,
        numbers(rows[PARTITION]).astype(np.int32),
        numbers(rows[SLOT]).astype(np.int64),
        numbers(rows[HASH]).astype(np.int64),
    )


class OpenRuns:
    """Runs that were read once; for several looks at one state."""

    def __init__(self) -> None:
        self._found: dict[str, OpenRun] = {}

    def read(self, path: str) -> OpenRun:
        if path not in self._found:
            self._found[path] = OpenRun(read_run(path))
        return self._found[path]


def live_rows(engine: Engine, state: State, members: Members, opened: OpenRuns) -> pa.Table | None:
    """The present states of those windows that are still open, or None if none is."""
    stateful = {each.name: each.stateful for each in engine.stateful}[members.operator]
    keys = stateful.row_keys(members.family)
    oldest = stateful.first_open(state.boundary).get(members.family, -FOREVER)
    runs = state.runs.get(members.operator, {}).get(members.family, ())
    found: list[pa.Table] = []
    for partition, mine in enumerate(runs):
        wanted = members.partition == partition
        slot, hashes = members.slot[wanted], members.hash[wanted]
        read = [opened.read(run.address) for run in mine] if len(slot) else []
        pieces = [rows for run in read if (rows := _rows_with(run, slot, hashes))]
        if not pieces:
            continue
        rows = merge([OpenRun(each) for each in pieces], keys, oldest, True).rows
        rows = rows.filter(pa.array(_the_same(engine, members, rows))).drop_columns([VERSION])
        numbered = pa.array(np.full(rows.num_rows, partition, dtype=np.int32))
        found.append(rows.add_column(0, PARTITION, numbered))
    if not found:
        return None
    rows = pa.concat_tables(found, promote_options="default")
    return rows if rows.num_rows else None


def _the_same(engine: Engine, members: Members, rows: pa.Table) -> Bools:
    """Whether a row is the window that was kept, not one that came after it."""
    if engine.keeps[members.operator] != LAZY:
        unchanged: Bools = numbers(rows[VERSION]) <= members.written
        return unchanged  # a later change was kept, too
    if OLDEST not in rows.column_names:
        return np.ones(rows.num_rows, dtype=np.bool_)
    # A window that was open then has tuples from before; its successor has none.
    before: Bools = numbers(rows[OLDEST]) < members.time
    return before


def _rows_with(run: OpenRun, slots: Int64s, hashes: Int64s) -> pa.Table | None:
    """The rows of a run that have these slots and hashes; keys that share a hash all count."""
    found = []
    for slot in np.unique(slots).tolist():
        low, high = run.range_of(slot)
        if low == high:
            continue
        segment, wanted = run.hash[low:high], np.unique(hashes[slots == slot])
        first = np.searchsorted(segment, wanted, "left")
        count = np.searchsorted(segment, wanted, "right") - first
        inside = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
        found.append(np.repeat(first, count) + inside + low)
    rows = np.concatenate(found) if found else np.empty(0, dtype=np.int64)
    return run.rows.take(pa.array(rows)) if len(rows) else None


def joined(generation: Sequence[Members]) -> list[Members]:
    """The same windows in as few pieces as can be: each piece has a price of its own."""
    found: dict[tuple[str, str, int, int], list[Members]] = {}
    for each in generation:
        key = (each.operator, each.family, each.written, each.time)
        found.setdefault(key, []).append(each)
    return [pieces[0] if len(pieces) == 1 else _join(pieces) for pieces in found.values()]


def _join(pieces: Sequence[Members]) -> Members:
    first = pieces[0]
    return Members(
        first.operator,
        first.family,
        first.written,
        first.time,
        np.concatenate([each.partition for each in pieces]),
        np.concatenate([each.slot for each in pieces]),
        np.concatenate([each.hash for each in pieces]),
    )


def split_at(generation: Sequence[Members], most: int) -> tuple[list[Members], list[Members]]:
    """The first ``most`` windows of a generation, and the rest."""
    first: list[Members] = []
    rest: list[Members] = []
    for members in generation:
        take = min(members.count, max(0, most))
        if take:
            first.append(members.at(slice(0, take)))
        if take < members.count:
            rest.append(members.at(slice(take, members.count)))
        most -= take
    return first, rest
