"""A changed network goes on where the one before it stopped: nothing lost, nothing twice."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from holdfast.client import Client, View
from holdfast.cluster.from_now import begin_from_now
from holdfast.errors import StateError
from holdfast.kept.packed_codec import decode_record
from holdfast.kept.state_directory import StateDirectory
from holdfast.log import StreamLog
from holdfast.network import Network
from holdfast.plans.plan import Plan, read_plan
from holdfast.testing.undisturbed import logged_tuples, undisturbed
from tests.processes.copies import Hosted

NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("changed", bucket="200 ms")
load = network.source("load", "k bigint, v double")
load.groupBy(window("2 seconds"), "k").agg(F.sum("v").alias("v")).output("found")
"""
CHANGED = NETWORK.replace("F.sum", "F.max")
DEPLOYMENT = """
network = "network.py"
[timing]
delay = "4 seconds"
heartbeat = "100 ms"
[sources.load]
keep = true
[fragments.main]
replicas = 2
[clients.reader]
output = "found"
"""
CONTINUOUS = DEPLOYMENT.replace(
    "replicas = 2", 'replicas = 2\nreconcile = "restore"\ncheckpoint = "continuous"'
)
NODES = ("main-1", "main-2")


class World:
    """An entry point, two replicas, a client."""

    def __init__(self, directory: Path, deployment: str) -> None:
        self.directory = directory
        self.hosted = Hosted(directory, NETWORK, deployment)
        self.entry = self.hosted._host("entry-load")._entry("entry-load")
        self.entry.start()
        self.hosted.start(*NODES)
        self.producer = self.hosted.producer_of("load")
        self.client = Client.of(self.hosted.deployment.path, "found", name="reader")
        self.view = View()
        self._random = np.random.default_rng(5)

    def run(self, until: Callable[[], bool], sends: bool = True) -> None:
        """Send and read until something holds."""
        deadline = time.monotonic() + 120.0
        while not until():
            assert time.monotonic() < deadline
            assert not self.hosted.failures
            rows = {"k": self._random.integers(0, 3, 10), "v": self._random.random(10)}
            if sends and self.producer.pending < 30:
                self.producer.send(pa.table(rows))
            event = self.client.read(0.05)
            if event is not None:
                self.view.apply(event)

    def results(self) -> int:
        return 0 if self.view.stable is None else self.view.stable.num_rows

    def change(self, network: str, deployment: str = DEPLOYMENT) -> tuple[Plan, Plan]:
        """Stop the replicas and put another network in the place of the one that ran."""
        self.hosted.stop(*list(self.hosted.copies))
        before = read_plan(self.hosted.deployment)
        self.hosted = Hosted(self.directory, network, deployment)
        return before, read_plan(self.hosted.deployment)

    def close(self) -> None:
        self.client.close()
        self.hosted.stop(*list(self.hosted.copies))
        self.entry.stop()


@contextmanager
def running_world(directory: Path, deployment: str = DEPLOYMENT) -> Iterator[World]:
    """One that has had a result."""
    made = World(directory, deployment)
    try:
        made.run(lambda: made.results() > 0)
        yield made
    finally:
        made.close()


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    with running_world(tmp_path) as made:
        yield made


def boundary_of(world: World, node: str) -> int:
    """Where a replica begins, with nothing."""
    state = StateDirectory(world.hosted.deployment.data / "processes" / node / "state")
    try:
        assert state.manifest is not None
        assert state.read_state() == []
        return decode_record(state.manifest["record"]).boundary
    finally:
        state.close()


def expected(network: Network, tuples: pa.Table, until: int) -> pa.Table:
    return undisturbed(network, {"load": tuples}, until)["found"]


def since(table: pa.Table, stime: int) -> pa.Table:
    return table.filter(pc.greater_equal(table["stime"].cast(pa.int64()), stime))


def test_a_changed_fragment_goes_on_with_nothing_where_it_stopped(world: World) -> None:
    goes_on_with_nothing(world, DEPLOYMENT)


@pytest.mark.thorough
def test_window_states_in_the_log_are_none_of_the_changed_fragment(
    spark: SparkSession, tmp_path: Path
) -> None:
    with running_world(tmp_path, CONTINUOUS) as world:
        goes_on_with_nothing(world, CONTINUOUS)


def goes_on_with_nothing(world: World, deployment: str) -> None:
    first = world.hosted.network
    before, now = world.change(CHANGED, deployment)
    begin_from_now(world.hosted.deployment, before, now)
    boundary = boundary_of(world, "main-1")
    assert boundary_of(world, "main-2") == boundary
    assert len(list((world.hosted.deployment.data / "aside").iterdir())) == 2
    world.hosted.start(*NODES)
    had = world.results()
    world.run(lambda: world.results() > had + 5)
    world.producer.close(30.0)
    newest = int(time.time() * 1e6)
    world.run(lambda: world.view.stable_until > newest, sends=False)
    until = world.view.stable_until
    log = world.hosted.deployment.data / "processes" / "entry-load" / "streams" / "load"
    tuples, found = logged_tuples(log), world.view.stable
    assert found is not None
    old = expected(first, tuples, boundary)
    # Its windows have what came from there on; those that were open count from there.
    new = since(expected(world.hosted.network, since(tuples, boundary), until), boundary)
    wanted = pa.concat_tables([old, new]).combine_chunks()
    assert found.combine_chunks().equals(wanted)
    assert new.num_rows


def test_what_was_read_before_a_log_had_it_counts_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Results go out before the disk has them; who ends in order puts them into its log."""
    wait_durable = StreamLog.wait_durable

    def wait_longer(log: StreamLog, next_lsn: int) -> None:
        if log.directory.name == "found":
            time.sleep(1.0)
        wait_durable(log, next_lsn)

    monkeypatch.setattr(StreamLog, "wait_durable", wait_longer)
    had = world.results()
    world.run(lambda: world.results() > had)
    goes_on_with_nothing(world, DEPLOYMENT)


def test_one_that_was_killed_is_refused_until_it_has_passed_what_it_may_have_published(
    world: World,
) -> None:
    state = world.hosted.deployment.data / "processes" / "main-2" / "state"
    world.run(lambda: (state / "manifest.json").exists())
    # Told nothing when it ends, it leaves what one leaves that is killed.
    world.hosted.copies["main-2"].last_event = None
    before, now = world.change(CHANGED)
    with pytest.raises(StateError, match=r"main-2 did not end in order.*Take the change back"):
        begin_from_now(world.hosted.deployment, before, now)
    assert not (world.hosted.deployment.data / "aside").exists()
    world.hosted = Hosted(world.directory, NETWORK, DEPLOYMENT)
    world.hosted.start(*NODES)
    copies = [world.hosted.copies[node].copy for node in NODES]
    assert copies[0].earlier_lives.passed
    assert not copies[1].earlier_lives.passed
    world.run(lambda: copies[1].earlier_lives.passed)
    goes_on_with_nothing(world, DEPLOYMENT)


ADDED = f"""{NETWORK}
more = load.fragment("more").groupBy(window("1 second")).agg(F.count("*").alias("c"))
more.output("counts")
"""
WITH_MORE = f"""{DEPLOYMENT}
[fragments.more]
replicas = 1
[clients.counter]
output = "counts"
"""


def test_a_fragment_that_is_new_begins_where_its_inputs_end(world: World) -> None:
    before, now = world.change(ADDED, WITH_MORE)
    (said,) = begin_from_now(world.hosted.deployment, before, now)
    assert said.startswith("fragment 'more' begins with nothing at ")
    boundary = boundary_of(world, "more-1")
    assert boundary % now.bucket_us == 0
    # Its tuples wait for one more reader from now on.
    world.entry.stop()
    world.entry = world.hosted._host("entry-load")._entry("entry-load")
    world.entry.start()
    world.hosted.start(*NODES, "more-1")
    counted, client = View(), Client.of(world.hosted.deployment.path, "counts", name="counter")
    try:
        while counted.stable is None or counted.stable.num_rows < 3:
            world.run(lambda: bool(client.waiting))
            event = client.read(0.1)
            if event is not None:
                counted.apply(event)
    finally:
        client.close()
    found = counted.stable
    until = pc.max(found["stime"].cast(pa.int64())).as_py() + 1
    log = world.hosted.deployment.data / "processes" / "entry-load" / "streams" / "load"
    tuples = since(logged_tuples(log), boundary)
    wanted = undisturbed(world.hosted.network, {"load": tuples}, until)["counts"]
    assert found.combine_chunks().equals(wanted.combine_chunks())


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        (CHANGED.replace("v double", "v double, w double"), "source 'load' has changed"),
        (CHANGED.replace('alias("v")', 'alias("w")'), "the columns of 'found' have changed"),
        (
            CHANGED.replace("load.groupBy", 'load.fragment("other").groupBy'),
            "fragment 'other' is new and serves 'found', which fragment 'main' has",
        ),
    ],
    ids=["source", "columns", "fragment"],
)
def test_what_cannot_go_on_is_refused_and_nothing_is_touched(
    spark: SparkSession, tmp_path: Path, changed: str, why: str
) -> None:
    other = DEPLOYMENT.replace("main", "other") if "other" in changed else DEPLOYMENT
    hosted = Hosted(tmp_path / "before", NETWORK, DEPLOYMENT)
    before = read_plan(hosted.deployment)
    after = Hosted(tmp_path / "after", changed, other)
    with pytest.raises(StateError, match=why):
        begin_from_now(after.deployment, before, read_plan(after.deployment))
    assert not (after.deployment.data / "aside").exists()
