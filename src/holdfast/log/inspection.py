"""What is in a log, and whether it is intact: every block of it is read and checked.

Works on a log in use, too; the writer's next blocks then look like a torn tail.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from holdfast.core.frame import Kind
from holdfast.log.block import LogBlock
from holdfast.log.errors import DamagedLog, LogError
from holdfast.log.files import Files
from holdfast.log.options import LogOptions
from holdfast.log.order import Tail
from holdfast.log.recovery import Examined, TailCut, examine_in_use, segment_paths
from holdfast.log.scan import stretches
from holdfast.log.segment import Segment, read_segment_header
from holdfast.log.window_summary import WindowCounter, WindowSummary


@dataclass(slots=True)
class Contents:
    """Counts and ranges over some blocks. Ranges are of tuples; None where there are none."""

    frames: Counter[str] = field(default_factory=Counter)
    tuples: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    first_id: int | None = None
    next_id: int | None = None
    stime_min: int | None = None
    stime_max: int | None = None

    def add(self, block: LogBlock) -> None:
        kind = Kind(block.kind)
        self.frames[kind.name] += 1
        self.bytes[kind.name] += block.length
        if kind.is_data:
            self.tuples[kind.name] += block.tuples
            self._widen(block.first_id, block.first_id + block.tuples, block)

    def merge(self, other: Contents) -> None:
        self.frames += other.frames
        self.tuples += other.tuples
        self.bytes += other.bytes
        if other.first_id is not None:
            assert other.next_id is not None
            self._widen(other.first_id, other.next_id, other)

    def _widen(self, first_id: int, next_id: int, times: LogBlock | Contents) -> None:
        assert times.stime_min is not None
        assert times.stime_max is not None
        if self.first_id is None or self.next_id is None:
            self.first_id, self.next_id = first_id, next_id
            self.stime_min, self.stime_max = times.stime_min, times.stime_max
            return
        self.first_id, self.next_id = min(self.first_id, first_id), max(self.next_id, next_id)
        assert self.stime_min is not None
        assert self.stime_max is not None
        self.stime_min = min(self.stime_min, times.stime_min)
        self.stime_max = max(self.stime_max, times.stime_max)


@dataclass(frozen=True, slots=True)
class SegmentSummary:
    """One segment."""

    path: Path
    size_bytes: int
    first_lsn: int
    next_lsn: int
    has_index: bool
    contents: Contents


@dataclass(slots=True)
class LogSummary:
    """A log. ``tail`` is where the stream stands at its end; ``damage`` is in order of place.

    ``windows`` says what a recovery from its window states would cost, if it has any.
    """

    directory: Path
    schema: pa.Schema | None = None
    tail: Tail | None = None
    segments: list[SegmentSummary] = field(default_factory=list)
    contents: Contents = field(default_factory=Contents)
    windows: WindowSummary | None = None
    torn_tail: TailCut | None = None
    damage: list[DamagedLog] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    @property
    def is_intact(self) -> bool:
        return not self.damage


def inspect(directory: str | os.PathLike[str], *, files: Files | None = None) -> LogSummary:
    """Reads the whole log in ``directory`` and says what is in it; changes nothing."""
    path, files = Path(directory), files or Files()
    if not path.is_dir() or not segment_paths(files, path):
        raise LogError(f"{path}: there is no log here; give the directory of one stream")
    recovered = examine_in_use(files, path, LogOptions().index_bytes)
    summary = LogSummary(path, torn_tail=recovered.cut)
    windows = WindowCounter()
    for segment in recovered.segments:
        _add_segment(files, segment, summary, windows)
    summary.windows = windows.summary()
    if recovered.damage is not None and not _is_known(summary, recovered):
        summary.damage.append(recovered.damage)
    if recovered.segments:
        last = recovered.segments[-1]
        summary.schema, summary.tail = last.header.schema, last.tail
    return summary


def stored_schema(directory: Path, files: Files | None = None) -> pa.Schema | None:
    """The schema of a log, by its newest segment; None if there is none, or none that is whole."""
    files = files or Files()
    paths = segment_paths(files, directory) if directory.is_dir() else []
    if not paths:
        return None
    fd = files.open(paths[-1])
    try:
        return read_segment_header(files, fd, paths[-1], LogOptions().index_bytes).header.schema
    except DamagedLog:
        return None  # whoever opens the log says what is wrong with it
    finally:
        os.close(fd)


def _add_segment(
    files: Files, segment: Segment, summary: LogSummary, windows: WindowCounter
) -> None:
    contents, found = Contents(), list[str]()
    offset, lsn = segment.blocks_at, segment.first_lsn
    fd = files.open(segment.path)
    try:
        size = files.size(fd)
        for blocks in stretches(files, fd, offset, segment.end, lsn, found):
            for block in blocks:
                contents.add(block)
                windows.add(block)
            offset, lsn = blocks[-1].end, blocks[-1].next_lsn
    finally:
        files.close(fd)
    if found:
        summary.damage.append(DamagedLog(segment.path, offset, found[0]))
    has_index = segment.indexed_to > 0
    summary.segments.append(
        SegmentSummary(
            segment.path,
            size,
            segment.first_lsn,
            lsn,
            has_index,
            contents,
        )
    )
    summary.contents.merge(contents)


def _is_known(summary: LogSummary, recovered: Examined) -> bool:
    damage = recovered.damage
    return damage is not None and any(known.path == damage.path for known in summary.damage)
