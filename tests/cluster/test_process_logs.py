"""Logs that are put aside while several processes write to them: no line is lost or doubled."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cluster import process_logs
from holdfast.cluster.children import last_lines, lines_after
from holdfast.cluster.process_logs import rotate

# Writes numbered lines as fast as it can, each at the end of the file.
WRITER = """
import os, sys
log = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND)
for number in range(int(sys.argv[3])):
    os.write(log, f"{sys.argv[2]} {number}\\n".encode())
"""
LINES = 20_000


@pytest.fixture(params=["collapsed", "hole"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A log, on a file system that can take blocks out of a file or on one that cannot."""
    allocate = process_logs._allocate

    def cannot_collapse(descriptor: int, mode: int, length: int) -> None:
        if mode & process_logs._COLLAPSE_RANGE:
            raise OSError(errno.EOPNOTSUPP, "not here")
        allocate(descriptor, mode, length)

    if request.param == "hole":
        monkeypatch.setattr(process_logs, "_allocate", cannot_collapse)
    return tmp_path / "main-1.log"


def test_no_line_is_lost_while_others_write(path: Path) -> None:
    path.touch()
    aside, found = path.with_name(f"{path.name}.1"), bytearray()
    command = [sys.executable, "-c", WRITER, str(path)]
    writers = [subprocess.Popen([*command, name, str(LINES)]) for name in ("a", "b", "c")]
    times = 0
    while any(writer.poll() is None for writer in writers):
        if rotate(path, 8_000):
            found += aside.read_bytes()
            times += 1
    assert [writer.wait() for writer in writers] == [0, 0, 0]
    found += process_logs.log_data(path)[1]
    expected = [f"{name} {number}" for name in ("a", "b", "c") for number in range(LINES)]
    assert sorted(found.decode().splitlines()) == sorted(expected)
    assert times > 1


def test_a_log_that_is_too_long_is_put_aside_and_goes_on(path: Path) -> None:
    with path.open("ab") as log:
        log.write(b"old\n" * 5_000)
        log.flush()
        assert not rotate(path, 20_000)
        _, offset = lines_after(path, 0)
        assert rotate(path, 19_999)
        log.write(b"new\n")
    aside = path.with_name(f"{path.name}.1").read_bytes()
    start, rest = process_logs.log_data(path)
    assert aside + rest == b"old\n" * 5_000 + b"new\n"
    # Not even a block is left of what was put aside.
    assert len(rest) < 5_000
    assert path.stat().st_blocks * 512 <= 8_192
    assert last_lines(path, 1) == (["new\n"], start + len(rest))
    # Whoever follows the log has the new line.
    assert lines_after(path, offset)[0][-1] == "new\n"
    assert not rotate(path, 19_999)


def test_a_log_that_is_not_there_is_not_put_aside(path: Path) -> None:
    assert not rotate(path)
    assert last_lines(path, 5) == ([], 0)
