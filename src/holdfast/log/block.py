"""The bytes of one block: what a segment is made of.

A segment file is a segment header (segment.py) followed by blocks, one per frame, with nothing
in between. Every block is a multiple of 64 bytes long, so every payload starts aligned:

    offset  bytes
         0      4  magic, "HFB" and the format's version
         4      4  CRC32C over the payload with its padding, then the header from byte 8 on
         8      4  length of the whole block
        12      1  kind: a ``Kind``
        13      1  payload format: nothing, an IPC message, an IPC stream
        14      2  padding: zero bytes after the payload
        16      8  lsn, the block's place in the log: 0, 1, 2, ... for ever
        24      8  first_id
        32      4  count
        36      4  unsynced: how many blocks before this one were not yet durable
        40      8  stime_min, then stime_max and tmax, 8 bytes each; numbers are little endian
        64         payload, padding

Why ``lsn``: marks and window states have no id of their own, so an id is no place in the log.

Why ``unsynced``: a power cut may keep a later page of a file and lose an earlier one, so a
bad block followed by good ones can be either a torn tail, to be cut, or damage to something
already acknowledged, to be reported. Every block says which blocks were durable when it was
made (all below lsn - unsynced); a bad block below that mark is damage.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

import pyarrow as pa

from holdfast.checksum import crc32c, with_checksum
from holdfast.core.frame import Header, Kind
from holdfast.log.direct import BlockPart
from holdfast.log.errors import FrameTooLarge

MAGIC = b"HFB1"
HEADER = struct.Struct("<4sIIBBHQQIIqqq")
ALIGNMENT = HEADER.size  # 64
_BODY = struct.Struct("<IBBHQQIIqqq")  # the header from byte 8 on
_LARGEST = (1 << 32) - ALIGNMENT
_KINDS = frozenset(Kind)


class Format(IntEnum):
    """How a payload is written."""

    NOTHING = 0
    MESSAGE = 1  # one IPC record batch message in the segment's schema
    STREAM = 2  # an IPC stream with its own schema and dictionaries


@dataclass(frozen=True, slots=True)
class Encoded:
    """A frame ready to be written: everything but its place, which only the commit knows.

    The CRC runs over the payload first, so that the commit, which is serial, has only
    the header left to add.
    """

    header: Header
    format: Format
    parts: list[BlockPart]
    length: int
    padding: int
    payload_crc: int


class LogBlock(NamedTuple):
    """A block read back and found intact."""

    offset: int
    length: int
    kind: int
    format: int
    lsn: int
    first_id: int
    tuples: int
    unsynced: int
    stime_min: int
    stime_max: int
    tmax: int
    payload: pa.Buffer

    @property
    def end(self) -> int:
        return self.offset + self.length

    @property
    def next_lsn(self) -> int:
        return self.lsn + 1

    @property
    def synced_lsn(self) -> int:
        """Everything below this was durable when the block was made."""
        return self.lsn - self.unsynced

    def header(self) -> Header:
        times = (self.stime_min, self.stime_max, self.tmax)
        return Header(Kind(self.kind), self.first_id, self.tuples, *times)


def encoded(header: Header, payload_format: Format, parts: list[BlockPart]) -> Encoded:
    """A frame's header and the parts of its payload as a block that has no place yet."""
    size = sum(map(len, parts))
    padding = -size % ALIGNMENT
    length = ALIGNMENT + size + padding
    if length > _LARGEST:
        raise FrameTooLarge(
            f"a {header.kind.name} frame of {header.count} tuples takes {length} bytes; a block "
            f"holds at most {_LARGEST}: append it as several frames"
        )
    if padding:
        parts.append(bytes(padding))
    crc = 0
    for part in parts:
        crc = crc32c(part, crc)
    return Encoded(header, payload_format, parts, length, padding, crc)


def header_at(block: Encoded, lsn: int, synced_lsn: int) -> bytes:
    """The header of ``block`` at ``lsn``; with the block's parts it is what goes to disk."""
    header = block.header
    body = _BODY.pack(
        block.length,
        header.kind,
        block.format,
        block.padding,
        lsn,
        header.first_id,
        header.count,
        min(lsn - synced_lsn, 0xFFFFFFFF),
        header.stime_min,
        header.stime_max,
        header.tmax,
    )
    return with_checksum(MAGIC, body, block.payload_crc)


class Glimpse(NamedTuple):
    """What the header of a block says, whose payload was not looked at.

    length   of the whole block, in bytes.
    payload  of its payload.
    """

    header: Header
    length: int
    payload: int


def glimpse(view: memoryview, lsn: int) -> Glimpse | str:
    """The header at the front of ``view``, of the block at ``lsn``; or why it is none.

    A block without a payload is checked as a whole.
    """
    if len(view) < ALIGNMENT:
        return "the segment ends inside a block"
    magic, crc, length, kind, _, padding, found, first_id, count, _, *times = HEADER.unpack_from(
        view
    )
    payload = length - ALIGNMENT - padding
    if magic != MAGIC:
        return f"expected the block magic {MAGIC!r}, found {magic!r}"
    if length % ALIGNMENT or payload < 0:
        return f"a block cannot be {length} bytes long"
    if length == ALIGNMENT and crc32c(bytes(view[8:ALIGNMENT])) != crc:
        return "the checksum (CRC32C) does not match"
    if found != lsn or kind not in _KINDS:
        return f"expected a block at lsn {lsn}, found one of kind {kind} at {found}"
    return Glimpse(Header(Kind(kind), first_id, count, *times), length, payload)


class Split(NamedTuple):
    """What ``split`` found.

    blocks   the intact blocks at the front of the buffer, in order.
    needed   how many bytes the block after them takes, where the buffer ends inside it.
    problem  why the bytes after them are no block, or None.
    """

    blocks: list[LogBlock]
    needed: int
    problem: str | None


def split(
    buffer: pa.Buffer,
    offset: int,
    lsn: int | None,
    stop_lsn: int | None = None,
) -> Split:
    """The blocks in ``buffer``, which was read at ``offset`` and must start with ``lsn``.

    Stops at ``stop_lsn``, where the writer may still be at work. ``lsn=None`` takes any.
    """
    view, size, at = memoryview(buffer).cast("B"), len(buffer), 0
    blocks: list[LogBlock] = []
    while at < size and (stop_lsn is None or lsn is None or lsn < stop_lsn):
        if size - at < ALIGNMENT:
            return Split(blocks, ALIGNMENT, None)
        magic, crc, length, *rest = HEADER.unpack_from(view, at)
        if magic != MAGIC:
            return Split(blocks, 0, f"expected the block magic {MAGIC!r}, found {magic!r}")
        if length < ALIGNMENT or length % ALIGNMENT:
            return Split(blocks, 0, f"a block cannot be {length} bytes long")
        if length > size - at:
            return Split(blocks, length, None)
        whole = buffer.slice(at + ALIGNMENT, length - ALIGNMENT)
        if crc32c(bytes(view[at + 8 : at + ALIGNMENT]), crc32c(whole)) != crc:
            return Split(blocks, 0, "the checksum (CRC32C) does not match")
        block = _block(offset + at, length, rest, whole)
        if lsn is not None and block.lsn != lsn:
            return Split(blocks, 0, f"expected lsn {lsn}, found {block.lsn}")
        blocks.append(block)
        lsn = block.next_lsn
        at += length
    return Split(blocks, 0, None)


def _block(offset: int, length: int, rest: list[int], whole: pa.Buffer) -> LogBlock:
    kind, payload_format, padding, lsn, first_id, tuples, unsynced, *times = rest
    payload = whole.slice(0, len(whole) - padding)
    numbers = (offset, length, kind, payload_format, lsn, first_id, tuples, unsynced)
    return LogBlock._make((*numbers, *times, payload))
