"""Changed-since checkpoints of operators that forget keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.frames import TIME
from holdfast.network import Network
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.version import Version

SECOND = 1_000_000


def total(key: dict[str, Any], tuples: pa.Table, state: Any) -> tuple[pa.Table, Any]:
    """A running sum; a negative value forgets the key."""
    numbers = tuples["v"].to_pylist()
    result = None if numbers[-1] < 0 else (state or 0) + sum(numbers)
    last = tuples["stime"].slice(len(numbers) - 1)
    return pa.table({"stime": last, "n": pa.array([result], pa.int64())}), result


def bucket(second: int, rows: dict[str, int]) -> Bucket:
    times = pa.array([second * SECOND] * len(rows)).cast(TIME)
    columns = {"stime": times, "tmax": times, "seq": range(len(rows))}
    table = pa.table({**columns, "k": list(rows), "v": list(rows.values())})
    return Bucket(second * SECOND, (second + 1) * SECOND, {"numbers": table})


def test_a_key_forgotten_since_the_last_checkpoint_stays_forgotten(spark: SparkSession) -> None:
    network = Network("sums", bucket="1 second", partitions=1, spark=spark)
    numbers = network.source("numbers", "k string, v bigint")
    numbers.groupBy("k").process(total, "n bigint", "bigint").output("sums")
    primary, secondary = Version(Engine(network)), Version(Engine(network))
    primary.advance([bucket(0, {"a": 5, "b": 6})])
    snapshot = primary.snapshot()
    secondary.unpack(primary.pack())
    primary.advance([bucket(1, {"a": -1, "b": -1, "c": 1})])
    secondary.unpack(primary.pack(snapshot))
    after = bucket(2, {"a": 1, "c": 2})
    wanted = primary.advance([after])["sums"]["n"].to_pylist()
    assert sorted(wanted) == [1, 3]
    assert secondary.advance([after])["sums"]["n"].to_pylist() == wanted
