"""From rows to tuples: the step between a source and the network, the same for every source.

A row becomes a tuple when it fits the declared schema, has its keys and its tuple time, and is
not older than the boundary its source has sent. It gets the next tuple id of its stream as
``seq``, its ``stime`` (a column, or the time of arrival), and ``tmax = stime``. All other rows
go to the dead-letter file, with the reason.

The boundary of a source with a tuple time column is the newest time seen, less the allowed
lateness, rounded down to a bucket. Each row is judged by the rows before it, never by how they
happened to be read, so the same input has the same dead letters in every run. The boundary of
a source that takes the time of arrival is the time of the last look at it. A source that has
ended has no boundary any more: it holds nothing back.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.clock import Clock
from holdfast.connect.conform import NEWEST_US, OLDEST_US, conform
from holdfast.connect.dead_letters import DeadLetters
from holdfast.connect.source import Chunk, Reject, Source
from holdfast.errors import InputError
from holdfast.frames import SYSTEM_COLUMNS, TIME
from holdfast.operators import SourceOperator
from holdfast.times import show_duration

FOREVER = 2**62
Int64s = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Waiting:
    """Tuples that no bucket has taken yet, and when they came (monotonic seconds)."""

    table: pa.Table
    oldest: int
    newest: int
    arrived: float


class Inlet:
    """One source being read into one stream of the network."""

    def __init__(
        self,
        operator: SourceOperator,
        schema: pa.Schema,
        source: Source,
        bucket: int,
        dead_letters: DeadLetters,
        saved: dict[str, Any] | None = None,
        scratch: Path | None = None,
    ) -> None:
        """``schema`` has the system columns first; ``saved`` is what ``save`` gave."""
        saved = saved or {}
        self.name = operator.name
        self.source = source
        self.tuples = int(saved.get("next_id", 0))
        self.dead = int(saved.get("dead", 0))
        self._operator = operator
        self._schema = schema
        self._columns = pa.schema([field for field in schema if field.name not in SYSTEM_COLUMNS])
        self._bucket = bucket
        self._lateness = source.lateness_us
        self._dead_letters = dead_letters
        self._newest = int(saved.get("newest", -FOREVER))
        self._boundary = int(saved.get("boundary", -FOREVER))
        self._clock = Clock()
        if operator.stime is None:
            self._clock.at_least(self._boundary)
        self._waiting: list[Waiting] = []
        required = [*operator.keys, *([operator.stime] if operator.stime else [])]
        self.required = tuple(required)
        try:
            self._reader = source.open(self._columns, saved.get("position"), scratch)
        except InputError as error:
            raise InputError(f"source {self.name!r}: {error}") from None

    @property
    def boundary(self) -> int:
        """No tuple older than this will come from the source."""
        return FOREVER if self._reader.ended else self._boundary

    @property
    def own_boundary(self) -> int:
        """The boundary the tuples themselves give, whether the source has ended or not."""
        return self._boundary

    @property
    def ended(self) -> bool:
        return self._reader.ended

    @property
    def problem(self) -> str | None:
        """What keeps the source from being read right now, if anything does."""
        return self._reader.problem

    @property
    def takes_arrival_time(self) -> bool:
        return self._operator.stime is None

    @property
    def newest(self) -> int:
        """The newest tuple time so far."""
        return self._newest

    @property
    def waiting_tuples(self) -> int:
        return sum(each.table.num_rows for each in self._waiting)

    def take(self) -> int:
        """Read the next chunk; how many rows it had, good or bad."""
        now = self._clock.now()
        chunk = None if self._reader.ended else self._read()
        if chunk is not None:
            self._ingest(chunk, now)
        if self._operator.stime is None:
            self._boundary = max(self._boundary, self._floor(now))
        return 0 if chunk is None else chunk.table.num_rows + len(chunk.rejects)

    def release(self, boundary: int) -> list[Waiting]:
        """Hand out the waiting tuples older than ``boundary``."""
        released: list[Waiting] = []
        kept: list[Waiting] = []
        for each in self._waiting:
            if each.newest < boundary:
                released.append(each)
            elif each.oldest >= boundary:
                kept.append(each)
            else:
                older = pc.less(each.table["stime"].cast(pa.int64()), boundary)
                released.append(_waiting(each.table.filter(older), each.arrived))
                kept.append(_waiting(each.table.filter(pc.invert(older)), each.arrived))
        self._waiting = kept
        return released

    def save(self) -> dict[str, Any]:
        """What the checkpoint's manifest keeps; the waiting tuples are kept beside it."""
        return {
            "source": self.source.identity,
            "position": self._reader.position,
            "next_id": self.tuples,
            "dead": self.dead,
            "newest": self._newest,
            "boundary": self._boundary,
        }

    def waiting(self) -> pa.Table:
        """The tuples that no bucket has taken yet."""
        tables = [each.table for each in self._waiting]
        return pa.concat_tables(tables) if tables else self._schema.empty_table()

    def restore_waiting(self, table: pa.Table) -> None:
        """Put back what ``waiting`` gave."""
        if table.num_rows:
            self._waiting.insert(0, _waiting(table.cast(self._schema), time.monotonic()))

    def checkpointed(self, saved: dict[str, Any]) -> None:
        """What ``save`` gave is durable."""
        self._reader.checkpointed(saved["position"])

    def forbid_before(self, boundary: int) -> None:
        """Tuples older than ``boundary`` are too late from now on."""
        self._boundary = max(self._boundary, boundary)

    def close(self) -> None:
        self._reader.close()

    def _read(self) -> Chunk | None:
        try:
            return self._reader.read()
        except (InputError, OSError) as error:
            raise InputError(f"source {self.name!r} ({self.source}): {error}") from error

    def _ingest(self, chunk: Chunk, now: int) -> None:
        try:
            rows, rejects = conform(chunk.table, self._columns, self.required)
        except InputError as error:
            raise InputError(f"source {self.name!r} ({self.source}): {error}") from None
        self._reject([*chunk.rejects, *rejects])
        if rows.num_rows == 0:
            return
        if self._operator.stime is None:
            stime = np.full(rows.num_rows, max(now, self._boundary), dtype=np.int64)
        else:
            rows, stime = self._judge(rows, _micros(rows[self._operator.stime]))
        if rows.num_rows:
            self._accept(rows, stime)

    def _judge(self, rows: pa.Table, stime: Int64s) -> tuple[pa.Table, Int64s]:
        """Send away rows whose tuple time is impossible or too old."""
        possible = (stime >= OLDEST_US) & (stime <= NEWEST_US)
        if not possible.all():
            reason = f"stime {self._operator.stime!r} is not between the years 1 and 9999"
            self._reject([Reject(reason, row) for row in _rows(rows, ~possible)])
            rows, stime = rows.filter(pa.array(possible)), stime[possible]
        if not len(stime):
            return rows, stime
        newest_before = np.maximum.accumulate(np.concatenate(([self._newest], stime[:-1])))
        boundary = np.maximum(self._floor(newest_before - self._lateness), self._boundary)
        late = stime < boundary
        self._newest = max(self._newest, int(stime.max()))
        self._boundary = max(self._boundary, int(self._floor(self._newest - self._lateness)))
        if late.any():
            reason = (
                f"older than a boundary already sent (lateness {show_duration(self._lateness)})"
                if self._lateness
                else "older than a boundary already sent (lateness 0)"
            )
            self._reject([Reject(reason, row) for row in _rows(rows, late)])
            rows, stime = rows.filter(pa.array(~late)), stime[~late]
        return rows, stime

    def _accept(self, rows: pa.Table, stime: Int64s) -> None:
        count = rows.num_rows
        times = pa.array(stime).cast(TIME)
        ids = pa.array(np.arange(self.tuples, self.tuples + count, dtype=np.int64))
        columns = [times, times, ids, *rows.columns]
        table = pa.table(columns, schema=self._schema)
        self._newest = max(self._newest, int(stime.max()))
        self._waiting.append(_waiting(table, time.monotonic()))
        self.tuples += count

    def _reject(self, rejects: list[Reject]) -> None:
        self.dead += len(rejects)
        self._dead_letters.add(self.name, rejects)

    def _floor(self, when: Any) -> Any:
        return when // self._bucket * self._bucket


def _waiting(table: pa.Table, arrived: float) -> Waiting:
    ends = pc.min_max(table["stime"].cast(pa.int64()))
    return Waiting(table, ends["min"].as_py(), ends["max"].as_py(), arrived)


def _micros(column: pa.ChunkedArray) -> Int64s:
    """A tuple time column as microseconds."""
    if pa.types.is_date(column.type):
        column = column.cast(TIME)
    values: Int64s = column.cast(pa.int64()).to_numpy().astype(np.int64)
    return values


def _rows(table: pa.Table, which: npt.NDArray[np.bool_]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.filter(pa.array(which)).to_pylist()
    return rows
