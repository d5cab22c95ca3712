"""A network with every kind of state, and streams for it.

Run as ``python -m tests.spark.networks MASTER`` it prints a digest of each output, so that
processes with different core counts can be compared.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
import unittest.mock
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, count_window, window
from holdfast.spark import engine as engines
from holdfast.spark.engine import Bucket, Engine, Sharding
from holdfast.spark.process_step import ProcessFunction
from holdfast.spark.session import get_session
from holdfast.testing import ipc_bytes, run, split, tuples
from tests.spark.support import SECOND, Row


def running_total() -> ProcessFunction:
    """Made in a function, so that it travels to the workers by value."""

    def total(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table | None, Any]:
        before, totals = state or 0, []
        for value in rows["n"].to_pylist():
            before += value
            totals.append(before)
        columns = {"stime": rows["stime"], "k": rows["k"], "n": rows["n"]}
        return pa.table({**columns, "total": pa.array(totals, pa.int64())}), before

    return total


def every_third() -> ProcessFunction:
    """Emits every third tuple of a key, then forgets the key."""

    def third(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table | None, Any]:
        seen = state or 0
        picked = [i for i in range(rows.num_rows) if (seen + i) % 3 == 2]
        out = pa.table({"stime": rows["stime"], "k": rows["k"], "n": rows["n"]})
        left = (seen + rows.num_rows) % 3
        return out.take(pa.array(picked, pa.int64())) if picked else None, left or None

    return third


def every_kind_of_state(spark: SparkSession, partitions: int = 2) -> Network:
    """``v`` has doubles whose sums depend on order, ``x`` doubles whose sums do not."""
    network = Network("everything", partitions=partitions, spark=spark)
    left = network.source("l", "k string, n bigint, x double, v double")
    right = network.source("r", "k string, w bigint")
    sums = left.groupBy(window("1 s"), "k").agg(
        F.sum("v").alias("v"),
        F.sum("x").alias("x"),
        F.first("n").alias("first"),
        F.stddev("v").alias("spread"),
        F.max("k").alias("most"),
    )
    sums.output("sums")
    sums.groupBy(window("3 s")).agg(F.max("x").alias("x"), F.count("*").alias("n")).output("chain")
    for name, shape in {"sliding": (3, 2), "tumbling": (3, 3)}.items():
        left.groupBy(count_window(*shape), "k").agg(F.sum("v").alias("v")).output(name)
    joined = left.join(right, "k", within="500 ms", how="left", condition="n < w")
    joined.groupBy(window("2 s", "1 s"), "k").agg(
        F.sum("x").alias("x"), F.count("w").alias("n")
    ).output("joined")
    left.join(right, "k", within="100 ms").select("k", "n", "w").output("pairs")
    left.distinct("k", "n", window=window("1 s")).output("distinct")
    keyed = left.groupBy("k")
    keyed.process(running_total(), "k string, n bigint, total bigint", "bigint").output("totals")
    keyed.process(every_third(), "k string, n bigint", "int").output("thirds")
    return network


def some_rows(seed: int, count: int, start: int = 0, length: int = 6 * SECOND) -> list[Row]:
    """Rows for the source ``l``."""
    rng = random.Random(seed)
    return [
        (
            start + rng.randrange(length),
            rng.choice(["a", "b", "c", "d", "e", None]),
            rng.randrange(6),
            rng.randrange(-40, 40) / 4,
            rng.choice([rng.uniform(-1e6, 1e6), 0.1, 1e16, -1e16, None]),
        )
        for _ in range(count)
    ]


def some_tables(engine: Engine, seed: int, count: int) -> dict[str, pa.Table]:
    rows = some_rows(seed, count)
    others = [(row[0], row[1], row[2] + 1) for row in some_rows(seed + 1, count // 2)]
    return {"l": tuples(engine, "l", rows), "r": tuples(engine, "r", others)}


def large_and_small(engine: Engine) -> list[Bucket]:
    """Four small buckets and a large one between them."""
    small = some_tables(engine, 1, 200)
    many = [(row[0], f"{row[1]}{row[2] * 31 % 97}", *row[2:]) for row in some_rows(3, 600)]
    large = {"l": tuples(engine, "l", [(time // 6 + 2 * SECOND, *rest) for time, *rest in many])}
    middle = split(large, [2 * SECOND, 3 * SECOND])
    before = split(small, [0, SECOND, 2 * SECOND])
    return [*before, *middle, *split(small, [3 * SECOND, 4 * SECOND, 6 * SECOND])]


def digests(engine: Engine) -> dict[str, str]:
    """A digest of every output; the large bucket is spread over tasks if there are cores."""
    with unittest.mock.patch.object(engines, "_SHARDING", Sharding(500, 0, 500)):
        outputs = run(engine, large_and_small(engine))
    return {name: hashlib.sha256(ipc_bytes(table)).hexdigest() for name, table in outputs.items()}


if __name__ == "__main__":
    # One JVM after the other's work: starting and warming up costs more than the buckets.
    for master in sys.argv[1:]:
        session = get_session(master)
        print(json.dumps(digests(Engine(every_kind_of_state(session)))))
        session.stop()
