"""Reading a segment from front to back: the blocks in it, and where they stop.

``stretches`` reads the file in large pieces and hands out the intact blocks of each piece;
opening, inspecting and repairing a segment are all made of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from holdfast.log.block import ALIGNMENT, MAGIC, LogBlock, split
from holdfast.log.errors import OutOfOrder
from holdfast.log.files import Files
from holdfast.log.segment import Segment

CHUNK_BYTES = 1 << 20
_SEARCH_BYTES = 1 << 24
_SLACK_BYTES = 4096


@dataclass(slots=True)
class Scan:
    """What a walk over a segment's blocks found.

    problem       why it stopped before the end of the file, or None.
    file_bytes    the size of the file; bytes after the segment's end are torn or unwritten.
    synced_lsn    everything below it was durable, as some block says.
    """

    problem: str | None
    file_bytes: int
    synced_lsn: int


def next_read_bytes(needed: int, chunk_bytes: int) -> int:
    """How much to read next, where the last piece ended inside a block of ``needed`` bytes.

    Blocks of a stream tend to be equally long. A piece of a whole number of them, and a little
    more, ends shortly after the end of one, so that little is read twice.
    """
    if needed <= ALIGNMENT:
        return chunk_bytes
    whole = needed * max(1, chunk_bytes // needed)
    return whole + (whole // 64 & -ALIGNMENT) + _SLACK_BYTES


def stretches(
    files: Files, fd: int, offset: int, stop: int, lsn: int, found: list[str]
) -> Iterator[list[LogBlock]]:
    """The blocks from ``offset``, where ``lsn`` is, up to ``stop``.

    Ends early where a block is not intact, with the reason appended to ``found``.
    """
    size = CHUNK_BYTES
    while offset < stop:
        buffer = files.read(fd, min(size, stop - offset), offset)
        blocks, needed, problem = split(buffer, offset, lsn)
        if blocks:
            yield blocks
            offset, lsn = blocks[-1].end, blocks[-1].next_lsn
        if problem is not None:
            found.append(problem)
            return
        if needed > stop - offset or not (blocks or needed):
            found.append("the file ends inside a block")
            return
        size = next_read_bytes(needed, CHUNK_BYTES)


def scan_segment(files: Files, fd: int, segment: Segment) -> Scan:
    """Walks the blocks after ``segment.end``, bringing its end, tail and index up to date."""
    file_bytes = files.size(fd)
    found: list[str] = []
    synced_lsn = segment.header.synced_lsn
    for blocks in stretches(files, fd, segment.end, file_bytes, segment.end_lsn, found):
        for block in blocks:
            synced_lsn = max(synced_lsn, block.synced_lsn)
            try:
                add_block(segment, block)
            except (OutOfOrder, ValueError) as error:
                return Scan(
                    f"the block does not continue the stream: {error}", file_bytes, synced_lsn
                )
    problem = found[0] if found else None
    if problem and only_zeros(files, fd, segment.end, file_bytes):
        problem = None  # reserved and never written
    return Scan(problem, file_bytes, synced_lsn)


def add_block(segment: Segment, block: LogBlock) -> None:
    """Moves the segment's end, tail and index past ``block``."""
    before = segment.tail
    segment.tail = before.after(block.header())
    segment.index.add(block.offset, before)
    segment.end = block.end


def only_zeros(files: Files, fd: int, offset: int, stop: int) -> bool:
    """Whether the bytes from ``offset`` to ``stop`` are all zero."""
    while offset < stop:
        piece: pa.Buffer = files.read(fd, min(CHUNK_BYTES, stop - offset), offset)
        data = piece.to_pybytes()
        if not data or data.count(0) != len(data):
            return False
        offset += len(data)
    return True


def durable_after(files: Files, path: Path, offset: int) -> int:
    """The highest lsn that intact blocks from ``offset`` on say was durable; 0 if none does.

    Looks at every place a block can start, as the bytes in between cannot be trusted.
    """
    fd = files.open(path)
    try:
        size, highest = files.size(fd), 0
        offset -= offset % ALIGNMENT
        while offset < size:
            piece = files.read(fd, min(_SEARCH_BYTES, size - offset), offset)
            data, at = piece.to_pybytes(), -1
            while (at := data.find(MAGIC, at + 1)) >= 0:
                if at % ALIGNMENT == 0:
                    highest = max(highest, _durable_at(files, fd, offset + at, size))
            offset += len(data) or size
        return highest
    finally:
        files.close(fd)


def _durable_at(files: Files, fd: int, offset: int, size: int) -> int:
    header = files.read(fd, ALIGNMENT, offset)
    _, needed, _ = split(header, offset, None)
    length = needed or ALIGNMENT
    if length > size - offset:
        return 0
    blocks = split(files.read(fd, length, offset), offset, None).blocks
    return blocks[0].synced_lsn if blocks else 0
