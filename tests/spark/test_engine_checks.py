"""What the engine refuses to process, because it would give wrong results silently."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import HoldfastError, Network, disk, window
from holdfast.disk import Fault
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import EMPTY
from holdfast.testing import tuples
from tests.spark.support import bucket


@pytest.fixture(scope="module")
def engine(spark: SparkSession) -> Engine:
    network = Network("checks", spark=spark)
    network.source("s", "k string").filter("k <> ''").output("o")
    return Engine(network)


def test_a_tuple_belongs_to_the_bucket_of_its_time(engine: Engine) -> None:
    rows = tuples(engine, "s", [(5, "a"), (15, "b")])
    with pytest.raises(HoldfastError, match=r"bucket \[0, 10\) has tuples with stime 5 to 15"):
        engine.advance(EMPTY, [Bucket(0, 10, {"s": rows})])


def test_time_does_not_go_back(engine: Engine) -> None:
    state = engine.advance(EMPTY, [], 100).state
    with pytest.raises(HoldfastError, match="cannot go back"):
        engine.advance(state, [], 50)


def test_an_unknown_input_is_named(engine: Engine) -> None:
    rows = tuples(engine, "s", [(5, "a")])
    with pytest.raises(HoldfastError, match="there is no input 'x'"):
        engine.advance(EMPTY, [Bucket(0, 10, {"x": rows})])


@pytest.mark.parametrize("rows_path", [False, True], ids=["columns", "rows"])
def test_a_full_disk_fails_the_step_and_the_next_try_gives_the_same(
    spark: SparkSession, rows_path: bool
) -> None:
    network = Network("full", spark=spark)
    source = network.source("s", "k string, n bigint")
    if rows_path:
        source = source.withColumn("n", F.col("n") + 0)
    source.groupBy(window("1 second"), "k").agg(F.sum("n").alias("n")).output("out")
    engine = Engine(network)
    given = [bucket(engine, 0, 2_000_000, s=[(1, "a", 1), (2, "b", 2)])]
    expected = engine.advance(EMPTY, given)
    with disk.failing(Fault.named("ENOSPC")), pytest.raises(OSError, match="No space left"):
        engine.advance(EMPTY, given)
    again = engine.advance(EMPTY, given)
    assert again.outputs["out"].equals(expected.outputs["out"])
