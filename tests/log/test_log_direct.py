"""Large writes past the system's cache: the same bytes, whatever the disk can do."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast import disk
from holdfast.log import DiskFull, LogOptions, StreamLog
from holdfast.log import files as files_module
from holdfast.log.direct import PAGE, BlockPart, whole_pages
from holdfast.log.files import Files
from tests.log.helpers import SCHEMA, drain, kill, stable, values

DIRECT = LogOptions(segment_bytes=1 << 20, preallocate_bytes=PAGE, direct_bytes=64 << 10)
LARGE, SMALL = 20_000, 10


def random_parts(rng: random.Random, size: int) -> list[BlockPart]:
    """Bytes in parts of all sizes, some of them buffers."""
    parts: list[BlockPart] = []
    while size:
        piece = rng.randbytes(min(size, rng.choice([1, 64, PAGE, 5_000, 300_000, 3 << 20])))
        parts.append(piece if rng.random() < 0.5 else pa.py_buffer(piece))
        size -= len(piece)
    return parts


@pytest.mark.parametrize("seed", range(12))
def test_the_file_has_the_bytes_that_were_written(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    files, path = Files(), tmp_path / "file"
    fd, expected, offset = files.create(path), b"", 0
    for _ in range(5):
        parts = random_parts(rng, rng.choice([0, 1, PAGE - 1, PAGE, 3 * PAGE, 100_001, 5 << 20]))
        files.write_past_cache(fd, parts, offset)
        expected += b"".join(bytes(memoryview(part)) for part in parts)
        offset = len(expected)
        assert path.read_bytes() == expected
    os.close(fd)


@pytest.mark.parametrize("offset", [0, 1, PAGE - 1, PAGE, PAGE + 64])
@pytest.mark.parametrize("size", [0, 1, PAGE - 1, PAGE, 2 * PAGE, 10 * PAGE + 7])
def test_whole_pages_lie_within(offset: int, size: int) -> None:
    begin, end = whole_pages(offset, size)
    assert 0 <= begin <= end <= size
    if begin < end:
        assert (offset + begin) % PAGE == (offset + end) % PAGE == 0
    assert size - (end - begin) < 2 * PAGE


@pytest.mark.parametrize("taken", [0, PAGE, 3 * PAGE])
def test_what_the_disk_does_not_take_that_way_is_written_as_usual(
    tmp_path: Path, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def some(fd: int, parts: Sequence[BlockPart], offset: int) -> int:
        data = b"".join(bytes(memoryview(part)) for part in parts)
        return os.pwrite(fd, data[:taken], offset)

    monkeypatch.setattr(files_module, "write_pages", some)
    files, data = Files(), random.Random(1).randbytes(10 * PAGE)
    fd = files.create(tmp_path / "file")
    files.write_past_cache(fd, [data[:100], data[100:]], 70)
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == bytes(70) + data


def failing_from(second: int, error: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes past the cache fail from the ``second`` on."""
    calls = 0
    write = os.pwrite

    def fails(fd: int, data: bytes, offset: int) -> int:
        nonlocal calls
        calls += 1
        if calls >= second:
            raise OSError(error, os.strerror(error))
        return write(fd, data, offset)

    monkeypatch.setattr("holdfast.log.direct.os.pwrite", fails)


@pytest.mark.parametrize("second", [1, 2])
def test_a_disk_that_cannot_do_it_is_written_as_usual(
    tmp_path: Path, second: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, data = Files(), random.Random(2).randbytes(5 << 20)
    fd = files.create(tmp_path / "file")
    failing_from(second, errno.EINVAL, monkeypatch)
    files.write_past_cache(fd, [data], 0)
    os.close(fd)
    assert (tmp_path / "file").read_bytes() == data


def test_a_disk_that_fails_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files()
    fd = files.create(tmp_path / "file")
    failing_from(2, errno.EIO, monkeypatch)
    with pytest.raises(OSError, match="Input/output error"):
        files.write_past_cache(fd, [bytes(5 << 20)], 0)
    os.close(fd)


def test_large_and_small_frames_in_one_log(tmp_path: Path) -> None:
    """Also after a kill, of which nothing is left to tidy up but reserved room."""
    log = StreamLog.open(tmp_path, SCHEMA, options=DIRECT)
    next_id = 0
    for count in (SMALL, LARGE, SMALL, SMALL, LARGE, LARGE, SMALL):
        log.append(stable(next_id, count))
        next_id += count
    whole = values(drain(log.replay(from_id=0)))
    assert [number for _, number, _ in whole] == list(range(next_id))
    log.sync()
    kill(log)
    with StreamLog.open(tmp_path, options=DIRECT) as again:
        assert again.next_id == next_id
        assert values(drain(again.replay(from_id=0))) == whole
        again.append(stable(next_id, LARGE))
        assert again.next_id == next_id + LARGE


def test_the_same_files_either_way(tmp_path: Path) -> None:
    found = []
    for name, options in (("past", DIRECT), ("through", replace(DIRECT, direct_bytes=0))):
        with StreamLog.open(tmp_path / name, SCHEMA, options=options) as log:
            for at in range(3):
                log.append([stable(at * (LARGE + SMALL), LARGE)])
                log.append([stable(at * (LARGE + SMALL) + LARGE, SMALL)])
        segments = sorted((tmp_path / name).glob("*.seg"))
        # A segment begins with a header that names its log, which no other one has.
        found.append([each.read_bytes()[4096:] for each in segments])
    assert found[0] == found[1]


def test_a_full_disk_keeps_nothing_of_an_append(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA, options=DIRECT) as log:
        log.append(stable(0, SMALL))
        with disk.failing(disk.Fault.named("ENOSPC", f"{tmp_path}/*.seg")), pytest.raises(DiskFull):
            log.append(stable(SMALL, LARGE))
        log.append(stable(SMALL, LARGE))
        assert log.next_id == SMALL + LARGE
        assert len(values(drain(log.replay(from_id=0)))) == SMALL + LARGE
