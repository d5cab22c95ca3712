"""Streams to write into logs, and a simple model of what a log must give back."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.core.frame import Header, Kind
from holdfast.frames import (
    TIME,
    Frame,
    boundary_frame,
    data_frame,
    rec_done_frame,
    stream_schema,
    undo_frame,
)
from holdfast.log import Entry, LogOptions, Reader, StreamLog
from holdfast.log.files import Files

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


def tentative(first_id: int, count: int = 1, *, salt: int = 0) -> Frame:
    values = range(first_id + salt, first_id + salt + count)
    return data_frame(Kind.TENTATIVE, first_id, batch(values))


def window_frame(next_id: int, key: str) -> Frame:
    states = pa.record_batch([[key], [[1, 2, 3]]], schema=WINDOW_SCHEMA)
    return Frame(Header(Kind.WINDOW_CHECK, next_id, 1), states)


def seen(entries: Iterable[Entry]) -> list[tuple[int, Frame]]:
    return [(entry.lsn, entry.frame) for entry in entries]


def drain(reader: Reader) -> list[Frame]:
    """Everything there is to read at the moment."""
    frames: list[Frame] = []
    while entries := reader.read(timeout_s=0):
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
class View:
    """What a subscriber holds that does what the frames say."""

    tuples: dict[int, tuple[str, int]] = field(default_factory=dict)

    def apply(self, frame: Frame) -> None:
        first_id = frame.header.first_id
        if frame.kind is Kind.UNDO:
            for held in [held for held in self.tuples if held >= first_id]:
                assert self.tuples.pop(held)[0] == "TENTATIVE", "a stable tuple was taken back"
        for kind, tuple_id, value in values([frame]):
            known = self.tuples.get(tuple_id)
            assert known is None or known[0] != "STABLE", "a stable tuple came twice"
            self.tuples[tuple_id] = (kind, value)


@dataclass
class Model:
    """A log as a list of frames; an lsn is a place in it."""

    first_id: int = 0
    frames: list[Frame] = field(default_factory=list)
    next_id: int = 0
    stable_next_id: int = 0
    boundary: int | None = None
    salt: int = 0

    def __post_init__(self) -> None:
        self.next_id = self.stable_next_id = self.first_id

    def stable(self, count: int, stimes: Iterable[int] | None = None) -> list[Frame]:
        """Stable tuples, after an UNDO if tentative ones stand."""
        frames = [undo_frame(self.stable_next_id)] if self.next_id > self.stable_next_id else []
        first = self.stable_next_id
        frames.append(data_frame(Kind.STABLE, first, self._batch(first, count, stimes)))
        return self._add(frames)

    def tentative(self, count: int, stimes: Iterable[int] | None = None) -> list[Frame]:
        first = self.next_id
        return self._add([data_frame(Kind.TENTATIVE, first, self._batch(first, count, stimes))])

    def undo(self, keep: int) -> list[Frame]:
        """Takes back all but the first ``keep`` tentative tuples."""
        return self._add([undo_frame(min(self.stable_next_id + keep, self.next_id))])

    def boundary_mark(self, stime: int) -> list[Frame]:
        return self._add([boundary_frame(self.next_id, stime)])

    def rec_done(self) -> list[Frame]:
        return self._add([rec_done_frame(self.next_id)])

    def window(self) -> list[Frame]:
        return self._add([window_frame(self.next_id, f"key {len(self.frames)}")])

    def _batch(self, first: int, count: int, stimes: Iterable[int] | None) -> pa.RecordBatch:
        self.salt += 1000  # every version of a tuple is another one
        return batch(range(first + self.salt, first + self.salt + count), stimes)

    def _add(self, frames: list[Frame]) -> list[Frame]:
        for frame in frames:
            self.frames.append(frame)
            if frame.kind.is_data or frame.kind is Kind.UNDO:
                self.next_id = frame.header.next_id
            if frame.kind is Kind.STABLE:
                self.stable_next_id = self.next_id
            if frame.kind is Kind.BOUNDARY and self.next_id == self.stable_next_id:
                self.boundary = frame.header.stime_min
        return frames

    def standing(self) -> list[tuple[int, Frame]]:
        """The tuples, one to a frame, and the marks that no UNDO has taken back, with lsns."""
        kept: list[tuple[int, Frame]] = []
        for lsn, frame in enumerate(self.frames):
            undone = frame.header.first_id
            if frame.kind is Kind.UNDO:
                kept = [
                    (at, old)
                    for at, old in kept
                    if old.header.first_id < undone
                    or (not old.kind.is_data and old.header.first_id == undone)
                ]
            else:
                kept += [(lsn, part) for part in one_by_one(frame)]
        return kept

    def view(self) -> dict[int, tuple[str, int]]:
        result = View()
        for _, frame in self.standing():
            result.apply(frame)
        return result.tuples


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
