"""Random networks of operators against the oracle.

Every stream has the columns ``k string, n bigint, x double``, so any operator can follow any
other. Sums of ``x`` are exact in whatever order. Operators that depend on the order of tuples
with equal times (count windows, distinct, process) only follow streams whose order the oracle
knows: those in which tuples keep the place they had in their source.

Where the stream is cut into buckets, the tuples of each lie in any order besides: where an operator
needs theirs, the engine sees to it.
"""

from __future__ import annotations

import unittest.mock
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import Column, SparkSession, Window
from pyspark.sql import functions as F

from holdfast import Network, Stream, count_window, window
from holdfast.spark import engine as engines
from holdfast.spark.engine import Engine, Sharding
from holdfast.testing import OracleStream, last_in_order, run, same_bytes, same_rows, split, tuples
from tests.spark.networks import running_total
from tests.spark.support import PLAIN, SPARK, Case, cases, plain_row

STATELESS = ("filter", "map", "union", "explode")
ANY_ORDER = ("tumble", "slide", "no_key", "join", "join")
IN_ORDER = ("count", "distinct", "process")
KEEPS_ORDER = ("filter", "map", "union", "count", "distinct")
SOURCES = ("a", "b")


@dataclass(frozen=True)
class Node:
    """An operator: its kind, the streams it reads by number, and its size in milliseconds."""

    kind: str
    inputs: tuple[int, ...]
    size: int
    variant: int


@st.composite
def networks(draw: st.DrawFn) -> list[Node]:
    """Two to six operators; streams 0 and 1 are the sources."""
    ordered = [True, True]
    nodes: list[Node] = []
    joins = 0
    for _ in range(draw(st.integers(2, 6))):
        # Mostly the newest streams, so that networks are deep rather than wide.
        every = range(len(ordered))
        first = draw(st.sampled_from([*every, *every[len(every) // 2 :]]))
        second = draw(st.integers(0, len(ordered) - 1))
        kinds = [*STATELESS, *ANY_ORDER, *(IN_ORDER * 2 if ordered[first] else ())]
        kind = draw(st.sampled_from([each for each in kinds if each != "join" or joins < 2]))
        joins += kind == "join"
        inputs = (first, second) if kind in ("join", "union") else (first,)
        size = draw(st.sampled_from([300, 500, 1000, 2000]))
        nodes.append(Node(kind, inputs, size, draw(st.integers(0, 2))))
        ordered.append(kind in KEEPS_ORDER and all(ordered[each] for each in inputs))
    return nodes


HOW = ("inner", "left", "full")


def joined_columns() -> list[Column]:
    zero, none = F.lit(0), F.lit(0.0)
    return [
        F.col("k"),
        (F.coalesce("n", zero) + F.coalesce("n2", zero)).alias("n"),
        (F.coalesce("x", none) - F.coalesce("x2", none)).alias("x"),
    ]


def build(streams: Sequence[Stream], node: Node) -> Stream:
    """The operator as a user writes it."""
    source = streams[node.inputs[0]]
    size = f"{node.size} ms"
    largest, total = F.max("n").alias("n"), F.sum("x").alias("x")
    match node.kind:
        case "filter":
            return source.filter(f"n % 3 <> {node.variant} or k is null")
        case "map":
            return source.select("k", (F.col("n") + node.variant).alias("n"), "x")
        case "union":
            return source.union(streams[node.inputs[1]])
        case "explode":
            both = F.explode(F.expr("array(n, n + 1)")).alias("n")
            return source.transform(lambda df: df.select("k", both, "x"))
        case "tumble":
            return source.groupBy(window(size), "k").agg(largest, total).select("k", "n", "x")
        case "slide":
            sliding = window(size, f"{node.size * 2 // 5} ms")
            return source.groupBy(sliding, "k").agg(largest, total).select("k", "n", "x")
        case "no_key":
            counted = F.count("*").alias("n")
            return (
                source.groupBy(window(size))
                .agg(F.min("k").alias("k"), counted, total)
                .drop("window")
            )
        case "count":
            shape = count_window(2 + node.variant, 1 + node.size // 500)
            return source.groupBy(shape, "k").agg(F.sum("n").alias("n"), F.last("x").alias("x"))
        case "distinct":
            return source.distinct("k", "n", window=window(size))
        case "process":
            totals = source.groupBy("k").process(
                running_total(), "k string, n bigint, total bigint", "bigint"
            )
            return totals.selectExpr("k", "total AS n", "double(n) AS x")
        case _:
            other = streams[node.inputs[1]].selectExpr("k", "n AS n2", "x AS x2")
            within = (f"{node.size // 2} ms", size)
            how = HOW[node.variant]
            joined = source.join(other, "k", within=within, how=how, condition="n <= n2")
            return joined.select(*joined_columns())


def expect(streams: Sequence[OracleStream], node: Node) -> OracleStream:
    """The same in batch."""
    source = streams[node.inputs[0]]
    size = node.size * 1000
    sums = {"n": F.max("n"), "x": F.sum("x")}
    match node.kind:
        case "filter":
            return source.filter(f"n % 3 <> {node.variant} or k is null")
        case "map":
            return source.with_column("n", F.col("n") + node.variant)
        case "union":
            return source.union(streams[node.inputs[1]])
        case "explode":
            more = source.with_column("n", F.col("n") + 1)
            return OracleStream(source.frame.unionByName(more.frame), source.boundary)
        case "tumble":
            return source.aggregate(size, size, ["k"], sums).select("k", "n", "x")
        case "slide":
            step = node.size * 2 // 5 * 1000
            return source.aggregate(size, step, ["k"], sums).select("k", "n", "x")
        case "no_key":
            counts = {"k": F.min("k"), "n": F.count("*"), "x": F.sum("x")}
            return source.aggregate(size, size, [], counts).select("k", "n", "x")
        case "count":
            folds = {"n": F.sum("n"), "x": last_in_order(F.col("x"))}
            return source.count_aggregate(2 + node.variant, 1 + node.size // 500, ["k"], folds)
        case "distinct":
            return source.distinct(["k", "n"], size)
        case "process":
            order = Window.partitionBy("k").orderBy("stime", "seq")
            total = F.sum("n").over(order.rowsBetween(Window.unboundedPreceding, 0))
            value = F.col("n").cast("double").alias("x")
            totals = source.with_column("total", total)
            return totals.select("k", F.col("total").alias("n"), value)
        case _:
            other = streams[node.inputs[1]].select(
                "k", F.col("n").alias("n2"), F.col("x").alias("x2")
            )
            test = F.col("l.n") <= F.col("r.n2")
            joined = source.join(other, [("k", "k")], size // 2, size, HOW[node.variant], test)
            return joined.select(*joined_columns())


def used(nodes: Sequence[Node]) -> tuple[list[int], set[int]]:
    """The streams nobody reads, which become outputs, and all streams they depend on."""
    read = {each for node in nodes for each in node.inputs}
    ends = [i + 2 for i in range(len(nodes)) if i + 2 not in read]
    needed, todo = set(ends), list(ends)
    while todo:
        at = todo.pop()
        for each in nodes[at - 2].inputs if at >= 2 else ():
            if each not in needed:
                needed.add(each)
                todo.append(each)
    return ends, needed


@pytest.mark.long
@settings(SPARK, max_examples=2 * SPARK.max_examples)
@given(nodes=networks(), case=cases())
def test_random_networks_equal_the_oracle(
    nodes: list[Node], case: Case, spark: SparkSession
) -> None:
    ends, needed = used(nodes)
    network = Network("random", spark=spark)
    names = [name for i, name in enumerate(SOURCES) if i in needed]
    sources = {name: network.source(name, PLAIN) for name in names}
    streams = [sources.get(name, next(iter(sources.values()))) for name in SOURCES]
    for node in nodes:
        streams.append(build(streams, node))
    for end in ends:
        streams[end].output(f"end_{end}")
    engine = Engine(network)
    tables = {
        name: tuples(engine, name, case.rows(plain_row, 24, salt=i)) for i, name in enumerate(names)
    }
    whole = run(engine, split(tables, [case.start, case.boundary]))
    if case.cuts:
        # One time in three as for large buckets: one task for each partition.
        rows = 0 if case.seed % 3 == 0 else engines._SHARDING.rows
        with unittest.mock.patch.object(engines, "_SHARDING", Sharding(rows, 0, rows)):
            cut = run(engine, split(shuffled(tables, case.seed), case.edges), case.groups)
        same_bytes(cut, whole, "split, in any order, and whole")
    compare(spark, nodes, ends, tables, whole, case)
    engine.close()


def shuffled(tables: dict[str, pa.Table], seed: int) -> dict[str, pa.Table]:
    """The same tuples, as they may come when replicas race."""
    chance = np.random.default_rng(seed % 2**32)
    return {
        name: table.take(pa.array(chance.permutation(table.num_rows)))
        for name, table in tables.items()
    }


def compare(
    spark: SparkSession,
    nodes: Sequence[Node],
    ends: Sequence[int],
    tables: dict[str, pa.Table],
    outputs: dict[str, pa.Table],
    case: Case,
) -> None:
    sources = {n: OracleStream.of(spark, table, case.boundary) for n, table in tables.items()}
    streams = [sources.get(name, next(iter(sources.values()))) for name in SOURCES]
    for node in nodes:
        streams.append(expect(streams, node))
    for end in ends:
        same_rows(outputs[f"end_{end}"], streams[end].result(), f"end_{end} of {nodes}")
