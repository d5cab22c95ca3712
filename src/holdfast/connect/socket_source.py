"""A TCP connection that brings JSON lines.

A connection cannot be read again, so what comes in is first written to a journal in the
state directory and read from there: after a crash every line that was received is still
there, and the position is an offset in the journal. Without a state directory lines are kept
in memory only.

The source ends when the server closes the connection. A connection that breaks is no end: the
source connects again and goes on with what the server then sends; a line that was cut is a dead
letter. While the journal has no room, or nobody takes out of it what is there, nothing more is
received, and the server waits.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

import pyarrow as pa

from holdfast.connect.jsonl_source import JsonParser
from holdfast.connect.socket_journal import SocketJournal
from holdfast.connect.source import Chunk, Position, Reader, Reject, Source, TimeOptions
from holdfast.core.pauses import pause_after
from holdfast.errors import InputError
from holdfast.times import Duration

_RECEIVE_BYTES = 1 << 16
_CONNECT_SECONDS = 10
_BLOCK_BYTES = 4 << 20
# A longer line is a dead letter.
LONGEST_LINE_BYTES = 64 << 20
# So much may be received and not be read.
_MOST_UNREAD_BYTES = 256 << 20
_SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0


@dataclass(frozen=True)
class SocketSource(Source):
    """JSON lines from a TCP server."""

    host: str
    port: int

    def open(self, schema: pa.Schema, position: Position | None, scratch: Path | None) -> Reader:
        return SocketReader(self, schema, position, scratch)

    def __str__(self) -> str:
        return f"TCP socket {self.host}:{self.port}"


def read_socket(
    host: str, port: int, *, lateness: Duration | int | None = None, **time: Unpack[TimeOptions]
) -> SocketSource:
    """JSON lines from the server at ``host:port``; the source ends when the server closes."""
    return SocketSource(lateness, host, port, **time)


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
        # In the middle of a line that is too long.
        self._skipping = bool(position and position.get("skipping"))
        # What is wrong with the connection, and with the journal.
        self._problems: dict[str, str] = {}
        self._changed = threading.Condition()
        self._closed = False
        self._received_all = False
        self._connection: socket.socket | None = None
        if position is None:
            self._connection = self._connect()
        # Else what is in the journal counts, whether or not anybody listens there now.
        self._journal = SocketJournal(scratch, self._offset, anew=position is None)
        threading.Thread(target=self._receive, name="holdfast-socket", daemon=True).start()

    @property
    def problem(self) -> str | None:
        return "; ".join(self._problems.values()) or None

    def read(self) -> Chunk | None:
        with self._changed:
            try:
                self._journal.sync()
                self._problems.pop("journal", None)
            except OSError as error:
                self._problems["journal"] = f"the journal of {self._source}: {error}"
                return None
            if self._skipping:
                self._skip()
                return None
            block = self._next_lines()
            self._offset += len(block)
            is_giant = len(block) == LONGEST_LINE_BYTES and not block.endswith(b"\n")
            self._skipping = is_giant
            self.ended = self._received_all and self._offset == self._journal.end
            self._changed.notify_all()
        return _too_long(block) if is_giant else self._parser.parse(block)

    def _next_lines(self) -> bytes:
        """Whole lines, about a block of them; or the beginning of one that is too long."""
        size = min(_BLOCK_BYTES, LONGEST_LINE_BYTES)
        while True:
            block = self._journal.read(self._offset, size)
            cut = block.rfind(b"\n") + 1
            if cut:
                return block[:cut]
            if len(block) < size:  # that is all there is
                return block if self._received_all else b""
            if size == LONGEST_LINE_BYTES:
                return block
            size = min(2 * size, LONGEST_LINE_BYTES)

    def _skip(self) -> None:
        """Pass over more of a line that is too long."""
        block = self._journal.read(self._offset, _BLOCK_BYTES)
        cut = block.find(b"\n") + 1
        self._offset += cut or len(block)
        self._skipping = not cut
        self.ended = self._received_all and self._offset == self._journal.end

    @property
    def position(self) -> Position:
        return {"offset": self._offset, "skipping": self._skipping}

    def checkpointed(self, position: Position) -> None:
        with self._changed:
            if not self._closed:
                try:
                    self._journal.trim(position["offset"])
                except OSError as error:  # it is as it was, only longer than need be
                    self._problems["journal"] = f"the journal of {self._source}: {error}"

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            connection = self._connection
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()
        with self._changed:
            self._journal.close()

    # -- the thread that receives -------------------------------------------------------

    def _connect(self) -> socket.socket:
        address = (self._source.host, self._source.port)
        try:
            connection = socket.create_connection(address, timeout=_CONNECT_SECONDS)
        except OSError as error:
            raise InputError(
                f"cannot connect to {address[0]}:{address[1]} ({error.strerror or error}); "
                f"start the program that sends the tuples first"
            ) from None
        connection.settimeout(None)
        # A server that is gone without a word is noticed within minutes.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return connection

    def _receive(self) -> None:
        failures = 0
        data = b""
        while not self._closed:
            try:
                if self._connection is None:
                    self._connect_again()
                assert self._connection is not None
                data = data or self._connection.recv(_RECEIVE_BYTES)
                if not data:
                    break
                self._take(data)
                data, failures = b"", 0
                self._problems.pop("connection", None)
            except Exception as error:
                if not data and self._connection is not None:
                    self._connection.close()
                    self._connection = None
                failures += 1
                pause = pause_after(failures, _SHORTEST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
                if self._pause(str(error), pause):
                    return
        with self._changed:
            self._received_all = True

    def _connect_again(self) -> None:
        connection = self._connect()
        with self._changed:
            if self._closed:
                connection.close()
                return
            self._connection = connection
            self._journal.end_line()

    def _take(self, data: bytes) -> None:
        """Into the journal, as soon as there is room."""
        with self._changed:
            while self._journal.end - self._offset > _MOST_UNREAD_BYTES and not self._closed:
                self._changed.wait(1.0)
            if not self._closed:
                self._journal.append(data)

    def _pause(self, problem: str, seconds: float) -> bool:
        """Wait before the next try; whether the reader was closed meanwhile."""
        with self._changed:
            self._problems["connection"] = f"{self._source}: {problem}"
            return self._changed.wait_for(lambda: self._closed, seconds)


def _too_long(beginning: bytes) -> Chunk:
    shown = beginning[:200].decode("utf-8", "replace")
    reason = f"the line has more than {LONGEST_LINE_BYTES:,} bytes; it begins as shown"
    return Chunk(pa.table({}), [Reject(reason, shown)])
