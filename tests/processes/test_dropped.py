"""Tentative results beyond a bound, by bytes, age or frames, on real nodes over Flight."""

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
from holdfast.testing.undisturbed import logged_tuples, undisturbed
from tests.processes.copies import Hosted

SOURCES = ("left", "right")
NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("dropped", bucket="200 ms", partitions=1)
columns = "k bigint, v double"
both = network.source("left", columns).union(network.source("right", columns))
both.groupBy(window("400 ms"), "k").agg(F.sum("v").alias("v")).output("sums")
"""
DEPLOYMENT = """
network = "network.py"
chaos = true
[timing]
delay = "2 seconds"
heartbeat = "100 ms"
[sources.left]
keep = true
[sources.right]
keep = true
[fragments.main]
[clients.reader]
output = "sums"
[bounds.sums]
then = "drop"
"""
DROPPED = "tentative tuples were dropped"


class World(Hosted):
    """Two entry points, a replica, a client, and somebody who sends."""

    def __init__(self, spark: SparkSession, directory: Path, bound: str) -> None:
        text = DEPLOYMENT + bound
        if "frames" in bound:
            text, _, _ = DEPLOYMENT.partition("[bounds.sums]")
            text = text.replace("[timing]", f"[timing]\n{bound}")
        super().__init__(directory, NETWORK, text)
        names = [f"entry-{name}" for name in SOURCES]
        self.entries = {name: self._host(name)._entry(name) for name in names}
        for entry in self.entries.values():
            entry.start()
        self.start("main-1")
        self._producers = [self.producer_of(name) for name in SOURCES]
        self.client = Client.of(self.deployment.path, "sums", name="reader")
        self.view = View()
        self._stopping = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def _send(self) -> None:
        random = np.random.default_rng(5)
        while not self._stopping.wait(0.02):
            for producer in self._producers:
                if producer.pending < 30:
                    rows = {"k": random.integers(0, 20, 50), "v": random.random(50)}
                    producer.send(pa.table(rows))

    def read(self, until: Callable[[], bool], seconds: float = 120.0) -> None:
        """Take what the client gets until something holds."""
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, self.copies["main-1"].status()
            assert not self.failures
            event = self.client.read(0.05)
            if event is not None:
                self.view.apply(event)

    def finish(self) -> None:
        """Stop sending; the client ends with exactly what an undisturbed run gives."""
        self._stopping.set()
        self._sender.join()
        for producer in self._producers:
            producer.close(30.0)
        newest = int(time.time() * 1e6)
        self.read(lambda: self.view.stable_until > newest)
        logs = self.deployment.data / "processes"
        sent = {name: logged_tuples(logs / f"entry-{name}" / "streams" / name) for name in SOURCES}
        expected = undisturbed(self.network, sent, self.view.stable_until)
        found = self.view.stable
        assert found is not None
        assert found.combine_chunks().equals(expected["sums"].combine_chunks())

    def close(self) -> None:
        self._stopping.set()
        self.client.close()
        self.stop(*list(self.copies))
        for entry in self.entries.values():
            entry.stop()


@pytest.mark.thorough
@pytest.mark.parametrize("bound", ["bytes = 20_000", 'age = "1 second"', "tentative_frames = 20"])
def test_the_oldest_tentative_results_go_and_all_is_corrected_in_the_end(
    spark: SparkSession, tmp_path: Path, bound: str
) -> None:
    world = World(spark, tmp_path, bound)
    try:
        world.read(lambda: world.view.stable is not None)
        node = world.copies["main-1"]
        node.links.cut("entry-left")
        world.read(lambda: node.status()["tentative_dropped"].get("sums", 0) > 500)
        world.read(lambda: any(DROPPED in each for each in node.status()["problems"]), 10.0)
        if "bytes" in bound:
            # A provider looks twice a second: what has come since then may be kept beyond it.
            world.read(lambda: node.tentative_sizes()["sums"] <= 20_000)
        assert world.view.tentative is not None, "who was there has them all the same"
        node.links.heal("entry-left")
        world.read(lambda: not node.status()["problems"])
        world.finish()
    finally:
        world.close()
