"""A socket that is reset, a disk that is full, a line without end: nothing is lost or stuck."""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time
from pathlib import Path

import pytest

from holdfast.connect import socket_journal, socket_source
from holdfast.connect.socket_source import read_socket
from holdfast.connect.source import Chunk, Reader
from holdfast.errors import InputError
from tests.connect.support import COLUMNS, read_all, values

FULL = OSError(errno.ENOSPC, "No space left on device")


def lines(*servers: str) -> bytes:
    return "".join(
        f'{{"at": "2024-01-01", "server": "{name}", "cpu": 1}}\n' for name in servers
    ).encode()


class Server:
    """Sends to one connection after the other; ``reset`` ends those of these numbers."""

    def __init__(self, *sends: bytes, reset: tuple[int, ...] = ()) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.go_on = threading.Event()
        self._sends = sends
        self._reset = reset
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with self._listener:
            for number, data in enumerate(self._sends):
                connection, _ = self._listener.accept()
                with connection:
                    connection.sendall(data)
                    if number in self._reset:
                        # What was sent must have been received: a reset throws away the rest.
                        self.go_on.wait(20.0)
                        linger = struct.pack("ii", 1, 0)
                        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket_source, "_BLOCK_BYTES", 256)
    monkeypatch.setattr(socket_source, "LONGEST_LINE_BYTES", 4_096)


def read_so_many(reader: Reader, rows: int) -> list[Chunk]:
    chunks: list[Chunk] = []
    deadline = time.monotonic() + 20.0
    while sum(chunk.table.num_rows for chunk in chunks) < rows:
        chunk = reader.read()
        if chunk is not None:
            chunks.append(chunk)
        else:
            time.sleep(0.001)
        assert time.monotonic() < deadline
    return chunks


def reasons(chunks: list[Chunk]) -> list[str]:
    return [reject.reason for chunk in chunks for reject in chunk.rejects]


@pytest.mark.parametrize("kept", [True, False])
def test_a_line_that_is_longer_than_a_block_is_read(tmp_path: Path, kept: bool) -> None:
    long = "x" * 3_000
    server = Server(lines("a", long, "b"))
    reader = read_socket("127.0.0.1", server.port).open(COLUMNS, None, tmp_path if kept else None)
    assert values(read_all(reader), "server") == ["a", long, "b"]


@pytest.mark.parametrize("ending", [lines("b"), b"", b"\n"])
def test_a_line_without_end_is_a_dead_letter_and_the_rest_goes_on(ending: bytes) -> None:
    giant = b'{"at": "' + b"x" * 20_000
    server = Server(lines("a") + giant + (b"\n" + ending if ending else b""))
    chunks = read_all(read_socket("127.0.0.1", server.port).open(COLUMNS, None, None))
    assert values(chunks, "server") == (["a", "b"] if ending == lines("b") else ["a"])
    assert reasons(chunks) == ["the line has more than 4,096 bytes; it begins as shown"]


def test_a_giant_line_is_passed_over_after_a_restart_too(tmp_path: Path) -> None:
    server = Server(b"x" * 20_000 + b"\n" + lines("b"), b"")
    source = read_socket("127.0.0.1", server.port)
    reader = source.open(COLUMNS, None, tmp_path)
    while (chunk := reader.read()) is None:
        time.sleep(0.001)
    position = reader.position
    reader.close()
    rest = read_all(source.open(COLUMNS, position, tmp_path))
    assert len(reasons([chunk])) == 1
    assert reasons(rest) == []
    assert values(rest, "server")[-1:] in ([], ["b"])


@pytest.mark.parametrize("kept", [True, False])
def test_a_reset_is_no_end(tmp_path: Path, kept: bool) -> None:
    server = Server(lines("a", "b") + b'{"at": "20', lines("c"), reset=(0,))
    reader = read_socket("127.0.0.1", server.port).open(COLUMNS, None, tmp_path if kept else None)
    chunks = read_so_many(reader, 2)
    server.go_on.set()
    chunks += read_all(reader, 20.0)
    assert values(chunks, "server") == ["a", "b", "c"]
    (cut,) = reasons(chunks)
    assert cut.startswith("not JSON as declared")


def test_what_a_crash_cut_is_not_mixed_with_what_comes_next(tmp_path: Path) -> None:
    server = Server(lines("a") + b'{"at": "20', lines("b"), reset=(0,))
    source = read_socket("127.0.0.1", server.port)
    reader = source.open(COLUMNS, None, tmp_path)
    first = read_so_many(reader, 1)
    position = reader.position
    reader.close()
    server.go_on.set()
    rest = read_all(source.open(COLUMNS, position, tmp_path), 20.0)
    assert values(first + rest, "server") == ["a", "b"]


def test_a_full_disk_makes_the_sender_wait_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works, failures = os.pwrite, list[int]()

    def full(descriptor: int, data: memoryview, offset: int) -> int:
        if len(failures) < 3:
            failures.append(offset)
            works(descriptor, data[: len(data) // 2], offset)  # as much as there is room for
            raise FULL
        return works(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", full)
    names = [f"s{number}" for number in range(50)]
    server = Server(lines(*names))
    reader = read_socket("127.0.0.1", server.port).open(COLUMNS, None, tmp_path)
    assert values(read_all(reader, 20.0), "server") == names
    assert len(failures) == 3


def test_only_what_is_synced_is_given_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    works, fails = os.fsync, True

    def fsync(descriptor: int) -> None:
        if fails:
            raise OSError(errno.EIO, "Input/output error")
        works(descriptor)

    server = Server(lines("a", "b"))
    reader = read_socket("127.0.0.1", server.port).open(COLUMNS, None, tmp_path)
    monkeypatch.setattr(os, "fsync", fsync)
    deadline = time.monotonic() + 20.0
    while reader.problem is None:
        assert reader.read() is None
        assert time.monotonic() < deadline
    assert "Input/output error" in reader.problem
    assert reader.read() is None
    fails = False
    assert values(read_all(reader, 20.0), "server") == ["a", "b"]
    assert reader.problem is None


def test_a_journal_that_was_cut_is_refused(tmp_path: Path) -> None:
    server = Server(lines("a", "b"), lines("c"))
    source = read_socket("127.0.0.1", server.port)
    reader = source.open(COLUMNS, None, tmp_path)
    read_all(reader)
    os.truncate(tmp_path / "journal-0", 10)
    with pytest.raises(InputError, match=r"journal-0 ends at offset 10, but .* was read before"):
        source.open(COLUMNS, reader.position, tmp_path)


def test_what_is_in_the_journal_counts_though_nobody_listens(tmp_path: Path) -> None:
    server = Server(lines("a", "b"))
    source = read_socket("127.0.0.1", server.port)
    read_all(source.open(COLUMNS, None, tmp_path))
    reader = source.open(COLUMNS, {"offset": 0}, tmp_path)
    assert values(read_so_many(reader, 2), "server") == ["a", "b"]
    deadline = time.monotonic() + 20.0
    while reader.problem is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    assert "cannot connect" in reader.problem
    reader.close()


def test_a_journal_is_shortened_without_losing_a_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_journal, "_TRIM_BYTES", 300)
    names = [f"s{number}" for number in range(200)]
    server = Server(lines(*names))
    reader = read_socket("127.0.0.1", server.port).open(COLUMNS, None, tmp_path)
    chunks: list[Chunk] = []
    for rows in range(20, 201, 20):
        chunks += read_so_many(reader, rows - sum(each.table.num_rows for each in chunks))
        reader.checkpointed(reader.position)
    assert values(chunks, "server") == names
    (journal,) = tmp_path.iterdir()
    assert journal.stat().st_size < 600
    reader.close()
