"""Walking the published blocks of a log, forwards in large pieces or backwards.

A cursor's place is an lsn. For every piece it asks the store where that lsn is now, so a segment
may be sealed, rewritten or trimmed while the cursor rests. It keeps one file open and, between
calls, at most one piece in memory; it never holds the writer up.

Every block is checked against its CRC each time it is read, with one exception: what this process
wrote within the last half minute. Those bytes have not come from a disk, and at a busy live
end with many readers the checks would cost more than the reading.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from holdfast.log.block import GAP, Block, split
from holdfast.log.errors import DamagedLog
from holdfast.log.scan import next_read_bytes
from holdfast.log.segment import Segment
from holdfast.log.store import Place, Store

CHUNK_BYTES = 1 << 20


class Cursor:
    """Reads blocks from an lsn on."""

    def __init__(self, store: Store, lsn: int, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.lsn = lsn
        self._store = store
        self._chunk_bytes = chunk_bytes
        self._read_bytes = chunk_bytes
        self._segment: Segment | None = None
        self._offset = 0  # of the block at self.lsn, or of an index entry before it
        self._offset_lsn = 0
        self._fd = -1

    def next_blocks(self, stop_lsn: int) -> list[Block]:
        """The next few blocks below ``stop_lsn``, which must be published; empty at the end.

        Gaps are passed over.
        """
        blocks: list[Block] = []
        while not blocks and self.lsn < stop_lsn:
            stop = self._locate()
            blocks = self._read(stop, stop_lsn)
        return blocks

    def _locate(self) -> int:
        """Opens the segment that has ``self.lsn``; returns the end of its published bytes."""
        with self._store.lock:
            place = self._store.find_lsn(self.lsn)
            if place.segment is not self._segment:
                self.close()
                self._fd = _open(self._store, place.segment)
                self._segment, self._offset_lsn, self._offset = place
            return place.segment.end

    def _read(self, stop: int, stop_lsn: int) -> list[Block]:
        assert self._segment is not None
        size = min(self._read_bytes, stop - self._offset)
        buffer = _read(self._store, self._segment, self._fd, size, self._offset)
        check = not self._segment.is_fresh(self._offset)
        at_lsn = self._offset_lsn
        blocks, needed, problem = split(buffer, self._offset, at_lsn, stop_lsn, check=check)
        if needed > stop - self._offset - sum(block.length for block in blocks) or size <= 0:
            problem = f"the segment ends inside a block of {needed} bytes"
        if blocks:
            self._offset, self._offset_lsn = blocks[-1].end, blocks[-1].next_lsn
        elif problem is not None:
            raise DamagedLog(self._segment.path, self._offset, problem)
        if needed:
            self._read_bytes = next_read_bytes(needed, self._chunk_bytes)
        wanted = [block for block in blocks if block.lsn >= self.lsn and block.kind != GAP]
        self.lsn = max(self.lsn, self._offset_lsn)
        return wanted

    def close(self) -> None:
        if self._fd >= 0:
            self._store.files.close(self._fd)
        self._fd, self._segment = -1, None

    def __del__(self) -> None:
        self.close()


def blocks_backwards(store: Store, before_lsn: int, chunk_bytes: int) -> Iterator[Block]:
    """The blocks below ``before_lsn``, last first, read in pieces of about ``chunk_bytes``."""
    while True:
        with store.lock:
            if before_lsn <= store.first_lsn:
                return
            segment = store.find_lsn(before_lsn - 1).segment
            stretches = segment.index.backwards(segment.end, before_lsn, chunk_bytes)
            fd = _open(store, segment)
        try:
            for lsn, offset, stop in stretches:
                blocks = _stretch(store, segment, fd, Place(segment, lsn, offset), stop)
                for block in reversed(blocks):
                    if block.lsn < before_lsn and block.kind != GAP:
                        yield block
        finally:
            store.files.close(fd)
        before_lsn = segment.first_lsn


def _stretch(store: Store, segment: Segment, fd: int, place: Place, stop: int) -> list[Block]:
    buffer = _read(store, segment, fd, stop - place.offset, place.offset)
    blocks, needed, problem = split(buffer, place.offset, place.lsn)
    if problem is not None or needed:
        offset = blocks[-1].end if blocks else place.offset
        raise DamagedLog(segment.path, offset, problem or "the segment ends inside a block")
    return blocks


def _open(store: Store, segment: Segment) -> int:
    try:
        return store.files.open(segment.path)
    except OSError as error:
        raise DamagedLog(segment.path, 0, f"the file cannot be opened ({error})") from error


def _read(store: Store, segment: Segment, fd: int, size: int, offset: int) -> pa.Buffer:
    try:
        return store.files.read(fd, size, offset)
    except OSError as error:
        raise DamagedLog(segment.path, offset, f"the file cannot be read ({error})") from error
