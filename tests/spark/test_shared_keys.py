"""Tuples that share time and ``seq`` are all there, in one order, however they are divided.

Behind joins and windows ``seq`` is a hash, and a hash is not a key: some day two tuples of one time
share it. Here nearly all do.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.groups import in_stream_order
from holdfast.spark.merging import Merge, MergeEngine
from holdfast.spark.state import EMPTY
from holdfast.testing import ipc_bytes, run, same_rows, split
from tests.spark.networks import every_kind_of_state, some_tables
from tests.spark.support import SECOND

CUTS = [0, 700_000, 1_500_000, 3_600_000, 9 * SECOND]


def sharing(table: pa.Table) -> pa.Table:
    """The same tuples at a few times, and with two different ``seq``."""
    at = table.column_names.index("seq")
    table = table.set_column(at, "seq", pa.array(table["seq"].to_numpy() % 2))
    for name in ("stime", "tmax"):
        at = table.column_names.index(name)
        micros = table[name].cast(pa.int64()).to_numpy() // 200_000 * 200_000
        table = table.set_column(at, table.field(at), pa.array(micros).cast(table.field(at).type))
    return table


def test_the_order_does_not_hang_on_how_tuples_came(spark: SparkSession) -> None:
    engine = Engine(every_kind_of_state(spark))
    tables = {name: sharing(table) for name, table in some_tables(engine, 21, 150).items()}
    shuffled = {
        name: table.take(pa.array(np.random.default_rng(3).permutation(table.num_rows)))
        for name, table in tables.items()
    }
    whole = run(engine, [Bucket(0, 9 * SECOND, {k: in_stream_order(t) for k, t in tables.items()})])
    ordered = {name: in_stream_order(table) for name, table in shuffled.items()}
    parts = run(Engine(every_kind_of_state(spark, partitions=2)), split(ordered, CUTS))
    for name, table in parts.items():
        assert ipc_bytes(table) == ipc_bytes(whole[name]), name
    found = whole["pairs"].select(["stime", "seq"]).to_pandas()
    assert found.duplicated().sum() > 10, "pairs that share time and seq"


def test_merged_shards_are_one_stream_where_groups_share_their_keys(spark: SparkSession) -> None:
    network = Network("groups", spark=spark)
    source = network.source("l", "k string, n bigint")
    source.groupBy(window("1 s"), "k").agg(F.sum("n").alias("n")).output("sums")
    engine = Engine(network)
    rows = [(i * 10_000, f"key{i % 37}", i) for i in range(400)]
    schema = engine.input_schemas["l"]
    times = pa.array([row[0] for row in rows]).cast(schema.field("stime").type)
    given = {"stime": times, "tmax": times, "seq": pa.array(range(400))}
    given |= {"k": pa.array([row[1] for row in rows]), "n": pa.array([row[2] for row in rows])}
    table = pa.table({name: given[name] for name in schema.names}, schema=schema)
    sums = engine.advance(EMPTY, [Bucket(0, 5 * SECOND, {"l": table})], 5 * SECOND).outputs["sums"]
    shared = in_stream_order(
        sums.set_column(sums.column_names.index("seq"), "seq", pa.array(np.zeros(len(sums), "i8")))
    )
    random = np.random.default_rng(5)
    home = random.integers(0, 3, shared.num_rows)
    streams = {f"sums.{i}": shared.filter(pa.array(home == i)) for i in range(3)}
    merge = MergeEngine(Merge(dict.fromkeys(streams, shared.schema), {"sums": tuple(streams)}))
    merged = merge.advance(EMPTY, [Bucket(0, 5 * SECOND, streams)], 5 * SECOND).outputs["sums"]
    assert ipc_bytes(merged.combine_chunks()) == ipc_bytes(shared.combine_chunks())
    same_rows(merged, sums, "sums")
