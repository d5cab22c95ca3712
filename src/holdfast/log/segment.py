"""A segment: one file of the log, named after the lsn of its first block.

    00000000000000000000.seg   segment header, blocks
    00000000000000000000.idx   a copy of its index (index.py)

The segment header repeats the tail of the stream at its start, so that a log whose older
segments were trimmed still knows its place, and the schema of its tuples:

    offset  bytes
         0      4  magic, "HFS" and the format's version
         4      4  CRC32C over the rest of the header, schema and padding included
         8      4  length of the header, a multiple of 64
        12      4  length of the schema
        16     16  the log's random number: segments of different logs do not mix
        32      8  first lsn
        40      8  synced lsn: everything below it was durable when the segment was begun
        48      8  next_id, then boundary of the tail, 8 bytes each
        64         the schema as an Arrow IPC message, zeros up to the length
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.checksum import crc32c, with_checksum
from holdfast.log.block import ALIGNMENT
from holdfast.log.errors import DamagedLog, LogError
from holdfast.log.files import Files
from holdfast.log.index import SegmentIndex, pack_time, unpack_time
from holdfast.log.order import Tail

MAGIC = b"HFS2"
_OLDER = (b"HFS1",)
SEGMENT_SUFFIX = ".seg"
INDEX_SUFFIX = ".idx"
_HEADER = struct.Struct("<4sIII16sQQQq")
_CRC_FROM = 8
_LARGEST_HEADER = 1 << 26


@dataclass(frozen=True, slots=True)
class SegmentHeader:
    """What a segment says about itself; ``start`` is the tail before its first block."""

    log_id: bytes
    start: Tail
    synced_lsn: int
    schema: pa.Schema

    def pack(self) -> bytes:
        schema = self.schema.serialize().to_pybytes()
        length = _HEADER.size + len(schema)
        length += -length % ALIGNMENT
        start = self.start
        fixed = _HEADER.pack(
            MAGIC,
            0,
            length,
            len(schema),
            self.log_id,
            start.lsn,
            self.synced_lsn,
            start.next_id,
            pack_time(start.boundary),
        )
        rest = (fixed[_CRC_FROM:] + schema).ljust(length - _CRC_FROM, b"\0")
        return with_checksum(MAGIC, rest)


@dataclass(slots=True, eq=False)
class Segment:
    """A segment as the log knows it; ``end`` and ``tail`` move while it is the last one.

    indexed_to  how far its index file covers it.
    is_named    whether its name and header are durable.
    """

    path: Path
    header: SegmentHeader
    header_crc: int
    blocks_at: int
    index: SegmentIndex
    end: int
    tail: Tail
    indexed_to: int = 0
    is_named: bool = False

    @property
    def first_lsn(self) -> int:
        return self.header.start.lsn

    @property
    def end_lsn(self) -> int:
        return self.tail.lsn

    @property
    def is_empty(self) -> bool:
        return self.end == self.blocks_at

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(INDEX_SUFFIX)

    def stretch(
        self, offset: int, size: int, stop_lsn: int, is_sealed: bool
    ) -> tuple[int, int] | None:
        """Where about ``size`` bytes of whole blocks from ``offset`` on stop: lsn and offset, at
        most ``stop_lsn``. None if there are not that many yet."""
        stop = self.index.stop_of(offset, size)
        if stop is None and (is_sealed or self.end - offset >= size // 2):
            stop = (self.end_lsn, self.end)
        return stop if stop is not None and stop[0] <= stop_lsn else None

    def packed_index(self) -> bytes:
        return self.index.pack(self.header_crc, self.end, self.tail)


def segment_path(directory: Path, first_lsn: int) -> Path:
    return directory / f"{first_lsn:020d}{SEGMENT_SUFFIX}"


def begin_segment(path: Path, header: SegmentHeader, index_bytes: int) -> tuple[Segment, bytes]:
    """A segment without blocks, and the bytes its file starts with."""
    packed = header.pack()
    crc = int.from_bytes(packed[4:8], "little")
    index = SegmentIndex(index_bytes)
    size = len(packed)
    return Segment(path, header, crc, size, index, size, header.start), packed


def create_segment(
    files: Files, directory: Path, header: SegmentHeader, index_bytes: int
) -> tuple[Segment, int]:
    """A new segment and its open file; neither its name nor its header is durable yet."""
    path = segment_path(directory, header.start.lsn)
    segment, packed = begin_segment(path, header, index_bytes)
    files.remove(path)  # of an attempt that failed
    fd = files.create(path)
    try:
        files.write(fd, [packed], 0)
    except BaseException:
        files.close(fd)
        files.remove(path)
        raise
    return segment, fd


def read_segment_header(
    files: Files, fd: int, path: Path, index_bytes: int, log_id: bytes | None = None
) -> Segment:
    """The segment in ``path`` with none of its blocks known yet."""
    start = files.read(fd, 4096, 0)
    if len(start) < _HEADER.size:
        raise DamagedLog(path, 0, f"a segment has a header; this file has {len(start)} bytes")
    magic, crc, length, schema_length, *rest = _HEADER.unpack_from(start)
    if magic in _OLDER:
        raise LogError(
            f"{path}: this log has format {chr(magic[3])}, this version of Holdfast reads "
            f"{chr(MAGIC[3])}. Use the version that wrote it, or begin anew without its directory"
        )
    if magic != MAGIC:
        raise DamagedLog(path, 0, f"expected the segment magic {MAGIC!r}, found {magic!r}")
    if length % ALIGNMENT or not _HEADER.size + schema_length <= length <= _LARGEST_HEADER:
        raise DamagedLog(path, 0, f"a segment header cannot be {length} bytes long")
    whole = start if length <= len(start) else files.read(fd, length, 0)
    if len(whole) < length or crc32c(whole.slice(8, length - 8)) != crc:
        raise DamagedLog(path, 0, "the checksum (CRC32C) of the segment header does not match")
    found_id, lsn, synced_lsn, next_id, boundary = rest
    if path.name != segment_path(path.parent, lsn).name:
        raise DamagedLog(path, 0, f"the file's name does not fit its first lsn, {lsn}")
    if log_id is not None and found_id != log_id:
        raise DamagedLog(path, 0, "the segment belongs to another log")
    tail = Tail(lsn, next_id, unpack_time(boundary))
    schema = pa.ipc.read_schema(whole.slice(_HEADER.size, schema_length))
    header = SegmentHeader(found_id, tail, synced_lsn, schema)
    return Segment(path, header, crc, length, SegmentIndex(index_bytes), length, tail)
