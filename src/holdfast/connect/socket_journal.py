"""The journal of a connection: what came in, in a file or in memory, until it is not needed.

The file's name says which offset of all that was received it begins with. What is given out has
been synced, because the place it was read up to may be written down as soon as it is given out. A
write that fails leaves nothing behind; a sync that fails is not believed, and the file is written
anew.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from holdfast import disk
from holdfast.disk import Operation
from holdfast.errors import InputError

_TRIM_BYTES = 16 << 20


class SocketJournal:
    """The bytes received, from offset ``start`` on."""

    def __init__(self, directory: Path | None, start: int, anew: bool) -> None:
        """Without ``directory`` it is in memory; ``anew`` forgets what was there."""
        self._directory = directory
        self._memory = bytearray()
        self._file: int | None = None
        self._base = start
        self._size = 0
        self._synced = 0
        self._suspect = False
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._open(directory, start, anew)

    @property
    def end(self) -> int:
        """The offset after the last byte received."""
        return self._base + self._size

    def append(self, data: bytes) -> None:
        """Take all of it, or raise OSError and take nothing."""
        if self._file is None:
            self._memory += data
        else:
            try:
                _write(self._file, data, self._size)
            except OSError:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._file, self._size)
                raise
        self._size += len(data)

    def end_line(self) -> None:
        """What comes next is another connection's: it does not go on with half a line."""
        if self._size and self.read(self.end - 1, 1) != b"\n":
            self.append(b"\n")

    def sync(self) -> None:
        """Make what was appended durable; raises OSError, and is to be called again then."""
        if self._file is None or (self._synced == self._size and not self._suspect):
            return
        if self._suspect:
            self._rewrite(self._base)
        size = self._size
        try:
            _sync(self._file)
        except OSError:
            self._suspect = True
            raise
        self._synced = size

    def read(self, offset: int, size: int) -> bytes:
        if self._file is None:
            return bytes(self._memory[offset - self._base : offset - self._base + size])
        return os.pread(self._file, min(size, self.end - offset), offset - self._base)

    def trim(self, offset: int) -> None:
        """Forget what lies before ``offset``, if that is worth the copying."""
        if self._file is None:
            del self._memory[: offset - self._base]
            self._size -= offset - self._base
            self._base = offset
        elif offset - self._base >= _TRIM_BYTES:
            self._rewrite(offset)

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
        self._file, self._memory = None, bytearray()

    def _rewrite(self, offset: int) -> None:
        """What lies from ``offset`` on in a new file, synced; until it is there, the old one."""
        assert self._directory is not None
        assert self._file is not None
        path = self._directory / f"journal-{offset}"
        hidden = path.with_suffix(".part")
        rest = self.read(offset, self.end - offset)
        disk.check(Operation.CREATE, hidden)
        descriptor = os.open(hidden, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            _write(descriptor, rest, 0)
            _sync(descriptor)
            disk.rename(hidden, path)
            disk.sync_directory(self._directory)
        except OSError:
            os.close(descriptor)
            raise
        os.close(self._file)
        old = self._directory / f"journal-{self._base}"
        self._file, self._base, self._size = descriptor, offset, len(rest)
        self._synced, self._suspect = self._size, False
        if old != path:
            # Without it, it would only be in the way.
            with contextlib.suppress(OSError):
                disk.remove(old)

    def _open(self, directory: Path, start: int, anew: bool) -> None:
        """The journal that has offset ``start``, or a new one."""
        bases = [int(each.name.split("-")[1]) for each in directory.glob("journal-*[0-9]")]
        older = [base for base in bases if base <= start]
        if anew:
            for base in bases:
                disk.remove(directory / f"journal-{base}")
            older = []
        self._base = max(older, default=start)
        path = directory / f"journal-{self._base}"
        disk.check(Operation.CREATE, path)
        self._file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        disk.sync_directory(directory)
        self._size = os.fstat(self._file).st_size
        self._suspect = bool(self._size)  # who knows whether the life before synced it
        if self.end < start:
            os.close(self._file)
            raise InputError(
                f"{path} ends at offset {self.end}, but {start} was read before: it was cut or "
                f"replaced. Put it back, or start over with a new directory"
            )


def _write(descriptor: int, data: bytes, place: int) -> None:
    disk.check_descriptor(Operation.WRITE, descriptor)
    written = 0
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], place + written)


def _sync(descriptor: int) -> None:
    disk.check_descriptor(Operation.SYNC, descriptor)
    os.fsync(descriptor)
