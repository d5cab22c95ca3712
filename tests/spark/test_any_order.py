"""Aggregates that do not depend on order: the same bits, however the tuples lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Aggregator, Network, aggregate, window
from holdfast.frames import TIME
from holdfast.operators import StatefulOperator
from holdfast.spark.aggregate import Aggregate
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.folds import Fold
from holdfast.spark.version import Version

SECOND = 1_000_000


class Longest(Aggregator):
    state_type = "bigint"
    result_type = "bigint"
    any_order = True

    def reduce(self, values: pa.Array) -> Any:
        return max((len(each) for each in values.to_pylist()), default=0)

    def merge(self, earlier: Any, later: Any) -> Any:
        return max(earlier, later)

    def finish(self, state: Any) -> Any:
        return state


class Last(Longest):
    any_order = False


def tuples(count: int) -> pa.Table:
    random = np.random.default_rng(1)
    stime = np.sort(random.integers(0, 3 * SECOND, count))
    values = random.normal(size=count) * 10.0 ** random.integers(-12, 12, count)
    values[::17] = np.where(np.arange(len(values[::17])) % 2, 0.0, -0.0)
    return pa.table(
        {
            "stime": pa.array(stime, TIME),
            "tmax": pa.array(stime, TIME),
            "seq": pa.array(np.arange(count)),
            "k": pa.array(random.integers(0, 3, count)),
            "v": pa.array(values),
            "s": pa.array([str(each)[:5] for each in values]),
        }
    )


def test_the_order_of_the_tuples_changes_no_bit(spark: SparkSession) -> None:
    network = Network("any-order", bucket="1 second", spark=spark)
    source = network.source("s", "k bigint, v double, s string")
    kinds = [F.count("*"), F.sum("v"), F.avg("v"), F.stddev("v"), F.min("v"), F.max("v")]
    named = [kind.alias(f"a{index}") for index, kind in enumerate(kinds)]
    longest = aggregate(Longest(), "s").alias("longest")
    source.groupBy(window("2 seconds", "1 second"), "k").agg(*named, longest).output("out")
    engine = Engine(network)
    whole = tuples(400)
    found = []
    for order in (np.arange(400), np.random.default_rng(2).permutation(400)):
        version = Version(engine)
        given = whole.take(pa.array(order))
        found.append(version.advance([Bucket(0, 6 * SECOND, {"s": given})], 6 * SECOND)["out"])
    engine.close()
    assert found[0].num_rows > 6
    assert _bytes(found[0]) == _bytes(found[1])  # to which -0.0 is not 0.0


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    found: bytes = sink.getvalue().to_pybytes()
    return found


def test_user_code_depends_on_order_unless_it_says_otherwise() -> None:
    for aggregator, depends in ((Longest(), False), (Last(), True)):
        typed = aggregate(aggregator, "s").with_types(pa.string())
        fold = Fold("user", "in", ("out",), (pa.int64(),), typed)
        assert fold.depends_on_order == depends
    assert Fold("first", "in", ("out",), (pa.int64(),)).depends_on_order
    assert not Fold("add_exactly", "in", ("out",), (pa.int64(),)).depends_on_order


def test_what_aggregates_of_one_column_rest_on_is_kept_once(spark: SparkSession) -> None:
    network = Network("shared", spark=spark)
    source = network.source("s", "k bigint not null, v double, w double")
    wanted = ["sum(v)", "avg(v)", "stddev(v)", "count(v)", "count(1)", "avg(k)", "sum(w)"]
    grouped = source.groupBy(window("1 second"))
    stream = grouped.agg(*(f"{each} AS a{at}" for at, each in enumerate(wanted)))
    operator = stream.operator
    assert isinstance(operator, StatefulOperator)
    assert isinstance(operator.stateful, Aggregate)
    folds = [fold for each in operator.stateful.aggregations for fold in each.folds]
    assert [(fold.kind, fold.columns[0]) for fold in folds] == [
        ("add_exactly", "a0_add_exactly"),
        ("add_long", "a0_count"),
        ("add_squares", "a2_squares"),
        ("count", "a4_count"),
        ("add_long", "a5_add_long"),
        ("add_exactly", "a6_add_exactly"),
        ("add_long", "a6_count"),
    ]
    # Each does what it would do alone.
    alone = {
        f"a{at}": source.groupBy(window("1 second")).agg(f"{each} AS a{at}")
        for at, each in enumerate(wanted)
    }
    for name, one in {**alone, "all": stream}.items():
        one.output(name)
    engine = Engine(network)
    whole = tuples(300).append_column("w", tuples(300)["v"]).drop_columns(["s"])
    found = Version(engine).advance([Bucket(0, 3 * SECOND, {"s": whole})])
    engine.close()
    for name in alone:
        assert found["all"][name].combine_chunks().equals(found[name][name].combine_chunks())
