"""Streams to write into logs, and a simple model of what a log must give back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.core.frame import Header, Kind
from holdfast.frames import TIME, Frame, data_frame, stream_schema
from holdfast.log import Entry, LogOptions, LogReader, StreamLog
from holdfast.log.files import Files
from tests.blocks_for_tests import boundary_frame

SCHEMA = stream_schema(pa.schema([("v", pa.int64())]))
WINDOW_SCHEMA = pa.schema([("key", pa.string()), ("state", pa.list_(pa.int64()))])
SMALL = LogOptions(
    segment_bytes=2048, index_bytes=256, preallocate_bytes=512, checkpoint_bytes=1024
)


class NoSync(Files):
    """For tests that have nothing to do with power cuts, and many steps."""

    def sync(self, fd: int) -> None:
        pass

    def sync_directory(self, directory: Path) -> None:
        pass


def segment_count(log: StreamLog) -> int:
    return len(log._store.segments)


def kill(log: StreamLog) -> None:
    """Leaves the log's files as kill -9 would: nothing is tidied up, and the lock is free."""
    log._store.closed = True
    log._syncer.stop()
    log._syncer.close()
    assert log._lock_fd is not None
    os.close(log._lock_fd)
    os.close(log._writer.fd)


def batch(values: Iterable[int], stimes: Iterable[int] | None = None) -> pa.RecordBatch:
    """Tuples with these values; their stimes are the same numbers unless given."""
    numbers = np.fromiter(values, dtype=np.int64)
    times = numbers if stimes is None else np.fromiter(stimes, dtype=np.int64)
    time = pa.array(times, TIME)
    return pa.record_batch([time, time, pa.array(numbers)], schema=SCHEMA)


def stable(first_id: int, count: int = 1, *, salt: int = 0) -> Frame:
    return data_frame(Kind.STABLE, first_id, batch(range(first_id + salt, first_id + salt + count)))


def window_frame(next_id: int, key: str) -> Frame:
    states = pa.record_batch([[key], [[1, 2, 3]]], schema=WINDOW_SCHEMA)
    return Frame(Header(Kind.WINDOW_CHECK, next_id, 1), states)


def seen(entries: Iterable[Entry]) -> list[tuple[int, Frame]]:
    return [(entry.lsn, entry.frame) for entry in entries]


def drain(reader: LogReader) -> list[Frame]:
    """Everything that is left to read."""
    frames: list[Frame] = []
    while entries := reader.read():
        frames += [entry.frame for entry in entries]
    return frames


def values(frames: Iterable[Frame]) -> list[tuple[str, int, int]]:
    """Every tuple as (kind, id, value)."""
    result = []
    for frame in frames:
        if frame.kind.is_data:
            assert frame.batch is not None
            for at, value in enumerate(frame.batch.column("v").to_pylist()):
                result.append((frame.kind.name, frame.header.first_id + at, value))
    return result


@dataclass
class Model:
    """A log as a list of frames; an lsn is a place in it."""

    frames: list[Frame] = field(default_factory=list)
    next_id: int = 0
    boundary: int | None = None
    salt: int = 0

    def stable(self, count: int, stimes: Iterable[int] | None = None) -> list[Frame]:
        self.salt += 1000  # every version of a tuple is another one
        first = self.next_id
        values = range(first + self.salt, first + self.salt + count)
        return self.add([data_frame(Kind.STABLE, first, batch(values, stimes))])

    def boundary_mark(self, stime: int) -> list[Frame]:
        return self.add([boundary_frame(self.next_id, stime)])

    def window(self) -> list[Frame]:
        return self.add([window_frame(self.next_id, f"key {len(self.frames)}")])

    def add(self, frames: list[Frame]) -> list[Frame]:
        for frame in frames:
            self.frames.append(frame)
            if frame.kind is Kind.STABLE:
                self.next_id = frame.header.next_id
            elif frame.kind is Kind.BOUNDARY:
                self.boundary = frame.header.stime_min
        return frames


def one_by_one(frame: Frame) -> list[Frame]:
    """A frame of tuples as frames of one tuple each."""
    if not frame.kind.is_data:
        return [frame]
    assert frame.batch is not None
    first_id = frame.header.first_id
    rows = range(frame.batch.num_rows)
    return [data_frame(frame.kind, first_id + at, frame.batch.slice(at, 1)) for at in rows]


def flat(entries: Iterable[Entry]) -> list[tuple[int, Frame]]:
    """What a reader delivered, one tuple to a frame."""
    return [(entry.lsn, part) for entry in entries for part in one_by_one(entry.frame)]
