"""What an entry point is offered: from a source it reads, or from producers that push.

Both go through the same ``Inlet`` of ``connect``, which makes tuples of rows, gives them their
ids and sends what cannot be a tuple to the dead letters.
"""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.blocks import one_batch
from holdfast.connect.dead_letters import DeadLetters
from holdfast.connect.ingest import FOREVER, Inlet
from holdfast.connect.source import Chunk, Position, Reader, Source
from holdfast.core.producers import ProducerPlace
from holdfast.frames import SEQ, TIME
from holdfast.operators import SourceOperator
from holdfast.runtime.ledger import Line
from holdfast.runtime.stream_store import OnProblem

PENDING_BYTES = 64 << 20
_AGAIN_SECONDS = 0.2
NOBODY = ProducerPlace()


@dataclass(frozen=True)
class Offer:
    """Tuples with ids, on their way into the log; or none, if every row was a dead letter.

    number  the offer's place among all of this process.
    """

    number: int
    line: Line
    batch: pa.RecordBatch
    stime_min: int
    stime_max: int
    boundary: int
    # Resolved when the tuples are durable.
    durable: Future[int] = field(default_factory=Future)

    @property
    def first_id(self) -> int:
        return self.line.first_id

    @property
    def end_id(self) -> int:
        return self.line.first_id + self.line.count

    def stamped(self, now: int) -> Offer:
        """The same tuples with ``now`` as their time."""
        times = pa.array(np.full(self.batch.num_rows, now, dtype=np.int64)).cast(TIME)
        columns = [times, times, *self.batch.columns[2:]]
        batch = pa.RecordBatch.from_arrays(columns, schema=self.batch.schema)
        return replace(self, batch=batch, stime_min=now, stime_max=now)


@dataclass(frozen=True)
class PushSource(Source):
    """A source that somebody pushes tables into."""

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return PushReader()

    def __str__(self) -> str:
        return "producers"


class PushReader(Reader):
    """Gives out what was pushed."""

    def __init__(self) -> None:
        self._tables: deque[pa.Table] = deque()

    def push(self, table: pa.Table) -> None:
        self._tables.append(table)

    def read(self) -> Chunk | None:
        return Chunk(self._tables.popleft()) if self._tables else None

    @property
    def position(self) -> Position:
        return {}


class Intake:
    """Makes offers of rows; any thread may call it."""

    def __init__(
        self,
        operator: SourceOperator,
        schema: pa.Schema,
        source: Source | None,
        bucket_us: int,
        directory: Path,
        saved: dict[str, Any] | None,
        hand_over: Callable[[Offer], None],
        on_problem: OnProblem,
    ) -> None:
        """``schema`` has the system columns; ``hand_over`` takes the offers, in order.

        ``on_problem`` is told what holds rows up, by a key, or that it does no more.
        """
        self._on_problem = on_problem
        self._closed = threading.Event()
        self._dead_letters = DeadLetters(
            directory / "dead-letters.jsonl", **_size_of(directory / "dead-letters.jsonl")
        )
        self._inlet = Inlet(
            operator,
            schema,
            source or PushSource(0),
            bucket_us,
            self._dead_letters,
            saved,
            directory / "source",
        )
        self._schema = pa.schema([each for each in schema if each.name != SEQ.name])
        self._hand_over = hand_over
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self.takes_arrival_time = self._inlet.takes_arrival_time

    @property
    def next_id(self) -> int:
        return self._inlet.tuples

    @property
    def dead(self) -> int:
        return self._inlet.dead

    @property
    def ended(self) -> bool:
        return self._inlet.ended

    @property
    def required(self) -> tuple[str, ...]:
        """The columns without which a row is a dead letter."""
        return self._inlet.required

    @property
    def problem(self) -> str | None:
        return self._inlet.problem

    def forbid_before(self, boundary: int) -> None:
        """Tuples older than what was promised are too late: dead letters."""
        if not self.takes_arrival_time:
            self._inlet.forbid_before(boundary)

    def push(self, table: pa.Table, producer: str, place: ProducerPlace) -> Offer:
        """Tuples from a producer, which is at ``place`` with them."""
        with self._lock:
            reader = self._inlet._reader
            assert isinstance(reader, PushReader)
            reader.push(table)
            self._inlet.take()
            return self._offer(producer, place)

    def opened(self, producer: str, place: ProducerPlace) -> Offer:
        """A producer opened its name: nothing but a line for the ledger."""
        with self._lock:
            return self._offer(producer, place)

    def read(self) -> Offer | None:
        """The next tuples of the source; None if there are none now."""
        with self._lock:
            return self._offer() if self._inlet.take() else None

    def settled(self, line: Line) -> None:
        """The tuples of a line are durable."""
        self._inlet.checkpointed(line.save)

    def close(self) -> None:
        self._closed.set()
        self._inlet.close()
        self._dead_letters.close()

    def _write_dead_letters(self) -> None:
        """Whoever brings more rows waits until the dead letters among them are durable."""
        while not self._closed.is_set():
            try:
                self._dead_letters.flush()
            except OSError as error:
                where = self._dead_letters.path
                self._on_problem("dead letters", f"{where}: cannot be written: {error.strerror}")
                self._closed.wait(_AGAIN_SECONDS)
            else:
                self._on_problem("dead letters", None)
                return

    def _offer(self, producer: str | None = None, place: ProducerPlace = NOBODY) -> Offer:
        parts = self._inlet.release(FOREVER)
        self._write_dead_letters()
        count = sum(part.table.num_rows for part in parts)
        line = Line(
            self._inlet.tuples - count,
            count,
            self._inlet.save(),
            producer,
            place.sequence,
            place.tuples,
            place.epoch,
        )
        if parts:
            table = pa.concat_tables([part.table for part in parts]).drop_columns([SEQ.name])
            batch = one_batch(table)
        else:
            batch = pa.RecordBatch.from_pylist([], schema=self._schema)
        offer = Offer(
            next(self._numbers),
            line,
            batch,
            min((part.oldest for part in parts), default=0),
            max((part.newest for part in parts), default=0),
            self._inlet.own_boundary,
        )
        self._hand_over(offer)
        return offer


def _size_of(path: Path) -> dict[str, int]:
    """Dead letters are kept across restarts, whether the log got their neighbours or not."""
    if not path.exists():
        return {}
    data = path.read_bytes()
    return {"size": len(data), "count": data.count(b"\n")}
