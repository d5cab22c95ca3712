"""What an entry point is offered: from a source it reads, or from producers that push.

Both go through the same ``Inlet`` of ``connect``, which makes tuples of rows, gives them their
ids and sends what cannot be a tuple to the dead letters.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.blocks import one_batch
from holdfast.clock import Clock
from holdfast.connect.dead_letters import DeadLetters
from holdfast.connect.ingest import FOREVER, OWN_LANE, Inlet
from holdfast.connect.source import Source
from holdfast.core.producers import ProducerPlace
from holdfast.frames import STIME, TIME, TMAX
from holdfast.kept.ledger import LedgerLine, LedgerState
from holdfast.kept.stream_store import OnProblem
from holdfast.operators import Declaration

PENDING_BYTES = 64 << 20
_AGAIN_SECONDS = 0.2
NOBODY = ProducerPlace()


@dataclass(frozen=True)
class Offer:
    """Tuples with ids, on their way into the log; or none, if every row was a dead letter.

    number  the offer's place among all of this process.
    batch   without times, if tuples take that of their arrival: they get it as they go to the
            driver, so that no boundary has passed it.
    """

    number: int
    line: LedgerLine
    batch: pa.RecordBatch
    stime_min: int
    stime_max: int
    boundary: int
    # Resolved when the tuples are durable.
    durable: Future[int] = field(default_factory=Future)

    @property
    def end_id(self) -> int:
        return self.line.first_id + self.line.count


class Intake:
    """Makes offers of rows; any thread may call it."""

    def __init__(
        self,
        declared: Declaration,
        schema: pa.Schema,
        source: Source,
        bucket_us: int,
        directory: Path,
        standing: LedgerState,
        hand_over: Callable[[Offer], None],
        on_problem: OnProblem,
        reached: Callable[[int], None],
        clock: Clock,
        lane_idle_us: int | None,
    ) -> None:
        """``schema`` is that of the stream; ``hand_over`` takes the offers, in order.

        on_problem    is told what holds rows up, by a key, or that it does no more.
        reached       is told, in the order of the offers, how far the source is without a tuple.
        lane_idle_us  how long one of several producers may be quiet while others are not.
        """
        self._on_problem = on_problem
        self._closed = threading.Event()
        # They are kept across restarts, whether the log got their neighbours or not.
        self._dead_letters = DeadLetters.reopened(directory / "dead-letters.jsonl")
        self.takes_arrival_time = declared.stime is None
        times = (STIME.name, TMAX.name) if self.takes_arrival_time else ()
        self._schema = pa.schema([each for each in schema if each.name not in times])
        self.inlet = Inlet(
            declared,
            self._schema,
            source,
            bucket_us,
            self._dead_letters,
            standing.save,
            directory / "source",
            clock,
            lane_idle_us,
        )
        for name, place in standing.producers.items():
            self.inlet.open_lane(name, place.newest, place.promised)
        self._hand_over = hand_over
        self._reached = reached
        self._excused_us = 0
        self._lock = threading.Lock()
        self._numbers = itertools.count()

    @property
    def ahead_us(self) -> int:
        """How far the source's newest tuple is ahead of the clock."""
        return 0 if self.takes_arrival_time else self.inlet.ahead_us

    def forbid_before(self, boundary: int) -> None:
        """Tuples older than what was promised are too late: dead letters."""
        if not self.takes_arrival_time:
            self.inlet.forbid_before(boundary)

    def push(
        self, table: pa.Table, producer: str, place: ProducerPlace, promise: int | None = None
    ) -> Offer:
        """Tuples from a producer, which is at ``place`` with them, and what it promises then."""
        with self._lock:
            self.inlet.push(table, producer)
            if promise is not None:
                self.inlet.promise(producer, promise)
            return self._offer(producer, place)

    def opened(self, producer: str, place: ProducerPlace) -> Offer:
        """A producer opened its name: nothing but a line for the ledger."""
        with self._lock:
            self.inlet.open_lane(producer)
            return self._offer(producer, place)

    def look_for_idle(self) -> bool:
        """Let the clock decide who is idle; False if a batch is just being taken."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            self.inlet.excuse(self._take_excuse())
            self.inlet.look_for_idle()
            self._say_how_far()
        finally:
            self._lock.release()
        return True

    def _say_how_far(self) -> None:
        if not self.takes_arrival_time:
            self._reached(self.inlet.own_boundary)

    def excuse(self, passed_us: int) -> None:
        """Nothing could be taken for so long: nobody was idle."""
        self._excused_us += passed_us

    def _take_excuse(self) -> int:
        excused, self._excused_us = self._excused_us, 0
        return excused

    def read(self) -> Offer | None:
        """The next tuples of the source; None if there are none now."""
        with self._lock:
            self.inlet.excuse(self._take_excuse())
            if self.inlet.take():
                return self._offer()
            self._say_how_far()
            return None

    def close(self) -> None:
        self._closed.set()
        self.inlet.close()
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
        parts = self.inlet.release(FOREVER)
        self._write_dead_letters()
        count = sum(part.table.num_rows for part in parts)
        line = LedgerLine(
            self.inlet.tuples - count,
            count,
            self.inlet.save(),
            producer,
            place.epoch,
            place.sequence,
            place.tuples,
            *self.inlet.place_of(producer or OWN_LANE),
        )
        if parts:
            batch = one_batch(pa.concat_tables([part.table for part in parts]))
        else:
            batch = pa.RecordBatch.from_pylist([], schema=self._schema)
        offer = Offer(
            next(self._numbers),
            line,
            batch,
            min((part.oldest for part in parts), default=0),
            max((part.newest for part in parts), default=0),
            self.inlet.own_boundary,
        )
        self._hand_over(offer)
        return offer


def stamped(batch: pa.RecordBatch, now: int, schema: pa.Schema) -> pa.RecordBatch:
    """Tuples without times, with ``now`` as theirs."""
    times = pa.array(np.full(batch.num_rows, now, dtype=np.int64)).cast(TIME)
    return pa.RecordBatch.from_arrays([times, times, *batch.columns], schema=schema)
