"""Several threads: group commit, readers beside the writer, readers that are slow."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from holdfast.log import (
    Appended,
    DiskFull,
    Durability,
    LogOptions,
    OutOfOrder,
    StreamLog,
    Trimmed,
)
from holdfast.log.files import Files
from tests.blocks_for_tests import boundary_frame
from tests.log.helpers import SCHEMA, SMALL, NoSync, segment_count, stable, values
from tests.log.test_log_room import FailingFiles


def append_next(log: StreamLog, count: int) -> Appended:
    """Append tuples with whatever ids come next, though others do the same."""
    while True:
        try:
            return log.append([stable(log.next_id, count)])
        except OutOfOrder:
            time.sleep(0)


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
            lsns: list[int] = []
            for at in range(25):
                appended = log.append([boundary_frame(0, which * 1000 + at)])
                assert appended.next_lsn <= log.durable_lsn
                lsns.append(appended.first_lsn)
            return lsns

        with ThreadPoolExecutor(8) as pool:
            lsns = sorted(lsn for taken in pool.map(produce, range(8)) for lsn in taken)
        assert lsns == list(range(200))
        assert files.syncs - before < 150  # 200 appends, and some segments
        assert len(list(log.replay(from_lsn=0))) == 200


def test_a_failed_group_fails_those_queued_behind_and_nobody_else(memory_path: Path) -> None:
    files = FailingFiles()
    with StreamLog.open(memory_path, SCHEMA, files=files) as log:
        log.append(stable(0))
        written, failed = [], []

        def produce(which: int) -> None:
            for _ in range(40):
                try:
                    written.append(append_next(log, 5).first_id)
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
    """Threads that race for an id: one gets it, the others are refused."""
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


def test_readers_read_while_the_log_grows_and_is_trimmed(memory_path: Path) -> None:
    """Each sees every tuple from where it began, once, or is told that it was too slow."""
    with StreamLog.open(memory_path, SCHEMA, options=SMALL, files=NoSync()) as log:
        finished, all_read = threading.Event(), threading.Barrier(4)

        def read_on() -> None:
            met = False
            while not finished.is_set():
                first, last = log.first_id, log.next_id
                try:
                    got = values(entry.frame for entry in log.replay(from_id=first))
                except Trimmed:
                    continue
                assert [i for _, i, _ in got][: last - first] == list(range(first, last))
                if not met:
                    met = True
                    all_read.wait(60)

        def write() -> None:
            for _ in range(500):
                log.append(stable(log.next_id, 7))
                log.trim(log.next_id - 500)

        with ThreadPoolExecutor(3) as pool:
            readers = [pool.submit(read_on) for _ in range(3)]
            try:
                write()
                all_read.wait(60)
                write()
            finally:
                finished.set()
            for reader in readers:
                reader.result(timeout=60)
        assert log.first_id > 6_000


def test_a_slow_reader_costs_no_memory(memory_path: Path) -> None:
    with StreamLog.open(memory_path, SCHEMA, files=NoSync()) as log:
        for _ in range(100):  # 48 MB
            log.append(stable(log.next_id, 20_000))
        readers = [log.replay(from_id=0) for _ in range(5)]
        before, most = pa.total_allocated_bytes(), 0
        for reader in readers:
            entries = iter(reader)
            for _ in range(10):
                next(entries)
                most = max(most, pa.total_allocated_bytes() - before)
        assert most < 5 * 3 << 20  # a piece or two for each reader
        for reader in readers:
            reader.close()


def test_before_a_sync_nothing_is_durable(tmp_path: Path) -> None:
    options = LogOptions(durability=Durability.INTERVAL, sync_interval_ms=1e9)
    with StreamLog.open(tmp_path, SCHEMA, options=options) as log:
        appended = log.append([stable(0, 3), boundary_frame(3, 5)])
        assert log.durable_lsn == 0
        log.sync()
        log.wait_durable(appended.next_lsn)
        assert log.durable_lsn == appended.next_lsn


def test_by_interval_the_log_becomes_durable_by_itself(tmp_path: Path) -> None:
    options = replace(SMALL, durability=Durability.INTERVAL, sync_interval_ms=5)
    with StreamLog.open(tmp_path, SCHEMA, options=options) as log:
        lsns = [log.append(stable(first, 10)).next_lsn for first in range(0, 500, 10)]
        log.wait_durable(lsns[-1])
        assert log.durable_lsn == lsns[-1]
        assert segment_count(log) > 3
        # The indexes are saved once what they cover is durable; the next sync begins after that.
        log.sync()
        assert len(list(tmp_path.glob("*.idx"))) >= 3
