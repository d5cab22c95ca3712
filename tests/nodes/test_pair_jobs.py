"""Looks at joins on Spark find the very pairs that come in order, and each of them once."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.blocks import Block, one_batch
from holdfast.chosen import chosen, each_alone, first_of_each, seqs_of, stimes_of
from holdfast.core.effects import EarlyPiece, InputSlice, RunAhead, RunPairs
from holdfast.core.events import AheadDone, Event, PairsDone, PairsFailed
from holdfast.core.frame import Header, Kind
from holdfast.core.provenance import TIMED, Choice, Claim, Trail
from holdfast.core.settings import Output
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.fragments import fragment_network, plan_fragments, stream_schema_of, ways_to
from holdfast.frames import TIME
from holdfast.nodes.early_jobs import EarlyJobs
from holdfast.spark.chains import Workshop
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import EMPTY
from tests.spark.support import SPARK

ROWS, STEP = 40, 1_000
HALF = ROWS // 2 * STEP


def make(spark: SparkSession) -> Network:
    """Pairs, some of which are dropped and some become two, beside tuples and windows."""
    network = Network("pairs", spark=spark)
    x, y = (network.source(name, "k bigint, v double") for name in "xy")
    right = y.withColumnRenamed("v", "w").filter("w < 0.9")
    pairs = x.join(right, on="k", within="6 milliseconds").filter("v + w < 1.5")
    pairs = pairs.select(F.explode(F.array("k", F.col("k") + 100)).alias("k"), F.expr("v - w AS v"))
    pairs.union(y, pairs.withColumn("v", "-v")).output("both")
    x.groupBy(window("5 milliseconds")).agg(F.sum("v").alias("v")).output("sums")
    x.join(right, on="k", within="1 millisecond", how="left").output("lonely")
    sums = x.groupBy(window("5 milliseconds"), "k").agg(F.sum("v").alias("s"))
    right.join(sums.drop("window"), on="k", within="6 milliseconds").output("behind")
    return network


@dataclass
class Bench:
    jobs: EarlyJobs
    told: queue.SimpleQueue[Event]
    whole: Engine

    def run(self, order: RunPairs | RunAhead) -> PairsDone | AheadDone | PairsFailed:
        self.jobs.submit(order)
        done = self.told.get(timeout=120.0)
        assert isinstance(done, PairsDone | AheadDone | PairsFailed), done
        return done


@pytest.fixture(scope="module")
def bench(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    network = make(spark)
    part, told = fragment_network(network, "main"), queue.SimpleQueue[Event]()
    outputs = [
        Output(name, frozenset(), (), *ways_to(part.outputs[name].operator))
        for name in ("both", "lonely")
    ]
    jobs = EarlyJobs(Workshop(lambda: part, tmp_path_factory.mktemp("jobs")), outputs, told.put)
    jobs.start()
    whole = Engine(network)
    yield Bench(jobs, told, whole)
    jobs.close()
    whole.close()


@pytest.mark.thorough
def test_pairs_are_those_of_joins_of_single_tuples(spark: SparkSession) -> None:
    (plan,) = plan_fragments(make(spark))
    found = {one.stream: one for one in plan.outputs}
    branches = {Trail(2, 0, timed=True), Trail(2, 2, timed=True)}
    assert found["both"].pairs == branches
    assert {trail for trail, _ in found["both"].memory} == branches
    assert found["lonely"].pairs == {TIMED}
    assert not any(found[name].pairs for name in ("sums", "behind"))


def source(network: Network, name: str, random: np.random.Generator) -> pa.Table:
    times = np.sort(random.integers(0, ROWS, ROWS)) * STEP
    columns = {"stime": pa.array(times).cast(TIME), "tmax": pa.array(times).cast(TIME)}
    values = {"k": random.integers(0, 3, ROWS), "v": random.random(ROWS)}
    return pa.table({**columns, **values}, schema=stream_schema_of(network.sources[name]))


def slice_of(stream: str, table: pa.Table, until: int, since: int = 0) -> InputSlice:
    header = Header(Kind.STABLE, 0, table.num_rows, 0, STEP * ROWS)
    return InputSlice(stream, header, Block(one_batch(table)), 0, since, until)


@pytest.mark.thorough
@SPARK
@given(seed=st.integers(0, 2**31), x_until=st.integers(0, ROWS), y_until=st.integers(0, ROWS))
def test_every_pair_is_found_once_and_is_that_of_the_order(
    seed: int, x_until: int, y_until: int, bench: Bench
) -> None:
    random = np.random.default_rng(seed)
    network = bench.whole._network
    x, y = (source(network, name, random) for name in "xy")
    came: list[pa.RecordBatch] = []
    known: list[Claim] = []

    def look(state: object, start: int, slices: list[InputSlice]) -> None:
        """What has come, some of it early and in two pieces that have a part in common."""
        early = [one for one in slices if one.stream == "y"]
        pieces = []
        for one in early:
            middle = (one.stime_from + min(one.stime_to, STEP * ROWS)) // 2
            until = min(one.stime_to, middle + 3 * STEP)
            for each in (replace(one, stime_to=until), replace(one, stime_from=middle)):
                pieces.append(EarlyPiece((each,), None, (Claim(Trail(), 0, 1, 0),)))
        ordered = tuple(one for one in slices if one.stream == "x")
        trails = tuple(Trail(2, side, alone=True) for side in (0, 2))
        told = tuple(one for one in known if one.stime_max >= start)
        wanted = (("both", trails, told),)
        done = bench.run(RunPairs(1, state, start, ordered, tuple(pieces), wanted, 10_000))
        assert isinstance(done, PairsDone), done
        for block in done.outputs:
            assert isinstance(block.block, Block)
            came.append(block.block.batch())
        known.extend(claim for _, claims in done.found for claim in claims)

    look(None, 0, [slice_of("x", x, x_until * STEP), slice_of("y", y, y_until * STEP)])
    look(None, 0, [slice_of("x", x, FAR_FUTURE), slice_of("y", y, HALF)])
    # The order has come as far as half of it.
    first = tuple(slice_of(name, table, HALF) for name, table in (("x", x), ("y", y)))
    done = bench.run(RunAhead(2, None, 0, HALF, first, ()))
    assert isinstance(done, AheadDone), done
    rest = [slice_of(name, table, FAR_FUTURE, HALF) for name, table in (("x", x), ("y", y))]
    look(done.state, HALF, rest)
    look(done.state, HALF, rest)
    expected = in_order(bench.whole, {"x": x, "y": y})
    mine = Choice((Claim(Trail(2, 1), 0, ROWS, 0),), inside=False)
    pairs = chosen(one_batch(expected), mine)
    found = pa.Table.from_batches(came, pairs.schema)
    columns = [(name, "ascending") for name in found.column_names]
    ordered = pa.Table.from_batches([pairs]).sort_by(columns)
    assert found.sort_by(columns).combine_chunks().equals(ordered.combine_chunks())
    # Every claim names what one pair became, and all of them everything.
    assert len(set(known)) == len(known)
    assert chosen(pairs, Choice(tuple(known), inside=False)).num_rows == 0


@pytest.mark.thorough
def test_of_an_outer_join_pairs_are_found_and_nobody_is_said_to_be_without(bench: Bench) -> None:
    random = np.random.default_rng(8)
    x, y = (source(bench.whole._network, name, random) for name in "xy")
    came: list[pa.RecordBatch] = []
    known: list[Claim] = []
    for y_until in (HALF, FAR_FUTURE, FAR_FUTURE):
        slices = (slice_of("x", x, FAR_FUTURE), slice_of("y", y, y_until))
        wanted = (("lonely", (TIMED.singly,), tuple(known)),)
        done = bench.run(RunPairs(1, None, 0, slices, (), wanted, 10_000))
        assert isinstance(done, PairsDone), done
        came += [block.block.batch() for block in done.outputs if isinstance(block.block, Block)]
        known += [claim for _, claims in done.found for claim in claims]
    expected = in_order(bench.whole, {"x": x, "y": y}, "lonely")
    pairs = expected.filter(pc.field("w").is_valid())
    assert 0 < pairs.num_rows < expected.num_rows, "some have no partner"
    columns = [(name, "ascending") for name in pairs.column_names]
    found = pa.Table.from_batches(came).select(pairs.column_names).cast(pairs.schema)
    assert found.sort_by(columns).combine_chunks().equals(pairs.sort_by(columns).combine_chunks())
    assert len(set(known)) == len(known) == pairs.num_rows


def in_order(engine: Engine, tables: dict[str, pa.Table], output: str = "both") -> pa.Table:
    """What one ordered job gives."""
    given = {}
    for name, table in tables.items():
        schema = engine.input_schemas[name]
        with_ids = table.append_column("seq", pa.array(np.arange(ROWS)))
        given[name] = with_ids.select(schema.names).cast(schema)
    return engine.advance(EMPTY, [Bucket(0, STEP * ROWS, given)], STEP * ROWS).outputs[output]


@pytest.mark.thorough
def test_so_many_pairs_and_no_more_and_a_job_that_fails_says_why(bench: Bench) -> None:
    random = np.random.default_rng(1)
    x, y = (source(bench.whole._network, name, random) for name in "xy")
    slices = (slice_of("x", x, FAR_FUTURE), slice_of("y", y, FAR_FUTURE))
    wanted = (("both", (Trail(2, 0, alone=True),), ()),)
    done = bench.run(RunPairs(1, None, 0, slices, (), wanted, 3))
    assert isinstance(done, PairsDone), done
    (block,), ((_, claims),) = done.outputs, done.found
    assert len(claims) == 3
    assert block.count == 6, "each pair becomes two"
    assert isinstance(block.block, Block)
    batch = block.block.batch()
    assert set(each_alone(seqs_of(batch), stimes_of(batch), [TIMED.singly.then(Trail(2, 0))])) == {
        *claims
    }
    nothing = bench.run(RunPairs(2, None, 0, (), (), wanted, 3))
    assert nothing == PairsDone(2, (), ())
    failed = bench.run(RunPairs(3, "no state", 0, slices, (), wanted, 3))
    assert isinstance(failed, PairsFailed)
    assert failed.reason


def test_a_tuple_in_several_pieces_counts_once_and_twice_in_one_piece_twice() -> None:
    seqs, stimes = np.array([5, 5, 6, 5, 7, 6]), np.array([1, 1, 1, 1, 1, 2])
    pieces = np.array([0, 0, 0, 1, 1, 1])
    assert first_of_each(seqs, stimes, pieces).tolist() == [True, True, True, False, True, True]
