"""A network that cannot run fails when it is built; the message names the operator and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, SparkSession
from pyspark.sql import Window as SparkWindow
from pyspark.sql import functions as F

from holdfast import Network, NetworkError, Stream, aggregate, count_window, top, window
from holdfast.spark.engine import Engine
from holdfast.windows import session_window

Build = Callable[[Stream, Stream], Any]


@pytest.fixture
def network(spark: SparkSession) -> Network:
    return Network("broken", spark=spark)


@pytest.fixture
def left(network: Network) -> Stream:
    return network.source("l", "k string, v double, m int")


@pytest.fixture
def right(network: Network) -> Stream:
    return network.source("r", "k string, v int, w double")


def keep(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table | None, Any]:
    return None, None


def nothing(df: Any) -> Any:
    return None


UNKNOWN: dict[str, tuple[Build, str]] = {
    "filter": (lambda s, _: s.filter("nope > 1"), "filter nope > 1"),
    "filter column": (lambda s, _: s.filter(F.col("nope") > 1), "filter"),
    "select": (lambda s, _: s.select("k", "nope"), "select"),
    "selectExpr": (lambda s, _: s.selectExpr("nope + 1 AS n"), "select"),
    "withColumn": (lambda s, _: s.withColumn("x", "nope + 1"), "withColumn x"),
    "drop": (lambda s, _: s.drop("nope"), "drop"),
    "rename": (lambda s, _: s.withColumnRenamed("nope", "x"), "withColumnRenamed"),
    "transform": (lambda s, _: s.transform(lambda df: df.where("nope")), "transform"),
    "groupBy": (lambda s, _: s.groupBy(window("1 s"), "nope"), "groupBy"),
    "agg": (lambda s, _: s.groupBy(window("1 s"), "k").agg(F.sum("nope")), "aggregate by k"),
    "agg sql": (lambda s, _: s.groupBy(window("1 s")).agg("max(nope)"), "aggregate in"),
    "join": (lambda s, r: s.join(r, "nope", within="1 s"), "join"),
    "join right": (lambda s, r: s.join(r, [("k", "nope")], within="1 s"), "join"),
    "condition": (
        lambda s, r: s.select("k").join(r, "k", within="1 s", condition="nope > 1"),
        "inner join on k",
    ),
    "distinct": (lambda s, _: s.distinct("nope", window=window("1 s")), "distinct nope"),
    "process": (lambda s, _: s.groupBy("nope").process(keep, "k string", "int"), "groupBy"),
}


@pytest.mark.parametrize("case", UNKNOWN)
def test_an_unknown_column_is_named(case: str, left: Stream, right: Stream) -> None:
    build, operator = UNKNOWN[case]
    with pytest.raises(NetworkError) as caught:
        build(left, right)
    message = str(caught.value)
    assert operator in message
    assert "nope" in message
    assert "k" in message.split("nope", 1)[1], "the message should list the columns there are"


CHANGING: dict[str, Callable[[], Column]] = {
    "rand": F.rand,
    "randn": F.randn,
    "uuid": lambda: F.expr("uuid()"),
    "current_timestamp": F.current_timestamp,
    "current_date": F.current_date,
    "monotonically_increasing_id": F.monotonically_increasing_id,
    "spark_partition_id": F.spark_partition_id,
    "input_file_name": F.input_file_name,
}


@pytest.mark.parametrize("name", CHANGING)
def test_an_expression_that_changes_is_named(name: str, left: Stream) -> None:
    column = CHANGING[name]()
    builds: list[Callable[[], Any]] = [
        lambda: left.filter(column.isNotNull()),
        lambda: left.select("k", column.alias("x")),
        lambda: left.withColumn("x", column),
        lambda: left.transform(lambda df: df.withColumn("x", column)),
    ]
    for build in builds:
        with pytest.raises(NetworkError, match=name):
            build()


def test_changing_expressions_are_found_inside_operators(left: Stream, right: Stream) -> None:
    builds: list[Callable[[], Any]] = [
        lambda: left.groupBy(window("1 s"), F.rand().alias("r")).count(),
        lambda: left.groupBy(window("1 s")).agg(F.sum(F.rand()).alias("r")),
        lambda: left.select("k").join(right, "k", within="1 s", condition="w < rand()"),
    ]
    for build in builds:
        with pytest.raises(NetworkError, match="rand"):
            build()


def test_a_changing_python_function_is_refused(left: Stream) -> None:
    chance = F.udf(lambda: 0.5, "double").asNondeterministic()
    with pytest.raises(NetworkError, match="withColumn x"):
        left.withColumn("x", chance())


MISFITS: dict[str, tuple[Build, str]] = {
    "union types": (
        lambda s, r: s.select("k", "v").union(r.select("k", "v")),
        "union: the types of column 'v' clash, double and int; cast one",
    ),
    "union columns": (lambda s, r: s.union(r), "union: .*same columns.*select"),
    "join types": (
        lambda s, r: s.join(r, "v", within="1 s"),
        "join on v = v: the types clash, double and int; cast one side",
    ),
    "join names": (lambda s, r: s.join(r, "k", within="1 s"), "join: both sides.*'v'.*rename"),
    "join with itself": (
        lambda s, _: s.withColumn("w", "v").join(s.withColumn("w", "v"), "k", within="1 s"),
        "join: both sides have the columns .*'v' and 'w'; rename one of each",
    ),
    "top of none": (lambda s, _: s.groupBy(window("1 s")).agg(top(0, "v")), "top: how many"),
    "top of a struct": (
        lambda s, _: s.groupBy(window("1 s")).agg(top(1, "struct(v)")),
        "struct.*not supported",
    ),
    "top twice": (lambda s, _: s.groupBy(window("1 s")).agg(top(1, "v", "v")), "column twice"),
    "join how": (lambda s, r: s.join(r, "k", within="1 s", how="cross"), "join: how must be"),
    "join nothing": (lambda s, r: s.join(r, [], within="1 s"), "join: needs at least one"),
    "join within": (lambda s, r: s.join(r, "k", within="soon"), "such as '10 seconds'.*'soon'"),
    "join no time": (lambda s, r: s.join(r, "k", within="0 s"), "longer than zero"),
    "no window": (
        lambda s, _: s.groupBy("k").agg(F.count("*")),
        r"aggregate by k: .*needs a window; write groupBy\(window",
    ),
    "two windows": (lambda s, _: s.groupBy(window("1 s"), window("2 s")), "groupBy: .*one window"),
    "window over another column": (
        lambda s, _: s.groupBy(F.window("m", "1 second")),
        r"F\.window over 'm': windows are over the tuple time; write F\.window\('stime'",
    ),
    "window with a start": (
        lambda s, _: s.groupBy(F.window("stime", "2 seconds", startTime="1 second")),
        "aligned to the epoch",
    ),
    "window with a name": (
        lambda s, _: s.groupBy(F.window("stime", "2 seconds").alias("w")),
        "rename that afterwards",
    ),
    "no aggregate": (lambda s, _: s.groupBy(window("1 s")).agg(), "at least one aggregate"),
    "not an aggregate": (lambda s, _: s.groupBy(window("1 s")).agg("v"), "aggregate in window"),
    "sum of an aggregate": (
        lambda s, _: s.groupBy(window("1 s")).agg((F.sum("v") + 1).alias("x")),
        "combines an aggregate.*withColumn",
    ),
    "unsupported aggregate": (
        lambda s, _: s.groupBy(window("1 s")).agg(F.median("v")),
        "not supported in a window; use one of count, sum",
    ),
    "distinct aggregate": (
        lambda s, _: s.groupBy(window("1 s")).agg(F.count_distinct("v")),
        "not supported in a window; use one of count, sum",
    ),
    "count of two": (
        lambda s, _: s.groupBy(window("1 s")).agg("count(k, v) AS n"),
        "not supported in a window",
    ),
    "extreme of a struct": (
        lambda s, _: s.groupBy(window("1 s")).agg(F.max(F.struct("v", "k")).alias("m")),
        "struct.*not supported",
    ),
    "sum of an interval": (
        lambda s, _: s.groupBy(window("1 s")).agg("sum(make_dt_interval(1)) AS x"),
        "not supported",
    ),
    "ignoring nulls": (
        lambda s, _: s.groupBy(window("1 s")).agg(F.first("v", ignorenulls=True)),
        "ignoreNulls",
    ),
    "result names": (
        lambda s, _: s.groupBy(window("1 s"), "k").agg(F.sum("v").alias("k")),
        "two result columns are called 'k'; name them with alias",
    ),
    "window name": (
        lambda s, _: s.groupBy(window("1 s")).agg(F.sum("v").alias("window")),
        "two result columns are called 'window'",
    ),
    "distinct without window": (lambda s, _: s.distinct("k"), "distinct k: needs a tumbling"),
    "distinct sliding": (
        lambda s, _: s.distinct("k", window=window("2 s", "1 s")),
        "distinct k: needs a tumbling",
    ),
    "process with window": (
        lambda s, _: s.groupBy(window("1 s"), "k").process(keep, "k string", "int"),
        "process keep by k: process takes no window",
    ),
    "process without key": (
        lambda s, _: s.groupBy().process(keep, "k string", "int"),
        "needs at least one key",
    ),
    "process output": (
        lambda s, _: s.groupBy("k").process(keep, "int", "int"),
        "process keep by k: output must name columns",
    ),
    "process state": (
        lambda s, _: s.groupBy("k").process(keep, "k string", "no type"),
        "process keep by k",
    ),
    "process reserved": (
        lambda s, _: s.groupBy("k").process(keep, "seq bigint", "int"),
        "process keep by k: 'seq' is a reserved name",
    ),
    "transform drops stime": (
        lambda s, _: s.transform(lambda df: df.drop("stime")),
        "drop 'stime': stime is a system column, which stays as it is",
    ),
    "transform makes other tuples": (
        lambda s, _: s.transform(lambda df: df.sparkSession.range(3)),
        r"not made of the stream's own tuples, for it lacks \['stime', 'tmax', 'seq'\]",
    ),
    "transform sets seq": (
        lambda s, _: s.transform(lambda df: df.withColumn("seq", F.lit(1))),
        "withColumn 'seq': seq is a system column",
    ),
    "transform aggregates": (
        lambda s, _: s.transform(lambda df: df.groupBy("stime", "tmax", "seq").count()),
        "transform .*uses Aggregate.*use the stream's own groupBy",
    ),
    "transform limits": (lambda s, _: s.transform(lambda df: df.limit(3)), "uses .*Limit"),
    "transform drops duplicates": (
        lambda s, _: s.transform(lambda df: df.dropDuplicates(["k"])),
        "uses .*use the stream's own",
    ),
    "transform joins itself": (
        lambda s, _: s.transform(lambda df: df.join(df.select("k"), "k")),
        "transform .*Join.*use the stream's own",
    ),
    "transform returns nothing": (lambda s, _: s.transform(nothing), "must return"),
    "rank": (
        lambda s, _: s.withColumn(
            "n", F.row_number().over(SparkWindow.partitionBy("k").orderBy("v"))
        ),
        "withColumn n.*Window",
    ),
    "rank in select": (
        lambda s, _: s.select(F.row_number().over(SparkWindow.orderBy("v")).alias("n")),
        "select.*Window",
    ),
    "reserved column": (lambda s, _: s.withColumn("seq", "1"), "withColumn 'seq'"),
    "reserved rename": (lambda s, _: s.withColumnRenamed("k", "tmax"), "'tmax' is a reserved|tmax"),
    "reserved prefix": (lambda s, _: s.withColumn("__x", "1"), "'__x' is a reserved name"),
    "map": (
        lambda s, _: s.withColumn("x", "map(k, v)"),
        "withColumn x.*column 'x' is a MAP.*map_entries",
    ),
    "drop everything": (lambda s, _: s.drop("k", "v", "m"), "at least one column"),
    "select twice": (lambda s, _: s.select("k", "k"), "select"),
    "user aggregate": (
        lambda s, _: s.groupBy(window("1 s")).agg(aggregate(object(), "v")),  # type: ignore[arg-type]
        "Aggregator",
    ),
}


@pytest.mark.parametrize("case", MISFITS)
def test_what_does_not_fit_is_named(case: str, left: Stream, right: Stream) -> None:
    build, message = MISFITS[case]
    with pytest.raises(NetworkError, match=message):
        build(left, right)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: window("0 s"), "longer than zero"),
        (lambda: window("-1 s"), "such as '10 seconds'"),
        (lambda: window("ten"), "such as '10 seconds'"),
        (lambda: window(10), "such as '10 seconds'"),  # type: ignore[arg-type]
        (lambda: window("1 s", "2 s"), "cannot advance by more than its size"),
        (lambda: count_window(0), "at least 1 tuple"),
        (lambda: count_window(3, 0), "at least 1 tuple"),
        (lambda: session_window("0 s"), "longer than zero"),
    ],
)
def test_a_window_without_a_size_is_refused(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(NetworkError, match=message):
        make()


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ("k strin", "source 's': cannot read the schema"),
        ("int", "no column names"),
        ("seq bigint, k int", "source 's': 'seq' is a reserved name; rename"),
        ("Seq bigint, k int", "source 's': 'Seq' is a reserved name; rename"),
        ("__k int", "reserved name"),
        ("k int, k int", "source 's': two columns are called 'k'"),
        ("k int, K int", "source 's': two columns are called 'K|k'"),
        ("m map<string,int>", "source 's': column 'm' is a MAP"),
        ("m array<map<string,int>>", "source 's': column 'm'.*MAP"),
        ("m struct<a: map<string,int>>", "source 's': column 'm'.*MAP"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(schema: str, message: str, network: Network) -> None:
    with pytest.raises(NetworkError, match=message):
        network.source("s", schema)


def test_sources_are_checked(network: Network, spark: SparkSession) -> None:
    with pytest.raises(NetworkError, match="source 's': there is no column 'at'"):
        network.source("s", "k int", stime="at")
    with pytest.raises(NetworkError, match="stime column 'k' must be TIMESTAMP"):
        network.source("s", "k string", stime="k")
    with pytest.raises(NetworkError, match="there is no column 'nope'"):
        network.source("s", "k int", key="nope")
    with pytest.raises(NetworkError, match="starts with a letter"):
        network.source("1 s", "k int")
    network.source("s", "k int")
    with pytest.raises(NetworkError, match="source of that name already"):
        network.source("s", "k int")
    with pytest.raises(NetworkError, match="partitions must be at least 1"):
        Network("p", partitions=0, spark=spark)
    with pytest.raises(NetworkError, match="starts with a letter"):
        Network("no spaces", spark=spark)


def test_outputs_are_checked(network: Network, left: Stream) -> None:
    with pytest.raises(NetworkError, match=r"has no output; end a stream with \.output"):
        Engine(network)
    left.output("out")
    with pytest.raises(NetworkError, match="output of that name already"):
        left.filter("v > 0").output("out")
    network.source("idle", "k int")
    with pytest.raises(NetworkError, match="no output depends on source 'idle'; use it or"):
        Engine(network)


def test_streams_of_two_networks_do_not_mix(left: Stream, spark: SparkSession) -> None:
    other = Network("other", spark=spark)
    stranger = other.source("l", "k string, v double, m int")
    with pytest.raises(NetworkError, match="different networks"):
        left.union(stranger)
    with pytest.raises(NetworkError, match="different networks"):
        left.join(stranger, "k", within="1 s")
    with pytest.raises(NetworkError, match="another network"):
        other.add_output("out", left)


def test_a_source_may_not_take_an_operators_name(network: Network, left: Stream) -> None:
    """Names of operators and sources share one space: both name streams inside the engine."""
    kept = left.filter("v > 0")
    with pytest.raises(NetworkError, match=r"'filter_1'.*choose another"):
        network.source(kept.operator.name, "k int")
    network.source("map_1", "k int")
    assert left.withColumn("x", "1").operator.name != "map_1"


def test_a_source_alone_can_be_an_output(network: Network, left: Stream) -> None:
    left.output("out")
    left.output("again")
    engine = Engine(network)
    assert set(engine.input_schemas) == {"l"}


def test_pysparks_own_windows_and_signatures_are_taken(network: Network, left: Stream) -> None:
    """They are the same operators as those with Holdfast's names."""
    pairs = [
        (left.groupBy(F.window("stime", "2 seconds"), "k"), left.groupBy(window("2 s"), "k")),
        (
            left.groupBy(F.window("stime", "2 seconds", "1 second"), "k"),
            left.groupBy(window("2 s", "1 s"), "k"),
        ),
        (
            left.groupBy(F.session_window("stime", "5 minutes"), "k"),
            left.groupBy(session_window("5 minutes"), "k"),
        ),
    ]
    for theirs, ours in pairs:
        found, expected = theirs.agg({"v": "max", "*": "count"}), ours.agg(F.max("v"), F.count("*"))
        assert found.operator.label == expected.operator.label
        assert found.schema == expected.schema
    dropped = left.dropDuplicates(["k", "m"], window=window("1 s"))
    assert dropped.operator.label == left.distinct("k", "m", window=window("1 s")).operator.label
    timed = network.source("timed", "at timestamp, x int", stime="at")
    kept = timed.filter("x > 0").withColumn("y", "x + 1")
    assert kept.groupBy(F.window("at", "1 second")).count().columns == ["window", "count"]
    moved = timed.withColumn("at", "at + interval 1 day")
    with pytest.raises(NetworkError, match="windows are over the tuple time"):
        moved.groupBy(F.window("at", "1 second"))
