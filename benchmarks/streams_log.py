"""How close the stream log comes to plain sequential writing and reading of the same bytes.

Each round, on the same disk and turn about:

1. plain: writes of 1 MiB each to one file, synced by the same interval from a second thread as
   the log does it, and a last sync; then reads of 1 MiB each into one buffer;
2. the log: appends of the same number of bytes, as frames of 100-byte tuples, and a last sync;
   then a replay from the first id, which makes a record batch of every block.

The ratio is the log's speed over the plain one's, the median over the rounds. ``replay`` is
from the operating system's memory, every block checked against its CRC; ``cold_replay`` as well,
with both files dropped from memory first, so from the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.core.frame import Kind
from holdfast.frames import TIME, Frame, data_frame, stream_schema
from holdfast.log import Durability, LogOptions, StreamLog

SYNC_INTERVAL_MS = 50.0
PLAIN_BYTES = 1 << 20
TUPLE_BYTES = 100
FRAME_TUPLES = (10_000, 1_000)
ROUND_BYTES = 256 << 20
SCHEMA = stream_schema(pa.schema([("key", pa.int64()), ("payload", pa.binary(76))]))
OPTIONS = LogOptions(durability=Durability.INTERVAL, sync_interval_ms=SYNC_INTERVAL_MS)


def measure(seconds: float = 20.0, directory: Path | None = None) -> dict[str, Any]:
    """Rounds for about so many seconds, at least nine for each frame size: they differ a lot."""
    results: dict[str, Any] = {}
    for tuples in FRAME_TUPLES:
        deadline = time.monotonic() + seconds / len(FRAME_TUPLES)
        rounds: list[dict[str, float]] = []
        while len(rounds) < 9 or time.monotonic() < deadline:
            with tempfile.TemporaryDirectory(dir=directory) as scratch:
                rounds.append(_round(Path(scratch), tuples))
        median = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
        told = {key: round(value, 2 if "ratio" in key else 0) for key, value in median.items()}
        results[f"frames_of_{tuples}"] = {**told, "rounds": len(rounds)}
    first = results[f"frames_of_{FRAME_TUPLES[0]}"]
    main = ("append_mb_s", "append_ratio", "replay_mb_s", "replay_ratio", "cold_replay_ratio")
    return {**{key: first[key] for key in main}, **results}


def _round(scratch: Path, tuples: int) -> dict[str, float]:
    frame = _frame(tuples)
    count = ROUND_BYTES // (tuples * TUPLE_BYTES)
    plain_path, log_path = scratch / "plain", scratch / "log"
    plain_write = _write_plain(plain_path)
    with StreamLog.open(log_path, SCHEMA, options=OPTIONS) as log:
        append = _append(log, frame, count)
        plain_read = _read_plain(plain_path)
        replay = _replay(log)
        _forget(plain_path, *log_path.glob("*.seg"))
        plain_cold = _read_plain(plain_path)
        cold = _replay(log)
    plain_path.unlink()
    return {
        "append_mb_s": append,
        "plain_write_mb_s": plain_write,
        "append_ratio": append / plain_write,
        "replay_mb_s": replay,
        "plain_read_mb_s": plain_read,
        "replay_ratio": replay / plain_read,
        "cold_replay_mb_s": cold,
        "cold_replay_ratio": cold / plain_cold,
    }


def _frame(tuples: int) -> Frame:
    """Tuples of 100 bytes: two times, a key, and 76 bytes that do not compress."""
    rng = np.random.default_rng(7)
    times = pa.array(np.arange(tuples), TIME)
    blob = pa.Array.from_buffers(
        pa.binary(76), tuples, [None, pa.py_buffer(rng.bytes(76 * tuples))]
    )
    keys = pa.array(rng.integers(0, 1000, tuples))
    batch = pa.record_batch([times, times, keys, blob], schema=SCHEMA)
    assert batch.nbytes == tuples * TUPLE_BYTES
    return data_frame(Kind.STABLE, 0, batch)


def _append(log: StreamLog, frame: Frame, count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        log.append(replace(frame, header=replace(frame.header, first_id=log.next_id)))
    log.sync()
    return _mb_s(count * frame.header.count * TUPLE_BYTES, start)


def _replay(log: StreamLog) -> float:
    start, tuples = time.perf_counter(), 0
    for entry in log.replay(from_id=0):
        assert entry.frame.batch is not None
        tuples += entry.frame.batch.num_rows
    assert tuples == log.next_id
    return _mb_s(tuples * TUPLE_BYTES, start)


def _write_plain(path: Path) -> float:
    data, done = os.urandom(PLAIN_BYTES), threading.Event()
    fd = os.open(path, os.O_RDWR | os.O_CREAT)

    def sync_by_interval() -> None:
        while not done.wait(SYNC_INTERVAL_MS / 1000):
            os.fdatasync(fd)

    syncer = threading.Thread(target=sync_by_interval)
    start = time.perf_counter()
    syncer.start()
    for offset in range(0, ROUND_BYTES, PLAIN_BYTES):
        os.pwrite(fd, data, offset)
    os.fdatasync(fd)
    speed = _mb_s(ROUND_BYTES, start)
    done.set()
    syncer.join()
    os.close(fd)
    return speed


def _read_plain(path: Path) -> float:
    buffer = bytearray(PLAIN_BYTES)
    fd = os.open(path, os.O_RDONLY)
    start, offset = time.perf_counter(), 0
    while got := os.preadv(fd, [buffer], offset):
        offset += got
    speed = _mb_s(offset, start)
    os.close(fd)
    return speed


def _forget(*paths: Path) -> None:
    """Drops the files from the operating system's memory."""
    for path in paths:
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def _mb_s(size: int, start: float) -> float:
    return size / (time.perf_counter() - start) / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="nine rounds of each kind")
    parser.add_argument("--directory", type=Path, help="a directory on the disk to measure")
    options = parser.parse_args()
    measured = measure(0 if options.quick else 20, options.directory)
    print(json.dumps({"bench": "streams_log", **measured}))


if __name__ == "__main__":
    main()
