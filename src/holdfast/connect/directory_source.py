"""A directory into which files are put while the query runs.

Files are taken in the order of their names, each exactly once; the position remembers which
have been read. A file must be complete when its name appears: write it under a name that
starts with ``.`` or ``_`` or ends in ``.tmp`` or ``.part``, then rename it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import pyarrow as pa

from holdfast.connect.csv_source import read_csv
from holdfast.connect.jsonl_source import read_jsonl
from holdfast.connect.lines import BLOCK_BYTES
from holdfast.connect.parquet_source import read_parquet
from holdfast.connect.source import Chunk, Position, Reader, Reject, Source, TimeOptions
from holdfast.errors import InputError
from holdfast.times import Duration

FORMATS = {"csv": "csv", "jsonl": "jsonl", "json": "jsonl", "ndjson": "jsonl", "parquet": "parquet"}


@dataclass(frozen=True)
class DirectorySource(Source):
    """A directory that grows."""

    path: str
    pattern: str
    follow: bool
    block_bytes: int

    @property
    def live(self) -> bool:
        return self.follow

    def check(self) -> None:
        if not Path(self.path).is_dir():
            raise InputError(f"there is no directory {self.path!r}; make it first")

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return DirectoryReader(self, schema, position or {})

    def __str__(self) -> str:
        return f"directory {self.path}"


def read_directory(
    path: str | Path,
    *,
    pattern: str = "*",
    follow: bool = True,
    lateness: Duration | int | None = None,
    block_bytes: int = BLOCK_BYTES,
    **time: Unpack[TimeOptions],
) -> DirectorySource:
    """Rows of the CSV, JSON lines and Parquet files of a directory, in the order of their names.

    Files that come later are read when they come; with ``follow=False`` the source ends after
    the files that are there. The format is the file's extension.
    """
    return DirectorySource(lateness, str(path), pattern, follow, block_bytes, **time)


class DirectoryReader(Reader):
    """Reads one file after the other."""

    def __init__(self, source: DirectorySource, schema: pa.Schema, position: Position) -> None:
        self._source = source
        self._schema = schema
        source.check()
        self._directory = Path(source.path)
        self._done: list[str] = list(position.get("done", []))
        self._seen = set(self._done)
        self._current: str | None = position.get("file")
        self._reader: Reader | None = None
        if self._current is not None:
            self._reader = self._open(self._current, position.get("at"))

    def read(self) -> Chunk | None:
        while self._reader is not None or self._next_file():
            assert self._reader is not None
            chunk = self._reader.read()
            if self._reader.ended:
                self._finish_file()
            if chunk is not None:
                return chunk
        self.ended = not self._source.follow
        return None

    @property
    def position(self) -> Position:
        at = self._reader.position if self._reader is not None else None
        return {"done": list(self._done), "file": self._current, "at": at}

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    def _next_file(self) -> bool:
        """Open the next file, if there is one."""
        names = sorted(
            path.name
            for path in self._directory.glob(self._source.pattern)
            if path.name not in self._seen and _is_complete(path)
        )
        if not names:
            return False
        self._current = names[0]
        self._reader = self._open(self._current, None)
        return True

    def _finish_file(self) -> None:
        assert self._reader is not None
        assert self._current is not None
        self._reader.close()
        self._done.append(self._current)
        self._seen.add(self._current)
        self._reader, self._current = None, None

    def _open(self, name: str, position: Position | None) -> Reader:
        path = self._directory / name
        source: Source
        size = self._source.block_bytes
        match FORMATS.get(path.suffix.lower().removeprefix(".")):
            case "csv":
                source = read_csv(path, block_bytes=size)
            case "jsonl":
                source = read_jsonl(path, block_bytes=size)
            case _:
                source = read_parquet(path)
        try:
            return source.open(self._schema, position, None)
        except InputError as error:
            # One broken file must not stop the query: it counts as one bad row.
            return _BrokenFile(name, str(error))


class _BrokenFile(Reader):
    """Stands for a file that cannot be read at all."""

    def __init__(self, name: str, reason: str) -> None:
        self._reject = Reject(f"the file cannot be read: {reason}", name)

    def read(self) -> Chunk | None:
        self.ended = True
        return Chunk(pa.table({}), [self._reject])

    @property
    def position(self) -> Position:
        return {}


def _is_complete(path: Path) -> bool:
    if path.name.startswith((".", "_")):
        return False
    return path.suffix.lower().removeprefix(".") in FORMATS and path.is_file()
