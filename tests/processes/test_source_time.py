"""Sources with their own time at a running entry point: ahead, idle, late, several producers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from holdfast.connect.push_source import PushSource
from holdfast.connect.source import Source
from holdfast.core.entry import EntrySettings
from holdfast.core.frame import Kind
from holdfast.deployment import DeploymentError, load_deployment
from holdfast.errors import InputError
from holdfast.flight.security import Security
from holdfast.frames import TIME
from holdfast.log import StreamLog
from holdfast.nodes.entry_node import EntryNode
from holdfast.nodes.hosted import Place
from holdfast.operators import SourceOperator
from holdfast.plans.plan import Plan, SourcePlan, read_plan
from holdfast.plans.topology import Topology
from holdfast.producer import Producer
from holdfast.spark.engine import input_schema
from holdfast.testing.undisturbed import logged_tuples
from tests.flight.nodes import LOAD as ARRIVING
from tests.flight.nodes import fail, location, make_entry
from tests.processes.planned import planned

COLUMNS = StructType([StructField("at", TimestampType()), StructField("value", LongType())])
LOAD = SourceOperator("load", "source 'load'", (), COLUMNS, "main", "at", ())
SECOND = 1_000_000
BUCKET_US = 100_000


@contextmanager
def running(directory: Path, source: Source | None = None, **more: int) -> Iterator[EntryNode]:
    settings = EntrySettings("entry-load", "load", ("main-1",), boundary_interval_us=20_000)
    node = EntryNode(
        replace(settings, **more),  # type: ignore[arg-type]
        LOAD.declaration,
        input_schema(LOAD),
        source,
        BUCKET_US,
        directory,
        Place("127.0.0.1", 0, {}, Security()),
        fail,
    )
    node.start()
    try:
        yield node
    finally:
        node.stop()


def now_us() -> int:
    return time.time_ns() // 1000


def wait(until: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def row(at_us: int, value: int = 0) -> dict[str, Any]:
    return {"at": at_us, "value": value}


def values(directory: Path) -> list[int]:
    found: list[int] = logged_tuples(directory / "streams" / "load")["value"].to_pylist()
    return found


def test_a_row_of_another_century_holds_up_nothing(tmp_path: Path) -> None:
    with running(tmp_path) as node, Producer("load", location(node), name="p") as producer:
        start = now_us()
        producer.send([row(start, 1), row(4_070_908_800 * SECOND, 2), row(start + 1, 3)])
        producer.send([row(start + SECOND, 4)])
        producer.flush(20.0)
        status = node.status()
        assert (status["dead_letters"], status["ahead"], status["late"]) == (1, 1, 0)
        assert status["warnings"] == ["1 dead letters, 0 of them late and 1 ahead of the clock"]
        wait(lambda: node.entry.served.boundary >= start + SECOND - BUCKET_US)
        assert node.entry.served.boundary <= start + SECOND
    assert values(tmp_path) == [1, 3, 4]
    (letter,) = (tmp_path / "dead-letters.jsonl").read_text().splitlines()
    assert json.loads(letter)["reason"].startswith("too far ahead of the clock")


def test_a_source_ahead_of_the_clock_is_told_of(tmp_path: Path) -> None:
    with running(tmp_path) as node, Producer("load", location(node), name="p") as producer:
        producer.send([row(now_us() + 40 * SECOND)])
        producer.flush(20.0)
        wait(lambda: bool(node.status()["warnings"]))
        (warning,) = node.status()["warnings"]
        assert "s ahead of this machine's clock" in warning


def test_producers_whose_clocks_differ_lose_nothing(tmp_path: Path) -> None:
    with (
        running(tmp_path) as node,
        Producer("load", location(node), name="ahead") as ahead,
        Producer("load", location(node), name="behind") as behind,
    ):
        start = now_us()
        for number in range(20):
            ahead.send([row(start + number * 10_000 + 300_000, number)])
            ahead.flush(20.0)
            behind.send([row(start + number * 10_000, 100 + number)])
            behind.flush(20.0)
        assert node.status()["dead_letters"] == 0
        wait(lambda: node.entry.served.boundary > start + 190_000 - BUCKET_US)
        assert node.entry.served.boundary <= start + 190_000
    assert len(values(tmp_path)) == 40


def test_a_producer_that_is_gone_does_not_hold_up_the_others(tmp_path: Path) -> None:
    with running(tmp_path, lane_idle_us=300_000) as node:
        start = now_us()
        with Producer("load", location(node), name="gone") as gone:
            gone.send([row(start)])
        with Producer("load", location(node), name="here") as here:

            def goes_on() -> bool:
                here.send([row(now_us())])
                here.flush(20.0)
                return node.entry.served.boundary > start + 600_000

            wait(goes_on)
        assert node.status()["idle"] == ["gone"]


def test_a_promise_takes_the_place_of_the_next_row(tmp_path: Path) -> None:
    with running(tmp_path) as node, Producer("load", location(node), name="p") as producer:
        start = now_us() // BUCKET_US * BUCKET_US
        producer.send([row(start)])
        producer.promise(start + 10 * SECOND)
        producer.flush(20.0)
        wait(lambda: node.entry.served.boundary == start + 10 * SECOND)
        producer.send([row(start + 9 * SECOND, 1), row(start + 10 * SECOND, 2)])
        producer.flush(20.0)
        assert node.status()["late"] == 1
    # It is promised after a restart, too.
    with running(tmp_path) as node, Producer("load", location(node), name="p") as producer:
        assert node.entry.served.boundary == start + 10 * SECOND
        producer.send([row(start + 9 * SECOND, 3)])
        producer.flush(20.0)
        assert node.status()["late"] == 2
    assert values(tmp_path) == [0, 2]


def test_who_takes_the_time_of_arrival_promises_nothing(tmp_path: Path) -> None:
    node = make_entry(tmp_path, operator=ARRIVING)
    node.start()
    try:
        producer = Producer("load", location(node), name="p")
        with pytest.raises(InputError, match="takes the time of arrival"):
            producer.promise(5)
        producer.close()
    finally:
        node.stop()


@pytest.mark.parametrize("speaks", [True, False])
def test_a_quiet_source_holds_nobody_back(tmp_path: Path, speaks: bool) -> None:
    source = PushSource(0, idle_after=400_000)
    with running(tmp_path, source) as node, Producer("load", location(node), name="p") as producer:
        if speaks:
            producer.send([row(now_us(), 1)])
            producer.flush(20.0)
        start = now_us()
        wait(lambda: node.entry.served.boundary > start + SECOND)
        assert node.entry.served.boundary <= now_us() - 400_000
        # A row that is fresh, on however slow a machine, is in time; one from before is late.
        producer.send([row(now_us() + 9 * SECOND, 2), row(start, 3)])
        producer.flush(20.0)
        assert node.status()["late"] == 1
        boundary = node.entry.served.boundary
    with running(tmp_path, source) as node:
        assert node.entry.served.boundary >= boundary
    assert values(tmp_path) == ([1, 2] if speaks else [2])


# -- what a deployment says of it -------------------------------------------------------

DEPLOYMENT = """
network = "network.py"
[timing]
delay = "3 seconds"
[sources.load]
{}
[fragments.main]
"""


def topology(directory: Path, said: str, stime: str | None = "at", refused: str = "") -> Topology:
    deployment = planned(directory, DEPLOYMENT.format(said))
    plan = read_plan(deployment)
    sources = {
        name: SourcePlan(each.schema, stime, (), refused or None)
        for name, each in plan.sources.items()
    }
    return Topology(deployment, Plan(plan.bucket_us, sources, plan.fragments, plan.outputs))


def test_times_that_fit_x_are_taken(tmp_path: Path) -> None:
    found = topology(
        tmp_path,
        'lateness = "500 ms"\nidle_after = "1 second"\nfuture_limit = "off"\nlate = "take"',
    )
    entry = found.entry("load")
    assert entry.lane_idle_us == (2_700_000 - 800_000) // 2


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            'lateness = "3 seconds"',
            "deployment.toml: sources.load: tuples would wait lateness 3 s + a bucket of 200 ms + "
            "100 ms between two boundaries = 3.3 s for it in main, but may wait only alpha x delay "
            "= 0.9 x 3 s = 2.7 s: everything would be tentative for ever. Make lateness shorter, "
            "or timing.delay longer",
        ),
        (
            'lateness = "1 second"\nidle_after = "2 seconds"',
            "lateness 1 s + idle_after 2 s + a bucket of 200 ms + 100 ms between two boundaries = "
            "3.3 s",
        ),
        ('from = "socket:127.0.0.1:1,lateness=1 hour"', "lateness 1 h"),
        ('idle_after = "soon"', "sources.load.idle_after: expected a duration"),
        ('late = "keep"', "sources.load.late: it is one of drop, take; got 'keep'"),
    ],
)
def test_times_that_cannot_work_with_x_are_refused(tmp_path: Path, said: str, message: str) -> None:
    with pytest.raises(DeploymentError) as raised:
        topology(tmp_path, said)
    assert message in str(raised.value)


def test_a_file_is_read_as_fast_as_it_goes_and_may_be_as_late_as_it_likes(tmp_path: Path) -> None:
    topology(tmp_path, 'from = "csv:load.csv"\nlateness = "1 hour"')


def test_times_mean_nothing_to_a_source_that_takes_the_time_of_arrival(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match=r"lateness is for sources whose tuples bring their"):
        topology(tmp_path, 'lateness = "1 second"', stime=None)


def test_late_rows_are_taken_only_where_that_is_exact(tmp_path: Path) -> None:
    with pytest.raises(DeploymentError, match="late = 'take' is not possible: it reaches a join"):
        topology(tmp_path, 'late = "take"', refused="it reaches a join")
    assert load_deployment(tmp_path / "deployment.toml").sources["load"].times == {"late": "take"}


# -- many rows --------------------------------------------------------------------------


def test_rows_in_any_order_within_the_lateness_are_all_there(tmp_path: Path) -> None:
    """Three producers with a third each, none in order: no boundary is broken, nothing is lost."""
    random = np.random.default_rng(7)
    count, lateness = 60_000, 2 * SECOND
    start = now_us() - 60 * SECOND
    stamps = start + np.sort(random.integers(0, 30 * SECOND, count))
    order = np.argsort(stamps + random.integers(0, lateness, count), kind="stable")
    arriving = pa.table({"at": pa.array(stamps[order]).cast(TIME), "value": pa.array(order)})
    with running(tmp_path, PushSource(lateness)) as node:
        producers = [Producer("load", location(node), name=name) for name in "abc"]
        for first in range(0, count, 500):
            producers[first // 500 % 3].send(arriving.slice(first, 500))
            if first % 6_000 == 0:
                for producer in producers:
                    producer.flush(60.0)
        for producer in producers:
            producer.promise(start + 30 * SECOND)
            producer.close()
        wait(lambda: node.entry.served.boundary >= start + 30 * SECOND - BUCKET_US)
        assert node.status()["dead_letters"] == 0
    boundary, found = 0, []
    path = tmp_path / "streams" / "load"
    with StreamLog.open(path, read_only=True) as log, log.replay(from_id=0) as frames:
        for _, frame in frames:
            if frame.kind is Kind.BOUNDARY:
                boundary = frame.header.stime_min
            elif frame.batch is not None:
                assert frame.header.stime_min >= boundary
                found += frame.batch["value"].to_pylist()
    assert sorted(found) == list(range(count))
