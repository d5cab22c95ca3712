"""When a state has a result though no tuple comes."""

from __future__ import annotations

import random

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, Stream, count_window, session_window, window
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import EMPTY
from holdfast.spark.task import FOREVER
from holdfast.testing import tuples
from tests.spark.support import PLAIN, SECOND, plain_row

END = 4 * SECOND


def _output(source: Stream, other: Stream, kind: str) -> Stream:
    counted = F.count("*").alias("n")
    match kind:
        case "tumbling":
            return source.groupBy(window("700 ms"), "k").agg(counted)
        case "sliding":
            return source.groupBy(window("1500 ms", "400 ms"), "k").agg(counted)
        case "session":
            return source.groupBy(session_window("900 ms"), "k").agg(counted)
        case "window of windows":
            inner = source.groupBy(window("300 ms"), "k").agg(counted)
            return inner.groupBy(window("2 s"), "k").agg(F.sum("n").alias("n"))
        case "outer join":
            other = other.withColumnRenamed("n", "m").select("k", "m")
            return source.join(other, "k", within="600 ms", how="left")
    return source.groupBy(count_window(3), "k").agg(counted)


KINDS = ["tumbling", "sliding", "session", "window of windows", "outer join"]


def _network(spark: SparkSession, kind: str) -> Network:
    network = Network("due", spark=spark)
    left, right = network.source("a", PLAIN), network.source("b", PLAIN)
    _output(left, right, kind).output("o")
    right.filter("n > 1").output("p")
    return network


def _taken(engine: Engine) -> Bucket:
    rng = random.Random(7)
    tables = {
        name: tuples(engine, name, [(rng.randrange(END), *plain_row(rng)) for _ in range(60)])
        for name in ("a", "b")
    }
    return Bucket(0, END, tables)


@pytest.mark.parametrize("kind", KINDS)
def test_the_next_result_is_never_before_it_and_comes_with_it(
    kind: str, spark: SparkSession
) -> None:
    engine = Engine(_network(spark, kind))
    assert engine.due(EMPTY) == FOREVER
    state = engine.advance(EMPTY, [_taken(engine)]).state
    whole = engine.advance(state, [], END + 10 * SECOND).outputs["o"]
    count, steps = 0, 0
    while (due := engine.due(state)) < FOREVER:
        assert due > state.boundary, "what was due is out"
        # Of sessions and tuples of a join only the stretch is known: perhaps the next moment.
        exact = "window" in kind or kind in ("tumbling", "sliding")
        advance = engine.advance(state, [], due if exact else max(due, state.boundary + 50_000))
        times = advance.outputs["o"]["stime"].cast(pa.int64())
        if len(times):
            # The time of a result is the last instant before the boundary that gives it.
            first = pc.min(times).as_py()
            assert first == due - 1 if exact else first >= due - 1
            count += len(times)
        state, steps = advance.state, steps + 1
        assert steps < 100, "it is hardly ever the moment"
    assert count == whole.num_rows > 0
    engine.close()


def test_counted_windows_wait_for_tuples(spark: SparkSession) -> None:
    engine = Engine(_network(spark, "counted"))
    state = engine.advance(EMPTY, [_taken(engine)]).state
    assert state.rows() > 0
    assert engine.due(state) == FOREVER
    engine.close()
