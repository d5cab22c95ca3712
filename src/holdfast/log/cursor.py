"""Walking the published blocks of a log, forwards in large pieces or backwards.

A cursor's place is an lsn. For every piece it asks the store where that lsn is now, so a segment
may be sealed, rewritten or trimmed while the cursor rests. It keeps one file open and at most a few
pieces in memory, and never holds the writer up.

Every block is checked against its CRC each time it is read, wherever it comes from.

A reader that is behind has the next pieces read by a thread, while it checks and hands on the one
before. Neither reading nor the CRC holds the interpreter's lock, so the two run on two cores. The
thread is a new one each time, because the system starts a thread on a core that is idle, but wakes
one where it slept, which may be the reader's own. Pieces end at entries of the segment's index, so
that the one after next can be read before the next one is looked at. At the live end, and shortly
before it, the cursor reads what there is itself.
"""

from __future__ import annotations

from collections import deque
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
_AHEAD_PIECES = 2


class _Piece(NamedTuple):
    """A stretch of blocks that is being read before it is asked for."""

    place: Place
    next_lsn: int
    stop: int
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
        self._ahead: deque[_Piece] = deque()
        self._reading: ThreadPoolExecutor | None = None

    def next_blocks(self, stop_lsn: int) -> list[Block]:
        """The next few blocks below ``stop_lsn``, which must be published; empty at the end.

        Gaps are passed over.
        """
        blocks: list[Block] = []
        while not blocks and self.lsn < stop_lsn:
            stop = self._locate(stop_lsn)
            ahead = self._take_ahead()
            blocks = self._read(stop, stop_lsn) if ahead is None else ahead
        return blocks

    def _locate(self, stop_lsn: int) -> int:
        """Opens the segment that has ``self.lsn``; returns the end of its published bytes."""
        with self._store.lock:
            place = self._store.find_lsn(self.lsn)
            if place.segment is not self._segment:
                self.close()
                self._fd = _open(self._store, place.segment)
                self._segment, self._offset_lsn, self._offset = place
            self._read_ahead(place.segment, stop_lsn)
            return place.segment.end

    def _read_ahead(self, segment: Segment, stop_lsn: int) -> None:
        """Has the stretches after those on their way read."""
        if self._ahead:
            lsn, offset = self._ahead[-1].next_lsn, self._ahead[-1].stop
        else:
            lsn, offset = self._offset_lsn, self._offset
        if self._reading is None and segment.end - offset < 2 * AHEAD_BYTES:
            return
        while len(self._ahead) < _AHEAD_PIECES:
            end = segment.stretch(offset, AHEAD_BYTES, stop_lsn)
            if end is None:
                return
            place = Place(segment, lsn, offset)
            # Made here, where it is freed: memory that comes back to the thread it was taken from
            # is used again at once, and need not be asked from the system anew.
            buffer = pa.allocate_buffer(end[1] - offset)
            if self._reading is None:
                self._reading = ThreadPoolExecutor(1, thread_name_prefix="holdfast-log-ahead")
            reading = self._reading.submit(_fill, self._store, segment, self._fd, buffer, offset)
            lsn, offset = end
            self._ahead.append(_Piece(place, lsn, offset, reading))

    def _take_ahead(self) -> list[Block] | None:
        """The next piece, if it was read ahead and is intact; else what there is of it is read
        once more, up to where it is damaged."""
        if not self._ahead:
            return None
        piece = self._ahead.popleft()
        try:
            blocks = _whole(piece.place, piece.buffer.result())
        except DamagedLog:
            return None
        self._offset, self._offset_lsn = piece.stop, piece.next_lsn
        return self._wanted(blocks)

    def _read(self, stop: int, stop_lsn: int) -> list[Block]:
        assert self._segment is not None
        self._end_ahead()
        size = min(self._read_bytes, stop - self._offset)
        buffer = _read(self._store, self._segment, self._fd, size, self._offset)
        blocks, needed, problem = split(buffer, self._offset, self._offset_lsn, stop_lsn)
        if needed > stop - self._offset - sum(block.length for block in blocks) or size <= 0:
            problem = f"the segment ends inside a block of {needed} bytes"
        if blocks:
            self._offset, self._offset_lsn = blocks[-1].end, blocks[-1].next_lsn
        elif problem is not None:
            raise DamagedLog(self._segment.path, self._offset, problem)
        if needed:
            self._read_bytes = next_read_bytes(needed, CHUNK_BYTES)
        return self._wanted(blocks)

    def _wanted(self, blocks: list[Block]) -> list[Block]:
        wanted = [block for block in blocks if block.lsn >= self.lsn and block.kind != GAP]
        self.lsn = max(self.lsn, self._offset_lsn)
        return wanted

    def _end_ahead(self) -> None:
        """No piece is on its way any more; their file may be closed."""
        self._ahead.clear()
        if self._reading is not None:
            self._reading.shutdown(cancel_futures=True)
            self._reading = None

    def close(self) -> None:
        self._end_ahead()
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
    return _whole(place, _read(store, segment, fd, stop - place.offset, place.offset))


def _whole(place: Place, buffer: pa.Buffer) -> list[Block]:
    """The blocks of a stretch, all of which must be intact."""
    blocks, needed, problem = split(buffer, place.offset, place.lsn)
    if problem is not None or needed:
        offset = blocks[-1].end if blocks else place.offset
        raise DamagedLog(place.segment.path, offset, problem or "the segment ends inside a block")
    return blocks


def _open(store: Store, segment: Segment) -> int:
    try:
        return store.files.open(segment.path)
    except OSError as error:
        raise DamagedLog(segment.path, 0, f"the file cannot be opened ({error})") from error


def _read(store: Store, segment: Segment, fd: int, size: int, offset: int) -> pa.Buffer:
    return _fill(store, segment, fd, pa.allocate_buffer(size), offset)


def _fill(store: Store, segment: Segment, fd: int, buffer: pa.Buffer, offset: int) -> pa.Buffer:
    try:
        return buffer.slice(0, store.files.read_into(fd, buffer, offset))
    except OSError as error:
        raise DamagedLog(segment.path, offset, f"the file cannot be read ({error})") from error
