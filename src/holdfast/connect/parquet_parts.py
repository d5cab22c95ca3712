"""Where the part files of a Parquet output are: a directory, or an object store that Arrow knows.

A part is there as a whole or not at all. In a directory it is written under a hidden name and
renamed; an object store shows an object once all of it has come.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.fs as fs
import pyarrow.parquet as pq

from holdfast import disk
from holdfast.errors import InputError


class Parts(Protocol):
    """A place for part files."""

    def names(self) -> list[str]:
        """The names of what is there."""

    def remove(self, name: str) -> None:
        """Remove one."""

    def put(self, name: str, table: pa.Table) -> None:
        """Write one, durably, in place of one that may be there."""


def parts_of(path: str) -> Parts:
    """The place that a path or an address such as ``s3://bucket/busy`` names."""
    return StoredParts(path) if "://" in path else LocalParts(Path(path))


class LocalParts:
    """A directory."""

    def __init__(self, directory: Path) -> None:
        if directory.exists() and not directory.is_dir():
            raise InputError(f"{str(directory)!r} is a file; a Parquet output is a directory")
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory

    def names(self) -> list[str]:
        return sorted(path.name for path in self._directory.iterdir())

    def remove(self, name: str) -> None:
        disk.remove(self._directory / name)

    def put(self, name: str, table: pa.Table) -> None:
        path = self._directory / name
        hidden = path.with_name(f".{name}.part")
        with disk.open_file(hidden, "wb", private=False) as file:
            pq.write_table(table, file)
            disk.sync(file)
        disk.rename(hidden, path)
        disk.sync_directory(self._directory)


class StoredParts:
    """Below an address of an object store: S3, Google Cloud Storage, Azure."""

    def __init__(self, address: str) -> None:
        self._system, self._path = file_system_of(address)

    def names(self) -> list[str]:
        found = self._system.get_file_info(fs.FileSelector(self._path, allow_not_found=True))
        return sorted(each.base_name for each in found)

    def remove(self, name: str) -> None:
        self._system.delete_file(f"{self._path}/{name}")

    def put(self, name: str, table: pa.Table) -> None:
        # Whole before the first byte goes out: what breaks off in between shows nothing.
        written = pa.BufferOutputStream()
        pq.write_table(table, written)
        with self._system.open_output_stream(f"{self._path}/{name}") as stream:
            stream.write(written.getvalue())


def file_system_of(address: str) -> tuple[Any, str]:
    """Arrow's file system for an address, and the path in it."""
    try:
        found, path = fs.FileSystem.from_uri(address)
    except (pa.ArrowInvalid, ValueError) as error:
        raise InputError(
            f"{address!r} is no address of an object store that Arrow knows: {error}"
        ) from None
    return found, path.rstrip("/")
