"""The sparse index of a segment: from a tuple id or a time to a place in the file.

One entry for about every 64 KiB of blocks, and one at each UNDO. An entry at a block says

    lsn     the block's place in the log
    offset  its place in the file
    id      the id of the next tuple there (at an UNDO: the id it goes back to)
    reach   the largest stime of anything before the block

Ids go back at an UNDO, so they do not rise from entry to entry. But the tuple that *stands*
under an id is the last one that was written under it, and it lies at or after the last entry
whose id is not above it: had a later entry an id that low, the tuple would have been undone.
Times may be out of order too, but ``reach`` rises: everything before the last entry whose
reach is below T is older than T.

The index is kept in memory while its segment grows. A copy goes to a file next to the segment
whenever enough of it became durable, and when it is sealed. The copy speeds up opening and
says how far the segment was durable; it is not needed. When missing, stale or damaged, it is
made again from the blocks.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

import numpy as np

from holdfast.checksum import crc32c, with_checksum
from holdfast.core.frame import Kind
from holdfast.log.order import Tail

MAGIC = b"HFI1"
_HEADER = struct.Struct("<4sIIIIxxxxQQQQQqqq")
_CRC_FROM = 8
_NO_TIME = -(1 << 63)


class SegmentIndex:
    """The entries of one segment, and what else a log wants to know of it unread."""

    def __init__(self, every_bytes: int) -> None:
        self._every_bytes = every_bytes
        self._next_at = 0
        self._lsns, self._offsets = array("q"), array("q")
        self._ids, self._reaches = array("q"), array("q")
        self._undo_lsns, self._undo_ids = array("q"), array("q")
        self.tentative_bytes = 0

    def add(self, kind: int, first_id: int, offset: int, length: int, before: Tail) -> None:
        """A block of ``length`` bytes stands at ``offset``; ``before`` is the tail there."""
        if kind == Kind.UNDO:
            self._undo_lsns.append(before.lsn)
            self._undo_ids.append(first_id)
            self._add_entry(before, offset, first_id)
        elif offset >= self._next_at:
            self._add_entry(before, offset, before.next_id)
            self._next_at = offset + self._every_bytes
        if kind == Kind.TENTATIVE:
            self.tentative_bytes += length

    def _add_entry(self, before: Tail, offset: int, next_id: int) -> None:
        self._lsns.append(before.lsn)
        self._offsets.append(offset)
        self._ids.append(next_id)
        self._reaches.append(_NO_TIME if before.reach is None else before.reach)

    @property
    def undos(self) -> list[tuple[int, int]]:
        """The lsn and the id of every UNDO in the segment."""
        return list(zip(self._undo_lsns, self._undo_ids, strict=True))

    @property
    def lowest_id(self) -> int | None:
        """The lowest id of any entry; None in a segment without blocks."""
        return min(self._ids) if self._ids else None

    def at_lsn(self, lsn: int) -> tuple[int, int] | None:
        """The lsn and offset of the last entry at or before ``lsn``."""
        return self._entry(bisect_right(self._lsns, lsn) - 1)

    def at_id(self, tuple_id: int) -> tuple[int, int] | None:
        """The lsn and offset of the last entry at or before the tuple that stands under the id."""
        if not self._ids:
            return None
        lowest_from_here = np.minimum.accumulate(np.array(self._ids)[::-1])[::-1]
        return self._entry(int(np.searchsorted(lowest_from_here, tuple_id, side="right")) - 1)

    def at_stime(self, stime: int) -> tuple[int, int] | None:
        """The lsn and offset of the last entry with everything before it older than ``stime``."""
        return self._entry(bisect_left(self._reaches, stime) - 1)

    def _entry(self, at: int) -> tuple[int, int] | None:
        return (self._lsns[at], self._offsets[at]) if at >= 0 else None

    def backwards(self, end: int, before_lsn: int, chunk_bytes: int) -> list[tuple[int, int, int]]:
        """Stretches of about ``chunk_bytes``, last first: the lsn and offset where one starts
        and the offset where it stops."""
        stretches, stop = [], end
        at = bisect_left(self._lsns, before_lsn) - 1
        if at + 1 < len(self._offsets):
            stop = self._offsets[at + 1]
        while at >= 0:
            first = bisect_left(self._offsets, stop - chunk_bytes, 0, at)
            stretches.append((self._lsns[first], self._offsets[first], stop))
            stop, at = self._offsets[first], first - 1
        return stretches

    def stop_of(self, offset: int, size: int) -> tuple[int, int] | None:
        """The lsn and offset of the entry where a stretch of about ``size`` bytes from ``offset``
        on can stop; None if fewer are indexed."""
        at = bisect_right(self._offsets, offset + size) - 1
        if at + 1 == len(self._offsets):
            return None
        return self._entry(max(at, bisect_right(self._offsets, offset)))

    def _columns(self) -> list[array[int]]:
        entries = [self._lsns, self._offsets, self._ids, self._reaches]
        return [*entries, self._undo_lsns, self._undo_ids]

    def pack(self, segment_crc: int, end: int, tail: Tail) -> bytes:
        """The index as bytes; good for the segment with this header CRC, up to ``end``."""
        body = b"".join(_little(column).tobytes() for column in self._columns())
        packed = _HEADER.pack(
            MAGIC,
            0,
            segment_crc,
            len(self._lsns),
            len(self._undo_lsns),
            end,
            tail.lsn,
            tail.next_id,
            tail.stable_next_id,
            self.tentative_bytes,
            pack_time(tail.boundary),
            pack_time(tail.reach),
            pack_time(tail.stable_reach),
        )
        return with_checksum(MAGIC, packed[_CRC_FROM:] + body)

    @classmethod
    def unpack(cls, data: bytes, every_bytes: int) -> PackedIndex | None:
        """What ``pack`` was given; None if the bytes are damaged."""
        if len(data) < _HEADER.size:
            return None
        magic, crc, of_segment, entries, undos, end, *rest = _HEADER.unpack_from(data)
        lsn, next_id, stable_next_id, tentative_bytes, *times = rest
        size = _HEADER.size + 8 * (4 * entries + 2 * undos)
        if magic != MAGIC or len(data) != size:
            return None
        if crc32c(data[_CRC_FROM:]) != crc:
            return None
        index = cls(every_bytes)
        at = _HEADER.size
        counts = (entries, entries, entries, entries, undos, undos)
        for column, count in zip(index._columns(), counts, strict=True):
            column.frombytes(data[at : at + 8 * count])
            if sys.byteorder == "big":
                column.byteswap()
            at += 8 * count
        index.tentative_bytes = tentative_bytes
        index._next_at = end
        tail = Tail(lsn, next_id, stable_next_id, *map(unpack_time, times))
        return PackedIndex(index, of_segment, end, tail)


@dataclass(frozen=True, slots=True)
class PackedIndex:
    """An index file: it covers the segment with this header CRC up to ``end``, where ``tail``
    is, and all of that is durable."""

    index: SegmentIndex
    segment_crc: int
    end: int
    tail: Tail


def pack_time(time: int | None) -> int:
    return _NO_TIME if time is None else time


def unpack_time(packed: int) -> int | None:
    return None if packed == _NO_TIME else packed


def _little(column: array[int]) -> array[int]:
    if sys.byteorder == "big":
        column = column[:]
        column.byteswap()
    return column
