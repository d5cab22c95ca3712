"""Files that are either there as a whole or not at all, also after a power cut; and private.

What Holdfast keeps are its user's tuples and secrets: directories are 0700, files 0600, whatever
the umask says.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa


def make_private(directory: Path) -> None:
    """Make a directory that only this user may enter, with those above it that are missing.

    One that is there already and lets others in, from an earlier version say, is closed to them.
    """
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)
    found = directory.stat()
    if found.st_mode & 0o077 and found.st_uid == os.geteuid():
        directory.chmod(0o700)


def open_private(path: Path, mode: str) -> BinaryIO:
    """A file for writing, "wb" or "ab", that only this user may read."""

    def opener(name: str, flags: int) -> int:
        descriptor = os.open(name, flags, 0o600)
        os.fchmod(descriptor, 0o600)
        return descriptor

    return cast(BinaryIO, open(path, mode, opener=opener))


def write_whole(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: hidden file, sync, rename, sync of the directory."""
    hidden = path.with_name(f".{path.name}.part")
    with open_private(hidden, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)
    sync_directory(path.parent)


def write_table(path: Path, table: pa.Table) -> None:
    """Write and sync an Arrow file; its directory is not synced."""
    with open_private(path, "wb") as file:
        with pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        os.fsync(file.fileno())


def read_table(path: Path) -> pa.Table:
    """Read an Arrow file into memory."""
    with pa.OSFile(str(path), "rb") as source:
        return pa.ipc.open_file(source).read_all()


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
