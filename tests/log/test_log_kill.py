"""A writer that is killed with kill -9, again and again, in the middle of what it does."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from holdfast.log import LogOptions, StreamLog
from tests.log.helpers import values

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from holdfast.log import LogOptions, StreamLog
from tests.log.helpers import SCHEMA, stable

options = LogOptions(
    durability=sys.argv[2], sync_interval_ms=5, segment_bytes=100_000, direct_bytes=16_000
)
log = StreamLog.open(sys.argv[1], SCHEMA, options=options)
while True:
    appended = log.append(stable(log.next_id, int(sys.argv[3])))
    print(appended.next_id, log.durable_lsn, flush=True)
"""


@pytest.mark.parametrize(
    ("durability", "tuples"),
    [
        ("always", 7),
        pytest.param("interval", 7, marks=pytest.mark.slow),
        # These go past the system's cache.
        ("interval", 2_000),
    ],
)
def test_nothing_that_was_said_to_be_written_is_lost(
    tmp_path: Path, durability: str, tuples: int
) -> None:
    rng, said = random.Random(durability), 0
    for _ in range(3):
        command = [sys.executable, "-c", WRITER, str(tmp_path), durability, str(tuples)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as writer:
            assert writer.stdout is not None
            said = int(writer.stdout.readline().split()[0])
            time.sleep(rng.uniform(0, 0.2))
            writer.kill()
            complete = [line for line in writer.stdout if line.endswith("\n")]
            said = int(complete[-1].split()[0]) if complete else said
        with StreamLog.open(tmp_path, options=LogOptions(segment_bytes=100_000)) as log:
            assert said <= log.next_id <= said + tuples
            got = values(entry.frame for entry in log.replay(from_id=0))
            assert got == [("STABLE", i, i) for i in range(log.next_id)]
