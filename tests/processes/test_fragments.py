"""Fragments of a network: what each reads and serves, and that together they are the network."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, NetworkError, count_window, window
from holdfast.cluster.networks import load_network
from holdfast.fragments import fragment_names, fragment_network, plan_fragments, stream_schema_of
from holdfast.frames import TIME
from holdfast.testing.undisturbed import undisturbed

EXAMPLE = Path(__file__).parents[2] / "examples" / "deployment"


def test_a_chain(spark: SparkSession) -> None:
    network = load_network(EXAMPLE / "network.py", "local[2]", {})
    plans = {plan.name: plan for plan in plan_fragments(network)}
    assert list(plans) == ["main", "summary", "busy"]
    assert list(plans["main"].inputs) == ["load"]
    (served,) = plans["main"].outputs
    assert list(plans["summary"].inputs) == [served.stream] == ["main.map_1"]
    assert plans["summary"].inputs[served.stream] == served.schema
    (busy,) = plans["busy"].outputs
    assert busy.stream == "busy"
    assert busy.reached_by == frozenset(plans["busy"].inputs)


def test_a_join_of_two_fragments_with_an_output_in_the_middle(spark: SparkSession) -> None:
    network = Network("joined", spark=spark)
    left = network.source("left", "k bigint, v double", fragment="left")
    right = network.source("right", "k bigint, w double").filter("w > 0").fragment("both")
    sums = left.groupBy(window("1 second"), "k").agg(F.sum("v").alias("v"))
    sums.output("sums")
    joined = right.join(sums.drop("window").fragment("both"), on="k", within="2 seconds")
    joined.output("joined")
    plans = {plan.name: plan for plan in plan_fragments(network)}
    assert set(plans) == {"left", "main", "both"}
    assert {each.stream for each in plans["left"].outputs} == {"sums", "left.drop_1"}
    assert set(plans["both"].inputs) == {"main.filter_1", "left.drop_1"}
    assert plans["both"].blocking
    assert not plans["left"].blocking

    times = np.arange(0, 4_000_000, 10_000)
    rows = {
        name: pa.table(
            {
                "stime": pa.array(times).cast(TIME),
                "tmax": pa.array(times).cast(TIME),
                "k": times // 10_000 % 3,
                column: np.sin(times),
            },
            schema=stream_schema_of(network.sources[name]),
        )
        for name, column in (("left", "v"), ("right", "w"))
    }
    streams = undisturbed(network, rows)
    assert streams["sums"].num_rows == 12
    assert streams["joined"].num_rows > 100


def _crossing(spark: SparkSession, fragments: tuple[str, str, str]) -> Network:
    """Tuples of one time from several sources, in front of operators that mind their order."""
    network = Network("crossing", bucket="1 second", spark=spark)
    first, second, last = fragments
    left = network.source("left", "k bigint, v double", fragment=first)
    right = network.source("right", "k bigint, v double", fragment=second)
    many = right.transform(lambda df: df.select("k", F.explode(F.expr("array(v, -v)")).alias("v")))
    both = left.filter("v > 0").fragment(last).union(many.filter("v < 0.5").fragment(last))
    counted = both.groupBy(count_window(3), "k")
    counted.agg(F.first("v").alias("first"), F.last("v").alias("last")).output("counted")
    both.output("both")
    return network


def test_cutting_a_network_changes_no_bit(spark: SparkSession) -> None:
    """A tuple's key is of the network: the order of tuples of one time is the same everywhere."""
    times = np.repeat(np.arange(0, 3_000_000, 100_000), 20)
    rows = np.random.default_rng(7)
    found = []
    sources = {
        name: pa.table(
            {
                "stime": pa.array(times).cast(TIME),
                "tmax": pa.array(times).cast(TIME),
                "k": rows.integers(0, 3, len(times)),
                "v": rows.normal(size=len(times)),
            }
        )
        for name in ("left", "right")
    }
    for fragments in (("main", "main", "main"), ("left", "right", "both")):
        network = _crossing(spark, fragments)
        given = {
            name: table.cast(stream_schema_of(network.sources[name]))
            for name, table in sources.items()
        }
        streams = undisturbed(network, given)
        found.append({name: streams[name] for name in ("both", "counted")})
    assert found[0]["counted"].num_rows > 200
    assert found[1] == found[0]


def test_fragments_that_would_wait_for_each_other_are_refused(spark: SparkSession) -> None:
    network = Network("around", spark=spark)
    there = network.source("load", "k bigint", fragment="here").fragment("there")
    there.filter("k > 0").fragment("here").output("back")
    there.output("there")
    with pytest.raises(NetworkError, match="'here' reads 'there' reads 'here'"):
        plan_fragments(network)


def test_a_fragment_that_is_not_there_is_named(spark: SparkSession) -> None:
    network = Network("small", spark=spark)
    network.source("load", "k bigint").filter("k > 0").output("out")
    assert fragment_names(network) == ["main"]
    with pytest.raises(NetworkError, match="no fragment 'other'"):
        fragment_network(network, "other")
