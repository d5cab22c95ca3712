"""Results that need no order, from real nodes over Flight: they wait for no missing input."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from holdfast.client import Boundary, Client, Tuples, Undo, Unordered, View
from holdfast.testing.undisturbed import logged_tuples, undisturbed
from tests.processes.copies import Hosted

# A tuple becomes one, two or none, by one of three trails; windows of one input come by a fourth.
NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("early", bucket="200 ms")
left = network.source("left", "k bigint, v double")
right = network.source("right", "k bigint, v double")
both = left.union(right).filter("v < 0.8").fragment("far")
again = both.union(both.withColumn("v", "-v").filter("k > 0"))
again = again.select(F.explode(F.array("k", F.col("k") + 10)).alias("k"), "v")
counted = left.groupBy(window("400 ms"), "k").agg(F.count("*").alias("n"))
counted = counted.select((F.col("k") + 100).alias("k"), F.col("n").cast("double").alias("v"))
again.union(counted.fragment("far")).output("again")
"""
# Buckets are long: what comes before one is over came because both halves were there.
BUCKET_US = 3_000_000
PAIRS = """
from pyspark.sql import functions as F
from holdfast import Network

network = Network("early", bucket="3 seconds")
left = network.source("left", "k bigint, v double")
right = network.source("right", "k bigint, w double")
pairs = left.join(right.filter("w < 0.8"), on="k", within="20 ms").fragment("far")
several = F.explode(F.array("k", F.col("k") + 10)).alias("k")
pairs.select(several, F.expr("v - w AS v")).output("again")
"""
DEPLOYMENT = """
network = "network.py"
chaos = true
[timing]
delay = "{delay}"
heartbeat = "100 ms"
[sources.left]
keep = true
[sources.right]
keep = true
[fragments.main]
protection = "race"
[fragments.far]
protection = "race"
[clients.reader]
output = "again"
[clients.other]
output = "again"
"""
COPIES = ("main-1", "main-2", "far-1", "far-2")
SOURCES = ("left", "right")


class Reader:
    """What a client without an order was told."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.tables: list[pa.Table] = []
        self.boundary = 0

    def read(self) -> None:
        event = self.client.read(0.02)
        match event:
            case Unordered(table):
                self.tables.append(table)
            case Boundary(stime):
                self.boundary = stime
            case Tuples() | Undo():
                raise AssertionError(f"{event} came to a client without an order")

    @property
    def table(self) -> pa.Table:
        return pa.concat_tables(self.tables)

    def newest(self, windows: bool = False) -> int:
        """The newest tuple time that came, of windows or of single tuples."""
        found = [one.filter((pc.field("k") >= 100) == windows) for one in self.tables]
        return max((pc.max(one["stime"]).value for one in found if one.num_rows), default=0)


class World(Hosted):
    """Two entry points, two fragments of two replicas each, clients with and without order."""

    def __init__(self, spark: SparkSession, directory: Path, network: str = NETWORK) -> None:
        # X is longer than the longest bucket.
        delay = "2 seconds" if network is NETWORK else "20 seconds"
        super().__init__(directory, network, DEPLOYMENT.format(delay=delay))
        self.columns = {name: self.network.sources[name].schema.names for name in SOURCES}
        self.entries = [self._host(f"entry-{name}")._entry(f"entry-{name}") for name in SOURCES]
        for entry in self.entries:
            entry.start()
        self.start(*COPIES)
        self.producers = {name: self.producer_of(name) for name in SOURCES}
        path = self.deployment.path
        self.reader = Reader(Client.of(path, "again", name="reader", ordered=False))
        self.ordered = Client.of(path, "again", name="other")
        self.view = View()
        self._stopping = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def _send(self) -> None:
        random = np.random.default_rng(5)
        while not self._stopping.wait(0.02):
            for name, producer in self.producers.items():
                if producer.pending < 30:
                    rows = [random.integers(0, 3, 5), random.random(5)]
                    producer.send(pa.table(rows, self.columns[name]))

    def read(self, until: Callable[[], bool], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, [one.status() for one in self.copies.values()]
            assert not self.failures
            self.reader.read()
            event = self.ordered.read(0.02)
            if event is not None:
                self.view.apply(event)

    def go_on(self) -> None:
        """Results of tuples that are made from now on come, in whatever order."""
        now = int(time.time() * 1e6)
        self.read(lambda: self.reader.newest() > now + 300_000)
        self.read(lambda: self.reader.newest(windows=True) > now)

    def pairs_go_on(self) -> None:
        """Pairs of tuples that are made from now on come before their bucket is over."""
        now = int(time.time() * 1e6)

        def has_come() -> bool:
            newest = self.reader.newest()
            return newest > now and newest - newest % BUCKET_US + BUCKET_US > time.time() * 1e6

        self.read(has_come)

    def cut(self, source: str) -> None:
        for name in ("main-1", "main-2"):
            self.copies[name].links.cut(f"entry-{source}")

    def heal(self, source: str) -> None:
        for name in ("main-1", "main-2"):
            self.copies[name].links.heal(f"entry-{source}")

    def finish(self) -> None:
        """Stop sending; both clients have what an undisturbed run gives, one of them in order."""
        self._stopping.set()
        self._sender.join()
        for producer in self.producers.values():
            producer.close(30.0)
        newest = int(time.time() * 1e6)
        self.read(lambda: min(self.view.stable_until, self.reader.boundary) > newest)
        logs = self.deployment.data / "processes"
        sources = {
            name: logged_tuples(logs / f"entry-{name}" / "streams" / name) for name in SOURCES
        }
        expected = undisturbed(self.network, sources, self.view.stable_until)["again"]
        assert self.view.stable is not None
        assert self.view.stable.combine_chunks().equals(expected.combine_chunks())
        assert in_columns(self.reader.table).equals(in_columns(expected))
        assert not self.failures

    def close(self) -> None:
        self._stopping.set()
        self.reader.client.close()
        self.ordered.close()
        for name in list(self.copies):
            self.stop(name)
        for entry in self.entries:
            entry.stop()


def in_columns(table: pa.Table) -> pa.Table:
    """The same tuples, sorted by all their columns."""
    return table.sort_by([(name, "ascending") for name in table.column_names]).combine_chunks()


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path)
    try:
        yield made
    finally:
        made.close()


def stable(world: World) -> bool:
    return all(one.status()["state"] == "stable" for one in world.copies.values())


@pytest.mark.thorough
def test_who_needs_no_order_waits_for_no_input_that_is_missing(world: World) -> None:
    world.read(lambda: stable(world) and world.reader.newest() > 0)
    world.cut("right")
    # Nothing that the other input says from now on comes, and so nothing in order.
    gone = int(time.time() * 1e6)
    world.read(lambda: not stable(world))
    world.go_on()
    # Who needs the order gets what is overdue tentatively, and all of it corrected in the end.
    world.read(lambda: world.view.tentative is not None and world.view.tentative.num_rows > 0)
    world.go_on()
    # One replica of each fragment is lost meanwhile, and comes back.
    world.stop("main-1")
    world.stop("far-2")
    world.go_on()
    world.start("main-1")
    world.start("far-2")
    world.go_on()
    assert world.reader.boundary <= gone
    world.heal("right")
    world.read(lambda: stable(world))
    # One comes back without anything and joins; what it says early is known by the same names,
    # also when it is the only one left to say it.
    world.lose("far-1")
    world.go_on()
    world.start("far-1")
    world.read(lambda: stable(world))
    world.cut("right")
    world.read(lambda: not stable(world))
    world.stop("far-2")
    world.go_on()
    world.heal("right")
    world.start("far-2")
    world.read(lambda: stable(world))
    world.finish()


@pytest.mark.thorough
def test_pairs_come_when_both_halves_are_there(spark: SparkSession, tmp_path: Path) -> None:
    world = World(spark, tmp_path, PAIRS)
    try:
        world.read(lambda: stable(world) and world.reader.newest() > 0)
        world.pairs_go_on()
        world.stop("main-1")
        world.stop("far-2")
        world.pairs_go_on()
        world.start("main-1")
        world.start("far-2")
        world.read(lambda: stable(world))
        world.pairs_go_on()
        world.finish()
    finally:
        world.close()
