"""Large writes that go past the system's cache, straight to the disk.

What a log has written it rarely reads again: whoever keeps up is served from memory. Through the
cache, every byte takes a page that was somebody else's a moment ago, or that a virtual machine must
first ask its host for, which costs ten times what copying does; and a sync has all of it to write
still. Past the cache there is one copy, into a buffer that stays, and the disk reads from that.

The disk takes whole pages only. So the first and the last part of a page are written as usual, and
the pages between them past the cache; the system keeps the two apart. What is on the disk, when it
is there, and what a sync promises are the same either way.
"""

from __future__ import annotations

import errno
import mmap
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

PAGE = 4096
_PIECE = 2 << 20  # large enough for a disk at full speed, small enough for a processor's cache
# File systems that know no such thing, or want larger pages, say so with one of these.
_CANNOT = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)

BlockPart: TypeAlias = bytes | pa.Buffer
Bytes: TypeAlias = npt.NDArray[np.uint8]


def whole_pages(offset: int, size: int) -> tuple[int, int]:
    """Where the whole pages among ``size`` bytes at ``offset`` begin and end, counted from there.

    Both are 0 if there are none.
    """
    begin = -offset % PAGE
    end = (offset + size) // PAGE * PAGE - offset
    return (begin, end) if begin < end else (0, 0)


# Buffers that nobody uses: as many as ever wrote at one time. Anonymous memory begins with a page,
# as the disk wants it.
_free: list[Bytes] = []


def write_pages(fd: int, parts: Sequence[BlockPart], offset: int) -> int:
    """Writes whole pages past the cache: how many bytes from the front, fewer if it cannot be.

    Offset and size are those of whole pages. Raises OSError as a write does, with some written.
    """
    try:
        # Another description of the same file: nobody else's writes change their ways.
        direct = os.open(f"/proc/self/fd/{fd}", os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:
        return 0
    buffer = _buffer()
    done = 0
    try:
        for piece in _pieces(parts, buffer):
            written = os.pwrite(direct, piece.data, offset + done)
            done += written
            if written < len(piece):
                break
    except OSError as error:
        if error.errno not in _CANNOT:
            raise
    finally:
        _free.append(buffer)
        os.close(direct)
    return done


def _buffer() -> Bytes:
    with suppress(IndexError):
        return _free.pop()
    return np.frombuffer(mmap.mmap(-1, _PIECE), dtype=np.uint8)


def _pieces(parts: Sequence[BlockPart], buffer: Bytes) -> Iterator[Bytes]:
    """The parts one after the other, in pieces that fill the buffer."""
    filled = 0
    for part in parts:
        data = np.frombuffer(part, dtype=np.uint8)
        while len(data):
            room = min(len(buffer) - filled, len(data))
            # NumPy copies without the interpreter's lock.
            np.copyto(buffer[filled : filled + room], data[:room])
            filled, data = filled + room, data[room:]
            if filled == len(buffer):
                yield buffer
                filled = 0
    if filled:
        yield buffer[:filled]


def split_parts(parts: Sequence[BlockPart], at: int) -> tuple[list[BlockPart], list[BlockPart]]:
    """The first ``at`` bytes and the rest, without copying."""
    before: list[BlockPart] = []
    after: list[BlockPart] = []
    for part in parts:
        taken = min(at, len(part))
        at -= taken
        if taken:
            before.append(_slice(part, 0, taken))
        if taken < len(part):
            after.append(_slice(part, taken, len(part)))
    return before, after


def _slice(part: BlockPart, begin: int, end: int) -> BlockPart:
    return part[begin:end] if isinstance(part, bytes) else part.slice(begin, end - begin)
