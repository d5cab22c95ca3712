"""The part files of a Parquet output in a directory.

A part is there as a whole or not at all: it is written under a hidden name and renamed.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from holdfast import disk
from holdfast.errors import InputError


class Parts:
    """A directory of part files."""

    def __init__(self, directory: Path) -> None:
        if directory.exists() and not directory.is_dir():
            raise InputError(f"{str(directory)!r} is a file; a Parquet output is a directory")
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory

    def names(self) -> list[str]:
        """The names of what is there."""
        return sorted(path.name for path in self._directory.iterdir())

    def remove(self, name: str) -> None:
        """Remove one."""
        disk.remove(self._directory / name)

    def put(self, name: str, table: pa.Table) -> None:
        """Write one, durably, in place of one that may be there."""
        path = self._directory / name
        hidden = path.with_name(f".{name}.part")
        with disk.open_file(hidden, "wb", private=False) as file:
            pq.write_table(table, file)
            disk.sync(file)
        disk.rename(hidden, path)
        disk.sync_directory(self._directory)
