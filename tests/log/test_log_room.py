"""Trimming, full disks and disks that fail."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.frame import Kind
from holdfast.log import (
    DiskFull,
    Durability,
    LogBroken,
    LogOptions,
    OutOfOrder,
    StreamLog,
    Trimmed,
    WriteFailed,
    inspect,
)
from holdfast.log.direct import BlockPart
from holdfast.log.files import Files
from tests.log.helpers import SCHEMA, SMALL, Model, drain, seen, segment_count, stable, values


class FailingFiles(Files):
    """A disk with so much room left, and syncs that can be made to fail."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.write_error = errno.ENOSPC
        self.sync_error = 0
        self.truncate_error = 0

    def write(self, fd: int, parts: Sequence[BlockPart], offset: int) -> None:
        size = sum(len(part) for part in parts)
        if self.room is not None and size > self.room:
            whole = b"".join(bytes(memoryview(part)) for part in parts)
            os.pwrite(fd, whole[: self.room], offset)
            raise OSError(self.write_error, os.strerror(self.write_error))
        super().write(fd, parts, offset)
        self.room = None if self.room is None else self.room - size

    def allocate(self, fd: int, offset: int, size: int) -> None:
        if self.room is not None and size > self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        super().allocate(fd, offset, size)

    def truncate(self, fd: int, size: int) -> None:
        if self.truncate_error:
            raise OSError(self.truncate_error, os.strerror(self.truncate_error))
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        super().sync(fd)


def fill(log: StreamLog, model: Model, rounds: int) -> None:
    for _ in range(rounds):
        log.append(model.stable(10) + model.boundary_mark(model.next_id))


def test_trim_removes_whole_segments_below_an_id(tmp_path: Path) -> None:
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        fill(log, model, 20)
        before = log.size_bytes
        assert log.trim(0) == 0
        freed = log.trim(77)
        assert freed > 0
        assert log.size_bytes == before - freed
        assert 0 < log.first_id <= 77
        assert values(e.frame for e in log.replay(from_id=77))[0][1] == 77
        with pytest.raises(Trimmed, match="id 0 was trimmed"):
            log.replay(from_id=0)
        with pytest.raises(Trimmed, match="lsn 0 was trimmed"):
            log.replay(from_lsn=0)
        log.trim(10**9)
        assert segment_count(log) == 1
        assert len(list(tmp_path.glob("*.seg"))) == len(list(tmp_path.glob("*.idx"))) + 1 == 1
        next_lsn = log.next_lsn
    with StreamLog.open(tmp_path) as log:
        assert (log.next_id, log.next_lsn) == (200, next_lsn)
        assert log.last_boundary == 200


def test_trim_keeps_what_the_owner_needs(tmp_path: Path) -> None:
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        fill(log, model, 8)
        keep_lsn = log.next_lsn
        log.append(model.window())
        fill(log, model, 8)
        log.trim(model.next_id, keep_from_lsn=keep_lsn)
        windows = log.read_backwards(kinds=(Kind.WINDOW_CHECK,))
        assert [entry.lsn for entry in windows] == [keep_lsn]
        log.trim(10**9)
        assert segment_count(log) == 1


def test_a_skip_goes_on_at_another_id(tmp_path: Path) -> None:
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        fill(log, model, 10)
        log.skip_to(1000)
        assert log.next_id == 1000
        log.append(stable(1000, 5))
        found = values(drain(log.replay(from_id=1000)))
        assert found == [("STABLE", i, i) for i in range(1000, 1005)]
        with pytest.raises(OutOfOrder, match="SKIP to id 7"):
            log.skip_to(7)
    with StreamLog.open(tmp_path) as log:
        assert (log.first_id, log.next_id) == (0, 1005)
        log.trim(1000)
        kinds = {entry.frame.kind.name for entry in log.read_backwards()}
        assert "STABLE" in kinds


def test_an_empty_log_skips_too(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        log.skip_to(7)
        log.skip_to(1000)
        log.append(stable(1000, 5))
        kinds = [entry.frame.kind.name for entry in log.read_backwards()]
        assert kinds == ["STABLE", "SKIP", "SKIP"]
    with StreamLog.open(tmp_path) as log:
        assert log.next_id == 1005
        assert values(e.frame for e in log.replay(from_id=1002)) == [
            ("STABLE", i, i) for i in range(1002, 1005)
        ]


def test_a_reader_that_was_trimmed_away_is_told(tmp_path: Path) -> None:
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        fill(log, model, 20)
        with log.replay(from_id=0) as reader, log.replay(from_lsn=0) as as_written:
            log.trim(model.next_id)
            with pytest.raises(Trimmed, match="had come to 0 only"):
                drain(reader)
            with pytest.raises(Trimmed, match="past this reader"):
                drain(as_written)


def test_a_reader_skips_what_was_trimmed_if_it_misses_no_tuple(tmp_path: Path) -> None:
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        log.append(model.stable(3))
        for stime in range(80):  # several segments of nothing new
            log.append(model.boundary_mark(stime))
        log.append(model.stable(2))
        with log.replay(from_id=3) as reader:
            log.trim(3)
            assert log.first_lsn > 10
            assert [i for _, i, _ in values(drain(reader))] == [3, 4]


@pytest.mark.parametrize("room", [0, 10, 64, 300, 1000])
@pytest.mark.parametrize("preallocate_bytes", [0, 4096])
def test_a_full_disk_loses_nothing_and_recovers(
    tmp_path: Path, room: int, preallocate_bytes: int
) -> None:
    files = FailingFiles()
    options = replace(SMALL, segment_bytes=6000, preallocate_bytes=preallocate_bytes)
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=options, files=files) as log:
        fill(log, model, 3)
        before = list(model.frames)
        files.room = room
        for _ in range(3):
            with pytest.raises(DiskFull, match=r"\.seg: no room .*append it again"):
                log.append(stable(30, 500))
        assert seen(log.replay(from_lsn=0)) == list(enumerate(before))
        assert inspect(tmp_path).torn_tail is None
        files.room = None
        fill(log, model, 30)  # and on into new segments
        assert seen(log.replay(from_lsn=0)) == list(enumerate(model.frames))
    with StreamLog.open(tmp_path) as log:
        assert seen(log.replay(from_lsn=0)) == list(enumerate(model.frames))


def test_no_room_for_a_new_segment(tmp_path: Path) -> None:
    files, model = FailingFiles(), Model()
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL, files=files) as log:
        fill(log, model, 2)
        files.room = 100
        with pytest.raises(DiskFull, match="begin a segment"):
            log.append(stable(20, 300))
        assert len(list(tmp_path.glob("*.seg"))) == 1
        files.room = None
        log.append(model.stable(300))
        assert seen(log.replay(from_lsn=0)) == list(enumerate(model.frames))


def test_a_real_limit_of_the_operating_system(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=LogOptions(preallocate_bytes=1 << 20)) as log:
        log.append(model.stable(1000))
        resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, hard))
        try:
            with pytest.raises(DiskFull):
                log.append(stable(1000, 100_000))
            log.append(model.stable(1000))
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        log.append(model.stable(100_000))
        assert seen(log.replay(from_lsn=0)) == list(enumerate(model.frames))


def test_a_write_error_is_named_and_a_later_append_works(tmp_path: Path) -> None:
    files, model = FailingFiles(), Model()
    with StreamLog.open(tmp_path, SCHEMA, files=files) as log:
        files.room, files.write_error = 10, errno.EIO
        with pytest.raises(WriteFailed, match="Input/output error"):
            log.append(stable(0))
        files.room = None
        log.append(model.stable(3))
        assert seen(log.replay(from_lsn=0)) == list(enumerate(model.frames))


def test_remains_that_cannot_be_cut_break_the_log(tmp_path: Path) -> None:
    files, model = FailingFiles(), Model()
    log = StreamLog.open(tmp_path, SCHEMA, files=files)
    log.append(model.stable(3))
    files.room, files.truncate_error = 200, errno.EIO
    for _ in range(2):
        with pytest.raises(LogBroken, match="reopen"):
            log.append(stable(3))
    files.room, files.truncate_error = None, 0
    assert seen(log.replay(from_lsn=0)) == list(enumerate(model.frames))
    log.close()
    with StreamLog.open(tmp_path) as log:
        assert log.cut is not None
        assert seen(log.replay(from_lsn=0)) == list(enumerate(model.frames))


@pytest.mark.parametrize("durability", [Durability.ALWAYS, Durability.INTERVAL])
def test_a_failed_sync_breaks_the_log_until_it_is_reopened(
    tmp_path: Path, durability: Durability
) -> None:
    files, model = FailingFiles(), Model()
    options = LogOptions(durability=durability, sync_interval_ms=1)
    log = StreamLog.open(tmp_path, SCHEMA, options=options, files=files)
    log.append(model.stable(3))
    log.wait_durable(1)
    files.sync_error = errno.EIO
    if durability is Durability.ALWAYS:
        with pytest.raises(LogBroken, match="failed to make the log durable"):
            log.append(stable(3))
        assert log.next_id == 3
    else:
        next_lsn = log.append(stable(3)).next_lsn
        with pytest.raises(LogBroken):
            log.wait_durable(next_lsn)
    with pytest.raises(LogBroken):
        log.append(stable(log.next_id))
    with pytest.raises(LogBroken):
        log.sync()
    assert log.durable_lsn == 1
    log.close()
    with StreamLog.open(tmp_path) as log:
        assert values(e.frame for e in log.replay(from_id=0))[:3] == values(model.frames)
        log.append(stable(log.next_id))


def test_options_that_make_no_sense() -> None:
    with pytest.raises(ValueError, match="sync_interval_ms"):
        LogOptions(sync_interval_ms=0)
    with pytest.raises(ValueError, match="sometimes"):
        LogOptions(durability="sometimes")  # type: ignore[arg-type]
