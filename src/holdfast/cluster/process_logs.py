"""Process logs have a bound: one that has grown too long is put aside, once.

A process, its JVM and their workers all write to the same open file, each at its end, and none of
them may lose a line. So the file itself stays. What it holds is copied to ``NAME.log.1``, in place
of what was there, and the kernel is asked to take just that out of the file: the blocks at its
beginning are collapsed, or, where the file system cannot do that, become a hole. What is written
meanwhile is behind them and stays.
"""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

from holdfast import disk

LONGEST_BYTES = 32 << 20
_COPY_BYTES = 1 << 20
# Of fallocate(2).
_KEEP_SIZE, _PUNCH_HOLE, _COLLAPSE_RANGE = 0x01, 0x02, 0x08


def rotate(path: Path, longest_bytes: int = LONGEST_BYTES) -> bool:
    """Put a log aside if it is too long; whether it was. Raises OSError if there is no room."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        start, end = _data_start(descriptor), os.fstat(descriptor).st_size
        # Whole blocks, and not all of the file: neither could be collapsed.
        block = os.fstatvfs(descriptor).f_bsize
        end = (end - 1) // block * block
        if os.fstat(descriptor).st_size - start <= longest_bytes or end <= start:
            return False
        hidden = path.with_name(f".{path.name}.part")
        with disk.open_file(hidden, "wb") as copy:
            for place in range(start, end, _COPY_BYTES):
                copy.write(os.pread(descriptor, min(_COPY_BYTES, end - place), place))
        disk.rename(hidden, path.with_name(f"{path.name}.1"))
        take_out(descriptor, end)
    finally:
        os.close(descriptor)
    return True


def take_out(descriptor: int, end: int) -> None:
    """Take what lies before ``end`` out of a file that others write to."""
    try:
        _allocate(descriptor, _COLLAPSE_RANGE, end)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
            raise
        _allocate(descriptor, _PUNCH_HOLE | _KEEP_SIZE, end)


def log_data(path: Path) -> tuple[int, bytes]:
    """Where the hole at the beginning of a log ends, and what comes after it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0, b""
    with os.fdopen(descriptor, "rb") as file:
        start = _data_start(descriptor)
        file.seek(start)
        return start, file.read()


def _data_start(descriptor: int) -> int:
    """Where a file begins to hold something."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError as error:
        if error.errno == errno.ENXIO:  # nothing but a hole
            return os.fstat(descriptor).st_size
        return 0


def _allocate(descriptor: int, mode: int, length: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    offset = ctypes.c_int64
    if libc.fallocate(descriptor, mode, offset(0), offset(length)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
