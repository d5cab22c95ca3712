"""What is in the log: its segments, how far they go, and where to find things in them.

One lock guards it all. The writer publishes under it and notifies ``changed``; readers look under
it, then read the files without it: blocks that are published never change. ``to_sync`` is notified
when there is something new to make durable. A reader holds a position as an lsn, not as a file
and an offset, so segments may be trimmed under it; it asks here again for each piece it reads.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from holdfast.log.block import Encoded
from holdfast.log.errors import DamagedLog, LogBroken, Trimmed
from holdfast.log.files import Files
from holdfast.log.options import Durability, LogOptions
from holdfast.log.order import Tail
from holdfast.log.segment import Segment


class PlacedBlock(NamedTuple):
    """A block with its place in the stream: the tails before and after it."""

    block: Encoded
    before: Tail
    after: Tail


class IndexPlace(NamedTuple):
    """Where to read: the segment, and an entry of its index at or before what was asked for."""

    segment: Segment
    lsn: int
    offset: int


class Store:
    """The published state of a log."""

    def __init__(
        self, files: Files, directory: Path, options: LogOptions, segments: list[Segment]
    ) -> None:
        self.files = files
        self.directory = directory
        self.options = options
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        self.to_sync = threading.Condition(self.lock)
        self.segments = segments
        # A schema changes only when a log is opened: from which lsn on each was written.
        self._schemas = [(one.first_lsn, one.header.schema) for one in segments]
        self.schema: pa.Schema = self._schemas[-1][1]
        self._same_schema = all(one.equals(self.schema) for _, one in self._schemas)
        self._sealed_bytes = sum(segment.end for segment in segments[:-1])
        self.tail = segments[-1].tail
        self.synced_lsn = self.tail.lsn
        self.closed = False
        self.broken: LogBroken | None = None
        self.damage: DamagedLog | None = None

    def written_schema(self, lsn: int) -> pa.Schema:
        """The schema in which the block at ``lsn`` was written; ``schema`` itself if it is that."""
        if self._same_schema:
            return self.schema
        at = bisect_right(self._schemas, lsn, key=lambda one: one[0]) - 1
        written = self._schemas[max(at, 0)][1]
        return self.schema if written.equals(self.schema) else written

    @property
    def first_lsn(self) -> int:
        return self.segments[0].first_lsn

    @property
    def first_id(self) -> int:
        """The lowest id from which on every tuple is in the log."""
        return self.segments[0].header.start.next_id

    @property
    def size_bytes(self) -> int:
        return self._sealed_bytes + self.segments[-1].end

    def add_segment(self, segment: Segment) -> None:
        """Appends a segment; the one before is sealed. The caller holds the lock."""
        self._sealed_bytes += self.segments[-1].end
        self.segments.append(segment)

    def remove_first(self, count: int) -> list[Segment]:
        """Takes out the oldest segments. The caller holds the lock."""
        removed = self.segments[:count]
        del self.segments[:count]
        self._sealed_bytes -= sum(segment.end for segment in removed)
        self.changed.notify_all()
        return removed

    def publish(self, blocks: list[PlacedBlock]) -> None:
        """Lets readers see blocks that have been written to the end of the last segment, one
        after the other. The caller holds the lock."""
        segment = self.segments[-1]
        for block, before, after in blocks:
            segment.index.add(segment.end, before)
            segment.end += block.length
            segment.tail = after
        self.tail = segment.tail
        self.changed.notify_all()
        if self.options.durability is Durability.INTERVAL:
            self.to_sync.notify_all()

    def find_lsn(self, lsn: int) -> IndexPlace:
        """Where to start reading for the block at ``lsn``."""
        at = bisect_right(self.segments, lsn, key=lambda segment: segment.first_lsn) - 1
        if at < 0:
            raise Trimmed(
                f"{self.directory}: lsn {lsn} was trimmed; the log starts at lsn "
                f"{self.first_lsn}, id {self.first_id}. Start again from an id"
            )
        # Past the last block of a segment its successor begins, if it has one.
        if lsn >= self.segments[at].end_lsn and at + 1 < len(self.segments):
            at += 1
        return _place(self.segments[at], self.segments[at].index.at_lsn(lsn))

    def find_id(self, next_id: int) -> int:
        """The lsn from which to read for tuples from ``next_id`` on, and the marks
        right before them."""
        if next_id < self.first_id:
            raise Trimmed(
                f"{self.directory}: id {next_id} was trimmed; the log starts at id "
                f"{self.first_id}. Take a checkpoint that is newer, or another replica"
            )
        for segment in reversed(self.segments):
            entry = segment.index.at_id(next_id - 1)
            if entry is not None:
                return entry[0]
        return self.first_lsn


def _place(segment: Segment, entry: tuple[int, int] | None) -> IndexPlace:
    if entry is None:
        return IndexPlace(segment, segment.first_lsn, segment.blocks_at)
    return IndexPlace(segment, *entry)
