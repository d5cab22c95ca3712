"""Tuples made in Python: Arrow tables from an iterator, or a steady rate of them."""

from __future__ import annotations

import itertools
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.connect.source import Chunk, Position, Reader, Source, TimeOptions
from holdfast.errors import InputError
from holdfast.frames import TIME
from holdfast.times import SECOND, Duration

Tables = Iterable[pa.Table | pa.RecordBatch]
Int64s = npt.NDArray[np.int64]
MakeTuples = Callable[[Int64s, Int64s], pa.Table]
_QUEUED = 4
# A rate source that fell behind catches up in tables of at most this many tuples.
_MOST_AT_ONCE = 50_000


@dataclass(frozen=True)
class GeneratorSource(Source):
    """Tables from Python code."""

    tables: Tables | Callable[[int], Tables]

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return GeneratorReader(self.tables, (position or {}).get("tables", 0))

    def __str__(self) -> str:
        return "generator"


def generate(
    tables: Tables | Callable[[int], Tables],
    *,
    lateness: Duration | int | None = None,
    **time: Unpack[TimeOptions],
) -> GeneratorSource:
    """Arrow tables or record batches from an iterable, or from a function that returns one.

    The function gets the number of the table to start with: 0, or how many an earlier run
    with the same state directory has taken. An iterable is read from its beginning and that
    many are skipped.
    """
    return GeneratorSource(lateness, tables, **time)


class GeneratorReader(Reader):
    """Runs the user's iterator in a thread, so that one that waits holds up nothing else."""

    def __init__(self, tables: Tables | Callable[[int], Tables], taken: int) -> None:
        self._taken = taken
        if callable(tables):
            self._iterator: Iterator[pa.Table | pa.RecordBatch] = iter(tables(taken))
        else:
            self._iterator = itertools.islice(iter(tables), taken, None)
        self._queue: queue.Queue[pa.Table | Exception | None] = queue.Queue(_QUEUED)
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="holdfast-generator", daemon=True).start()

    def read(self) -> Chunk | None:
        try:
            item = self._queue.get_nowait()
        except queue.Empty:
            return None
        if item is None:
            self.ended = True
            return None
        if isinstance(item, Exception):
            raise InputError(f"the generator failed: {item!r}") from item
        self._taken += 1
        return Chunk(item)

    @property
    def position(self) -> Position:
        return {"tables": self._taken}

    def close(self) -> None:
        self._closed.set()

    def _run(self) -> None:
        try:
            for item in self._iterator:
                self._put(_as_table(item))
                if self._closed.is_set():
                    return
            self._put(None)
        except Exception as error:
            self._put(error)

    def _put(self, item: pa.Table | Exception | None) -> None:
        while not self._closed.is_set():
            try:
                self._queue.put(item, timeout=0.1)
            except queue.Full:
                continue
            return


def _as_table(item: object) -> pa.Table:
    if isinstance(item, pa.RecordBatch):
        return pa.Table.from_batches([item])
    if not isinstance(item, pa.Table):
        raise InputError(f"expected an Arrow table or record batch, got {type(item).__name__}")
    return item


@dataclass(frozen=True)
class RateSource(Source):
    """A steady stream of generated tuples."""

    tuples_per_second: float
    make: MakeTuples
    count: int | None
    start_us: int | None

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return RateReader(self, position or {})

    def __str__(self) -> str:
        return f"{self.tuples_per_second:g} tuples/s"


def rate(
    tuples_per_second: float,
    make: MakeTuples | None = None,
    *,
    count: int | None = None,
    start_us: int | None = None,
    lateness: Duration | int | None = None,
    **time: Unpack[TimeOptions],
) -> RateSource:
    """So many tuples a second, ``count`` in all, the first at ``start_us`` (default: now).

    ``make(numbers, times_us)`` turns the tuples' numbers (0, 1, ...) and tuple times into an
    Arrow table; without it the columns are ``at timestamp`` and ``value bigint``. A second run
    goes on with the next number and the tuple time that belongs to it.
    """
    if tuples_per_second <= 0:
        raise InputError(f"a rate must be more than 0 tuples a second, got {tuples_per_second}")
    return RateSource(lateness, tuples_per_second, make or _numbered, count, start_us, **time)


def _numbered(numbers: Int64s, times_us: Int64s) -> pa.Table:
    return pa.table({"at": pa.array(times_us).cast(TIME), "value": pa.array(numbers)})


class RateReader(Reader):
    """Hands out the tuples that are due by the clock."""

    def __init__(self, source: RateSource, position: Position) -> None:
        self._source = source
        self._next: int = position.get("next", 0)
        start = position.get("start", source.start_us)
        self._start_us: int = time.time_ns() // 1000 if start is None else start
        # After a pause tuple times go on where they stood, and so does the pace.
        self._pace_from = time.monotonic() - self._next / source.tuples_per_second

    def read(self) -> Chunk | None:
        elapsed = time.monotonic() - self._pace_from
        due = int(elapsed * self._source.tuples_per_second) + 1
        if self._source.count is not None:
            due = min(due, self._source.count)
            self.ended = self._next >= self._source.count
        due = min(due, self._next + _MOST_AT_ONCE)
        if due <= self._next:
            return None
        numbers = np.arange(self._next, due, dtype=np.int64)
        offsets = (numbers * (SECOND / self._source.tuples_per_second)).astype(np.int64)
        self._next = due
        return Chunk(self._source.make(numbers, self._start_us + offsets))

    @property
    def position(self) -> Position:
        return {"next": self._next, "start": self._start_us}
