"""The sparse index of a segment: from a tuple id to a place in the file.

One entry for about every 64 KiB of blocks. An entry at a block says

    lsn     the block's place in the log
    offset  its place in the file
    id      the id of the next tuple there

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

from holdfast.checksum import crc32c, with_checksum
from holdfast.log.order import Tail

MAGIC = b"HFI2"
_HEADER = struct.Struct("<4sIIIQQQq")
_CRC_FROM = 8
_NO_TIME = -(1 << 63)


class SegmentIndex:
    """The entries of one segment, and what else a log wants to know of it unread."""

    def __init__(self, every_bytes: int) -> None:
        self._every_bytes = every_bytes
        self._next_at = 0
        self._lsns, self._offsets = array("q"), array("q")
        self._ids = array("q")

    def add(self, offset: int, before: Tail) -> None:
        """A block stands at ``offset``; ``before`` is the tail there."""
        if offset >= self._next_at:
            self._lsns.append(before.lsn)
            self._offsets.append(offset)
            self._ids.append(before.next_id)
            self._next_at = offset + self._every_bytes

    def at_lsn(self, lsn: int) -> tuple[int, int] | None:
        """The lsn and offset of the last entry at or before ``lsn``."""
        return self._entry(bisect_right(self._lsns, lsn) - 1)

    def at_id(self, tuple_id: int) -> tuple[int, int] | None:
        """The lsn and offset of the last entry at or before the tuple with the id."""
        return self._entry(bisect_right(self._ids, tuple_id) - 1)

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
        return [self._lsns, self._offsets, self._ids]

    def pack(self, segment_crc: int, end: int, tail: Tail) -> bytes:
        """The index as bytes; good for the segment with this header CRC, up to ``end``."""
        body = b"".join(_little(column).tobytes() for column in self._columns())
        packed = _HEADER.pack(
            MAGIC,
            0,
            segment_crc,
            len(self._lsns),
            end,
            tail.lsn,
            tail.next_id,
            pack_time(tail.boundary),
        )
        return with_checksum(MAGIC, packed[_CRC_FROM:] + body)

    @classmethod
    def unpack(cls, data: bytes, every_bytes: int) -> PackedIndex | None:
        """What ``pack`` was given; None if the bytes are damaged."""
        if len(data) < _HEADER.size:
            return None
        magic, crc, of_segment, entries, end, lsn, next_id, boundary = _HEADER.unpack_from(data)
        if magic != MAGIC or len(data) != _HEADER.size + 3 * 8 * entries:
            return None
        if crc32c(data[_CRC_FROM:]) != crc:
            return None
        index = cls(every_bytes)
        at = _HEADER.size
        for column in index._columns():
            column.frombytes(data[at : at + 8 * entries])
            if sys.byteorder == "big":
                column.byteswap()
            at += 8 * entries
        index._next_at = end
        tail = Tail(lsn, next_id, unpack_time(boundary))
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
