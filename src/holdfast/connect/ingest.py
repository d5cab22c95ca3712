"""From rows to tuples: the step between a source and the network, the same for every source.

A row becomes a tuple when it fits the declared schema, has its keys and its tuple time, and is
not older than the boundary its source has sent. It gets the next tuple id of its stream as
``seq``, its ``stime`` (a column, or the time of arrival), and ``tmax = stime``. All other rows
go to the dead-letter file, with the reason.

The boundary of a source with a tuple time column is the newest time seen, less the allowed
lateness, rounded down to a bucket (``core.source_time``). Each row is judged by the rows before it,
never by how they happened to be read, so the same input has the same dead letters in every run,
unless the clock is asked: whether a source is idle, or a row too far ahead. The boundary of
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
from holdfast.connect.judging import Int64s, judge
from holdfast.connect.source import Chunk, Reject, Source
from holdfast.core.source_time import FAR, Late, SourceTime, TimeSettings
from holdfast.errors import InputError
from holdfast.frames import SEQ, STIME, SYSTEM_COLUMNS, TIME
from holdfast.gained import with_gained
from holdfast.operators import Declaration
from holdfast.times import show_duration

FOREVER = FAR
# The lane of a source that is read, not pushed.
OWN_LANE = ""
# A source may run ahead of the others by so many tuples, then it is not read.
MOST_WAITING = 2_000_000
# A source that is asked at least so often is quiet if it has nothing.
_ASKED_US = 100_000


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
        declared: Declaration,
        schema: pa.Schema,
        source: Source,
        bucket: int,
        dead_letters: DeadLetters,
        saved: dict[str, Any] | None = None,
        scratch: Path | None = None,
        clock: Clock | None = None,
        lane_idle_us: int | None = None,
    ) -> None:
        """``schema`` has the system columns first: ``seq`` if it is to be given here, and times
        unless tuples get that of their arrival later; ``saved`` is what ``save`` gave.

        lane_idle_us  how long one of several producers may be quiet while others are not.
        """
        saved = saved or {}
        self.name = declared.name
        self.source = source
        self.tuples = int(saved.get("next_id", 0))
        self.dead = int(saved.get("dead", 0))
        self._declared = declared
        self._schema = schema
        self._columns = pa.schema([field for field in schema if field.name not in SYSTEM_COLUMNS])
        self._bucket = bucket
        self._dead_letters = dead_letters
        # How many rows were late, and too far ahead of the clock.
        self.late = int(saved.get("late", 0))
        self.ahead = int(saved.get("ahead", 0))
        self._clock = clock or Clock()
        settings = source.time_settings(bucket, lane_idle_us)
        self._time = SourceTime(settings, int(saved.get("boundary", -FOREVER)))
        if declared.stime is None:
            self._clock.at_least(self.own_boundary)
        elif source.has_lanes:
            for lane, newest in saved.get("lanes", {}).items():
                self.open_lane(lane, int(newest))
        elif not source.is_pushed or settings.idle_after_us is not None:
            self.open_lane(OWN_LANE, int(saved.get("newest", -FOREVER)))
        self._asked_at = self._clock.now()
        self._waiting: list[Waiting] = []
        required = [*declared.keys, *([declared.stime] if declared.stime else [])]
        self.required = tuple(required)
        try:
            self._reader = source.open(self._columns, saved.get("position"), scratch)
        except InputError as error:
            raise InputError(f"source {self.name!r}: {error}") from None
        # What a row is judged with; its place is not part of the tuple.
        places = [each for each in self._reader.places if each.name not in self._columns.names]
        self._judged = pa.schema([*self._columns, *places])

    @property
    def boundary(self) -> int:
        """No tuple older than this will come from the source."""
        return FOREVER if self._reader.ended else self.own_boundary

    @property
    def own_boundary(self) -> int:
        """The boundary the tuples themselves give, whether the source has ended or not."""
        return self._time.boundary

    @property
    def ended(self) -> bool:
        return self._reader.ended

    @property
    def problem(self) -> str | None:
        """What keeps the source from being read right now, if anything does."""
        return self._reader.problem

    @property
    def takes_arrival_time(self) -> bool:
        return self._declared.stime is None

    @property
    def newest(self) -> int:
        """The newest tuple time so far."""
        return self._time.newest

    @property
    def waiting_tuples(self) -> int:
        return sum(each.table.num_rows for each in self._waiting)

    def push(self, table: pa.Table, lane: str) -> None:
        """Take rows that a producer brings, through a lane of its own.

        One that opened its name before the source gained a column sends them without it.
        """
        now = self._clock.now()
        self._ingest(Chunk(self._with_gained(table)), lane, now)
        if self.takes_arrival_time:
            self._time.forbid_before(now // self._bucket * self._bucket)
        self._asked_at = now

    def take(self) -> int:
        """Read the next chunk of the source; how many rows it had, good or bad."""
        now = self._clock.now()
        chunk = None if self._reader.ended else self._read()
        for each in self._reader.lanes:
            if self._time.lane(each) is None:
                self.open_lane(each)
        if chunk is not None:
            self._ingest(chunk, chunk.lane or OWN_LANE, now)
        if self.takes_arrival_time:
            self._time.forbid_before(now // self._bucket * self._bucket)
        elif self.source.has_lanes:
            self._look_at_lanes(now)
        elif chunk is None:
            # Only who was asked and had nothing was quiet.
            self.excuse(now - self._asked_at - _ASKED_US)
            self.look_for_idle()
        self._asked_at = now
        return 0 if chunk is None else chunk.table.num_rows + len(chunk.rejects)

    # -- lanes: the producers of a source that is pushed, or what a reader has several of --

    @property
    def is_full(self) -> bool:
        """So many tuples wait for their bucket that only who holds it up should be read."""
        return self.waiting_tuples >= MOST_WAITING

    def _look_at_lanes(self, now: int) -> None:
        """Some have rows and others not; only who has none was quiet."""
        self._reader.hold(self._time.leading if self.is_full else ())
        self.excuse(now - self._asked_at - _ASKED_US)
        for lane in self._reader.behind:
            self.open_lane(lane)
        if not self.ended:  # else none waits for another, and a later run may find more
            for lane in self._reader.finished:
                self._time.promise(lane, FOREVER, now)
        self.look_for_idle()

    def open_lane(self, lane: str, newest: int = -FOREVER, promised: int = -FOREVER) -> None:
        """A producer is there, with what an earlier life knew of it."""
        if not self.takes_arrival_time:
            self._time.open(lane, self._clock.now(), newest, promised)

    def promise(self, lane: str, stime: int) -> None:
        """A producer will send nothing older than ``stime``."""
        self._time.promise(lane, stime, self._clock.now())

    def place_of(self, lane: str) -> tuple[int, int]:
        """The newest row of a lane, and what it has promised."""
        found = self._time.lane(lane)
        return (-FOREVER, -FOREVER) if found is None else (found.newest, found.promised)

    def look_for_idle(self) -> None:
        """Let the clock decide who is idle."""
        if not self.takes_arrival_time:
            self._time.tick(self._clock.now())

    def excuse(self, passed_us: int) -> None:
        """Nothing could be read for so long."""
        self._time.excuse(max(0, passed_us))

    @property
    def idle(self) -> list[str]:
        return self._time.idle

    @property
    def ahead_us(self) -> int:
        """How far the newest row is ahead of the clock."""
        return self._time.newest - self._clock.now()

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
        lanes = {lane: self.place_of(lane)[0] for lane in self._reader.lanes}
        return {
            **({"lanes": lanes} if lanes else {}),
            "source": self.source.identity,
            "position": self._reader.position,
            "next_id": self.tuples,
            "dead": self.dead,
            "late": self.late,
            "ahead": self.ahead,
            "newest": self.place_of(OWN_LANE)[0],
            "boundary": self.own_boundary,
        }

    def look_further(self) -> None:
        """An earlier run came to the end of the source: what came since is wanted, too."""
        self._reader.look_further()

    def waiting(self) -> pa.Table:
        """The tuples that no bucket has taken yet."""
        tables = [each.table for each in self._waiting]
        return pa.concat_tables(tables) if tables else self._schema.empty_table()

    def restore_waiting(self, table: pa.Table) -> None:
        """Put back what ``waiting`` gave."""
        if table.num_rows:
            whole = with_gained(table, self._schema).cast(self._schema)
            self._waiting.insert(0, _waiting(whole, time.monotonic()))

    def checkpointed(self, saved: dict[str, Any]) -> None:
        """What ``save`` gave is durable."""
        self._reader.checkpointed(saved["position"])

    def _with_gained(self, table: pa.Table) -> pa.Table:
        """Rows with nulls in the columns that they lack and that can be null."""
        lacking = [
            field
            for field in self._columns
            if field.name not in table.column_names
            and field.nullable
            and field.name not in self.required
        ]
        for field in lacking:
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
        return table

    def forbid_before(self, boundary: int) -> None:
        """Tuples older than ``boundary`` are too late from now on."""
        self._time.forbid_before(boundary)

    def close(self) -> None:
        self._reader.close()

    def _read(self) -> Chunk | None:
        try:
            return self._reader.read()
        except (InputError, OSError) as error:
            raise InputError(f"source {self.name!r} ({self.source}): {error}") from error

    def _ingest(self, chunk: Chunk, lane: str, now: int) -> None:
        try:
            rows, rejects = conform(chunk.table, self._judged, self.required)
        except InputError as error:
            raise InputError(f"source {self.name!r} ({self.source}): {error}") from None
        self._reject([*chunk.rejects, *rejects])
        if rows.num_rows == 0:
            return
        stime: Int64s | None
        if self._declared.stime is not None:
            rows, stime = self._judge(lane, rows, now)
        elif STIME.name in self._schema.names:
            stime = np.full(rows.num_rows, max(now, self.own_boundary), dtype=np.int64)
        else:
            stime = None
        if rows.num_rows:
            self._accept(rows, stime)

    def _judge(self, lane: str, rows: pa.Table, now: int) -> tuple[pa.Table, Int64s]:
        """Send away rows whose tuple time is impossible, too old or too far ahead."""
        assert self._declared.stime is not None
        stime = _micros(rows[self._declared.stime])
        possible = (stime >= OLDEST_US) & (stime <= NEWEST_US)
        if not possible.all():
            reason = f"stime {self._declared.stime!r} is not between the years 1 and 9999"
            rows, stime = self._without(rows, stime, ~possible, reason)
        if not len(stime):
            return rows, stime
        settings = self._time.settings
        judged = judge(stime, self._time.rules(lane, now))
        self._time.took(lane, judged.newest)
        late, gone = judged.late, judged.future
        self.late += int(late.sum())
        self.ahead += int(gone.sum())
        if settings.late is Late.TAKE:
            stime = np.where(late, judged.boundary, stime)
        elif late.any():
            gone = gone | late
        if not gone.any():
            return rows, stime
        # The reason is a row's own; both are rare.
        for which, reason in (
            (judged.future, _too_far_ahead(settings)),
            (late & gone, f"older than a boundary already sent (lateness {_lateness(settings)})"),
        ):
            if which.any():
                self._reject([Reject(reason, row) for row in _rows(rows, which)])
        return rows.filter(pa.array(~gone)), stime[~gone]

    def _without(
        self, rows: pa.Table, stime: Int64s, which: npt.NDArray[np.bool_], reason: str
    ) -> tuple[pa.Table, Int64s]:
        self._reject([Reject(reason, row) for row in _rows(rows, which)])
        return rows.filter(pa.array(~which)), stime[~which]

    def _accept(self, rows: pa.Table, stime: Int64s | None) -> None:
        count = rows.num_rows
        columns = [] if stime is None else [pa.array(stime).cast(TIME)] * 2
        if SEQ.name in self._schema.names:
            columns.append(pa.array(np.arange(self.tuples, self.tuples + count, dtype=np.int64)))
        columns += rows.select(self._columns.names).columns
        table = pa.table(columns, schema=self._schema)
        now = time.monotonic()
        # What has no time yet waits for no bucket.
        waits = Waiting(table, 0, 0, now) if stime is None else _waiting(table, now)
        self._waiting.append(waits)
        self.tuples += count

    def _reject(self, rejects: list[Reject]) -> None:
        self.dead += len(rejects)
        self._dead_letters.add(self.name, rejects)


def _lateness(settings: TimeSettings) -> str:
    return show_duration(settings.lateness_us) if settings.lateness_us else "0"


def _too_far_ahead(settings: TimeSettings) -> str:
    return (
        f"too far ahead of the clock (future_limit {show_duration(settings.future_limit_us or 0)})"
    )


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
