"""Every write that a process relies on goes through here, so that every one can be made to fail.

Disks fill up, break and turn read-only, and come back. What a node then does is tried out by
planting a fault: operations on files whose path matches fail with an error, as the system's own
calls would, until the fault is taken away. Nothing is planted unless somebody asks for it.
"""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, BinaryIO, cast


class Operation(Enum):
    CREATE = "create"
    WRITE = "write"
    SYNC = "sync"
    TRUNCATE = "truncate"
    RENAME = "rename"
    REMOVE = "remove"


EVERYTHING = frozenset(Operation)
# What needs room on the disk.
GROWING = frozenset({Operation.CREATE, Operation.WRITE, Operation.SYNC})


@dataclass(frozen=True)
class Fault:
    """What fails, and how.

    error       an errno: ENOSPC, EIO, EROFS.
    paths       a pattern of paths, as a shell has them.
    """

    error: int
    paths: str = "*"
    operations: frozenset[Operation] = EVERYTHING

    @classmethod
    def named(cls, error: str, paths: str = "*") -> Fault:
        """By the name of the error; a full disk lets things be removed."""
        number = getattr(errno, error, None)
        if not isinstance(number, int):
            raise ValueError(f"{error!r} is no error of a disk; ENOSPC, EIO and EROFS are")
        return cls(number, paths, GROWING if number == errno.ENOSPC else EVERYTHING)


_faults: tuple[Fault, ...] = ()


def plant(*faults: Fault) -> None:
    """These faults from now on, and no others; none heals the disk."""
    global _faults
    _faults = faults


@contextmanager
def failing(*faults: Fault) -> Iterator[None]:
    plant(*faults)
    try:
        yield
    finally:
        plant()


def check(operation: Operation, path: str | os.PathLike[str]) -> None:
    """Raise what has been planted for an operation on a path."""
    for fault in _faults:
        if operation in fault.operations and fnmatch(os.fspath(path), fault.paths):
            raise OSError(fault.error, os.strerror(fault.error), os.fspath(path))


def check_descriptor(operation: Operation, descriptor: int) -> None:
    """The same for a file that is open."""
    if _faults:
        check(operation, Path(f"/proc/self/fd/{descriptor}").readlink())


class _File(io.FileIO):
    """A file whose writes may be made to fail."""

    def write(self, data: Any) -> int:
        check(Operation.WRITE, str(self.name))
        return super().write(data)


def open_file(path: Path, mode: str, *, private: bool = True) -> BinaryIO:
    """A file for writing, "wb" or "ab", that only this user may read unless told otherwise."""

    def opener(name: str, flags: int) -> int:
        check(Operation.CREATE, name)
        descriptor = os.open(name, flags | os.O_CLOEXEC, 0o600 if private else 0o666)
        if private:
            os.fchmod(descriptor, 0o600)
        return descriptor

    raw = _File(str(path), mode.replace("b", ""), opener=opener)
    return cast(BinaryIO, io.BufferedWriter(raw))


def sync(file: BinaryIO) -> None:
    """Write what is buffered and wait until it is durable."""
    file.flush()
    check(Operation.SYNC, str(file.name))
    os.fsync(file.fileno())


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    check(Operation.SYNC, directory)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def truncate(file: BinaryIO, size: int) -> None:
    """Cut a file that is open."""
    check(Operation.TRUNCATE, str(file.name))
    file.truncate(size)


def remove(path: Path) -> None:
    check(Operation.REMOVE, path)
    path.unlink()


def rename(source: str | Path, target: str | Path) -> None:
    check(Operation.RENAME, target)
    Path(source).replace(target)
