"""What it costs that sums of doubles do not depend on the order: exact ones beside a left fold.

Both are the same query over the same tuples, in turns, bucket by bucket, on one engine each. The
left fold needs the tuples in order and keeps a double; the exact one takes them as they come and
keeps some limbs (spark/exact_sum.py).
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.frames import TIME
from holdfast.spark import aggregate_functions
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.folds import Columns, Fold
from holdfast.spark.groups import Groups
from holdfast.spark.runs import Bools, numbers
from holdfast.spark.version import Version

BUCKET_US = 500_000
TUPLES = 100_000
KEYS = 1_000


@dataclass(frozen=True)
class LeftFold(Fold):
    """The sum as it comes out of adding in stream order."""

    @property
    def depends_on_order(self) -> bool:
        return True

    @property
    def result_types(self) -> tuple[pa.DataType, ...]:
        return self.types

    def finish(self, columns: Columns) -> Columns:
        return columns

    def run(self, values: pa.Array | None, groups: Groups, found: Bools, old: Columns) -> Columns:
        assert values is not None
        total = np.zeros(groups.count, dtype=np.float64)
        total[found] = numbers(old[0])
        np.add.at(total, groups.codes, numbers(values))  # in order, unbuffered
        return [pa.array(total)]


def _left_fold(call: Any) -> tuple[Any, Fold]:
    name = f"{call.prefix}_left"
    value = F.expr(call.argument).cast("double").alias(f"{name}_in")
    return value, LeftFold("left fold", f"{name}_in", (name,), (pa.float64(),))


def _engine(spark: SparkSession, name: str) -> Engine:
    network = Network(name, bucket="500 ms", partitions=2, spark=spark)
    readings = network.source("readings", "server bigint not null, load double not null")
    grouped = readings.groupBy(window("5 seconds"), "server")
    grouped.agg(F.sum("load").alias("total"), F.avg("load").alias("mean")).output("loads")
    return Engine(network)


def _tuples(bucket: int) -> pa.Table:
    random = np.random.default_rng(bucket)
    stime = np.sort(random.integers(0, BUCKET_US, TUPLES)) + bucket * BUCKET_US
    return pa.table(
        {
            "stime": pa.array(stime, TIME),
            "tmax": pa.array(stime, TIME),
            "seq": pa.array(np.arange(bucket * TUPLES, (bucket + 1) * TUPLES)),
            "server": pa.array(random.integers(0, KEYS, TUPLES)),
            "load": pa.array(random.exponential(1.0, TUPLES)),
        }
    )


def exact_sum_cost(spark: SparkSession, buckets: int) -> dict[str, float]:
    """Throughput with exact sums over that with left folds, and the bytes of a window's state."""
    by_value: Callable[[ModuleType], None] = cloudpickle.register_pickle_by_value
    by_value(sys.modules[__name__])  # Spark's workers know nothing of benchmarks
    with mock.patch.object(aggregate_functions, "_total", _left_fold):
        ordered = Version(_engine(spark, "left-fold"))
    versions = {"ordered": ordered, "exact": Version(_engine(spark, "exact"))}
    times: dict[str, list[float]] = {name: [] for name in versions}
    for bucket in range(buckets):
        table = _tuples(bucket)
        edges = (bucket * BUCKET_US, (bucket + 1) * BUCKET_US)
        # Each is first as often as the other.
        for name in sorted(versions, reverse=bool(bucket % 2)):
            begin = time.perf_counter()
            versions[name].advance([Bucket(*edges, {"readings": table})])
            times[name].append(time.perf_counter() - begin)
    sizes = {name: versions[name].pack().nbytes / KEYS for name in versions}
    for version in versions.values():
        version.engine.close()
    medians = {name: statistics.median(each[buckets // 4 :]) for name, each in times.items()}
    return {
        "exact_sum_cost": medians["ordered"] / medians["exact"],
        "ordered_ms": medians["ordered"] * 1e3,
        "exact_ms": medians["exact"] * 1e3,
        "ordered_bytes": sizes["ordered"],
        "exact_bytes": sizes["exact"],
    }
