"""Failures seen from a client: tentative results in time, corrections after, switching.

Entry points, replicas and the client are real nodes that talk over Flight, all in this process,
so that one SparkSession does.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast import Network, window
from holdfast.client import Client, Tuples, View
from holdfast.core.entry import EntrySettings
from holdfast.core.settings import Input, Output, ReplicaSettings, Timing
from holdfast.flight.security import Security
from holdfast.fragments import fragment_network
from holdfast.frames import TIME
from holdfast.producer import Producer
from holdfast.runtime.addresses import free_ports
from holdfast.runtime.entry_node import EntryNode
from holdfast.runtime.node import Place
from holdfast.runtime.replica_node import ReplicaNode
from holdfast.spark.engine import Engine, input_schema
from holdfast.testing.undisturbed import logged_tuples, undisturbed

TIMING = Timing(
    bucket_us=200_000, delay_us=2_000_000, heartbeat_interval_us=100_000, record_interval_us=500_000
)
SOURCES = ("left", "right")
REPLICAS = ("main-1", "main-2")


class World:
    """Two entry points, one or two replicas, a client, and somebody who sends."""

    def __init__(self, spark: SparkSession, directory: Path, replicas: int) -> None:
        self.directory = directory
        self.failures: list[BaseException] = []
        self.network = Network("failures", spark=spark)
        streams = [self.network.source(name, "k bigint, v double") for name in SOURCES]
        united = streams[0].union(streams[1])
        united.groupBy(window("1 second"), "k").agg(
            F.sum("v").alias("v"), F.count("*").alias("c")
        ).output("sums")
        self._fragment = fragment_network(self.network, "main")
        self.replicas = REPLICAS[:replicas]
        names = [*(f"entry-{name}" for name in SOURCES), *self.replicas]
        self.ports = free_ports(dict.fromkeys(names, "127.0.0.1"), [])["nodes"]
        self.book = {name: f"grpc://127.0.0.1:{port}" for name, port in self.ports.items()}
        self.nodes: dict[str, EntryNode | ReplicaNode] = {}
        self._warm()
        for name in names:
            self.start(name)
        self.producers = {
            name: Producer(name, self.book[f"entry-{name}"], name="test") for name in SOURCES
        }
        self.client = Client(
            "sums",
            {name: self.book[name] for name in self.replicas},
            name="client",
            timing=TIMING,
        )
        self.view = View()
        self.tentative = 0
        self._stopping = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def _warm(self) -> None:
        """Plan the queries once, so that the first bucket is no failure."""
        times = pa.array([1]).cast(TIME)
        rows = {
            name: pa.table({"stime": times, "tmax": times, "k": [1], "v": [1.0]})
            for name in SOURCES
        }
        undisturbed(self.network, rows)

    def start(self, name: str) -> None:
        place = Place("127.0.0.1", self.ports[name], self.book, Security())
        node: EntryNode | ReplicaNode
        if name.startswith("entry-"):
            source = name.removeprefix("entry-")
            operator = self.network.sources[source]
            node = EntryNode(
                EntrySettings(name, source, self.replicas, boundary_interval_us=50_000),
                operator,
                input_schema(operator),
                None,
                TIMING.bucket_us,
                self.directory / name,
                place,
                self.failures.append,
            )
        else:
            partners = tuple(each for each in self.replicas if each != name)
            settings = ReplicaSettings(
                name,
                tuple(Input(each, (f"entry-{each}",)) for each in SOURCES),
                (Output("sums", frozenset(SOURCES), ("client",)),),
                partners,
                TIMING,
            )
            node = ReplicaNode(
                settings, self._fragment, self.directory / name, place, self.failures.append
            )
        self.nodes[name] = node
        node.start()

    def stop(self, name: str) -> None:
        self.nodes.pop(name).stop()

    def _send(self) -> None:
        random = np.random.default_rng(5)
        while not self._stopping.wait(0.02):
            for producer in self.producers.values():
                if producer.pending < 30:
                    rows = {"k": random.integers(0, 3, 20), "v": random.random(20)}
                    producer.send(pa.table(rows))

    def read(self, seconds: float, until: Callable[[], bool] = lambda: False) -> None:
        """Take what the client gets, for a while or until something holds."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not until():
            event = self.client.read(0.1)
            if event is not None:
                self.view.apply(event)
            if isinstance(event, Tuples) and not event.stable:
                self.tentative += event.table.num_rows

    def finish(self) -> None:
        """Stop sending; the client must end with exactly what an undisturbed run gives."""
        self._stopping.set()
        self._sender.join()
        for producer in self.producers.values():
            producer.close(30.0)
        newest = max(
            node.entry.served.boundary
            for node in self.nodes.values()
            if isinstance(node, EntryNode)
        )
        self.read(40.0, lambda: self.view.stable_until > newest + 1_500_000)
        assert self.view.stable_until > newest + 1_500_000, self.story()
        sources = {
            name: logged_tuples(self.directory / f"entry-{name}" / "streams" / name)
            for name in SOURCES
        }
        expected = undisturbed(self.network, sources, self.view.stable_until)["sums"]
        found = self.view.stable
        assert found is not None
        assert found.combine_chunks().equals(expected.combine_chunks())
        assert not self.failures

    def story(self) -> str:
        return str({name: node.status() for name, node in self.nodes.items()})

    def close(self) -> None:
        self._stopping.set()
        self.client.close()
        for name in list(self.nodes):
            self.stop(name)


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(spark, tmp_path, request.param)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize("world", [1], indirect=True)
def test_a_missing_source_gives_tentative_results_that_are_corrected(world: World) -> None:
    world.read(30.0, lambda: world.view.stable is not None)
    assert world.view.stable is not None, world.story()
    world.stop("entry-right")
    world.read(15.0, lambda: world.tentative > 0)
    assert world.tentative > 0, world.story()
    before = world.view.tentative
    assert before is not None
    world.start("entry-right")
    world.read(20.0, lambda: world.view.tentative is None and world.view.undone > 0)
    assert world.view.undone > 0, world.story()
    world.finish()


@pytest.mark.parametrize("world", [2], indirect=True)
def test_a_client_switches_to_the_other_replica(world: World) -> None:
    world.read(30.0, lambda: world.view.stable is not None)
    first = world.client.following
    assert first is not None
    world.stop(first)
    (other,) = set(REPLICAS) - {first}
    world.read(10.0, lambda: world.client.following == other)
    assert world.client.following == other, world.story()
    world.read(2.0)
    world.start(first)
    world.read(2.0)
    world.stop(other)
    world.read(15.0, lambda: world.client.following == first)
    assert world.client.following == first, world.story()
    world.start(other)
    world.finish()


def test_engines_of_one_fragment_can_share_a_session(spark: SparkSession) -> None:
    network = Network("shared", spark=spark)
    network.source("load", "k bigint").filter("k > 0").output("out")
    fragment = fragment_network(network, "main")
    one, two = Engine(fragment), Engine(fragment)
    assert one.directory != two.directory
    one.close()
    two.close()
