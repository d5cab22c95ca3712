"""Power cuts at every step, and torn tails of every length."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from holdfast.log import Durability, LogOptions, StreamLog
from tests.log.helpers import SCHEMA, SMALL, Model, NoSync, kill, seen
from tests.log.power import PowerFiles


@dataclass
class Known:
    """What the owner of the log knows when the power fails."""

    model: Model
    acknowledged_lsn: int = 0
    trimmed_below: int = 0

    def copy(self) -> Known:
        frames = Model(frames=list(self.model.frames))
        return Known(frames, self.acknowledged_lsn, self.trimmed_below)


Workload = Callable[[StreamLog, Known], None]


def commit_everything(log: StreamLog, known: Known) -> None:
    """Durable after every append; over several segments; trims now and then."""
    model = known.model
    for count in range(1, 22):
        log.append(model.stable(count) + model.boundary_mark(count))
        known.acknowledged_lsn = log.durable_lsn
        if count % 8 == 0:
            known.trimmed_below = model.next_id // 2
            log.trim(known.trimmed_below)


def sync_now_and_then(log: StreamLog, known: Known) -> None:
    """Most of it not durable, over several segments, when the power fails."""
    model = known.model
    for count in range(1, 22):
        log.append(model.stable(count) + model.window())
        if count % 7 == 0:
            log.sync()
            known.acknowledged_lsn = log.durable_lsn
        if count % 5 == 0:
            known.trimmed_below = model.next_id
            log.trim(known.trimmed_below)


NEVER = LogOptions(
    durability=Durability.INTERVAL,
    sync_interval_ms=1e9,
    segment_bytes=1500,
    index_bytes=256,
    preallocate_bytes=700,
)


@pytest.mark.parametrize("keeps", [(0.6,), pytest.param((0.0, 1.0), marks=pytest.mark.thorough)])
@pytest.mark.parametrize(
    ("workload", "options"),
    [
        (commit_everything, SMALL),
        pytest.param(sync_now_and_then, NEVER, marks=pytest.mark.slow),
    ],
)
def test_a_power_cut_at_every_step(
    memory_path: Path, workload: Workload, options: LogOptions, keeps: tuple[float, ...]
) -> None:
    """Of what was not synced, such a share is there."""
    known = Known(Model())
    files = PowerFiles(known.copy)
    log = StreamLog.open(memory_path / "log", SCHEMA, options=options, files=files)
    workload(log, known)
    log.close()
    rng = random.Random(workload.__name__)
    assert len(files.history) > 150
    for disk, then in files.history:
        for keep in keeps:
            disk.after_a_cut(rng, keep, memory_path / "cut")
            check(memory_path / "cut", then, options)


def check(path: Path, known: Known, options: LogOptions) -> None:
    """The log opens, has what was acknowledged, and nothing that was not written."""
    model = known.model
    with StreamLog.open(path, SCHEMA, options=options, files=NoSync()) as log:
        entries = seen(log.replay(from_lsn=log.first_lsn))
        for lsn, frame in entries:
            assert frame == model.frames[lsn]
        assert known.acknowledged_lsn <= log.next_lsn <= len(model.frames)
        assert [lsn for lsn, _ in entries] == list(range(log.first_lsn, log.next_lsn))
        assert log.first_id <= known.trimmed_below
        again = Model()
        again.add(model.frames[: log.next_lsn])
        assert log.next_id == again.next_id
        assert log.last_boundary == again.boundary
        # Ids go on where they stopped.
        again.salt = 10**6
        more = again.stable(3)
        log.append(more)
    with StreamLog.open(path, options=options, files=NoSync()) as log:
        assert [frame for _, frame in seen(log.replay(from_lsn=log.next_lsn - len(more)))] == more


@pytest.mark.slow
def test_a_power_cut_after_the_process_was_killed_and_came_back(memory_path: Path) -> None:
    """What a killed process had written and not synced is found, built upon, and so must hold."""
    known = Known(Model())
    files = PowerFiles(known.copy)
    log = StreamLog.open(memory_path / "log", SCHEMA, options=NEVER, files=files)
    for count in range(1, 12):
        log.append(known.model.stable(count))
    kill(log)
    for _ in range(2):
        log = StreamLog.open(memory_path / "log", SCHEMA, options=SMALL, files=files)
        assert log.next_lsn == len(known.model.frames)
        known.acknowledged_lsn = log.durable_lsn
        for count in range(1, 8):
            log.append(known.model.stable(count))
            known.acknowledged_lsn = log.durable_lsn
        kill(log)
    rng = random.Random(1)
    for keep in (0.0, 0.5):
        for disk, then in files.history:
            disk.after_a_cut(rng, keep, memory_path / "cut")
            check(memory_path / "cut", then, SMALL)


@pytest.mark.parametrize("preallocate_bytes", [0, pytest.param(512, marks=pytest.mark.slow)])
def test_the_last_commit_torn_at_every_byte(memory_path: Path, preallocate_bytes: int) -> None:
    options = replace(SMALL, segment_bytes=1 << 16, preallocate_bytes=preallocate_bytes)
    model = Model()
    log = StreamLog.open(memory_path / "log", SCHEMA, options=options)
    log.append(model.stable(3) + model.boundary_mark(3))
    acknowledged, durable_end = list(model.frames), log._store.segments[-1].end
    log.append(model.stable(4) + model.boundary_mark(9))
    written_end = log._store.segments[-1].end
    kill(log)
    (original,) = (memory_path / "log").glob("*.seg")
    whole, copy = original.read_bytes(), memory_path / "copy"
    for size in range(durable_end, written_end):
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        rest = len(whole) - size if preallocate_bytes else 0
        (copy / original.name).write_bytes(whole[:size] + bytes(rest))
        check_torn(copy, options, model, len(acknowledged))


def check_torn(path: Path, options: LogOptions, model: Model, kept: int) -> None:
    with StreamLog.open(path, options=options, files=NoSync()) as log:
        frames = [entry.frame for entry in log.replay(from_lsn=0)]
        assert len(frames) >= kept
        assert frames == model.frames[: len(frames)]
        again = Model()
        again.add(frames)
        assert log.next_id == again.next_id
        end = log._store.segments[-1].end
        if log.cut is not None:
            assert log.cut.offset == end
            assert log.cut.path.parent == path
        log.append(again.stable(2))
    with StreamLog.open(path, options=options, files=NoSync()) as log:
        assert log.cut is None
        assert [entry.frame for entry in log.replay(from_lsn=0)] == again.frames
