"""What the engine refuses to process, because it would give wrong results silently."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from holdfast import HoldfastError, Network
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import EMPTY
from holdfast.testing import tuples


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
