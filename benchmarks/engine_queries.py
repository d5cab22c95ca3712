"""Ten queries in one network, beside one of them alone: over three sources, or over one of them
with expressions that only Spark can compute.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.frames import TIME
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.version import Version

SOURCES = ("sales", "returns", "visits")
SCHEMA = "item bigint, shop int, price int"
BUCKET_US = 1_000_000


def network_of(spark: SparkSession, queries: int, expressions: bool = False) -> Network:
    """``queries`` of ten: over every source, by item, by shop or in all, in several windows."""
    network = Network(f"queries-{queries}", bucket="1 second", partitions=2, spark=spark)
    if expressions:
        _add_expressions(network, queries)
        return network
    wanted = [(SOURCES[index % 3], index) for index in range(queries)]
    streams = {name: network.source(name, SCHEMA) for name in SOURCES if name in dict(wanted)}
    for name, index in wanted:
        keys = (["item"], ["shop"], ["item", "shop"], [])[index % 4]
        grouped = streams[name].groupBy(window(f"{5 + index} seconds"), *keys)
        total, sales = F.sum("price").alias("total"), F.count("*").alias("sales")
        grouped.agg(total, sales).output(f"query_{index}")
    return network


def _add_expressions(network: Network, queries: int) -> None:
    """All over one column of Spark's, each with a filter of its own that is Spark's, too."""
    shelf = F.upper(F.concat(F.lit("shelf "), F.col("shop").cast("string")))
    sales = network.source(SOURCES[0], SCHEMA).withColumn("shelf", shelf)
    for index in range(queries):
        some = sales.filter(f"item % 10 <> {index}")
        grouped = some.groupBy(window(f"{5 + index} seconds"), "shelf")
        grouped.agg(F.sum("price").alias("total")).output(f"query_{index}")


def tuples_of(source: int, bucket: int, count: int) -> pa.Table:
    random = np.random.default_rng(source * 1000 + bucket)
    stime = np.sort(random.integers(0, BUCKET_US, count)) + bucket * BUCKET_US
    times = pa.array(stime, TIME)
    return pa.table(
        {
            "stime": times,
            "tmax": times,
            "seq": pa.array(np.arange(bucket * count, (bucket + 1) * count)),
            "item": pa.array(random.integers(0, 1000, count)),
            "shop": pa.array(random.integers(0, 20, count), pa.int32()),
            "price": pa.array(random.integers(0, 1000, count), pa.int32()),
        }
    )


def compare_queries(
    spark: SparkSession, buckets: int, count: int, expressions: bool = False
) -> dict[str, Any]:
    """Both networks in turns, bucket by bucket; the median of each, and their ratio."""
    versions = {
        queries: Version(Engine(network_of(spark, queries, expressions))) for queries in (1, 10)
    }
    times: dict[int, list[float]] = {queries: [] for queries in versions}
    for bucket in range(buckets):
        for queries, version in versions.items():
            tables = {
                name: tuples_of(at, bucket, count)
                for at, name in enumerate(SOURCES)
                if name in version.engine.input_schemas
            }
            begin = time.perf_counter()
            version.advance([Bucket(bucket * BUCKET_US, (bucket + 1) * BUCKET_US, tables)])
            times[queries].append(time.perf_counter() - begin)
    for version in versions.values():
        version.engine.close()
    medians = {q: statistics.median(each[buckets // 3 :]) * 1000 for q, each in times.items()}
    return {
        "one_query_ms": medians[1],
        "ten_queries_ms": medians[10],
        "ten_queries_over_one": medians[10] / medians[1],
    }
