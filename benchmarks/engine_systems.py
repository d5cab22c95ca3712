"""The two systems of the engine benchmark, each in a process of its own.

Reads one order a line on standard input, answers one line of JSON on standard output.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from benchmarks.engine_inputs import BUCKET_US, WINDOW_S, Case
from benchmarks.engine_joins import sweep_joins
from benchmarks.engine_queries import compare_queries
from benchmarks.machine import workers_memory_bytes
from holdfast import Network, window
from holdfast.frames import TIME
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.session import get_session
from holdfast.spark.version import Version

SCHEMA = "at timestamp, item bigint, price int"
WINDOW = f"{WINDOW_S} seconds"
# Holdfast runs with the JVM options it ships with; the other system with whichever suit it
# better: those, or the whole JIT and the parallel collector.
JVM_OPTIONS = {
    "small": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "large": "-XX:+UseParallelGC",
}
HEAP = {"spark.driver.memory": "4g"}
# Windows of a sweep are opened a million at a time, each lot in a microsecond of its own; the
# buckets that are timed come a second after.
OPENED_AT_ONCE = 1_000_000
# So many buckets have as many tuples as there are windows, where largest runs are to be merged.
MERGED_AFTER = 40
# A task with nothing to do lets go of what it can after five seconds.
IDLE_S = 7.0


def answer(case: Case, times: list[float], rows: list[Any] | None) -> dict[str, Any]:
    """Times without the warm-up: the first third of the buckets."""
    steady = times[len(times) // 3 :]
    told = {
        "median_ms": statistics.median(steady) * 1000,
        "mean_ms": statistics.fmean(steady) * 1000,
        "p99_ms": float(np.percentile(steady, 99)) * 1000,
        "longest_ms": max(steady) * 1000,
        "case": case.name,
    }
    return told if rows is None else {**told, "rows": rows}


class Holdfast:
    """The query as a Holdfast network, a bucket at a time."""

    def __init__(self) -> None:
        # A driver that lives long and has the machine to itself, as `holdfast run` starts it.
        spark = get_session("local[2]", HEAP, drivers=1)
        self._spark = spark
        network = Network("engine", bucket="1 second", partitions=2, spark=spark)
        source = network.source("sales", SCHEMA, stime="at")
        sums = [F.sum("price").alias("total"), F.count("*").alias("sales")]
        source.groupBy(window(WINDOW), "item").agg(*sums).output("totals")
        self._engine = Engine(network)

    def run(self, case: Case, root: Path, order: dict[str, Any]) -> dict[str, Any]:
        if "queries" in order:
            return compare_queries(
                self._spark, case.buckets, case.tuples, bool(order.get("expressions"))
            )
        if "joins" in order:
            return sweep_joins(self._spark, order["joins"])
        if "sweep" in order:
            return self._sweep([Case(**each) for each in order["sweep"]], root)
        version = Version(self._engine)
        times, rows = [], []
        paths = list(enumerate(sorted(case.directory(root).iterdir())))
        at_once = int(order.get("at_once", 1))
        for first in range(0, len(paths), at_once):
            begin = time.perf_counter()
            ready = [_bucket(case, path, index) for index, path in paths[first : first + at_once]]
            out = version.advance(ready)["totals"]
            times.append(time.perf_counter() - begin)
            if order.get("rows"):
                rows += _rows(out)
        found = answer(case, times, sorted(rows) if order.get("rows") else None)
        return {**found, "tuples_s": case.tuples * at_once / found["mean_ms"] * 1000}

    def _sweep(self, cases: list[Case], root: Path) -> dict[str, Any]:
        """States of different sizes, in turn: what the machine does besides hits all alike."""
        versions = [Version(self._engine) for _ in cases]
        memory_bytes = 0
        for case, version in zip(cases, versions, strict=True):
            for bucket in _openings(case):
                version.advance([bucket])
            version.restore(self._engine.settled(version.snapshot()))
            if case is cases[0]:
                time.sleep(IDLE_S)
                memory_bytes = workers_memory_bytes()  # what workers have anyhow
        sizes = [state_bytes(version) for version in versions]
        times: list[list[float]] = [[] for _ in cases]
        for index in range(cases[0].buckets):
            for turn in range(len(cases)):
                at = (index + turn) % len(cases)  # nobody always comes after the largest
                case = cases[at]
                path = case.directory(root) / f"{index:05}.parquet"
                begin = time.perf_counter()
                versions[at].advance([_bucket(case, path, index)])
                times[at].append(time.perf_counter() - begin)
        time.sleep(IDLE_S)
        more = sum(case.open_windows for case in cases[1:])
        per_window = (workers_memory_bytes() - memory_bytes) / max(1, more)
        merging = _until_merged(cases[-1], versions[-1])
        return {
            str(case.open_windows): {
                **answer(case, took, None),
                "bytes_per_window": size / case.open_windows,
                "memory_per_window": per_window,  # of all of them
                **(merging if case is cases[-1] else {}),
            }
            for case, took, size in zip(cases, times, sizes, strict=True)
        }


def _until_merged(case: Case, version: Version) -> dict[str, float]:
    """The longest bucket and the median until the largest runs have become part of others.

    Tuples are many: of 3,000 a bucket it would take some 1,700 buckets.
    """
    random = np.random.default_rng(11)
    half = case.open_windows // version.engine.partitions // 2
    largest = {run.address for *_, run in version.snapshot().all_runs() if run.rows > half}
    assert largest, "it has settled"
    count = case.open_windows // MERGED_AFTER
    ones = np.ones(count, dtype=np.int32)
    times: list[float] = []
    while largest & {run.address for *_, run in version.snapshot().all_runs()}:
        start, first = version.boundary, case.open_windows + (case.buckets + len(times)) * count
        items = random.choice(case.open_windows, count, replace=False)
        bucket = _table(np.full(count, start), first, items, ones)
        begin = time.perf_counter()
        version.advance([Bucket(start, start + case.bucket_us, {"sales": bucket})])
        times.append(time.perf_counter() - begin)
    return {
        "merging_longest_ms": max(times) * 1000,
        "merging_median_ms": statistics.median(times) * 1000,
    }


def state_bytes(version: Version) -> int:
    """The bytes of the files the state is in; workers map them into memory."""
    return sum(run.size() for *_, run in version.snapshot().all_runs())


def _openings(case: Case) -> Iterator[Bucket]:
    """One tuple for every item: so many windows are open when the first bucket comes."""
    for at, first in enumerate(range(0, case.open_windows, OPENED_AT_ONCE)):
        items = np.arange(first, min(first + OPENED_AT_ONCE, case.open_windows))
        ones = np.ones(len(items), dtype=np.int32)
        table = _table(np.full(len(items), at), first, items, ones)
        yield Bucket(at, at + 1, {"sales": table})


def _bucket(case: Case, path: Path, index: int) -> Bucket:
    read = pq.read_table(path, columns=["at", "item", "price"], use_threads=False)
    stime = read["at"].cast(pa.int64()).to_numpy()
    item, price = read["item"].to_numpy(), read["price"].to_numpy()
    start = index * case.bucket_us + (BUCKET_US if case.open_windows else 0)
    first_id = case.open_windows + index * case.tuples
    table = _table(stime - index * case.bucket_us + start, first_id, item, price)
    return Bucket(start, start + case.bucket_us, {"sales": table})


def _table(stime: Any, first_id: int, item: Any, price: Any) -> pa.Table:
    times = pa.array(stime, TIME)
    return pa.table(
        {
            "stime": times,
            "tmax": times,
            "seq": pa.array(np.arange(first_id, first_id + len(stime))),
            "at": times,
            "item": pa.array(item),
            "price": pa.array(price, pa.int32()),
        }
    )


def _rows(table: pa.Table) -> list[Any]:
    starts = [each["start"].timestamp() for each in table["window"].to_pylist()]
    columns = (table[name].to_pylist() for name in ("item", "total", "sales"))
    return [list(each) for each in zip(starts, *columns, strict=True)]


class StructuredStreaming:
    """The query as Structured Streaming runs it best: one file a trigger, two partitions."""

    def __init__(self, options: str) -> None:
        builder = SparkSession.Builder().master("local[2]")
        settings = {
            **HEAP,
            "spark.driver.extraJavaOptions": JVM_OPTIONS[options],
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.log.level": "ERROR",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.adaptive.enabled": "false",
            "spark.shuffle.compress": "false",
            "spark.sql.streaming.noDataMicroBatches.enabled": "false",
            "spark.sql.streaming.minBatchesToRetain": "2",
            "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
            "spark.sql.streaming.numRecentProgressUpdates": "1000",
        }
        for key, value in settings.items():
            builder = builder.config(key, value)
        self._spark = builder.getOrCreate()

    def run(self, case: Case, root: Path, order: dict[str, Any]) -> dict[str, Any]:
        package = "org.apache.spark.sql.execution.streaming.state"
        stores = {
            "hdfs": f"{package}.HDFSBackedStateStoreProvider",
            "rocksdb": f"{package}.RocksDBStateStoreProvider",
        }
        self._spark.conf.set("spark.sql.streaming.stateStore.providerClass", stores[order["store"]])
        files = self._spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        query = (
            files.parquet(str(case.directory(root)))
            .withWatermark("at", "0 seconds")
            .groupBy(F.window("at", WINDOW), "item")
            .agg(F.sum("price").alias("total"), F.count("*").alias("sales"))
        )
        checkpoint = tempfile.mkdtemp(prefix="holdfast-bench-spark-")
        rows: list[Any] = []
        writer = query.writeStream.outputMode("append").option("checkpointLocation", checkpoint)
        if order.get("rows"):
            writer = writer.foreachBatch(lambda frame, _: rows.extend(_rows(frame.toArrow())))
        else:
            writer = writer.format("noop")
        running = writer.trigger(availableNow=True).start()
        running.awaitTermination()
        progress = [each for each in running.recentProgress if each["numInputRows"]]
        times = [each["durationMs"]["triggerExecution"] / 1000 for each in progress]
        shutil.rmtree(checkpoint, ignore_errors=True)
        return answer(case, times, sorted(rows) if order.get("rows") else None)


def main() -> None:
    kind, _, options = sys.argv[1].partition("-")
    system = Holdfast() if kind == "holdfast" else StructuredStreaming(options)
    for line in sys.stdin:
        order = json.loads(line)
        case = Case(**order["case"])
        print(json.dumps(system.run(case, Path(order["root"]), order)), flush=True)


if __name__ == "__main__":
    main()
