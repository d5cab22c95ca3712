"""A log whose disk has failed goes on from what is durable, once the disk works again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from holdfast import disk
from holdfast.disk import Fault, Operation
from holdfast.frames import Frame
from holdfast.log import Durability, LogBroken, LogOptions, StreamLog
from tests.log.helpers import SCHEMA, SMALL, drain, segment_count, stable, values


def numbers(frames: list[Frame]) -> list[int]:
    return [value for _, _, value in values(frames)]


SYNC_FAILS = Fault(errno.EIO, operations=frozenset({Operation.SYNC}))
INTERVAL = LogOptions(durability=Durability.INTERVAL, sync_interval_ms=1.0)


def test_after_a_failed_sync_the_log_goes_on(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append(stable(0, 5))
        with disk.failing(SYNC_FAILS):
            with pytest.raises(LogBroken):
                log.append(stable(5, 3))
            with pytest.raises(OSError, match="Input/output"):
                log.heal()
        assert log.is_broken
        log.heal()
        assert not log.is_broken
        assert log.next_id == 5
        log.append(stable(5, 4))
        assert numbers(drain(log.replay(from_id=0))) == list(range(9))
    with StreamLog.open(tmp_path) as again:
        assert numbers(drain(again.replay(from_id=0))) == list(range(9))


def test_what_was_written_and_is_not_durable_is_taken_back(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA, options=INTERVAL) as log:
        log.wait_durable(log.append([stable(0, 5), stable(5, 2)]).next_lsn)
        with disk.failing(SYNC_FAILS), pytest.raises(LogBroken):
            log.wait_durable(log.append([stable(7, 3), stable(10, 3)]).next_lsn)
        log.heal()
        assert log.next_id == 7
        log.wait_durable(log.append(stable(7, 6)).next_lsn)
        assert numbers(drain(log.replay(from_id=0))) == list(range(13))


def test_segments_that_were_begun_meanwhile_go(tmp_path: Path) -> None:
    options = LogOptions(
        durability=Durability.INTERVAL, sync_interval_ms=500.0, segment_bytes=SMALL.segment_bytes
    )
    with StreamLog.open(tmp_path, SCHEMA, options=options) as log:
        log.append(stable(0, 5))
        log.sync()
        with disk.failing(SYNC_FAILS):
            count = segment_count(log)
            at = 5
            while segment_count(log) < count + 2:
                at = log.append(stable(at, 5)).next_id
            with pytest.raises(LogBroken):
                log.sync()
        log.heal()
        assert (log.next_id, segment_count(log)) == (5, count)
        log.append(stable(5, 5))
        log.sync()
        assert numbers(drain(log.replay(from_id=0))) == list(range(10))


def test_a_trim_that_fails_leaves_no_hole(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        at = 0
        while segment_count(log) < 5:
            at = log.append(stable(at, 5)).next_id
        removing = Fault(errno.EIO, operations=frozenset({Operation.REMOVE}))
        with disk.failing(removing), pytest.raises(OSError, match="Input/output"):
            log.trim(at // 2)
        while segment_count(log) < 6:
            at = log.append(stable(at, 5)).next_id
        log.trim(at)
        first = log.first_id
    with StreamLog.open(tmp_path) as again:
        assert again.first_id == first
        assert numbers(drain(again.replay(from_id=first))) == list(range(first, at))
