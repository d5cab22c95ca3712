"""All kinds of NaN are one key, and what is written of it does not depend on which came first."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, count_window, window
from holdfast.frames import TIME
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.version import Version

SECOND = 1_000_000
DOUBLES = (0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000, 0, 1 << 63)
FLOATS = (0x7FC00000, 0x7FC00001, 0xFFC00000, 0, 1 << 31)


def tuples(count: int, seed: int) -> pa.Table:
    """Of every kind of NaN, and both zeros."""
    random = np.random.default_rng(seed)
    kinds = random.integers(0, len(DOUBLES), (3, count))
    doubles, floats = np.array(DOUBLES, np.uint64), np.array(FLOATS, np.uint32)
    times = pa.array(np.sort(random.integers(0, 6 * SECOND, count)), TIME)
    return pa.table(
        {
            "stime": times,
            "tmax": times,
            "seq": pa.array(np.arange(count)),
            "d": pa.array(doubles[kinds[0]].view(np.float64)),
            "f": pa.array(floats[kinds[1]].view(np.float32)),
            "v": pa.array(doubles[kinds[2]].view(np.float64)),
        }
    )


def network(spark: SparkSession) -> Network:
    network = Network("nan", bucket="1 second", spark=spark)
    source = network.source("s", "d double, f float, v double")
    nested = source.withColumn("pair", F.struct("d", "f")).withColumn("list", F.array("d"))
    folds = [
        "count(1) AS n",
        *(f"{each}(v) AS {each}" for each in ("sum", "avg", "stddev")),
    ]
    source.groupBy(window("2 seconds"), "d", "f").agg(*folds).output("plain")
    source.groupBy(count_window(7), "d", "f").agg(*folds).output("counts")
    nested.groupBy(window("2 seconds"), "pair", "list").count().output("nested")
    return network


def emitted(engine: Engine, whole: pa.Table, edges: Sequence[int]) -> dict[str, bytes]:
    version, parts = Version(engine), []
    stimes = whole["stime"].cast(pa.int64())
    for start, stop in pairwise(edge * SECOND // 2 for edge in edges):
        mine = whole.filter(pc.and_(pc.greater_equal(stimes, start), pc.less(stimes, stop)))
        parts.append(version.advance([Bucket(start, stop, {"s": mine})], stop))
    found = {}
    for name in parts[0]:
        table = pa.concat_tables(each[name] for each in parts).combine_chunks()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        assert 4 < table.num_rows < whole.num_rows, name
        found[name] = sink.getvalue().to_pybytes()
    return found


def test_which_nan_came_first_changes_no_bit(spark: SparkSession) -> None:
    whole = tuples(250, 8)
    found = []
    for columns in (True, False):
        engine = Engine(network(spark), columns=columns)
        found += [emitted(engine, whole, edges) for edges in ([0, 14], [0, 3, 7, 14])]
        engine.close()
    assert all(each == found[0] for each in found[1:])


def test_doubles_as_keys_are_computed_on_columns(spark: SparkSession) -> None:
    network = Network("keys", spark=spark)
    source = network.source("s", "d double, f float")
    source.groupBy(window("2 seconds"), "d", "f").count().output("plain")
    engine = Engine(network)
    (only,) = engine._column_runner()._stages[False]
    assert not only.in_jvm
    engine.close()
