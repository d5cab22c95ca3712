"""Several threads: group commit, readers that follow, readers that are slow."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.frames import boundary_frame
from holdfast.log import (
    DiskFull,
    Durability,
    LogClosed,
    LogOptions,
    OutOfOrder,
    Reader,
    StreamLog,
    Trimmed,
)
from holdfast.log.files import Files
from tests.log.helpers import SCHEMA, SMALL, Model, NoSync, View, drain, stable, tentative, values
from tests.log.test_log_room import FailingFiles


class SlowSync(Files):
    """Counts its syncs, which take their time."""

    def __init__(self) -> None:
        self.syncs = 0

    def sync(self, fd: int) -> None:
        self.syncs += 1
        time.sleep(0.002)


def test_appends_of_several_threads_share_syncs(memory_path: Path) -> None:
    files = SlowSync()
    with StreamLog.open(memory_path, SCHEMA, options=SMALL, files=files) as log:
        before = files.syncs

        def produce(which: int) -> list[int]:
            ids: list[int] = []
            for at in range(25):
                appended = log.append_next([stable(0, 3, salt=which * 1000 + at)])
                assert appended.next_lsn <= log.durable_lsn
                ids += range(appended.first_id, appended.next_id)
            return ids

        with ThreadPoolExecutor(8) as pool:
            ids = sorted(i for taken in pool.map(produce, range(8)) for i in taken)
        assert ids == list(range(600))
        assert files.syncs - before < 150  # 200 appends, and some segments
        assert len(values(e.frame for e in log.replay(from_id=0))) == 600


def test_a_failed_group_fails_those_queued_behind_and_nobody_else(memory_path: Path) -> None:
    files = FailingFiles()
    with StreamLog.open(memory_path, SCHEMA, files=files) as log:
        log.append(stable(0))
        written, failed = [], []

        def produce(which: int) -> None:
            for _ in range(40):
                try:
                    written.append(log.append_next(stable(0, 5)).first_id)
                except DiskFull:
                    failed.append(which)

        threads = [threading.Thread(target=produce, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(20):
            files.room = 100
            time.sleep(0.001)
            files.room = None
            time.sleep(0.001)
        for thread in threads:
            thread.join()
        assert sorted(written) == list(range(1, log.next_id, 5))
        assert len(written) + len(failed) == 160
        assert len(values(e.frame for e in log.replay(from_id=0))) == log.next_id


def test_frames_with_ids_of_their_own_must_agree(memory_path: Path) -> None:
    """Without append_next, threads that race for an id: one gets it, the others are refused."""
    with StreamLog.open(memory_path, SCHEMA, files=NoSync()) as log:

        def produce(_: int) -> int:
            taken = 0
            for tuple_id in range(50):
                try:
                    log.append(stable(tuple_id))
                    taken += 1
                except OutOfOrder:
                    time.sleep(0)
            return taken

        with ThreadPoolExecutor(4) as pool:
            taken = sum(pool.map(produce, range(4)))
        assert taken == log.next_id


def write_story(log: StreamLog, model: Model, rounds: int) -> None:
    """Failures that come and heal."""
    for at in range(rounds):
        frames = model.stable(at % 9 + 1) + model.boundary_mark(at)
        for _ in range(at % 4):
            frames += model.tentative(at % 5 + 1)
        if at % 3 == 0:
            frames += model.undo(at % 2)
        log.append(frames)
    log.append(model.stable(1) + model.rec_done())


@pytest.mark.parametrize(
    "options", [SMALL, replace(SMALL, segment_bytes=8192, max_bytes=330_000), LogOptions()]
)
def test_readers_follow_while_the_log_grows(memory_path: Path, options: LogOptions) -> None:
    model = Model()
    with StreamLog.open(memory_path, SCHEMA, options=options, files=NoSync()) as log:
        log.append(model.stable(5))

        def follow(start: Callable[[], Reader]) -> dict[int, tuple[str, int]]:
            view = View()
            with start() as reader:
                while not finished.is_set() or reader.behind:
                    for entry in reader.read(timeout_s=0.05):
                        view.apply(entry.frame)
            return view.tuples

        finished = threading.Event()
        starts: list[Callable[[], Reader]] = [
            lambda: log.follow(from_id=0),
            lambda: log.follow(from_id=3, durable_only=True),
            lambda: log.follow(from_stime=0),
            lambda: log.follow(from_lsn=0),
            lambda: log.follow(from_id=max(0, log.stable_next_id - 7)),
            lambda: log.follow(from_id=1200),
        ]
        with ThreadPoolExecutor(len(starts)) as pool:
            readers = [pool.submit(follow, start) for start in starts]
            try:
                write_story(log, model, 400)
            finally:
                finished.set()
            views = [reader.result(timeout=60) for reader in readers]
        rewritten = any(segment.header.generation for segment in log._store.segments)
        assert rewritten == (options.max_bytes is not None)
        expected = model.view()
        for view in (views[0], views[2], views[3]):
            assert view == expected
        for view in views:
            assert view == {i: t for i, t in expected.items() if i >= min(view)}
        assert (min(views[1]), min(views[5])) == (3, 1200)


def test_trimming_under_readers(memory_path: Path) -> None:
    """Readers that keep up are not bothered; one that does not is told."""
    model = Model()
    with StreamLog.open(memory_path, SCHEMA, options=SMALL, files=NoSync()) as log:
        view, slow = View(), log.follow(from_id=0)
        with log.follow(from_id=0) as reader:
            for at in range(300):
                log.append(model.stable(4) + model.tentative(at % 3 + 1))
                for entry in reader.read(timeout_s=0):
                    view.apply(entry.frame)
                log.trim(model.stable_next_id - 10)
        assert view.tuples == model.view()
        assert log.segment_count < 5
        with pytest.raises(Trimmed):
            drain(slow)
        slow.close()


def test_a_slow_reader_costs_no_memory_and_holds_nobody_up(memory_path: Path) -> None:
    with StreamLog.open(memory_path, SCHEMA, files=NoSync()) as log:
        log.append(stable(0, 20_000))
        readers = [log.follow(from_id=0) for _ in range(5)]
        for reader in readers:
            next(iter(reader))
        before = pa.total_allocated_bytes()
        frame = stable(0, 20_000)
        for _ in range(100):  # 48 MB
            log.append_next(frame)
        with log.follow(from_id=0) as fast:
            seen = 0
            while entries := fast.read(timeout_s=0):
                seen += sum(entry.frame.header.count for entry in entries)
                del entries
        assert seen == 101 * 20_000
        most = 0
        for reader in readers:
            for _ in range(10):
                next(iter(reader))
                most = max(most, pa.total_allocated_bytes() - before)
            assert reader.behind >= 80
            reader.close()
        assert most < 5 * 3 << 20  # a piece or two for each reader


def test_waiting_is_bounded_and_can_be_stopped(memory_path: Path) -> None:
    with StreamLog.open(memory_path, SCHEMA, files=NoSync()) as log:
        reader = log.follow(from_id=0)
        started = time.monotonic()
        assert reader.read(timeout_s=0.05) == []
        assert 0.04 < time.monotonic() - started < 5
        threading.Timer(0.05, lambda: log.append(stable(0))).start()
        assert [entry.lsn for entry in reader.read(timeout_s=20)] == [0]
        threading.Timer(0.05, reader.stop).start()
        assert list(reader) == []
        assert reader.is_stopped
        assert reader.read() == []
        reader.close()
        other = log.follow(from_id=1)
        threading.Timer(0.05, log.close).start()
        assert list(other) == []
        other.close()
    with pytest.raises(LogClosed):
        log.follow(from_id=0)


def test_durable_only_readers_and_futures_wait_for_the_disk(tmp_path: Path) -> None:
    options = LogOptions(durability=Durability.INTERVAL, sync_interval_ms=1e9)
    with StreamLog.open(tmp_path, SCHEMA, options=options) as log:
        with log.follow(from_id=0, durable_only=True) as careful, log.follow(from_id=0) as quick:
            appended = log.append([stable(0, 3), boundary_frame(3, 5)])
            future = log.when_durable(appended.next_lsn)
            assert len(drain(quick)) == 2
            assert drain(careful) == []
            assert not future.done()
            assert not log.wait_durable(appended.next_lsn, timeout_s=0.01)
            assert log.durable_lsn == 0
            log.sync()
            assert future.result(timeout=1) == appended.next_lsn
            assert len(drain(careful)) == 2
        left = log.when_durable(10)
    assert isinstance(left.exception(), LogClosed)


def test_by_interval_the_log_becomes_durable_by_itself(tmp_path: Path) -> None:
    options = replace(SMALL, durability=Durability.INTERVAL, sync_interval_ms=5)
    with StreamLog.open(tmp_path, SCHEMA, options=options) as log:
        lsns = [log.append_next(tentative(0, 10)).next_lsn for _ in range(50)]
        called = threading.Event()
        log.when_durable(lsns[-1]).add_done_callback(lambda _: called.set())
        assert called.wait(20)
        assert log.durable_lsn == lsns[-1]
        assert log.segment_count > 3
        assert len(list(tmp_path.glob("*.idx"))) >= 3


def test_left_to_the_operating_system_written_counts_as_durable(tmp_path: Path) -> None:
    options = replace(SMALL, durability=Durability.OS)
    with StreamLog.open(tmp_path, SCHEMA, options=options) as log:
        appended = log.append(stable(0, 500))
        assert log.durable_lsn == appended.next_lsn
        assert log.when_durable(appended.next_lsn).done()
        log.append_next(stable(0, 500))
        deadline = time.monotonic() + 20
        while log._store.synced_lsn == 0:  # sealed segments are synced behind the scenes
            assert time.monotonic() < deadline
            time.sleep(0.01)
