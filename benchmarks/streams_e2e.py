"""From a tuple's making to its arrival at the client, against Structured Streaming.

The query has state and passes every tuple on at once: readings deduplicated by number within ten
seconds. 3,000 tuples a second arrive in both cases in the same way, 30 every 10 ms; each carries
the time it was made, and the latency of each is taken where the result arrives.

- Holdfast: producer, entry point (its log synced before anything is sent on), one replica, client,
  as four processes. A tuple waits for the end of its bucket, half of it on average. Structured
  Streaming begins a batch when the last one is done; so the buckets are short, 50 ms, and beside
  them those of 100 ms that were measured before tasks stayed for many buckets.
- Structured Streaming: the socket source, ``dropDuplicatesWithinWatermark`` on the default state
  store, a trigger as soon as the last one is done, a checkpoint on disk, ``foreachBatch``. Its
  source keeps nothing: unlike the entry point it may lose tuples with its process.
"""

from __future__ import annotations

import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

TUPLES_PER_TURN = 30
TURN_SECONDS = 0.01
WARM_SECONDS = 10.0
BUCKET_MS, LONGER_BUCKET_MS = 50, 100

NETWORK = """
from holdfast import Network, window

network = Network("latency", bucket="BUCKET ms", partitions=2)
readings = network.source("readings", "number bigint, made bigint, value double")
readings.distinct("number", window=window("10 seconds")).output("unique")
"""
DEPLOYMENT = """
network = "network.py"
chaos = true

[timing]
delay = "10 seconds"
heartbeat = "250 ms"
record_interval = "2 seconds"

[sources.readings]

[fragments.main]

[clients.measure]
output = "unique"
"""


class Arrivals:
    """Calls ``send(first, made)`` for 30 tuples every 10 ms, by the clock."""

    def __init__(self, send: Callable[[int, int], None]) -> None:
        self._send = send
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        start, turn = time.monotonic(), 0
        while not self._stopping.is_set():
            self._send(turn * TUPLES_PER_TURN, time.time_ns() // 1000)
            turn += 1
            time.sleep(max(0.0, start + turn * TURN_SECONDS - time.monotonic()))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)


def measure_holdfast(seconds: float, bucket_ms: int = BUCKET_MS) -> dict[str, float]:
    """Latencies of a deployment with such buckets."""
    from holdfast.client import Client, Tuples
    from holdfast.deployment import load_deployment
    from holdfast.plans.addresses import Addresses
    from holdfast.producer import Producer
    from holdfast.testing.deployed import supervised

    directory = Path(tempfile.mkdtemp(prefix="holdfast-streams-"))
    (directory / "network.py").write_text(NETWORK.replace("BUCKET", str(bucket_ms)))
    (directory / "deployment.toml").write_text(DEPLOYMENT)
    deployment = load_deployment(directory / "deployment.toml")
    latencies: list[Any] = []
    with supervised(deployment):
        security = deployment.security.read()
        book = Addresses.read(deployment).book(security)
        producer = Producer(
            "readings", book["entry-readings"], name="bench", security=security, linger_s=0.002
        )

        def send(first: int, made: int) -> None:
            numbers = np.arange(first, first + TUPLES_PER_TURN)
            times = np.full(TUPLES_PER_TURN, made)
            producer.send(pa.table({"number": numbers, "made": times, "value": np.sqrt(numbers)}))

        at = {"main-1": book["main-1"]}
        with Client("unique", at, name="measure", security=security) as client:
            arrivals = Arrivals(send)
            start = None
            while start is None or time.monotonic() - start < WARM_SECONDS + seconds:
                event = client.read(1.0)
                if isinstance(event, Tuples) and event.stable:
                    start = start or time.monotonic()
                    if time.monotonic() - start > WARM_SECONDS:
                        now = time.time_ns() // 1000
                        latencies.append(now - event.table["made"].to_numpy())
            arrivals.stop()
        producer.close()
    shutil.rmtree(directory, ignore_errors=True)
    return _percentiles(latencies)


def measure_structured_streaming(seconds: float) -> dict[str, float]:
    """Latencies of Structured Streaming, in a process of its own."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.streams_e2e", str(port), str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    # Spark connects twice: once to look, once to read.
    connections: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                connections.append(listener.accept()[0])
            except OSError:
                return

    threading.Thread(target=accept, daemon=True).start()

    def send(first: int, made: int) -> None:
        lines = "".join(
            f"{number},{made},{number**0.5}\n" for number in range(first, first + TUPLES_PER_TURN)
        )
        for connection in list(connections):
            try:
                connection.sendall(lines.encode())
            except OSError:
                connections.remove(connection)

    arrivals = Arrivals(send)
    try:
        output, errors = child.communicate(timeout=180.0 + seconds)
    finally:
        arrivals.stop()
        listener.close()
        child.kill()
    if child.returncode != 0 or not output:
        raise RuntimeError(f"Structured Streaming failed:\n{errors[-3000:]}")
    found: dict[str, float] = json.loads(output.strip().splitlines()[-1])
    return found


def run_structured_streaming(port: int, seconds: float) -> None:
    """The query; prints its latencies."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F

    builder = SparkSession.Builder().master("local[2]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port)
    parts = F.split("value", ",")
    readings = lines.load().select(
        parts[0].cast("bigint").alias("number"),
        parts[1].cast("bigint").alias("made"),
        parts[2].cast("double").alias("value"),
        F.timestamp_micros(parts[1].cast("bigint")).alias("at"),
    )
    unique = readings.withWatermark("at", "10 seconds").dropDuplicatesWithinWatermark(["number"])
    latencies: list[Any] = []
    started: list[float] = []

    def take(frame: DataFrame, batch: int) -> None:
        made = frame.select("made").toArrow()["made"].to_numpy()
        if not started and len(made):
            started.append(time.monotonic())
        if started and time.monotonic() - started[0] > WARM_SECONDS:
            latencies.append(time.time_ns() // 1000 - made)

    checkpoint = tempfile.mkdtemp(prefix="holdfast-streams-spark-")
    query = unique.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
    while not started or time.monotonic() - started[0] < WARM_SECONDS + seconds:
        time.sleep(0.1)
    found = _percentiles(latencies)
    query.stop()
    shutil.rmtree(checkpoint, ignore_errors=True)
    print(json.dumps(found), flush=True)


def _percentiles(latencies: list[Any]) -> dict[str, float]:
    values = np.concatenate(latencies) / 1000.0
    return {
        "p50_ms": round(float(np.percentile(values, 50)), 1),
        "p99_ms": round(float(np.percentile(values, 99)), 1),
        "tuples": len(values),
    }


def measure(seconds: float, rounds: int = 1) -> dict[str, Any]:
    """Both, turn about; the medians."""
    ours, longer, theirs = [], [], []
    for _ in range(rounds):
        ours.append(measure_holdfast(seconds))
        longer.append(measure_holdfast(seconds, LONGER_BUCKET_MS))
        theirs.append(measure_structured_streaming(seconds))

    def median(found: list[dict[str, float]], key: str) -> float:
        return statistics.median(each[key] for each in found)

    p50, other = median(ours, "p50_ms"), median(theirs, "p50_ms")
    return {
        "e2e_p50_ms": p50,
        "e2e_p99_ms": median(ours, "p99_ms"),
        "e2e_bucket_ms": BUCKET_MS,
        f"e2e_bucket_{LONGER_BUCKET_MS}_p50_ms": median(longer, "p50_ms"),
        f"e2e_bucket_{LONGER_BUCKET_MS}_p99_ms": median(longer, "p99_ms"),
        f"e2e_bucket_{LONGER_BUCKET_MS}_ratio": round(median(longer, "p50_ms") / other, 2),
        "structured_streaming_p50_ms": other,
        "structured_streaming_p99_ms": median(theirs, "p99_ms"),
        "e2e_ratio": round(p50 / other, 2),
        "e2e_tuples": [int(each["tuples"]) for each in ours],
    }


if __name__ == "__main__":
    if len(sys.argv) > 2:
        run_structured_streaming(int(sys.argv[1]), float(sys.argv[2]))
    else:
        print(json.dumps(measure(15.0)))
