"""Walking the published blocks of a log, forwards in large pieces or backwards.

A cursor's place is an lsn. For every piece it asks the store where that lsn is now, so a segment
may be sealed or trimmed while the cursor rests. It keeps one file open and at most a few
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

from holdfast.core.frame import Header
from holdfast.log.block import ALIGNMENT, LogBlock, glimpse, split
from holdfast.log.errors import DamagedLog, OutOfOrder, Trimmed
from holdfast.log.order import Tail
from holdfast.log.scan import next_read_bytes
from holdfast.log.segment import Segment
from holdfast.log.store import Store

CHUNK_BYTES = 1 << 20
AHEAD_BYTES = 4 << 20
_AHEAD_PIECES = 2
# Headers are read in pieces of this size; where blocks are larger, one for each of them.
_HEADERS_BYTES = 16 << 10


class _File:
    """A segment's file, open as long as anybody has it to read from."""

    def __init__(self, store: Store, segment: Segment) -> None:
        self.segment = segment
        self._files = store.files
        self._fd = -1
        try:
            self._fd = store.files.open(segment.path)
        except OSError as error:
            raise DamagedLog(segment.path, 0, f"the file cannot be opened ({error})") from error

    def read(self, offset: int, size: int) -> pa.Buffer:
        return self.fill(offset, pa.allocate_buffer(size))

    def fill(self, offset: int, buffer: pa.Buffer) -> pa.Buffer:
        """``buffer`` with what is at ``offset``; shorter where the file ends."""
        try:
            return buffer.slice(0, self._files.read_into(self._fd, buffer, offset))
        except OSError as error:
            problem = f"the file cannot be read ({error})"
            raise DamagedLog(self.segment.path, offset, problem) from error

    def __del__(self) -> None:
        if self._fd >= 0:
            self._files.close(self._fd)


class _Place(NamedTuple):
    """Where a block starts."""

    file: _File
    lsn: int
    offset: int


class _Piece(NamedTuple):
    """A stretch of blocks that is being read before it is asked for."""

    start: _Place
    stop: _Place
    buffer: Future[pa.Buffer]


class Cursor:
    """Reads blocks from an lsn on."""

    def __init__(self, store: Store, lsn: int) -> None:
        self.lsn = lsn
        self._store = store
        self._read_bytes = CHUNK_BYTES
        self._at: _Place | None = None  # the block at self.lsn, or an index entry before it
        self._ahead: deque[_Piece] = deque()
        self._thread: ThreadPoolExecutor | None = None

    def next_blocks(self, stop_lsn: int) -> list[LogBlock]:
        """The next few blocks below ``stop_lsn``, which must be published; empty at the end."""
        blocks: list[LogBlock] = []
        while not blocks and self.lsn < stop_lsn:
            at, stop = self._locate(stop_lsn)
            ahead = self._take_ahead()
            blocks = self._read(at, stop, stop_lsn) if ahead is None else ahead
        return blocks

    def _locate(self, stop_lsn: int) -> tuple[_Place, int]:
        """Where to read for ``self.lsn``, and the end of the published bytes there."""
        with self._store.lock:
            found = self._store.find_lsn(self.lsn)
            if self._ahead:
                self._at = self._ahead[0].start
            if self._at is None or self._at.file.segment is not found.segment:
                self._end_ahead()
                self._at = _Place(_File(self._store, found.segment), found.lsn, found.offset)
            self._read_ahead(self._at, stop_lsn)
            return self._at, found.segment.end

    def _read_ahead(self, at: _Place, stop_lsn: int) -> None:
        """Has the stretches after those on their way read, in this segment and the next."""
        if self._ahead:
            at = self._ahead[-1].stop
        elif at.file.segment.end - at.offset < 2 * AHEAD_BYTES:
            return
        while len(self._ahead) < _AHEAD_PIECES:
            segment = at.file.segment
            is_sealed = segment is not self._store.segments[-1]
            if is_sealed and at.offset == segment.end:
                found = self._store.find_lsn(at.lsn)
                at = _Place(_File(self._store, found.segment), found.lsn, found.offset)
                continue
            end = segment.stretch(at.offset, AHEAD_BYTES, stop_lsn, is_sealed)
            if end is None:
                return
            start, at = at, _Place(at.file, *end)
            self._ahead.append(_Piece(start, at, self._order(start, at.offset)))

    def _order(self, start: _Place, stop: int) -> Future[pa.Buffer]:
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-log-ahead")
        # Made here, where it is freed: memory that comes back to the thread it was taken from is
        # used again at once, and need not be asked from the system anew.
        buffer = pa.allocate_buffer(stop - start.offset)
        return self._thread.submit(start.file.fill, start.offset, buffer)

    def _take_ahead(self) -> list[LogBlock] | None:
        """The next piece, if it was read ahead and is intact; else what there is of it is read
        once more, up to where it is damaged."""
        if not self._ahead:
            return None
        piece = self._ahead.popleft()
        try:
            blocks = _whole(piece.start, piece.buffer.result())
        except DamagedLog:
            return None
        self._at = piece.stop
        return self._wanted(blocks, piece.stop.lsn)

    def _read(self, at: _Place, stop: int, stop_lsn: int) -> list[LogBlock]:
        self._end_ahead()
        size = min(self._read_bytes, stop - at.offset)
        blocks, needed, problem = split(at.file.read(at.offset, size), at.offset, at.lsn, stop_lsn)
        if needed > stop - at.offset - sum(block.length for block in blocks) or size <= 0:
            problem = f"the segment ends inside a block of {needed} bytes"
        if blocks:
            self._at = at = _Place(at.file, blocks[-1].next_lsn, blocks[-1].end)
        elif problem is not None:
            raise DamagedLog(at.file.segment.path, at.offset, problem)
        if needed:
            self._read_bytes = next_read_bytes(needed, CHUNK_BYTES)
        return self._wanted(blocks, at.lsn)

    def _wanted(self, blocks: list[LogBlock], next_lsn: int) -> list[LogBlock]:
        wanted = [block for block in blocks if block.lsn >= self.lsn]
        self.lsn = max(self.lsn, next_lsn)
        return wanted

    def _end_ahead(self) -> None:
        self._ahead.clear()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    def close(self) -> None:
        """Gives the file back; a read on its way keeps it until it is done."""
        self._end_ahead()
        self._at = None

    def __del__(self) -> None:
        self.close()


def blocks_backwards(store: Store, before_lsn: int, chunk_bytes: int) -> Iterator[LogBlock]:
    """The blocks below ``before_lsn``, last first, read in pieces of about ``chunk_bytes``."""
    while True:
        with store.lock:
            if before_lsn <= store.first_lsn:
                return
            segment = store.find_lsn(before_lsn - 1).segment
            stretches = segment.index.backwards(segment.end, before_lsn, chunk_bytes)
            file = _File(store, segment)
        for lsn, offset, stop in stretches:
            blocks = _whole(_Place(file, lsn, offset), file.read(offset, stop - offset))
            for block in reversed(blocks):
                if block.lsn < before_lsn:
                    yield block
        before_lsn = segment.first_lsn


def headers(store: Store) -> Iterator[tuple[Header, int]]:
    """The header and the payload's size of every published block, the oldest first.

    Tuples are not read: opening has checked the blocks that no index file vouches for, and
    whoever reads a block checks all of it. Headers must follow on each other, and end where the
    segment does.
    """
    with store.lock:
        segments = [(segment, segment.end, segment.tail) for segment in store.segments]
    for segment, end, tail in segments:
        yield from _headers_of(_File(store, segment), end, tail)


def _headers_of(file: _File, end: int, tail: Tail) -> Iterator[tuple[Header, int]]:
    segment = file.segment
    offset, at = segment.blocks_at, segment.header.start
    view, begin = memoryview(b""), 0
    while offset < end:
        if offset + ALIGNMENT > begin + len(view):
            begin = offset
            view = memoryview(file.read(begin, min(_HEADERS_BYTES, end - begin))).cast("B")
        found = glimpse(view[offset - begin :], at.lsn)
        if isinstance(found, str):
            raise DamagedLog(segment.path, offset, found)
        try:
            at = at.after(found.header)
        except OutOfOrder as error:
            raise DamagedLog(segment.path, offset, str(error)) from None
        yield found.header, found.payload
        offset += found.length
    if (offset, at) != (end, tail):
        raise DamagedLog(segment.path, offset, f"its blocks end at {at}, and not at {tail}")


def check(store: Store) -> None:
    """Reads every published block; DamagedLog if one is not intact."""
    with store.lock:
        cursor, stop_lsn = Cursor(store, store.first_lsn), store.tail.lsn
    while not store.closed:
        try:
            if not cursor.next_blocks(stop_lsn):
                break
        except Trimmed:
            cursor.lsn = store.first_lsn
    cursor.close()


def _whole(place: _Place, buffer: pa.Buffer) -> list[LogBlock]:
    """The blocks of a stretch, all of which must be intact."""
    blocks, needed, problem = split(buffer, place.offset, place.lsn)
    if problem is not None or needed:
        offset = blocks[-1].end if blocks else place.offset
        path = place.file.segment.path
        raise DamagedLog(path, offset, problem or "the segment ends inside a block")
    return blocks
