"""The identity of a query: what changes it and what does not."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.cluster.networks import load_network
from holdfast.description import describe_query, describe_without
from holdfast.errors import StateError
from holdfast.identity import identity_of, refuse_changed
from holdfast.network import Network
from holdfast.spark import exact_sum
from holdfast.stream import Stream
from holdfast.windows import count_window, session_window, window

Build = Callable[[Stream, Stream], Stream]


def described(spark: SparkSession, build: Build, **options: object) -> tuple[str, ...]:
    network = Network("pairs", spark=spark, **options)  # type: ignore[arg-type]
    left = network.source("left", "at timestamp, server string, n bigint, x double", stime="at")
    right = network.source("right", "server string, y double")
    build(left, right).output("out")
    return describe_query(network)


def summed(*aggregates: object, by: object = window("10 s"), keys: str = "server") -> Build:
    return lambda left, right: left.groupBy(by, keys).agg(*aggregates)  # type: ignore[arg-type]


def joined(**options: object) -> Build:
    settings: dict[str, object] = {"on": "server", "within": "5 s", **options}
    return lambda left, right: left.join(right, **settings)  # type: ignore[arg-type]


def many(last: int) -> Build:
    """More than Spark shows of a list unless it is asked to."""
    listed = ", ".join(f"'{each}'" for each in [*range(40), last])
    return lambda left, right: left.withColumn("all", f"concat({listed})")


def looked_up(*rows: tuple[str, int]) -> Build:
    def build(left: Stream, right: Stream) -> Stream:
        table = left.network.spark.createDataFrame(list(rows), "server string, rank int")
        return left.transform(lambda frame: frame.join(F.broadcast(table), "server"))

    return build


def scaled(by: float, large: bytes = b"") -> Build:
    """Through a function of the user's own; with ``large``, Spark packs it otherwise."""

    def scale(value: float) -> float:
        return value * by + len(large) * 0

    return lambda left, right: left.withColumn(
        "scaled", F.udf(scale, "double", useArrow=False)("x")
    )


LARGE = random.Random(0).randbytes(1_200_000)
DIFFERENT: dict[str, tuple[Build, Build]] = {
    "filter literal": (lambda a, b: a.filter("x > 0.5"), lambda a, b: a.filter("x > 0.6")),
    "filter text": (
        lambda a, b: a.filter("server = 'null'"),
        lambda a, b: a.filter("server = CAST(NULL AS STRING)"),
    ),
    "numbers in a text": (
        lambda a, b: a.filter("server = 'a#1'"),
        lambda a, b: a.filter("server = 'a#2'"),
    ),
    "column used": (
        lambda a, b: a.withColumn("z", F.col("x") - F.col("n")),
        lambda a, b: a.withColumn("z", F.col("n") - F.col("x")),
    ),
    "beyond the 25th field": (many(1), many(2)),
    "function": (summed("sum(x) v"), summed("max(x) v")),
    "argument": (summed("sum(x) v"), summed("sum(x * 100) v")),
    "window": (summed("sum(x) v"), summed("sum(x) v", by=window("20 s"))),
    "slide": (
        summed("sum(x) v", by=window("10 s", "5 s")),
        summed("sum(x) v", by=window("10 s", "2 s")),
    ),
    "session gap": (
        summed("sum(x) v", by=session_window("10 s")),
        summed("sum(x) v", by=session_window("10001 ms")),
    ),
    "count window": (
        summed("sum(x) v", by=count_window(10)),
        summed("sum(x) v", by=count_window(10, 5)),
    ),
    "join bound": (joined(), joined(within="6 s")),
    "one join bound": (joined(within=("5 s", "1 s")), joined(within=("5 s", "2 s"))),
    "join condition": (joined(condition="x > y"), joined(condition="x > y + 1")),
    "kind of join": (joined(how="left"), joined(how="full")),
    "distinct": (
        lambda a, b: a.distinct("server", window=window("1 s")),
        lambda a, b: a.distinct("server", "n", window=window("1 s")),
    ),
    "order of columns": (
        lambda a, b: a.select("server", "x"),
        lambda a, b: a.select("x", "server"),
    ),
    "order of a union": (
        lambda a, b: a.select("server", "x").union(b.withColumnRenamed("y", "x")),
        lambda a, b: b.withColumnRenamed("y", "x").union(a.select("server", "x")),
    ),
    "table": (looked_up(("a", 1), ("b", 2)), looked_up(("a", 1), ("b", 3))),
    "function's closure": (scaled(2.0), scaled(3.0)),
    "large function's closure": (scaled(2.0, LARGE), scaled(3.0, LARGE)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", DIFFERENT)
def test_what_is_computed_otherwise_is_described_otherwise(spark: SparkSession, name: str) -> None:
    one, other = DIFFERENT[name]
    first, again, second = (described(spark, each) for each in (one, one, other))
    assert first == again
    assert first != second
    assert identity_of(first) != identity_of(second)


def test_bucket_partitions_and_sources_count(spark: SparkSession) -> None:
    build: Build = lambda left, right: left.filter("x > 0")  # noqa: E731
    found = {
        described(spark, build),
        described(spark, build, bucket="100 ms"),
        described(spark, build, partitions=3),
    }
    for options in ({"stime": "at"}, {"stime": "at", "key": "server"}, {}):
        network = Network("pairs", spark=spark)
        columns = "at timestamp, server string, n bigint, x double"
        network.source("left", columns, **options).output("out")
        found.add(describe_query(network))
    assert len(found) == 6


# -- columns that a source has gained ---------------------------------------------------

HANDED_ON: dict[str, Build] = {
    "nothing": lambda a, b: a.select("*"),
    "filter": lambda a, b: a.filter("x > 0.5").withColumn("z", "x + 1"),
    "function": scaled(2.0),
    "transform": looked_up(("a", 1)),
    "union": lambda a, b: a.filter("x > 1").union(a.filter("x < 0")),
    "drop": lambda a, b: a.drop("n"),
}
LEFT_OUT: dict[str, Build] = {
    "select": lambda a, b: a.select("server", "x"),
    "aggregate": summed("sum(x) v"),
    "session": summed("max(x) v", by=session_window("10 s")),
    "two aggregates": lambda a, b: (
        summed("sum(x) v")(a.filter("x > 0"), b).groupBy(window("20 s")).agg("max(v) v")
    ),
    "join without it": lambda a, b: a.select("server", "x").join(b, on="server", within="5 s"),
    "distinct": lambda a, b: a.select("server").distinct("server", window=window("1 s")),
}
IN_THE_STATE: dict[str, Build] = {
    "aggregate": summed("max(x) v", "max(zone) z"),
    "key": summed("max(x) v", keys="zone"),
    "join": joined(),
    "distinct": lambda a, b: a.distinct("server", window=window("1 s")),
    "named": lambda a, b: a.filter("zone IS NULL"),
}


def gaining(spark: SparkSession, build: Build, gained: bool) -> Network:
    network = Network("pairs", spark=spark)
    columns = "at timestamp, server string, n bigint, x double"
    left = network.source("left", columns + (", zone string" if gained else ""), stime="at")
    right = network.source("right", "server string, y double")
    build(left, right).output("out")
    return network


@pytest.mark.slow
@pytest.mark.parametrize("name", [*HANDED_ON, *LEFT_OUT])
def test_but_for_a_column_that_nobody_names_a_query_is_the_same(
    spark: SparkSession, name: str
) -> None:
    build = {**HANDED_ON, **LEFT_OUT}[name]
    before = describe_query(gaining(spark, build, gained=False))
    network = gaining(spark, build, gained=True)
    assert describe_query(network) != before
    found = describe_without(network, {"left": ("zone",)})
    assert found.lines == before
    assert identity_of(found.lines) == identity_of(before)
    handed_on = found.gained[network.outputs["out"].operator.name]
    assert set(handed_on) == ({"zone"} if name in HANDED_ON else set())


@pytest.mark.slow
@pytest.mark.parametrize("name", IN_THE_STATE)
def test_a_query_that_has_the_column_in_its_state_or_names_it_is_another(
    spark: SparkSession, name: str
) -> None:
    build = IN_THE_STATE[name]
    network = gaining(spark, build, gained=True)
    found = describe_without(network, {"left": ("zone",)})
    assert any("zone" in line for line in found.lines)
    if name not in ("aggregate", "key", "named"):
        assert found.lines != describe_query(gaining(spark, build, gained=False))


def test_how_sums_are_kept_is_part_of_it(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that state with sums of another shape is refused, not misread."""
    build = summed("sum(x) s", "avg(x) m", "stddev(x) d", "max(x) v")
    now = described(spark, build)
    assert now == described(spark, build)
    monkeypatch.setattr(exact_sum, "STATE", pa.list_(pa.uint32()))
    with pytest.raises(StateError, match=r"was .*uint32.*\n.*now .*list<item: double>"):
        refuse_changed(described(spark, build), now, "the state directory")


# -- in several processes ---------------------------------------------------------------

NETWORK = """
import helpers
from pyspark.sql import functions as F

import holdfast
from holdfast import Network, window


@F.udf(returnType="double", useArrow=False)
def scaled(value: float) -> float:
    total = value * 2.5  # as agreed
    return helpers.shift(total)


class Longest(holdfast.Aggregator):
    state_type = result_type = "bigint"

    def reduce(self, values):
        return max([0, *values.to_pylist()])

    def merge(self, earlier, later):
        return max(earlier, later)

    def finish(self, state):
        return state


def count(key, tuples, state):
    seen = (state or 0) + tuples.num_rows
    return tuples.select(["stime"]).append_column("seen", [[seen] * tuples.num_rows]), seen


network = Network("code")
load = network.source("load", "server string, x double, n bigint")
mapped = load.withColumn("y", scaled("x"))
mapped.withColumn("w", F.transform(F.array("x"), lambda each: each + 1)).output("mapped")
load.groupBy(window("1 s")).agg(holdfast.aggregate(Longest(), "n").alias("longest")).output("most")
load.groupBy("server").process(count, "seen bigint", "bigint").output("counted")
"""
HELPERS = "def shift(x):\n    return x + 1\n"
CHANGED = {
    "nothing": ("", ""),
    "comment": ("# as agreed", "# as agreed upon"),
    "local variable": ("total", "product"),
    "udf": ("2.5", "2.6"),
    "aggregator": ("max(earlier", "min(earlier"),
    "process": ("(state or 0)", "(state or 1)"),
}
DESCRIBE = """
import sys
from pathlib import Path

from holdfast.description import describe_query
from holdfast.cluster.networks import load_network

print("\\n".join(describe_query(load_network(Path(sys.argv[1]), "local[1]", {}))))
"""


def load(directory: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    with monkeypatch.context() as patch:
        patch.setattr(sys, "path", sys.path[:])
        patch.setattr(sys, "modules", dict(sys.modules))
        patch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        return list(describe_query(load_network(directory / "network.py", "local[2]", {})))


@pytest.mark.slow
def test_code_counts_and_comments_do_not(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[str, list[str]] = {}
    for name, (old, new) in CHANGED.items():
        directory = tmp_path / name.replace(" ", "-")
        directory.mkdir()
        (directory / "network.py").write_text(NETWORK.replace(old, new))
        (directory / "helpers.py").write_text(HELPERS)
        found[name] = load(directory, monkeypatch)
    (tmp_path / "nothing" / "helpers.py").write_text(HELPERS.replace("+", "-"))
    found["module"] = load(tmp_path / "nothing", monkeypatch)
    plain = found["nothing"]
    assert found.pop("comment") == found.pop("local variable") == plain
    assert len({identity_of(each) for each in found.values()}) == 5


@pytest.mark.thorough
@pytest.mark.slow
def test_another_process_describes_it_alike(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "helpers.py").write_text(HELPERS)
    plain = load(tmp_path, monkeypatch)
    done = subprocess.run(
        [sys.executable, "-c", DESCRIBE, str(tmp_path / "network.py")],
        env={**os.environ, "PYTHONHASHSEED": "7"},
        stdout=subprocess.PIPE,
        timeout=300,
        check=True,
        text=True,
    )
    assert done.stdout.splitlines() == plain


# -- refusals ---------------------------------------------------------------------------


def test_a_refusal_lists_what_differs(spark: SparkSession) -> None:
    kept = described(spark, summed("sum(x) v", by=window("10 s")))
    now = described(spark, summed("sum(x) v", by=window("20 s")))
    refuse_changed(list(kept), kept, "the state directory 'state'")
    with pytest.raises(StateError) as caught:
        refuse_changed(kept, now, "the state directory 'state'")
    text = str(caught.value)
    assert text.startswith("the state directory 'state' has state of another query")
    assert "was  aggregate_1: window=TimeWindow(size=10000000, advance=10000000)" in text
    assert "now  aggregate_1: window=TimeWindow(size=20000000, advance=20000000)" in text
    assert text.endswith(
        "Go back to the query it was made with, or start over with a new directory"
    )


def test_a_refusal_is_short() -> None:
    kept = [f"select_{each}: Project {'x, ' * 200}{each}" for each in range(50)]
    now = [f"select_{each}: Project {'x, ' * 200}{each + 1000}" for each in range(49)]
    with pytest.raises(StateError) as caught:
        refuse_changed(kept, now, "it")
    lines = str(caught.value).splitlines()
    assert "and 42 more" in lines[-2]
    assert len(lines) == 1 + 2 * 8 + 2
    assert max(map(len, lines)) < 200
    assert lines[1].endswith("x, 0")
    assert lines[2].endswith("x, 1000")
    with pytest.raises(StateError, match=r"was  a\n  now  \(nothing\)"):
        refuse_changed(["a"], [], "it")
