"""Putting blocks at the end of the last segment, and beginning the next one.

Used by one thread at a time, the leader of a commit (commit.py). Nothing here is visible to
readers until the leader publishes it. When a write fails, whatever part of it reached the
file is cut off again; if even that fails, the file's end is unknown and the log is broken.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace

from holdfast.log.block import header_at
from holdfast.log.direct import BlockPart
from holdfast.log.errors import DiskFull, LogBroken, LogError, WriteFailed
from holdfast.log.segment import Segment, create_segment
from holdfast.log.store import PlacedBlock, Store

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class Writer:
    """The end of a log."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._files = store.files
        self.segment = store.segments[-1]
        self.fd = self._files.open(self.segment.path, writable=True)
        self._reserved_to = self.segment.end
        self.sealed: list[tuple[Segment, int]] = []  # not synced yet; guarded by the store's lock

    def must_roll(self, size: int) -> bool:
        """Whether ``size`` more bytes belong into a new segment."""
        segment = self.segment
        return not segment.is_empty and segment.end + size > self._store.options.segment_bytes

    def roll(self) -> None:
        """Seals the last segment and begins the next, where it ended.

        The new file's header and name become durable with its first blocks.
        """
        store, sealed = self._store, self.segment
        header = replace(sealed.header, start=sealed.tail, synced_lsn=store.synced_lsn)
        try:
            self.release_reserve()
            segment, fd = create_segment(
                self._files, store.directory, header, store.options.index_bytes
            )
        except OSError as error:
            raise self._failure("begin a segment", error) from error
        with store.lock:
            # In one step, so that a sync sees the sealed file either here or there.
            self.sealed.append((sealed, self.fd))
            self.segment, self.fd, self._reserved_to = segment, fd, segment.end
            store.add_segment(segment)
            store.tail = segment.tail

    def write(self, blocks: Iterable[PlacedBlock]) -> None:
        """Writes blocks to the end of the last segment in one go; either all or none."""
        start = end = self.segment.end
        synced_lsn = self._store.synced_lsn
        parts: list[BlockPart] = []
        for block, before, _ in blocks:
            parts.append(header_at(block, before.lsn, synced_lsn))
            parts.extend(block.parts)
            end += block.length
        try:
            self._reserve(end)
            self._write(parts, start, end - start)
        except BaseException as error:
            self.cut()
            if isinstance(error, OSError):
                raise self._failure(f"write {end - start} bytes", error) from error
            raise

    def _write(self, parts: list[BlockPart], start: int, size: int) -> None:
        direct_bytes = self._store.options.direct_bytes
        if direct_bytes and size >= direct_bytes:
            self._files.write_past_cache(self.fd, parts, start)
        else:
            self._files.write(self.fd, parts, start)

    def _reserve(self, end: int) -> None:
        """Reserves room ahead of the writer: the file system then allocates in large steps and
        the file's size changes rarely, which is most of the cost of a sync."""
        step = self._store.options.preallocate_bytes
        if not step or end <= self._reserved_to:
            return
        most = max(end, self._store.options.segment_bytes)
        to = min(end + step, most)
        # Not enough room for the reserve may still be enough for the blocks.
        with suppress(OSError):
            self._files.allocate(self.fd, self._reserved_to, to - self._reserved_to)
            self._reserved_to = to

    def cut(self) -> None:
        """Takes back whatever was written after the segment's end."""
        try:
            self._files.truncate(self.fd, self.segment.end)
        except OSError as error:
            raise LogBroken(
                f"{self.segment.path}: a write failed and its remains after byte "
                f"{self.segment.end} could not be cut off ({error}); free some room and reopen "
                f"the log, which cuts them"
            ) from error
        self._reserved_to = self.segment.end

    def release_reserve(self) -> None:
        """Gives back what was reserved and not used."""
        if self._reserved_to > self.segment.end:
            self._files.truncate(self.fd, self.segment.end)
            self._reserved_to = self.segment.end

    def _failure(self, doing: str, error: OSError) -> LogError:
        if error.errno in _NO_ROOM:
            return DiskFull(
                f"{self.segment.path}: no room to {doing} ({error.strerror}); nothing of this "
                f"append was kept. Free some room, or trim the log, and append it again"
            )
        return WriteFailed(
            f"{self.segment.path}: could not {doing} ({error}); nothing of this append was kept. "
            f"If it persists, look at the disk"
        )

    def close(self) -> None:
        self._files.close(self.fd)
