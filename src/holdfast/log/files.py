"""The few file operations a log needs, in one place.

Everything the log does to the disk goes through one ``Files`` object. That keeps the
assumptions about the operating system together (full writes, what makes a name durable),
and it lets a test put a disk underneath that loses what was not synced, or fills up.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from holdfast import disk
from holdfast.disk import Operation
from holdfast.durable import LockHeld, take_lock
from holdfast.log.direct import BlockPart, split_parts, whole_pages, write_pages
from holdfast.log.errors import LogLocked

_MOST_PARTS = 1024  # IOV_MAX on Linux


class Files:
    """The real file system."""

    def create(self, path: Path) -> int:
        """A new file for reading and writing; it must not exist. Its name is not durable yet."""
        disk.check(Operation.CREATE, path)
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def open(self, path: Path, *, writable: bool = False) -> int:
        return os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)

    def close(self, fd: int) -> None:
        os.close(fd)

    def size(self, fd: int) -> int:
        return os.fstat(fd).st_size

    def read(self, fd: int, size: int, offset: int) -> pa.Buffer:
        """``size`` bytes from ``offset``, fewer only where the file ends.

        The buffer comes from Arrow's pool, so its address is aligned and record batches can
        point into it.
        """
        buffer = pa.allocate_buffer(size)
        got = self.read_into(fd, buffer, offset)
        return buffer if got == size else buffer.slice(0, got)

    def read_into(self, fd: int, buffer: pa.Buffer, offset: int) -> int:
        """Fills ``buffer`` from ``offset``; how many bytes, fewer only where the file ends."""
        size = len(buffer)
        got = os.preadv(fd, [buffer], offset)
        while 0 < got < size:
            more = os.preadv(fd, [memoryview(buffer)[got:]], offset + got)
            if more == 0:
                break
            got += more
        return got

    def write(self, fd: int, parts: Sequence[BlockPart], offset: int) -> None:
        """Writes all parts one after the other, or raises OSError with some of them written."""
        disk.check_descriptor(Operation.WRITE, fd)
        for start in range(0, len(parts), _MOST_PARTS):
            some = parts[start : start + _MOST_PARTS]
            offset += self._write_fully(fd, some, offset)

    def write_past_cache(self, fd: int, parts: Sequence[BlockPart], offset: int) -> None:
        """Like ``write``; what can be kept out of the system's cache is (direct.py)."""
        begin, end = whole_pages(offset, sum(map(len, parts)))
        before, rest = split_parts(parts, begin)
        pages, after = split_parts(rest, end - begin)
        if pages:
            disk.check_descriptor(Operation.WRITE, fd)
            end = begin + write_pages(fd, pages, offset + begin)
            after = split_parts(rest, end - begin)[1]
        for some, at in ((before, 0), (after, end)):
            if some:
                self.write(fd, some, offset + at)

    def _write_fully(self, fd: int, parts: Sequence[BlockPart], offset: int) -> int:
        size = sum(map(len, parts))
        done = os.pwritev(fd, parts, offset)
        while done < size:
            rest, skip = [], done
            for part in parts:
                view = memoryview(part).cast("B")
                rest.append(view[min(skip, view.nbytes) :])
                skip -= min(skip, view.nbytes)
            done += os.pwritev(fd, rest, offset + done)
        return size

    def truncate(self, fd: int, size: int) -> None:
        disk.check_descriptor(Operation.TRUNCATE, fd)
        os.ftruncate(fd, size)

    def allocate(self, fd: int, offset: int, size: int) -> None:
        """Reserves room on the disk; the file grows, and reads as zeros there."""
        disk.check_descriptor(Operation.WRITE, fd)
        os.posix_fallocate(fd, offset, size)

    def sync(self, fd: int) -> None:
        """Returns once the file's bytes and size survive a power cut."""
        disk.check_descriptor(Operation.SYNC, fd)
        os.fdatasync(fd)

    def sync_directory(self, directory: Path) -> None:
        """Returns once the names created, replaced and removed in it survive a power cut."""
        disk.sync_directory(directory)

    def replace(self, source: Path, target: Path) -> None:
        disk.rename(source, target)

    def remove(self, path: Path) -> None:
        disk.check(Operation.REMOVE, path)
        path.unlink(missing_ok=True)

    def names(self, directory: Path) -> list[str]:
        return sorted(path.name for path in directory.iterdir())

    def read_whole(self, path: Path) -> bytes:
        return path.read_bytes()

    def write_whole(self, path: Path, data: bytes) -> None:
        """Puts ``data`` in place of ``path`` in one step, without waiting for the disk."""
        temporary = path.with_name(path.name + ".tmp")
        self.remove(temporary)
        fd = self.create(temporary)
        try:
            self.write(fd, [data], 0)
        finally:
            self.close(fd)
        self.replace(temporary, path)

    def lock(self, path: Path) -> int:
        """Takes the lock file, which the operating system frees when the process ends."""
        try:
            return take_lock(path)
        except LockHeld as error:
            raise LogLocked(
                f"{path.parent}: a log has one writer, and process {error.holder} is it; stop "
                f"that one first, or open the log with read_only=True"
            ) from None
