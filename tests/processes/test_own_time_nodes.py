"""A source with its own time on real nodes, with everything set: restarts, a clock that is set and
replicas that come back or join give the same bits, from what the entry point has decided once."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.client import Client, View
from holdfast.frames import TIME
from holdfast.nodes.entry_node import EntryNode
from holdfast.producer import Producer
from holdfast.testing.undisturbed import logged_tuples, undisturbed
from tests.processes.copies import Hosted

NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("own-time", bucket="200 ms")
load = network.source("load", "at timestamp, k bigint, v double", stime="at")
sums = load.groupBy(window("400 ms"), "k").agg(F.sum("v").alias("v"), F.first("v").alias("first"))
sums.output("sums")
"""
DEPLOYMENT = """
network = "network.py"
chaos = true
[timing]
delay = "6 seconds"
heartbeat = "100 ms"
[sources.load]
keep = true
lateness = "300 ms"
idle_after = "700 ms"
future_limit = "30 seconds"
late = "{late}"
[fragments.main]
protection = "{protection}"
[clients.reader]
output = "sums"
"""
LATENESS_US, SECOND = 300_000, 1_000_000


class World(Hosted):
    """One entry point, two replicas, and two producers: out of order, quiet and wrong by turns."""

    def __init__(self, directory: Path, deployment: str) -> None:
        super().__init__(directory, NETWORK, deployment)
        self.entry = self._begin_entry()
        self.start("main-1", "main-2")
        self.client = Client.of(self.deployment.path, "sums", name="reader")
        self.view = View()
        self._stopping = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def _begin_entry(self) -> EntryNode:
        entry = self._host("entry-load")._entry("entry-load")
        assert isinstance(entry, EntryNode)
        entry.start()
        return entry

    def restart_entry(self) -> None:
        self.entry.stop()
        self.entry = self._begin_entry()

    def _send(self) -> None:
        random = np.random.default_rng(5)
        security = self.deployment.security.read()
        location = self.book["entry-load"]
        producers = [Producer("load", location, name=name, security=security) for name in "ab"]
        turn = 0
        while not self._stopping.wait(0.03):
            turn += 1
            for at, producer in enumerate(producers):
                # The second has nothing to say for seconds, again and again.
                if producer.pending < 30 and (at == 0 or turn % 200 < 100):
                    producer.send(self._rows(random))
        for producer in producers:
            producer.close(30.0)

    def _rows(self, random: np.random.Generator) -> pa.Table:
        ages = random.integers(0, LATENESS_US, 6)
        if random.random() < 0.1:
            ages[0] = random.choice([20 * SECOND, -(10**15)])  # of before, of another century
        stamps = int(time.time() * 1e6) - ages
        values = {"k": random.integers(0, 3, 6), "v": random.random(6)}
        return pa.table({"at": pa.array(stamps).cast(TIME), **values})

    def read(self, until: Callable[[], bool], seconds: float = 90.0) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, [one.status() for one in self.copies.values()]
            assert not self.failures
            event = self.client.read(0.05)
            if event is not None:
                self.view.apply(event)

    def go_on(self) -> None:
        had = self.view.stable_until
        self.read(lambda: self.view.stable_until > had + 2 * SECOND)

    def finish(self) -> None:
        self._stopping.set()
        self._sender.join()
        newest = int(time.time() * 1e6)
        self.read(lambda: self.view.stable_until > newest)
        log = self.deployment.data / "processes" / "entry-load" / "streams" / "load"
        found, sources = self.view.stable, {"load": logged_tuples(log)}
        expected = undisturbed(self.network, sources, self.view.stable_until)["sums"]
        assert found is not None
        assert found.num_rows > 20
        assert found.combine_chunks().equals(expected.combine_chunks())
        assert not self.failures

    def close(self) -> None:
        self._stopping.set()
        self.client.close()
        self.stop(*list(self.copies))
        self.entry.stop()


@pytest.mark.thorough
@pytest.mark.parametrize(("late", "protection"), [("take", "race"), ("drop", "active")])
def test_restarts_clocks_and_other_replicas_give_the_same_bits(
    late: str, protection: str, spark: SparkSession, tmp_path: Path
) -> None:
    world = World(tmp_path, DEPLOYMENT.format(late=late, protection=protection))
    try:
        world.go_on()
        world.restart_entry()
        world.go_on()
        world.stop("main-1")
        world.entry.place.clock.step(2 * SECOND)
        world.go_on()
        world.start("main-1")
        world.lose("main-2")
        world.go_on()
        world.entry.place.clock.step(-3 * SECOND)
        world.start("main-2")
        state = world.copies["main-2"].status
        world.read(lambda: state()["state"] == "stable")
        world.restart_entry()
        world.go_on()
        status = world.entry.status()
        assert status["late"] > 0
        assert status["ahead"] > 0
        assert (status["dead_letters"] > status["ahead"]) == (late == "drop")
        world.finish()
    finally:
        world.close()
