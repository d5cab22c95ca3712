"""Structured Streaming for benchmark failover: a driver, and a supervisor that restarts it.

Tuples arrive as CSV files, one every 100 ms, because a driver that is to survive needs a source
that can be read again, and files are the one that Spark brings along. The query keeps its state
in the default store with a checkpoint on disk and triggers as soon as the last batch is done.
Results go over a socket to the client, which outlives the driver.

    python -m benchmarks.failover_spark PORT INPUT CHECKPOINT     the driver
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.failover_files import Files
from benchmarks.failover_load import Received, now_us, numbers_of
from benchmarks.streams_arrivals import TUPLES_PER_TURN, Arrivals


class StructuredStreaming:
    """The query under its supervisor; ``kill`` kills the driver with its JVM."""

    def __init__(self) -> None:
        self._temporary = tempfile.TemporaryDirectory(prefix="holdfast-failover-spark-")
        self._root = Path(self._temporary.name)
        self._input = self._root / "input"
        self._files = Files(self._input)
        self.received = Received()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stopping = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()
        self._driver = self._spawn()
        self._supervisor = threading.Thread(target=self._supervise, daemon=True)
        self._supervisor.start()
        self._arrivals = Arrivals(self._files.send)

    def kill(self) -> int:
        """kill -9; when that was."""
        at = now_us()
        os.killpg(self._driver.pid, signal.SIGKILL)
        return at

    def stop(self, settle_s: float) -> dict[str, Any]:
        """Send no more, let the rest come, and compare."""
        self._arrivals.stop()
        self._files.write()
        wanted = self._files.sent // TUPLES_PER_TURN * (len(np.unique(numbers_of(0))))
        self.received.wait_tuples(wanted, settle_s)
        self._stopping.set()
        self._supervisor.join(10.0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._driver.pid, signal.SIGKILL)
        self._driver.wait(10.0)
        self._listener.close()
        found = self.received.compare(self._files.sent)
        self._temporary.cleanup()
        return found

    def _spawn(self) -> subprocess.Popen[bytes]:
        port = str(self._listener.getsockname()[1])
        with (self._root / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "benchmarks.failover_spark",
                    port,
                    str(self._input),
                    str(self._root / "checkpoint"),
                ],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def _supervise(self) -> None:
        """Start it again as soon as it is gone."""
        while not self._stopping.wait(0.005):
            if self._driver.poll() is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self._driver.pid, signal.SIGKILL)
                self._driver = self._spawn()

    def _serve(self) -> None:
        while not self._stopping.is_set():
            try:
                connection = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._take, args=(connection,), daemon=True).start()

    def _take(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while len(head := stream.read(8)) == 8:
                (count,) = struct.unpack("<q", head)
                values = np.frombuffer(stream.read(16 * count), dtype=np.int64)
                if len(values) == 2 * count:
                    self.received.take(values[:count], values[count:])


def run_driver(port: int, directory: str, checkpoint: str) -> None:
    """The query, until it is killed."""
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F

    builder = SparkSession.Builder().master("local[2]")
    for key, value in {
        "spark.ui.enabled": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.streaming.minBatchesToRetain": "2",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    }.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    files = spark.readStream.schema("number bigint, made bigint, value double").csv(directory)
    readings = files.withColumn("at", F.timestamp_micros("made"))
    unique = readings.withWatermark("at", "10 seconds").dropDuplicatesWithinWatermark(["number"])
    client = socket.create_connection(("127.0.0.1", port))

    def take(frame: DataFrame, batch: int) -> None:
        found = frame.select("number", "made").toArrow()
        columns = [found[name].to_numpy().tobytes() for name in ("number", "made")]
        client.sendall(struct.pack("<q", found.num_rows) + b"".join(columns))

    query = unique.writeStream.foreachBatch(take).option("checkpointLocation", checkpoint).start()
    parent = os.getppid()
    while query.isActive and os.getppid() == parent:
        time.sleep(0.2)
    raise SystemExit(str(query.exception()))


if __name__ == "__main__":
    run_driver(int(sys.argv[1]), sys.argv[2], sys.argv[3])
