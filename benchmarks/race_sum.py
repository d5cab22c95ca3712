"""What it costs that sums of doubles do not depend on the order: exact ones beside a left fold.

Both are the same query over the same tuples, in turns, bucket by bucket, on one engine each: a sum
and an average, which rest on one sum. The left fold needs the tuples in order and keeps a double;
the exact one takes them as they come and keeps two (spark/exact_sum.py).

What else the machine does changes within seconds, and who comes first finds the tuples in no cache.
So what is compared are two buckets in a row, in which each was first once; the figure is the median
over all such pairs.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Sequence
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
# A window is 5 s.
WINDOW_BUCKETS = 10


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


def _left_fold(call: Any, kept: Any) -> Fold:
    """In the place of the exact sum, and shared as that is."""
    name = f"{call.prefix}_left"
    fold = LeftFold("left fold", f"{name}_in", (name,), (pa.float64(),))
    value = F.coalesce(F.expr(call.argument).cast("double"), F.lit(0.0))
    shared: Fold = kept.shared("left fold", call.argument, value, fold)
    return shared


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
    with mock.patch.object(aggregate_functions, "_exactly", _left_fold):
        ordered = Version(_engine(spark, "left-fold"))
    versions = {"ordered": ordered, "exact": Version(_engine(spark, "exact"))}
    times: dict[str, list[float]] = {name: [] for name in versions}
    sizes: dict[str, float] = {}
    for bucket in range(buckets):
        table = _tuples(bucket)
        edges = (bucket * BUCKET_US, (bucket + 1) * BUCKET_US)
        # Each is first as often as the other.
        for name in sorted(versions, reverse=bool(bucket % 2)):
            begin = time.perf_counter()
            versions[name].advance([Bucket(*edges, {"readings": table})])
            times[name].append(time.perf_counter() - begin)
            if bucket == buckets // 2 // WINDOW_BUCKETS * WINDOW_BUCKETS:  # its windows are open
                sizes[name] = versions[name].pack().nbytes / KEYS
    for version in versions.values():
        version.engine.close()
    return {
        "exact_sum_cost": _pairwise(times["ordered"], times["exact"]),
        **{
            f"{name}_ms": statistics.median(each[buckets // 4 :]) * 1e3
            for name, each in times.items()
        },
        **{f"{name}_bytes": size for name, size in sizes.items()},
    }


def _pairwise(above: Sequence[float], below: Sequence[float]) -> float:
    """The median ratio of two neighbours to two neighbours, after the first quarter."""
    pairs = range(len(above) // 8 * 2, len(above) - 1, 2)
    return statistics.median(sum(above[at : at + 2]) / sum(below[at : at + 2]) for at in pairs)
