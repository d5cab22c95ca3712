"""Files that are either there as a whole or not at all, also after a power cut."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa


def write_whole(path: Path, data: bytes) -> None:
    """Replace ``path`` by ``data``: hidden file, sync, rename, sync of the directory."""
    hidden = path.with_name(f".{path.name}.part")
    with hidden.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    hidden.replace(path)
    sync_directory(path.parent)


def write_table(path: Path, table: pa.Table) -> None:
    """Write and sync an Arrow file; its directory is not synced."""
    with path.open("wb") as file:
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
