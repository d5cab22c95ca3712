"""Shards: any number of them gives what one engine gives, bit for bit, and in its order."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, Stream, count_window, session_window, window
from holdfast.blocks import Block
from holdfast.frames import Frame
from holdfast.kept.continuous_reader import WindowReader
from holdfast.kept.continuous_recovery import OPEN_WINDOWS, Extent, load
from holdfast.kept.handed_over import logged_windows
from holdfast.packed import PackedState
from holdfast.plans.fragment_plans import ShardPlan
from holdfast.routes import find_routes, state_keys
from holdfast.slots import ANY, Routing
from holdfast.spark.continuous_states import WindowBatch
from holdfast.spark.dividing import united
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.groups import in_stream_order
from holdfast.spark.merging import Merge, MergeEngine
from holdfast.spark.packing import pack, unpack
from holdfast.spark.state import EMPTY, State
from holdfast.spark.version import Version
from holdfast.testing import run, same_bytes, split, tuples
from tests.spark.networks import running_total
from tests.spark.support import PLAIN, SPARK, Case, cases, plain_row
from tests.spark.test_random_networks import SOURCES, Node, build, networks, used

Build = Callable[[Stream, Stream], Mapping[str, Stream]]


def by_key(a: Stream, b: Stream) -> Mapping[str, Stream]:
    """Every operator with state, each with the key among its keys."""
    other = b.withColumnRenamed("k", "key").selectExpr("key", "n AS n2", "x AS x2")
    joined = a.join(other, on=[("k", "key")], within="700 ms", how="left")
    twice = a.groupBy(window("300 ms"), "k", "n").agg(F.sum("x").alias("x"))
    process = running_total()
    return {
        "slide": a.groupBy(window("1 second", "400 ms"), "k").agg(F.sum("x"), F.first("n")),
        "counted": a.union(b).groupBy(count_window(3), F.col("k").alias("who")).agg(F.last("x")),
        "sessions": b.groupBy(session_window("500 ms"), "k").agg(F.count("*"), F.avg("x")),
        "joined": joined,
        "distinct": a.distinct("n", "k", window=window("1 second")),
        "series": twice.groupBy(window("2 seconds"), "k").agg(F.max("x"), F.count("*")),
        "below": joined.groupBy(window("1 second"), "k").count(),
        "totals": a.groupBy("k").process(process, "k string, n bigint, total bigint", "bigint"),
        "passed": b.filter("n > 1"),
    }


def without_state(a: Stream, b: Stream) -> Mapping[str, Stream]:
    """Rows that come out of one tuple, and tuples of two streams with equal times."""
    both = F.explode(F.expr("array(n, n + 1, n)")).alias("n")
    many = a.transform(lambda df: df.select("k", both, "x"))
    return {"united": many.union(b), "filtered": b.filter("n % 3 <> 1")}


def of_all(a: Stream, b: Stream) -> Mapping[str, Stream]:
    """What cannot be divided: windows without a key, and keys that do not meet."""
    return {
        "all": a.union(b).groupBy(window("1 second", "400 ms")).agg(F.sum("x"), F.first("n")),
        "counted": a.groupBy(count_window(3)).agg(F.last("x"), F.count("*")),
        "distinct": b.distinct("n", window=window("1 second")),
        "by_k": a.groupBy(window("300 ms"), "k").agg(F.max("x")),
    }


def built(spark: SparkSession, build: Build) -> Network:
    network = Network("shards", spark=spark)
    sources = [network.source(name, PLAIN) for name in SOURCES]
    for name, stream in build(*sources).items():
        stream.output(name)
    return network


@functools.cache
def engine_of(spark: SparkSession, build: Build) -> tuple[Engine, Network]:
    """Planned once for all examples: states are values, and an engine may begin anew."""
    network = built(spark, build)
    return Engine(network), network


def in_shards(
    network: Network,
    engine: Engine,
    buckets: Sequence[Bucket],
    groups: Sequence[int],
    shards: int,
    routing: Routing,
) -> dict[str, pa.Table]:
    """What the shards' merged streams are, computed as processes do it."""
    routes = find_routes(network)
    assert routes.refused is None or routing is Routing.PRIMARY
    columns = {name: routes.columns.get(name, ANY) for name in network.sources}
    plans = [ShardPlan("main", each + 1, shards, routing, columns) for each in range(shards)]
    parts: dict[str, pa.Table] = {}
    for plan in plans:
        mine = [
            Bucket(one.start, one.end, {n: plan.share.take(n, t) for n, t in one.tables.items()})
            for one in buckets
        ]
        found = run(Version(engine), mine, groups)
        parts |= {plan.serves(name): table for name, table in found.items()}
    merge = Merge(
        {name: table.schema for name, table in parts.items()},
        {name: tuple(plan.serves(name) for plan in plans) for name in network.outputs},
    )
    edges = [buckets[0].start, *(one.end for one in buckets)]
    return run(Version(MergeEngine(merge)), split(parts, edges))


def check(engine: Engine, network: Network, case: Case, shards: int, routing: Routing) -> None:
    tables = {
        name: tuples(engine, name, case.rows(plain_row, 60, salt=number))
        for number, name in enumerate(network.sources)
    }
    whole = run(engine, split(tables, [case.start, case.boundary]))
    cut = in_shards(network, engine, split(tables, case.edges), case.groups, shards, routing)
    same_bytes(cut, whole, f"{shards} shards and one replica")


@settings(SPARK)
@given(case=cases(), shards=st.sampled_from([2, 3, 1, 7]))
def test_any_number_of_shards_gives_the_same_bits(
    case: Case, shards: int, spark: SparkSession
) -> None:
    check(*engine_of(spark, by_key), case, shards, Routing.KEY)


def advanced(
    engine: Engine, state: State, buckets: Sequence[Bucket]
) -> tuple[State, dict[str, list[pa.Table]]]:
    """The state after some buckets, and what they gave."""
    results: dict[str, list[pa.Table]] = {}
    for bucket in buckets:
        done = engine.advance(state, [bucket])
        state = done.state
        for name, table in done.outputs.items():
            results.setdefault(name, []).append(table)
    return state, results


def _taken(bucket: Bucket, plan: ShardPlan) -> Bucket:
    """What a shard takes of a bucket."""
    tables = {name: plan.share.take(name, table) for name, table in bucket.tables.items()}
    return replace(bucket, tables=tables)


def through_a_log(engine: Engine, packed: PackedState, past: Sequence[Bucket]) -> State:
    """A state that was handed over, as it comes out of a log with continuous checkpoints."""
    start, boundary = past[0].start, past[-1].end
    logged = logged_windows(engine, "any", packed, boundary)
    assert {each.header.stime_min for each in logged.frames} <= {boundary}
    blocks = [each.block for each in logged.frames if isinstance(each.block, Block)]
    frames = [
        Frame(each.header, block.batch()) for each, block in zip(logged.frames, blocks, strict=True)
    ]
    opened = {int(one.batch.schema.metadata[OPEN_WINDOWS]) for one in frames if one.batch}
    batches = [WindowBatch.of(one) for one in reversed(frames)]
    places = range(len(frames))
    extent = Extent(batches, places, [boundary for _ in places], *opened)
    recovered = load(engine, extent, boundary, start)
    since = min(max(start, recovered.state.boundary), boundary)
    tables = {
        name: pa.concat_tables([_since(one.tables[name], since) for one in past])
        for name in past[0].tables
    }
    replayed = [Bucket(since, boundary, tables)] if since < boundary else []
    state, _ = WindowReader(engine).recover(recovered, replayed)
    return state


def _since(table: pa.Table, start: int) -> pa.Table:
    return table.filter(pc.greater_equal(table["stime"].cast(pa.int64()), start))


@settings(SPARK)
@given(
    case=cases(),
    numbers=st.sampled_from([(2, 3), (3, 2), (1, 4), (4, 1)]),
    share=st.floats(0, 1),
    in_log=st.booleans(),
)
def test_states_of_shards_become_those_of_another_number(
    case: Case, numbers: tuple[int, int], share: float, in_log: bool, spark: SparkSession
) -> None:
    """Kept whole, or window by window in the log, beside the input that a join needs."""
    become(*engine_of(spark, by_key), case, numbers, share, in_log, Routing.KEY)


@settings(SPARK)
@given(
    case=cases(),
    numbers=st.sampled_from([(2, 3), (3, 2), (1, 4), (4, 1)]),
    share=st.floats(0, 1),
    in_log=st.booleans(),
)
def test_a_state_that_is_not_divided_goes_to_the_first_of_another_number(
    case: Case, numbers: tuple[int, int], share: float, in_log: bool, spark: SparkSession
) -> None:
    become(*engine_of(spark, of_all), case, numbers, share, in_log, Routing.PRIMARY)


def become(
    engine: Engine,
    network: Network,
    case: Case,
    numbers: tuple[int, int],
    share: float,
    in_log: bool,
    routing: Routing,
) -> None:
    """Compare shards that become another number on the way with one replica."""
    tables = {
        name: tuples(engine, name, case.rows(plain_row, 60, salt=number))
        for number, name in enumerate(network.sources)
    }
    whole = run(engine, split(tables, [case.start, case.boundary]))
    buckets = split(tables, case.edges)
    at = int(share * len(buckets))
    routed = find_routes(network).columns
    columns = {name: routed.get(name, ANY) for name in network.sources}
    parts: dict[str, list[pa.Table]] = {name: [] for name in network.outputs}
    states: list[PackedState] = []
    for generation, some in enumerate((buckets[:at], buckets[at:]), 1):
        shards, before, states = numbers[generation - 1], states, []
        for number in range(1, shards + 1):
            plan = ShardPlan("main", number, shards, routing, columns, generation)
            state = EMPTY
            if before:
                packed = united(before, state_keys(network), plan.slots)
                past = [_taken(one, plan) for one in buckets[:at]]
                # Ids in that log begin with the boundary: no deployment has times before 1970.
                kept = in_log and past and past[-1].end >= 0
                state = through_a_log(engine, packed, past) if kept else unpack(engine, packed)
            mine = [_taken(one, plan) for one in some]
            state, found = advanced(engine, state, mine)
            states.append(pack(engine, state))
            for name, results in found.items():
                parts[name] += results
    merged = {
        name: in_stream_order(pa.concat_tables(results)) if results else whole[name].slice(0, 0)
        for name, results in parts.items()
    }
    same_bytes(merged, whole, f"{numbers[0]} shards that became {numbers[1]}, and one replica")


@settings(SPARK)
@given(case=cases(), shards=st.sampled_from([2, 3]))
def test_one_shard_does_what_cannot_be_divided(
    case: Case, shards: int, spark: SparkSession
) -> None:
    engine, network = engine_of(spark, of_all)
    assert find_routes(network).refused is not None
    check(engine, network, case, shards, Routing.PRIMARY)


@settings(SPARK)
@given(case=cases(), shards=st.sampled_from([2, 5]))
def test_fragments_without_state_may_be_divided_anyhow(
    case: Case, shards: int, spark: SparkSession
) -> None:
    engine, network = engine_of(spark, without_state)
    assert find_routes(network).stateless
    check(engine, network, case, shards, Routing.RANDOM)


@pytest.mark.thorough
@settings(SPARK)
@given(nodes=networks(), case=cases(), shards=st.integers(1, 5))
def test_random_networks_in_shards(
    nodes: list[Node], case: Case, shards: int, spark: SparkSession
) -> None:
    """Whatever can be divided, and anything at all if one shard does the work."""
    ends, needed = used(nodes)
    network = Network("random", spark=spark)
    names = [name for i, name in enumerate(SOURCES) if i in needed]
    sources = {name: network.source(name, PLAIN) for name in names}
    streams = [sources.get(name, next(iter(sources.values()))) for name in SOURCES]
    for node in nodes:
        streams.append(build(streams, node))
    for end in ends:
        streams[end].output(f"end_{end}")
    routes = find_routes(network)
    assume(routes.refused is None)
    engine = Engine(network)
    check(engine, network, case, shards, Routing.RANDOM if routes.stateless else Routing.KEY)
    engine.close()


def test_columns_are_followed_back_to_the_inputs(spark: SparkSession) -> None:
    assert find_routes(built(spark, by_key)).columns == {"a": ("k",), "b": ("k",)}

    def both_keys(a: Stream, b: Stream) -> Mapping[str, Stream]:
        keyed = a.groupBy(window("1 second"), "n", "k").count()
        return {"keyed": keyed, "again": keyed.groupBy(window("2 seconds"), "k", "n").count()}

    assert find_routes(built(spark, both_keys)).columns == {"a": ("n", "k")}


def _different_keys(a: Stream, b: Stream) -> Mapping[str, Stream]:
    first = a.groupBy(window("1 second"), "k", "n").count()
    return {"second": first.groupBy(window("1 second"), "k").count(), "third": _by(a, "n")}


def _by(stream: Stream, key: str) -> Stream:
    return stream.groupBy(window("1 second"), key).count()


def _after_outer_join(a: Stream, b: Stream) -> Mapping[str, Stream]:
    other = b.selectExpr("k AS key", "n AS n2", "x AS x2")
    joined = a.join(other, on=[("k", "key")], within="1 second", how="full")
    return {"joined": joined.groupBy(window("1 second"), "key").count()}


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda a, b: {"all": a.groupBy(count_window(10)).agg(F.sum("x"))}, "has no key"),
        (
            lambda a, b: {"e": _by(a.withColumn("u", F.upper("k")), "u")},
            "u, are no plain columns of what the fragment reads, a,",
        ),
        (
            lambda a, b: {
                "e": a.groupBy(window("1 second"), F.upper("k").alias("u")).agg(F.count("*"))
            },
            "u, are no plain columns",
        ),
        (_different_keys, r"needs the tuples together by a\.n, but operators before it by a\.k"),
        (
            lambda a, b: {"e": _by(a.withColumn("y", F.col("n").cast("decimal(9,2)")), "y")},
            "y, are no plain columns",
        ),
        (_after_outer_join, "key, are no plain columns"),
        (
            lambda a, b: {
                "self": a.join(
                    a.selectExpr("x AS y", "n AS m", "k AS q"), on=[("k", "q")], within="1 second"
                ),
                "other": a.join(
                    a.selectExpr("x AS y", "n AS m", "k AS q"), on=[("n", "m")], within="1 second"
                ),
            },
            "together",
        ),
    ],
)
def test_what_cannot_be_divided_is_refused_with_the_reason(
    build: Build, reason: str, spark: SparkSession
) -> None:
    routes = find_routes(built(spark, build))
    assert routes.refused is not None
    assert re.search(reason, routes.refused), routes.refused
