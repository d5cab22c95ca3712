"""The query of streams_e2e.py in Structured Streaming, as it suits that best.

It is given what suits it best of both state stores, two sets of JVM options (those of a small
driver, and the whole JIT with the parallel collector), and two ways to hand results to Python:
``foreachBatch``, which plans a second query for every batch, and ``foreach``, which calls a
function for every row in a Python worker. A short run of each decides, by its median; the best is
then measured.

The source is the socket source, a trigger begins as soon as the last one is done, the checkpoint is
on disk.
"""

from __future__ import annotations

import itertools
import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from benchmarks.engine_systems import JVM_OPTIONS
from benchmarks.streams_arrivals import TUPLES_PER_TURN, WARM_SECONDS, Arrivals, percentiles

_PACKAGE = "org.apache.spark.sql.execution.streaming.state"
STORES = {
    "hdfs": f"{_PACKAGE}.HDFSBackedStateStoreProvider",
    "rocksdb": f"{_PACKAGE}.RocksDBStateStoreProvider",
}
SINKS = ("foreachBatch", "foreach")
# Of a run that decides what is measured, in a session that is warm.
TRIAL_WARM_SECONDS, TRIAL_SECONDS = 2.0, 3.0

# Store, sink, and for how long it warms up and is measured.
Trial = tuple[str, str, float, float]


def choose() -> tuple[str, str, str]:
    """JVM options, state store and sink of the shortest median latency."""
    found = {}
    for options in JVM_OPTIONS:
        pairs = list(itertools.product(STORES, SINKS))
        warm: Trial = (*pairs[0], WARM_SECONDS, 1.0)
        trials = [warm, *((*pair, TRIAL_WARM_SECONDS, TRIAL_SECONDS) for pair in pairs)]
        for pair, each in zip(pairs, _run(options, trials)[1:], strict=True):
            found[(options, *pair)] = each["p50_ms"]
            print(f"Structured Streaming, {options}, {pair}: {each}", file=sys.stderr, flush=True)
    return min(found, key=lambda each: found[each])


def measure_structured_streaming(choice: tuple[str, str, str], seconds: float) -> dict[str, float]:
    """Its latencies, with what was chosen."""
    options, store, sink = choice
    return _run(options, [(store, sink, WARM_SECONDS, seconds)])[0]


def _run(options: str, trials: list[Trial]) -> list[dict[str, float]]:
    """One run after the other, in one process of their own."""
    with _arriving() as port:
        command = [sys.executable, "-m", "benchmarks.streams_structured", str(port), options]
        done = subprocess.run(
            [*command, json.dumps(trials)],
            capture_output=True,
            text=True,
            timeout=180.0 + sum(warm + seconds for *_, warm, seconds in trials),
            check=False,
        )
    if done.returncode != 0 or not done.stdout:
        raise RuntimeError(f"Structured Streaming failed:\n{done.stderr[-3000:]}")
    found: list[dict[str, float]] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


@contextmanager
def _arriving() -> Iterator[int]:
    """A port at which tuples arrive."""
    listener = socket.create_server(("127.0.0.1", 0))
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
        yield int(listener.getsockname()[1])
    finally:
        arrivals.stop()
        listener.close()


# -- in a process of its own ------------------------------------------------------------


class Latencies:
    """What ``foreach`` calls in a Python worker: a file for each task, one number a row."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._found: list[int] = []

    def open(self, partition: int, epoch: int) -> bool:
        self._found = []
        self._path = Path(self._directory) / f"{epoch:09}-{partition}.npy"
        return True

    def process(self, row: Row) -> None:
        self._found.append(time.time_ns() // 1000 - int(row["made"]))

    def close(self, error: Exception | None) -> None:
        if self._found:
            np.save(self._path, np.array(self._found))


def _session(options: str) -> SparkSession:
    builder = SparkSession.Builder().master("local[2]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": JVM_OPTIONS[options],
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _query(spark: SparkSession, port: int) -> DataFrame:
    lines = spark.readStream.format("socket").option("host", "127.0.0.1").option("port", port)
    parts = F.split("value", ",")
    readings = lines.load().select(
        parts[0].cast("bigint").alias("number"),
        parts[1].cast("bigint").alias("made"),
        parts[2].cast("double").alias("value"),
        F.timestamp_micros(parts[1].cast("bigint")).alias("at"),
    )
    return readings.withWatermark("at", "10 seconds").dropDuplicatesWithinWatermark(["number"])


def _measured(spark: SparkSession, port: int, trial: Trial) -> dict[str, float]:
    store, sink, warm, seconds = trial
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", STORES[store])
    directory = Path(tempfile.mkdtemp(prefix="holdfast-streams-spark-"))
    taken = directory / "taken"
    taken.mkdir()

    def take(frame: DataFrame, batch: int) -> None:
        made = frame.select("made").toArrow()["made"].to_numpy()
        if len(made):
            np.save(taken / f"{batch:09}.npy", time.time_ns() // 1000 - made)

    writer = _query(spark, port).writeStream.option("checkpointLocation", str(directory / "kept"))
    in_batches = sink == "foreachBatch"
    taking = writer.foreachBatch(take) if in_batches else writer.foreach(Latencies(str(taken)))
    query = taking.start()
    while query.isActive and not any(taken.iterdir()):
        time.sleep(0.1)
    time.sleep(warm)
    before = set(taken.iterdir())
    time.sleep(seconds)
    after = set(taken.iterdir()) - before
    query.stop()  # so that all of them are written
    found = [np.load(each) for each in sorted(after)]
    shutil.rmtree(directory, ignore_errors=True)
    return percentiles(found)


def main() -> None:
    port, options, trials = int(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3])
    spark = _session(options)
    print(json.dumps([_measured(spark, port, each) for each in trials]), flush=True)


if __name__ == "__main__":
    main()
