"""Continuous checkpoints: after any crash, the rest of the output is the same, bit for bit."""

from __future__ import annotations

import random
import tempfile
import unittest.mock
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, count_window, session_window, window
from holdfast.core.settings import Continuous
from holdfast.log import inspect
from holdfast.spark import engine as engines
from holdfast.spark.engine import Engine, Sharding
from holdfast.testing import run, same_bytes, split, tuples
from tests.spark.continuous_runs import Fragment
from tests.spark.support import PLAIN, SCHEMA, SPARK, Case, RowMaker, cases, full_row, plain_row
from tests.spark.test_random_networks import SOURCES, Node, build, networks, used

EDGES = 9


@st.composite
def knobs(draw: st.DrawFn) -> Continuous:
    """Any Q, U, CI and CP, or a time."""
    interval = draw(st.sampled_from([1, 1_000, 10_000_000]))
    period = max(interval, draw(st.sampled_from([1, 100_000])))
    if draw(st.booleans()):
        within = draw(st.sampled_from([1, 60_000, 10_000_000]))
        return Continuous(recover_within_us=within, interval_us=interval, period_us=period)
    targets = st.sampled_from([None, 1, 10, 40, 10_000])
    return Continuous(draw(targets), draw(targets), None, interval, period)


def after(outputs: dict[str, pa.Table], boundary: int) -> dict[str, pa.Table]:
    return {
        name: table.filter(pc.greater_equal(table["stime"].cast(pa.int64()), boundary))
        for name, table in outputs.items()
    }


def run_and_crash(
    network: Network, case: Case, chosen: Continuous, rows: int, make: RowMaker = plain_row
) -> Fragment:
    """Advance a fragment bucket by bucket, crash it now and then, compare to the end."""
    rng = random.Random(case.seed)
    whole = Engine(network)
    tables = {
        name: tuples(whole, name, case.rows(make, 40, salt=i))
        for i, name in enumerate(whole.input_schemas)
    }
    expected = run(whole, split(tables, [case.start, case.boundary]))
    whole.close()
    step = (case.boundary - case.start) // EDGES
    edges = sorted({*range(case.start, case.boundary, step), *case.edges})
    buckets = split(tables, edges)
    with (
        tempfile.TemporaryDirectory() as directory,
        unittest.mock.patch.object(engines, "_SHARDING", Sharding(rows, 0, rows)),
    ):
        fragment = Fragment(network, Path(directory), chosen, tables, rng)
        crashes = sorted(rng.sample(range(1, len(buckets)), 2))
        at, since = 0, -(2**62)
        parts: list[tuple[int, dict[str, pa.Table]]] = []
        while at < len(buckets):
            if crashes and at >= crashes[0]:
                crashes.pop(0)
                # The record may be older than the log, but not older than the last recovery.
                known = [each for each in fragment.records if each.boundary > since]
                record = rng.choice(known[-3:]) if known else None
                if record is None:
                    continue
                since = fragment.crash(record, half=rng.random() < 0.3)
                fragment.records = [each for each in fragment.records if each.boundary <= since]
                at = next(i for i, each in enumerate(buckets) if each.start >= since)
                parts = [part for part in parts if part[0] <= since]
            size = rng.choice([1, 1, 2, 3])
            group = buckets[at : at + size]
            parts.append((group[-1].end, fragment.advance(group)))
            at += len(group)
        machine = fragment.checkpoints.machine
        fragment.log.close()
        fragment.engine.close()
        windows = inspect(fragment.directory).windows
        if windows is not None and windows.time == machine.time:
            # What the log tells whoever looks at it is what its owner knows.
            assert windows.extent_from == machine.extent_from
            assert windows.extent == machine.extent or fragment.crashes
            assert windows.replay == machine.replay
            assert windows.open_windows == machine.open_windows
        found = {name: pa.concat_tables([part[1][name] for part in parts]) for name in expected}
        same_bytes(found, expected, "with crashes and without")
    return fragment


@settings(SPARK, max_examples=SPARK.max_examples + 3)
@given(nodes=networks(), case=cases(), chosen=knobs())
@example(  # a closed count window, its state still in the extent for the join's sake
    nodes=[
        Node("count", (1,), 500, 1),
        Node("join", (0, 2), 1000, 2),
        Node("explode", (3,), 1000, 0),
        Node("union", (2, 1), 300, 1),
    ],
    case=Case(273, -7_000_000, (2_000_000,), (2, 1)),
    chosen=Continuous(recover_within_us=60_000, interval_us=1, period_us=1),
)
def test_any_network_goes_on_as_if_it_had_not_crashed(
    nodes: list[Node], case: Case, chosen: Continuous, spark: SparkSession
) -> None:
    ends, needed = used(nodes)
    network = Network("random", spark=spark)
    sources = {name: network.source(name, PLAIN) for i, name in enumerate(SOURCES) if i in needed}
    streams = [sources.get(name, next(iter(sources.values()))) for name in SOURCES]
    for node in nodes:
        streams.append(build(streams, node))
    for end in ends:
        streams[end].output(f"end_{end}")
    run_and_crash(network, case, chosen, 0 if case.seed % 3 == 0 else engines._SHARDING.rows)


@pytest.mark.thorough
@settings(SPARK, max_examples=max(2, SPARK.max_examples // 2))
@given(case=cases(), chosen=knobs())
@example(  # a session of results is open in the log of a run cut short, and passes in the next
    case=Case(6558999, 1_700_000_000_000_000, (10107, 5500000), (1, 2)),
    chosen=Continuous(recover_within_us=60_000, interval_us=1_000, period_us=100_000),
)
def test_sums_that_depend_on_order_and_sessions(
    case: Case, chosen: Continuous, spark: SparkSession
) -> None:
    network = Network("ordered", spark=spark)
    source = network.source("s", SCHEMA)
    sums = [
        F.sum("v").alias("v"),
        F.sum("d").alias("d"),
        F.stddev("v").alias("spread"),
        F.first("s").alias("first"),
        F.approx_count_distinct("i").alias("different"),
    ]
    source.groupBy(session_window("400 ms"), "k").agg(*sums).output("sessions")
    source.groupBy(count_window(3), "k", "j").agg(*sums).output("threes")
    source.groupBy(count_window(4, 2), "k").agg(*sums).output("overlapping")
    slides = source.groupBy(window("1 s", "300 ms"), "k").agg(*sums)
    slides.groupBy(session_window("700 ms"), "k").agg(F.sum("v").alias("v")).output("late")
    run_and_crash(network, case, chosen, engines._SHARDING.rows, full_row)
