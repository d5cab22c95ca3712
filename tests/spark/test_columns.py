"""Workers compute on columns what Spark would compute on rows, to the bit."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from holdfast import Network, count_window, window
from holdfast.spark import column_job
from holdfast.spark import engine as engines
from holdfast.spark.column_task import _run
from holdfast.spark.engine import Bucket, Engine, Sharding
from holdfast.spark.groups import in_stream_order
from holdfast.spark.joint_steps import rounds
from holdfast.spark.prepared import input_frame, leaf_number
from holdfast.spark.state import EMPTY
from holdfast.spark.translation import translate
from holdfast.testing import ipc_bytes, run, same_bytes, split, tuples
from tests.spark.kinds import KINDS, every_kind, on_columns, values
from tests.spark.networks import every_kind_of_state, some_tables
from tests.spark.support import SCHEMA, SECOND, SPARK, Case, cases, full_row

EDGES = [0, 900_000, 3_500_000, 9 * SECOND]
EXPRESSIONS = [
    *(f"xxhash64({name})" for name in KINDS),
    f"xxhash64({', '.join(KINDS)})",
    "xxhash64(text, n, bytes)",
    "unix_micros(at)",
    "timestamp_micros(n)",
    *(f"cast({name} as bigint)" for name in ("flag", "tiny", "small", "i", "n")),
    *(f"cast({name} as double)" for name in ("tiny", "small", "i", "n", "f", "x")),
    *(
        f"{left} {how} {right}"
        for how in ("=", "<", "<=", ">", ">=")
        for left, right in (
            ("x", "cast(f as double)"),
            ("n", "cast(i as bigint)"),
            ("text", "'a'"),
            ("at", "at"),
        )
    ),
    "case when x = 0 then cast(0 as double) else x end",
    *(
        f"case when {x} = 0 then cast(0 as {kind}) when isnan({x}) then cast('NaN' as {kind}) "
        f"else {x} end"
        for x, kind in (("x", "double"), ("f", "float"))
    ),
    "isnan(x) or isnan(f)",
    "sqrt(x)",
    "case when n > 1 then cast(tiny as double) / n end",
    "case when x > 1 then sqrt(greatest(x - x * x / x, cast(0 as double)) / (x - 1)) end",
    "coalesce(x, cast(f as double), cast(0 as double))",
    "coalesce(text, 'none')",
    "greatest(x, cast(f as double))",
    "greatest(n, cast(i as bigint))",
    "greatest(small, cast(tiny as smallint))",
    "struct(n, text, timestamp_micros(n)).text",
    "struct(n, x AS y)",
    "(n is null or x > 0) and not flag",
    "small + small",
    "x - 0.5D",
    *(f"shiftleft(n, {places})" for places in (0, 2, 31, 62)),
    "shiftleft(n, 2) | 3",
    "(n & 12) | cast(i as bigint)",
]


def test_workers_compute_what_spark_computes(spark: SparkSession, tmp_path: Path) -> None:
    """One Spark job for all expressions; each value and each null to the bit."""
    rows, frame = every_kind(spark)
    rows = rows.filter(
        pa.compute.fill_null(
            pa.compute.less(pa.compute.abs(rows["small"].cast(pa.int32())), 2**14), True
        )
    )
    frame = spark.createDataFrame(rows)
    expected = frame.selectExpr(
        *(f"{each} AS c{i}" for i, each in enumerate(EXPRESSIONS))
    ).toArrow()
    for index, expression in enumerate(EXPRESSIONS):
        mine = on_columns(spark, rows, expression, tmp_path)
        theirs = expected.select([f"c{index}"]).rename_columns(["value"])
        assert ipc_bytes(mine.cast(theirs.schema)) == ipc_bytes(theirs), expression


LEFT_TO_SPARK = [
    "shiftleft(n, cast(n as int))",
    "shiftleft(n, 63)",
    "shiftleft(cast(x > 1 as int), 3)",
    "n % 3",
    "1 / n",
    "case when n > 0 then n + 1 end",
    "n is not null and n + 1 > 3",
    "upper(text)",
    "cast(x as bigint)",
    "cast(text as int)",
    "cast(n as decimal(20, 0))",
    "xxhash64(array(n))",
    "text like 'a%'",
    "greatest(n, 2, 3)",
    "greatest(text, 'a')",
]


@pytest.mark.parametrize("expression", LEFT_TO_SPARK)
def test_what_workers_do_not_know_is_left_to_spark(
    expression: str, spark: SparkSession, tmp_path: Path
) -> None:
    leaf = input_frame(
        spark, spark.createDataFrame([], "n bigint, x double, text string").schema, tmp_path
    )
    frame = leaf.selectExpr(f"{expression} AS value")
    assert translate(frame, {leaf_number(leaf): "rows"}) is None


def test_a_union_whose_structs_have_other_names_is_left_to_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    schema = spark.createDataFrame([], "n bigint, pair struct<a: int, b: string>").schema
    leaf = input_frame(spark, schema, tmp_path)
    for mine, theirs, alike in [
        ("struct(n AS a) AS v", "struct(n AS b) AS v", False),
        ("struct(struct(n AS a) AS v) AS v", "struct(struct(n AS b) AS v) AS v", False),
        ("pair AS v", "struct(pair.a AS b, pair.b AS a) AS v", False),
        ("pair AS v", "struct(coalesce(pair.a, 1) AS a, pair.b AS b) AS v", True),
    ]:
        both = leaf.selectExpr(mine).union(leaf.selectExpr(theirs))
        plan = translate(both, {leaf_number(leaf): "rows"})
        assert (plan is not None) == alike, theirs


def united_structs(spark: SparkSession) -> Network:
    """Structs of one shape, whose fields have other names or the same ones in another order."""
    network = Network("structs", spark=spark, partitions=2)
    rows = network.source("s", "n int, m int, k string")

    def unite(frame: DataFrame) -> DataFrame:
        renamed = frame.selectExpr("stime", "tmax", "seq", "k", "struct(m AS b, n AS a) AS pair")
        named = frame.selectExpr("stime", "tmax", "seq", "k", "struct(n AS a, m AS b) AS pair")
        return named.union(renamed)

    rows.transform(unite).output("pairs")
    return network


def test_united_structs_keep_their_values(spark: SparkSession) -> None:
    network = united_structs(spark)
    rows = [(at * 1000, at, -at, "k") for at in range(5)]
    both_paths(network, lambda engine: {"s": tuples(engine, "s", rows)}, EDGES)


def both_paths(network: Network, tables_of: Any, edges: list[int], groups: Any = ()) -> None:
    """Rows and columns, one task and several, give the same bytes."""
    rows, columns = Engine(network, columns=False), Engine(network)
    buckets = split(tables_of(rows), edges)
    expected = run(rows, buckets, groups)
    same_bytes(run(columns, buckets, groups), expected, "columns and rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engines, "_SHARDING", Sharding(0, 10**6, 0))
        same_bytes(run(columns, buckets, groups), expected, "columns in several tasks and rows")
    rows.close()
    columns.close()


def test_rows_and_columns_give_the_same_bytes(spark: SparkSession) -> None:
    network = every_kind_of_state(spark, partitions=3)
    both_paths(network, lambda engine: some_tables(engine, 17, 150), EDGES)


def with_expressions(spark: SparkSession) -> Network:
    """Expressions only Spark knows: before steps, inside an outer join, between and after steps."""
    network = Network("expressions", spark=spark)
    left = network.source("l", SCHEMA)
    right = network.source("r", "k string, w bigint")
    odd = left.filter("i % 2 = 1 or i is null").withColumn("name", F.upper("s"))
    odd.groupBy(window("1 s"), "name").agg(
        F.sum(F.col("i") % 7).alias("i"), F.sum("v").alias("v"), F.avg("d").alias("d")
    ).output("odd")
    pairs = left.join(right, "k", within="700 ms", how="full", condition="i % 5 < w")
    pairs.output("pairs")
    sums = pairs.groupBy(window("1 s"), "k").agg(F.count("w").alias("n"), F.max("v").alias("v"))
    sums.withColumn("text", F.concat_ws("-", "k", "n")).output("texts")
    sums.filter("n % 2 = 0").groupBy(count_window(2), "k").agg(F.sum("n").alias("n")).output("twos")
    left.select("k", F.expr("i * 3 AS i"), "v").output("stateless")
    left.select("k", "v").union(left.select("k", "v")).output("plain")
    return network


@SPARK
@given(case=cases())
def test_expressions_of_spark_between_steps_give_the_same_bytes(
    case: Case, spark: SparkSession
) -> None:
    def tables(engine: Engine) -> dict[str, pa.Table]:
        rows = case.rows(small_row)
        others = [(time, row[0], 2) for time, *row in case.rows(small_row, salt=1)]
        return {"l": tuples(engine, "l", rows), "r": tuples(engine, "r", others)}

    both_paths(with_expressions(spark), tables, case.edges, case.groups)


def small_row(rng: random.Random) -> tuple[Any, ...]:
    """Whole numbers that can be multiplied."""
    row = full_row(rng)
    return (*row[:2], None if row[2] is None else row[2] % 50, *row[3:])


def test_a_network_without_expressions_of_spark_is_one_job(spark: SparkSession) -> None:
    engine = Engine(every_kind_of_state(spark))
    (only,) = engine._column_runner()._stages[False]
    assert not only.in_jvm
    mixed = Engine(with_expressions(spark))._column_runner()._stages[False]
    assert [stage.in_jvm for stage in mixed] == [True, False] * 3


def without_a_state(spark: SparkSession) -> Network:
    """Expressions that workers know, with filters and unions, and one that may fail."""
    network = Network("stateless", spark=spark, partitions=2)
    columns = ", ".join(f"{name} {kind}" for name, kind in KINDS.items())
    left, right = (network.source(name, columns) for name in "lr")
    some_of_them = [each for each in EXPRESSIONS[::4] if "small +" not in each]
    left.selectExpr(*(f"{each} AS c{i}" for i, each in enumerate(some_of_them))).output("values")
    some = left.filter("x > 0 and text is not null").union(right.filter("not flag"))
    some.union(right).withColumn("y", "x - 0.5D").filter("n <= 99").output("united")
    right.selectExpr("small + small AS sum", "text").output("sums")
    return network


@pytest.fixture(scope="module")
def early_and_rows(spark: SparkSession) -> Iterator[tuple[Engine, Engine]]:
    """An engine for early results that has run its first jobs, and Spark itself."""
    whole = Engine(without_a_state(spark))
    early, rows = whole.part(["values", "united", "sums"]), Engine(whole._network, columns=False)
    calm = [(at, True, *[1] * 4, 1.0, 1.0, None, None, "a", b"a") for at in range(3)]
    early.advance(EMPTY, [Bucket(0, 3, {name: tuples(early, name, calm) for name in "lr"})])
    yield early, rows
    for engine in (whole, early, rows):
        engine.close()


def refuse(job: column_job.ColumnJob, *given: Any) -> None:
    raise AssertionError("a job")


@SPARK
@given(seed=st.integers(0, 2**31), most=st.sampled_from([1, 7, 60]))
def test_what_is_computed_without_a_job_is_what_spark_computes(
    seed: int, most: int, early_and_rows: tuple[Engine, Engine]
) -> None:
    """To the bit; and what fails here, fails as it does on Spark."""
    early, rows = early_and_rows
    rng = random.Random(seed)
    fails = rng.random() < 0.3
    tables = {}
    for name in "lr":
        drawn = [values(rng) for _ in range(rng.randint(0, most))]
        for row in drawn:
            if not fails and row["small"] is not None:
                row["small"] //= 2
        tables[name] = tuples(rows, name, [(rng.randrange(9), *row.values()) for row in drawn])
    bucket = Bucket(0, 9, tables)
    small = pc.abs(tables["r"]["small"].cast(pa.int32()))
    if pc.any(pc.greater_equal(small, 2**14)).as_py() and fails:
        for engine in (early, rows):
            with pytest.raises(Exception, match=r"ARITHMETIC_OVERFLOW|overflow"):
                engine.advance(EMPTY, [bucket])
        return
    expected = rows.advance(EMPTY, [bucket]).outputs
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(column_job.ColumnJob, "_execute", refuse)
        same_bytes(early.advance(EMPTY, [bucket]).outputs, expected, "here and on Spark")


def test_many_tuples_and_what_cannot_be_computed_here_take_a_job(
    early_and_rows: tuple[Engine, Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    early, _ = early_and_rows
    rng = random.Random(3)
    drawn = [(0, *(values(rng) | {"small": 1}).values()) for _ in range(20)]
    bucket = Bucket(0, 1, {name: tuples(early, name, drawn) for name in "lr"})
    monkeypatch.setattr(column_job.ColumnJob, "_run_near", refuse)
    here = early.advance(EMPTY, [bucket]).outputs
    assert here["values"].num_rows == 20
    with monkeypatch.context() as patch:
        patch.setattr(column_job, "run_here", lambda *given: 1 // 0)
        with pytest.raises(AssertionError, match="a job"):
            early.advance(EMPTY, [bucket])
    monkeypatch.setattr(column_job, "FEW_ROWS", 10)
    with pytest.raises(AssertionError, match="a job"):
        early.advance(EMPTY, [bucket])


def test_a_look_at_a_join_takes_no_job_and_writes_no_state(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network("looks", spark=spark, partitions=2)
    left, right = (network.source(name, "k int, v double") for name in "lr")
    right = right.withColumnRenamed("v", "w")
    left.join(right, on="k", within="5 microseconds").filter("v < w").output("pairs")
    left.join(right, on="k", within="1 microsecond", how="full").output("outer")
    left.groupBy(window("4 microseconds"), "k").agg(F.count("*").alias("n")).output("counts")
    whole = Engine(network)
    looks = whole.part(["pairs", "outer"])
    rng = random.Random(5)
    drawn = {name: [(at, rng.randrange(3), rng.random()) for at in range(20)] for name in "lr"}
    first, second = (
        Bucket(low, low + 10, {n: tuples(whole, n, drawn[n][low : low + 10]) for n in "lr"})
        for low in (0, 10)
    )
    state = whole.advance(EMPTY, [first]).state
    looks.look(EMPTY, [first], first.end)  # the first one is a job
    before = set(whole.directory.iterdir()), set(looks.directory.iterdir())
    with monkeypatch.context() as patch:
        patch.setattr(column_job.ColumnJob, "_run_near", refuse)
        seen = [looks.look(state, [second], second.end) for _ in range(2)]
    assert (set(whole.directory.iterdir()), set(looks.directory.iterdir())) == before
    outputs = whole.advance(state, [second]).outputs
    outer = outputs["outer"]
    # Of who has no partner a look says nothing: one may still come.
    paired = outer.filter(pc.field("v").is_valid() & pc.field("w").is_valid())
    assert outputs["pairs"].num_rows
    assert 0 < paired.num_rows < outer.num_rows
    for each in seen:
        same_bytes(each, {"pairs": outputs["pairs"], "outer": paired}, "a look and the order")
    for engine in (whole, looks):
        engine.close()


def test_executors_elsewhere_get_and_give_the_same_bytes(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Engine(every_kind_of_state(spark, partitions=3))
    buckets = split(some_tables(engine, 19, 120), EDGES)
    here = run(engine, buckets)
    monkeypatch.setattr(column_job, "is_local", lambda context: False)
    monkeypatch.setattr(engines, "_SHARDING", Sharding(0, 0, 0))
    same_bytes(run(engine, buckets), here, "by Spark and by files")


def test_each_of_several_tasks_computes_its_part_of_what_has_no_state(spark: SparkSession) -> None:
    engine = Engine(without_a_state(spark))
    runner = engine._column_runner()
    (stage,) = runner._stages[True]
    nodes = runner._job(stage, [stage], 2)._task.nodes
    rng = random.Random(3)
    drawn = [(at, *(values(rng) | {"small": 1}).values()) for at in range(20)]
    given = {name: tuples(engine, name, drawn) for name in "lr"}
    told = {"directory": str(engine.directory), "step": 1}
    each, other, whole = (
        _run(rounds(nodes), task, tasks, given, told) for task, tasks in ((0, 2), (1, 2), (0, 1))
    )
    for name, table in whole.items():
        parts = [part for part in (each[name], other[name]) if part is not None]
        assert table is not None
        assert len(parts) == 2
        assert all(part.num_rows < table.num_rows for part in parts)
        assert ipc_bytes(in_stream_order(pa.concat_tables(parts))) == ipc_bytes(
            in_stream_order(table)
        )


def test_nothing_is_left_of_a_job_that_failed(spark: SparkSession) -> None:
    def fails(key: dict[str, Any], rows: pa.Table, state: Any) -> tuple[pa.Table | None, Any]:
        raise ValueError("no")

    network = Network("fails", spark=spark)
    source = network.source("s", "k string")
    source.groupBy("k").process(fails, "k string", "int").output("out")
    engine = Engine(network)
    with pytest.raises(Exception, match="no"):
        run(engine, split({"s": tuples(engine, "s", [(5, "a")])}, [0, SECOND]))
    left: Mapping[str, Any] = {path.name: path for path in engine.directory.iterdir()}
    assert set(left) <= {"empty.arrows"}
