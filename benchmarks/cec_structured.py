"""Structured Streaming for the benchmark cec: restores the same state from RocksDB.

A process of its own, with Spark warm. The query keeps one row for each item, its count and sum,
in RocksDB with changelog checkpointing. It takes the sales, one file a batch, is stopped, and is
started again with one more file. The time from its start to the end of that batch is what a
restart takes. Prints one line of JSON: the seconds of each restart.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

ITEMS = 100_000
SALES = 30_000
BATCHES = 10


def main(restarts: int) -> None:
    spark = _session()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-spark-") as temporary:
        root = Path(temporary)
        (root / "in").mkdir()
        random = np.random.default_rng(1)
        _write(root, 0, random.permutation(ITEMS))
        for number in range(1, BATCHES):
            _write(root, number, random.integers(0, ITEMS, SALES))
        _run(spark, root)
        seconds = []
        for number in range(BATCHES, BATCHES + restarts):
            _write(root, number, random.integers(0, ITEMS, SALES))
            begun = time.perf_counter()
            batches = _run(spark, root)
            seconds.append(time.perf_counter() - begun)
            if batches != 1:
                raise SystemExit(f"a restart ran {batches} batches, one was expected")
    print(json.dumps({"restart_s": seconds}), flush=True)


def _session() -> SparkSession:
    package = "org.apache.spark.sql.execution.streaming.state"
    builder = SparkSession.Builder().master("local[2]")
    settings = {
        "spark.driver.memory": "4g",
        "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.shuffle.compress": "false",
        "spark.sql.streaming.noDataMicroBatches.enabled": "false",
        "spark.sql.streaming.stateStore.providerClass": f"{package}.RocksDBStateStoreProvider",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    }
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def _write(root: Path, number: int, items: np.ndarray[tuple[int], np.dtype[np.int64]]) -> None:
    random = np.random.default_rng(number)
    prices = pa.array(random.integers(1, 1_000, len(items)), pa.int32())
    table = pa.table({"item": pa.array(items), "price": prices})
    hidden = root / f"{number:05}.parquet"
    pq.write_table(table, hidden, compression="none")
    hidden.rename(root / "in" / hidden.name)


def _run(spark: SparkSession, root: Path) -> int:
    """Take every file that is there, one a batch; how many batches that were."""
    files = spark.readStream.schema("item bigint, price int").option("maxFilesPerTrigger", 1)
    prices = files.parquet(str(root / "in")).groupBy("item").agg(F.avg("price").alias("price"))
    writer = prices.writeStream.outputMode("update").format("noop")
    writer = writer.option("checkpointLocation", str(root / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    found = [each for each in query.recentProgress if each["numInputRows"]]
    # The operator's rows must be there, or nothing would have been restored.
    rows = found[-1]["stateOperators"][0]["numRowsTotal"]
    if rows != ITEMS:
        raise SystemExit(f"the state has {rows} rows, expected {ITEMS}")
    return len(found)


if __name__ == "__main__":
    main(int(sys.argv[1]))
