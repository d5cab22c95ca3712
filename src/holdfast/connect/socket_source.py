"""A TCP connection that brings JSON lines.

A connection cannot be read again, so what comes in is first written to a journal in the
state directory and read from there: after a crash every line that was received is still
there, and the position is an offset in the journal. Without a state directory lines are kept
in memory only.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa

from holdfast.connect.jsonl_source import JsonParser
from holdfast.connect.source import Chunk, Position, Reader, Source
from holdfast.errors import InputError
from holdfast.times import Duration

_RECEIVE_BYTES = 1 << 16
_CONNECT_SECONDS = 10
_BLOCK_BYTES = 4 << 20
_TRIM_BYTES = 16 << 20


@dataclass(frozen=True)
class SocketSource(Source):
    """JSON lines from a TCP server."""

    host: str
    port: int

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return SocketReader(self, schema, position, scratch)

    def __str__(self) -> str:
        return f"TCP socket {self.host}:{self.port}"


def read_socket(host: str, port: int, *, lateness: Duration | int | None = None) -> SocketSource:
    """JSON lines from the server at ``host:port``; the source ends when the server closes."""
    return SocketSource(lateness, host, port)


class SocketReader(Reader):
    """A thread receives into the journal; ``read`` takes whole lines out of it."""

    def __init__(
        self,
        source: SocketSource,
        schema: pa.Schema,
        position: Position | None,
        scratch: Path | None,
    ) -> None:
        self._source = source
        self._parser = JsonParser(schema)
        self._offset = position["offset"] if position else 0
        self._lock = threading.Lock()
        self._closed = False
        self._received_all = False
        address = (source.host, source.port)
        try:
            self._connection = socket.create_connection(address, timeout=_CONNECT_SECONDS)
        except OSError as error:
            raise InputError(
                f"cannot connect to {source.host}:{source.port} ({error.strerror or error}); "
                f"start the program that sends the tuples first"
            ) from None
        self._connection.settimeout(None)
        self._journal = Journal(scratch, self._offset, anew=position is None)
        threading.Thread(target=self._receive, name="holdfast-socket", daemon=True).start()

    def read(self) -> Chunk | None:
        with self._lock:
            done = self._received_all
            block = self._journal.read(self._offset, _BLOCK_BYTES)
        if not (done and len(block) < _BLOCK_BYTES):
            block = block[: block.rfind(b"\n") + 1]
        elif not block:
            self.ended = True
        self._offset += len(block)
        return self._parser.parse(block) if block else None

    @property
    def position(self) -> Position:
        return {"offset": self._offset}

    def checkpointed(self, position: Position) -> None:
        with self._lock:
            self._journal.trim(position["offset"])

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
        with self._lock:
            self._journal.close()

    def _receive(self) -> None:
        while not self._closed:
            try:
                data = self._connection.recv(_RECEIVE_BYTES)
            except OSError:
                data = b""
            with self._lock:
                if not data or self._closed:
                    self._received_all = True
                    return
                self._journal.append(data)


class Journal:
    """The bytes received, from offset ``start`` on, in a file or in memory."""

    def __init__(self, directory: Path | None, start: int, anew: bool) -> None:
        self._directory = directory
        self._memory = bytearray()
        self._file: BinaryIO | None = None
        self._base = start
        if directory is not None:
            directory.mkdir(parents=True, exist_ok=True)
            self._open(start, anew)

    def append(self, data: bytes) -> None:
        if self._file is None:
            self._memory += data
            return
        self._file.seek(0, 2)
        self._file.write(data)
        self._file.flush()

    def read(self, offset: int, size: int) -> bytes:
        if self._file is None:
            return bytes(self._memory[offset - self._base : offset - self._base + size])
        self._file.seek(offset - self._base)
        return self._file.read(size)

    def trim(self, offset: int) -> None:
        """Forget what lies before ``offset``, if that is worth the copying."""
        if self._file is None:
            del self._memory[: offset - self._base]
            self._base = offset
            return
        if offset - self._base < _TRIM_BYTES:
            return
        assert self._directory is not None
        self._file.seek(offset - self._base)
        rest, old = self._file.read(), self._file.name
        path = self._directory / f"journal-{offset}"
        path.with_suffix(".part").write_bytes(rest)
        path.with_suffix(".part").replace(path)
        self._file.close()
        self._file, self._base = path.open("r+b"), offset
        Path(old).unlink()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file, self._memory = None, bytearray()

    def _open(self, start: int, anew: bool) -> None:
        """The journal that has offset ``start``, or a new one."""
        assert self._directory is not None
        bases = [int(each.name.split("-")[1]) for each in self._directory.glob("journal-*[0-9]")]
        older = [base for base in bases if base <= start]
        if anew:
            for base in bases:
                (self._directory / f"journal-{base}").unlink()
            older = []
        self._base = max(older, default=start)
        path = self._directory / f"journal-{self._base}"
        path.touch()
        self._file = path.open("r+b")
