"""A join that keeps more and more: what a bucket takes beside the number of tuples it remembers."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast import Network
from holdfast.frames import TIME
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.version import Version

SIDES = ("left", "right")
SIZES = (10_000, 100_000, 1_000_000)
# Buckets so short that all of them are in reach of the tuples that came first.
BUCKET_US = 1_000
TUPLES = 1_500
# Keys of the one side's first tuples and those of the other's; what comes later takes the other's.
_APART = 1 << 40
_AT_ONCE = 100_000


def sweep_joins(spark: SparkSession, buckets: int) -> dict[str, Any]:
    """The median time of a bucket for each number of kept tuples, in turn.

    Each tuple of a bucket finds one partner, which is one of those that came first.
    """
    network = Network("joins", bucket="1 second", partitions=2, spark=spark)
    left, right = (network.source(name, f"item bigint, {name[0]} int") for name in SIDES)
    left.join(right, "item", within="10 s").output("pairs")
    engine = Engine(network)
    versions = [Version(engine) for _ in SIZES]
    for size, version in zip(SIZES, versions, strict=True):
        for bucket in _openings(size // 2):
            version.advance([bucket])
    random = np.random.default_rng(11)
    times: list[list[float]] = [[] for _ in SIZES]
    for index in range(buckets):
        for turn in range(len(SIZES)):
            at = (index + turn) % len(SIZES)  # nobody always comes after the largest
            keys = random.choice(SIZES[at] // 2, (len(SIDES), TUPLES // 2))
            bucket = _bucket(SIZES[-1] + index * BUCKET_US, [keys[0] + _APART, keys[1]])
            begin = time.perf_counter()
            pairs = versions[at].advance([bucket])["pairs"]
            times[at].append(time.perf_counter() - begin)
            assert pairs.num_rows == TUPLES // 2 * len(SIDES), pairs.num_rows
    engine.close()
    return {
        str(size): {"median_ms": statistics.median(each[buckets // 3 :]) * 1000}
        for size, each in zip(SIZES, times, strict=True)
    }


def _openings(size: int) -> Iterator[Bucket]:
    """One tuple on either side for each of so many items of its own."""
    for first in range(0, size, _AT_ONCE):
        items = np.arange(first, min(first + _AT_ONCE, size))
        yield _bucket(first, [items, items + _APART], 1)


def _bucket(start: int, keys: list[Any], length: int = BUCKET_US) -> Bucket:
    tables = {}
    for name, items in zip(SIDES, keys, strict=True):
        times = pa.array(start + np.arange(len(items)) * length // len(items), TIME)
        columns = {"stime": times, "tmax": times, "seq": pa.array(np.arange(len(items)) + start)}
        values = pa.array(np.arange(len(items)), pa.int32())
        tables[name] = pa.table({**columns, "item": pa.array(items), name[0]: values})
    return Bucket(start, start + length, tables)
