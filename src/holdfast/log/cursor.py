"""Walking the published blocks of a log, forwards in large pieces or backwards.

A cursor's place is an lsn. For every piece it asks the store where that lsn is now, so a segment
may be sealed, rewritten or trimmed while the cursor rests. It keeps one file open and, between
calls, at most one piece in memory and another on its way; it never holds the writer up.

Every block is checked against its CRC each time it is read, wherever it comes from.

A reader that has much before it gets larger pieces, and while it is busy with one, the next is read
by a thread that all cursors share. At the live end there is no next piece and no such thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import pyarrow as pa

from holdfast.log.block import GAP, Block, split
from holdfast.log.errors import DamagedLog
from holdfast.log.scan import next_read_bytes
from holdfast.log.segment import Segment
from holdfast.log.store import Place, Store

CHUNK_BYTES = 1 << 20
AHEAD_BYTES = 4 << 20

_reading_ahead = ThreadPoolExecutor(1, thread_name_prefix="holdfast-log-ahead")


class _Ahead(NamedTuple):
    """A piece that is being read before it is asked for."""

    offset: int
    buffer: Future[pa.Buffer]


class Cursor:
    """Reads blocks from an lsn on."""

    def __init__(self, store: Store, lsn: int) -> None:
        self.lsn = lsn
        self._store = store
        self._read_bytes = CHUNK_BYTES
        self._segment: Segment | None = None
        self._offset = 0  # of the block at self.lsn, or of an index entry before it
        self._offset_lsn = 0
        self._fd = -1
        self._ahead: _Ahead | None = None

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
        buffer = self._piece(size)
        blocks, needed, problem = split(buffer, self._offset, self._offset_lsn, stop_lsn)
        if needed > stop - self._offset - sum(block.length for block in blocks) or size <= 0:
            problem = f"the segment ends inside a block of {needed} bytes"
        if blocks:
            self._offset, self._offset_lsn = blocks[-1].end, blocks[-1].next_lsn
        elif problem is not None:
            raise DamagedLog(self._segment.path, self._offset, problem)
        left = stop - self._offset
        if needed:
            piece = AHEAD_BYTES if left > AHEAD_BYTES else CHUNK_BYTES
            self._read_bytes = next_read_bytes(needed, piece)
        if left >= CHUNK_BYTES:
            self._read_ahead(min(self._read_bytes, left))
        wanted = [block for block in blocks if block.lsn >= self.lsn and block.kind != GAP]
        self.lsn = max(self.lsn, self._offset_lsn)
        return wanted

    def _piece(self, size: int) -> pa.Buffer:
        """The bytes at the cursor's place, read now unless they were read ahead."""
        assert self._segment is not None
        ahead, self._ahead = self._ahead, None
        if ahead is not None and not ahead.buffer.cancel():
            buffer = ahead.buffer.result()
            if ahead.offset == self._offset and len(buffer) >= size:
                return buffer
        return _read(self._store, self._segment, self._fd, size, self._offset)

    def _read_ahead(self, size: int) -> None:
        assert self._segment is not None
        place = (self._store, self._segment, self._fd, size, self._offset)
        self._ahead = _Ahead(self._offset, _reading_ahead.submit(_read, *place))

    def close(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None and not ahead.buffer.cancel():
            ahead.buffer.exception()  # its file must stay open until it is done
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
