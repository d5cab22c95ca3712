"""Memory and bucket time stay level over many buckets.

Measured in a process and a session of their own. The full figure, 2,000 buckets:
``python -m tests.spark.test_many_buckets 2000``; the test takes a quarter of that, for its time.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.session import get_session
from holdfast.spark.version import Version
from holdfast.testing import tuples

ROOT = Path(__file__).parent.parent.parent
BUCKETS = 500
INTERVAL = 200_000


def resident_bytes() -> int:
    """What this process, its JVM and its Python workers hold in memory."""
    gc.collect()
    mine = psutil.Process()
    total = 0
    for process in [mine, *mine.children(recursive=True)]:
        try:
            total += process.memory_info().rss
        except psutil.NoSuchProcess:
            continue
    return total


def _fastest(seconds: list[float]) -> float:
    """The time that one bucket in ten stays below."""
    return statistics.quantiles(seconds, n=10)[0]


def measure(buckets: int) -> dict[str, float]:
    """Run a windowed aggregate for ``buckets`` buckets of 100 tuples and look now and then."""
    network = Network("level", spark=get_session("local[2]"))
    source = network.source("s", "k int, v double")
    source.groupBy(window("2 s"), "k").agg(F.sum("v").alias("v"), F.max("v").alias("m")).output(
        "out"
    )
    version = Version(Engine(network))
    rng = random.Random(1)
    seconds: list[float] = []
    memory: dict[int, int] = {}
    for number in range(buckets):
        start = number * INTERVAL
        rows = [(start + i, rng.randrange(50), rng.random()) for i in range(100)]
        bucket = Bucket(start, start + INTERVAL, {"s": tuples(version.engine, "s", rows)})
        before = time.perf_counter()
        version.advance([bucket])
        seconds.append(time.perf_counter() - before)
        if number + 1 in (200, buckets):
            memory[number + 1] = resident_bytes()
    files = sum(1 for path in version.engine.directory.rglob("*") if path.is_file())
    return {
        "memory_mb_after_200": memory[200] / 1e6,
        "memory_mb_at_end": memory[buckets] / 1e6,
        "memory_ratio": memory[buckets] / memory[200],
        "bucket_ms_200_to_400": statistics.median(seconds[200:400]) * 1000,
        "bucket_ms_at_end": statistics.median(seconds[-200:]) * 1000,
        "time_ratio": statistics.median(seconds[-200:]) / statistics.median(seconds[200:400]),
        "fastest_ratio": _fastest(seconds[-200:]) / _fastest(seconds[200:400]),
        "files": files,
    }


@pytest.mark.long
@pytest.mark.thorough
def test_memory_and_time_stay_level() -> None:
    command = [sys.executable, "-m", "tests.spark.test_many_buckets", str(BUCKETS)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=280, check=True)
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["memory_ratio"] < 1.15, found
    # Not the medians: whatever else the machine does meanwhile slows the slower half.
    assert found["fastest_ratio"] < 1.3, found
    assert found["files"] < 20, found


if __name__ == "__main__":
    print(json.dumps(measure(int(sys.argv[1]))))
