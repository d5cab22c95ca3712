"""What somebody writes who comes from PySpark: it works, or the message has what to write."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, NetworkError, Stream, window


@pytest.fixture
def load(spark: SparkSession) -> Stream:
    return Network("habits", spark=spark).source("load", "k string, v double, count int")


def test_columns_are_named_as_those_of_a_dataframe(load: Any) -> None:
    plain = load.filter(F.col("v") > 1).schema
    assert load.filter(load["v"] > 1).schema == plain
    assert load.filter(load.v > 1).schema == plain
    assert load.select(load["count"]).columns == ["count"]
    assert load.withColumns({"a": "v * 2", "b": F.col("a") + 1}).columns[-2:] == ["a", "b"]
    assert load.groupby(window("1 second"), "k").count().columns == ["window", "k", "count"]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda s: s.withWatermark("at", "1 second"), "a Stream has no withWatermark: .*lateness"),
        (lambda s: s.orderBy("v"), "a Stream has no orderBy: .*holdfast.top"),
        (lambda s: s.writeStream, r"a Stream has no writeStream: .*\.output"),
        (lambda s: s.agg(F.sum("v")), "a Stream has no agg: .*needs a window"),
        (lambda s: s.filtr("v > 1"), "no attribute 'filtr', and .* it has k, v, count"),
        (lambda s: s.groupBy(window("1 second")).sum("v"), r"no sum: write agg\('sum\(x\)'\)"),
        (lambda s: s.groupBy(window("1 second")).smu("v"), "no attribute 'smu'"),
    ],
)
def test_what_a_stream_has_not_is_said_with_what_to_write(
    load: Stream, build: Callable[[Any], Any], message: str
) -> None:
    with pytest.raises(AttributeError, match=message):
        build(load)


def test_a_column_that_is_none_is_named_with_those_there_are(load: Stream) -> None:
    with pytest.raises(NetworkError, match=r"there is no column 'w'; it has \['k', 'v', 'count'\]"):
        load["w"]
    assert not hasattr(load, "w")


def test_looking_for_what_is_not_there_ends_before_a_stream_is_made() -> None:
    """As copying and unpickling do."""
    with pytest.raises(AttributeError, match="columns"):
        _ = Stream.__new__(Stream).columns
    assert not hasattr(copy.copy(Stream.__new__(Stream)), "operator")
    assert not hasattr(pickle.loads(pickle.dumps(Stream.__new__(Stream))), "v")
