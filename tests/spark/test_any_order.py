"""Aggregates that do not depend on order: the same bits, however the tuples lie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from holdfast import Aggregator, Network, aggregate, session_window, window
from holdfast.frames import TIME
from holdfast.operators import StatefulOperator
from holdfast.spark.aggregate import Aggregate
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.folds import Fold
from holdfast.spark.groups import Groups
from holdfast.spark.version import Version
from holdfast.windows import Window
from tests.spark.support import SPARK

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


def tuples(count: int, seed: int = 1) -> pa.Table:
    random = np.random.default_rng(seed)
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


# Every aggregate that is said not to depend on the order; test_order_table has which these are.
KINDS = (
    "count(*)",
    *(f"{name}(v)" for name in ("count", "sum", "avg", "stddev", "min", "max")),
    *(f"{name}(k)" for name in ("sum", "avg", "stddev")),
    "sum(cast(v as decimal(20, 3)))",
    *(f"{name}(s)" for name in ("min", "max", "approx_count_distinct")),
    "approx_count_distinct(v)",
)


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Iterator[Engine]:
    network = Network("any-order", bucket="1 second", spark=spark)
    source = network.source("s", "k bigint, v double, s string")
    named = [f"{kind} AS a{index}" for index, kind in enumerate(KINDS)]
    longest = aggregate(Longest(), "s").alias("longest")
    shapes: dict[str, Window] = {
        "tumbling": window("1 second"),
        "sliding": window("2 seconds", "1 second"),
        "sessions": session_window("20 ms"),
    }
    for name, shape in shapes.items():
        source.groupBy(shape, "k").agg(*named, longest).output(name)
    made = Engine(network)
    yield made
    made.close()


@settings(SPARK)
@given(seed=st.integers(0, 2**31), cuts=st.lists(st.integers(1, 5), unique=True, max_size=3))
def test_the_order_of_the_tuples_changes_no_bit(seed: int, cuts: list[int], engine: Engine) -> None:
    """Nor does how many buckets they come in."""
    whole = tuples(300, seed)
    found = []
    shuffled = whole.take(pa.array(np.random.default_rng(seed).permutation(300)))
    for given_, edges in ((whole, [0, 6]), (shuffled, [0, 6]), (shuffled, [0, *sorted(cuts), 6])):
        version, outputs = Version(engine), list[Mapping[str, pa.Table]]()
        stimes = given_["stime"].cast(pa.int64()).to_numpy()
        for start, stop in pairwise([edge * SECOND for edge in edges]):
            mine = given_.filter(pa.array((stimes >= start) & (stimes < stop)))
            outputs.append(version.advance([Bucket(start, stop, {"s": mine})], stop))
        names = outputs[0]
        found.append({name: pa.concat_tables(each[name] for each in outputs) for name in names})
    assert found[0]["sliding"].num_rows > 6
    assert found[0]["sessions"].num_rows > 6
    for other in found[1:]:
        for name, table in found[0].items():
            assert _bytes(other[name]) == _bytes(table), name  # to which -0.0 is not 0.0


def _bytes(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table.combine_chunks())
    found: bytes = sink.getvalue().to_pybytes()
    return found


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_of_two_zeros_the_negative_one_is_the_smaller(kind: pa.DataType) -> None:
    """Whoever was earlier, in one bucket or in two."""
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        first, second = (pa.array([each], kind) for each in zeros)
        for name, sign in (("min", -1.0), ("max", 1.0)):
            fold = Fold(name, "v", ("v",), (kind,))
            both, one = (Groups(np.zeros(n, np.int64), np.zeros(1, np.int64)) for n in (2, 1))
            none, some = np.zeros(1, np.bool_), np.ones(1, np.bool_)
            nothing = [pa.array([], kind)]
            at_once = fold.run(pa.concat_arrays([first, second]), both, none, nothing)
            before = fold.run(first, one, none, nothing)
            in_turn = fold.run(second, one, some, before)
            for (found,) in (at_once, in_turn):
                assert math.copysign(1.0, found[0].as_py()) == sign, (name, zeros)


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
    assert [(fold.kind, fold.columns[0]) for fold in folds if fold.columns] == [
        ("add_exactly", "a0_add_exactly"),
        ("add_long", "a0_count"),
        ("add_squares", "a2_squares"),
        ("count", "a4_count"),
        ("add_wide", "a5_add_wide"),
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
