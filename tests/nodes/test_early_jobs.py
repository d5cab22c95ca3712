"""Early results on Spark are the very rows that come in order, and are claimed as they are."""

from __future__ import annotations

import queue
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.blocks import Block, one_batch
from holdfast.chosen import claims_of, seqs_of
from holdfast.core.effects import EarlyPiece, InputSlice, RunAhead, RunEarly
from holdfast.core.events import AheadDone, AheadFailed, EarlyDone, EarlyFailed, Event
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

ROWS = 60


@pytest.fixture
def network(spark: SparkSession) -> Network:
    """Three inputs, one of them twice, rows that are dropped, and rows that become two."""
    made = Network("early", spark=spark)
    x, y, z = (made.source(name, "k bigint, v double") for name in "xyz")
    united = x.union(y.filter("v < 0.5")).union(z, x.withColumn("v", "-v"))
    wider = united.select(F.explode(F.array("k", F.col("k") + 100)).alias("k"), "v")
    wider.output("wide")
    united.groupBy(window("1 second")).agg(F.sum("v").alias("v")).output("sums")
    return made


def source(network: Network, name: str, seed: int) -> pa.Table:
    random = np.random.default_rng(seed)
    times = np.arange(ROWS) * 1_000
    columns = {"stime": pa.array(times).cast(TIME), "tmax": pa.array(times).cast(TIME)}
    values = {"k": random.integers(0, 5, ROWS), "v": random.random(ROWS)}
    return pa.table({**columns, **values}, schema=stream_schema_of(network.sources[name]))


def piece(stream: str, table: pa.Table, skip: int = 0) -> EarlyPiece:
    header = Header(Kind.STABLE, 0, table.num_rows, 0, 1_000 * (ROWS - 1))
    part = InputSlice(stream, header, Block(one_batch(table)), skip, 0, FAR_FUTURE)
    claims = (Claim(Trail(), skip, ROWS, header.stime_max),)
    return EarlyPiece((part,), None, claims)


def in_order(network: Network, tables: dict[str, pa.Table]) -> pa.Table:
    """What an ordered job gives."""
    ids = pa.array(np.arange(ROWS))
    with_ids = {name: each.append_column("seq", ids) for name, each in tables.items()}
    engine = Engine(network)
    with_ids = {
        name: each.select(engine.input_schemas[name].names).cast(engine.input_schemas[name])
        for name, each in with_ids.items()
    }
    end = 1_000 * ROWS
    found = engine.advance(EMPTY, [Bucket(0, end, with_ids)], end).outputs["wide"]
    engine.close()
    return found


def outputs_of(network: Network, names: list[str]) -> list[Output]:
    """What a replica is told of them."""
    return [
        Output(name, frozenset(), (), *ways_to(network.outputs[name].operator)) for name in names
    ]


def run(
    network: Network, directory: Path, outputs: list[str], *orders: RunEarly | RunAhead
) -> list[EarlyDone | EarlyFailed]:
    told: list[Event] = []
    jobs = EarlyJobs(
        Workshop(lambda: network, directory), outputs_of(network, outputs), told.append
    )
    jobs.start()
    for order in orders:
        jobs.submit(order)
    jobs.close()
    return [one for one in told if isinstance(one, EarlyDone | EarlyFailed)]


def rows_of(done: EarlyDone | EarlyFailed) -> pa.Table:
    assert isinstance(done, EarlyDone), done
    (block,) = done.outputs
    assert isinstance(block.block, Block)
    assert block.count == block.block.batch().num_rows
    return pa.Table.from_batches([block.block.batch()])


def test_early_rows_are_those_of_the_order_and_claims_name_them(
    network: Network, tmp_path: Path
) -> None:
    (plan,) = plan_fragments(network)
    ways = {output.stream: output.ways for output in plan.outputs}
    assert ways["sums"] == ()
    assert [one.memory for one in plan.outputs if one.stream == "sums"] == [
        ((TIMED, frozenset("xyz")),)
    ]
    assert [name for name, _ in ways["wide"]] == ["x", "y", "z", "x"]
    tables = {name: source(network, name, seed) for seed, name in enumerate("xyz")}
    expected = in_order(network, tables)
    # One input alone, and the rest of it later: together they are what comes in order of it.
    part = fragment_network(network, "main")
    first, rest, others = run(
        part,
        tmp_path,
        ["wide"],
        RunEarly(1, (piece("x", tables["x"].slice(0, 20)),)),
        RunEarly(2, (piece("x", tables["x"], skip=20),)),
        RunEarly(3, (piece("y", tables["y"]), piece("z", tables["z"]))),
    )
    came = pa.concat_tables([rows_of(first), rows_of(rest), rows_of(others)])
    columns = [(name, "ascending") for name in came.column_names]
    assert came.sort_by(columns).combine_chunks().equals(expected.sort_by(columns).combine_chunks())
    # What a row has as its seq says where it comes from.
    seqs = seqs_of(one_batch(rows_of(rest)))
    named = [(name, claim) for name, way in ways["wide"] for claim in claims_of(seqs, [way], 0)]
    assert {name for name, _ in named} == {"x"}
    assert min(claim.first_id for _, claim in named) == 20
    assert max(claim.next_id for _, claim in named) == ROWS


def test_of_a_stream_between_fragments_only_what_is_chosen(
    spark: SparkSession, tmp_path: Path
) -> None:
    network = Network("chained", spark=spark)
    x, y = (network.source(name, "k bigint, v double") for name in "xy")
    x.union(y).fragment("far").filter("v < 0.5").output("few")
    first, far = plan_fragments(network)
    (between,) = first.outputs
    ((name, way),) = far.outputs[0].ways
    assert (name, way) == (between.stream, Trail())
    seqs = np.arange(2 * ROWS)
    table = pa.table(
        {
            "stime": pa.array(seqs * 1_000).cast(TIME),
            "tmax": pa.array(seqs * 1_000).cast(TIME),
            "seq": seqs,
            "k": seqs,
            "v": np.full(2 * ROWS, 0.25),
        },
        schema=between.schema,
    )
    trails = tuple(trail for _, trail in between.ways)
    whole = piece(name, table)
    left = EarlyPiece(whole.slices, Choice((Claim(trails[1], 0, 50, 0),), inside=False), (), trails)
    (done,) = run(fragment_network(network, "far"), tmp_path, ["few"], RunEarly(1, (left,)))
    assert isinstance(done, EarlyDone)
    assert rows_of(done)["k"].to_pylist() == [
        seq for seq in seqs.tolist() if seq % 2 == 0 or seq // 2 >= 50
    ]
    ((all_of_x, rest_of_y),) = done.found
    assert (all_of_x.trail, all_of_x.first_id, all_of_x.next_id) == (trails[0], 0, ROWS)
    assert (rest_of_y.trail, rest_of_y.first_id, rest_of_y.next_id) == (trails[1], 50, ROWS)


def test_a_job_that_fails_says_why(network: Network, tmp_path: Path) -> None:
    wrong = piece("x", source(network, "y", 1).drop_columns(["k"]))
    part = fragment_network(network, "main")
    (failed,) = run(part, tmp_path, ["wide"], RunEarly(7, (wrong,)))
    assert isinstance(failed, EarlyFailed)
    assert failed.job == 7
    assert failed.reason


def test_windows_of_one_input_go_ahead_of_the_other(spark: SparkSession, tmp_path: Path) -> None:
    """A union of windows of x and of y itself: each side goes out without the other."""
    network = Network("ahead", spark=spark)
    x, y = (network.source(name, "k bigint, v double") for name in "xy")
    sums = x.groupBy(window("20 milliseconds"), "k").agg(F.sum("v").alias("v"))
    sums.select("k", "v").union(y, x).output("both")
    (plan,) = plan_fragments(network)
    (output,) = plan.outputs
    ((memory, inputs),) = output.memory
    assert inputs == frozenset("x")
    assert [name for name, _ in output.ways] == ["y", "x"]
    tables = {name: source(network, name, seed) for seed, name in enumerate("xy")}
    ids = pa.array(np.arange(ROWS))
    engine = Engine(network)
    whole = engine.advance(
        EMPTY,
        [
            Bucket(
                0,
                1_000 * ROWS,
                {
                    name: each.append_column("seq", ids).select(engine.input_schemas[name].names)
                    for name, each in tables.items()
                },
            )
        ],
    ).outputs["both"]
    engine.close()
    part, told = fragment_network(network, "main"), queue.SimpleQueue[Event]()
    jobs = EarlyJobs(Workshop(lambda: part, tmp_path), outputs_of(part, ["both"]), told.put)
    jobs.start()
    came, state = [], None
    for number, (start, stop) in enumerate([(0, 20_000), (20_000, 60_000)]):
        (cut,) = piece("x", tables["x"]).slices
        slices = (replace(cut, stime_from=start, stime_to=stop),)
        claims = (("both", (Claim(memory, start, stop, stop - 1),)),)
        jobs.submit(RunAhead(number, state, start, stop, slices, claims))
        done = told.get(timeout=120.0)
        assert isinstance(done, AheadDone), done
        state = done.state
        came += [rows_of(EarlyDone(0, done.outputs, ()))]
    # Tuple by tuple, what windows would say of so few of them is left out.
    jobs.submit(RunEarly(9, (piece("x", tables["x"]), piece("y", tables["y"]))))
    jobs.submit(RunAhead(10, "no state", 0, 1, (), ()))
    early, failed = told.get(timeout=120.0), told.get(timeout=120.0)
    jobs.close()
    assert isinstance(early, EarlyDone), early
    assert isinstance(failed, AheadFailed)
    found = pa.concat_tables([*came, rows_of(early)])
    columns = [(name, "ascending") for name in found.column_names]
    assert found.sort_by(columns).combine_chunks().equals(whole.sort_by(columns).combine_chunks())
