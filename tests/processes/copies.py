"""Real nodes over Flight in this process, with one SparkSession: an entry point, two fragments with
two replicas or copies each, a client, and somebody who sends.

A node that is stopped is gone with its memory. What the client holds in the end is compared with an
undisturbed run.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession

from holdfast.client import Client, View
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.cluster.process_main import ProcessHost
from holdfast.deployment import load_deployment
from holdfast.nodes.replica_node import ReplicaNode
from holdfast.plans.addresses import Addresses
from holdfast.plans.plan import write_plan
from holdfast.producer import Producer
from holdfast.testing.undisturbed import logged_tuples, undisturbed

NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("standby", bucket="200 ms")
load = network.source("load", "k bigint, v double")
sums = load.groupBy(window("1 second"), "k").agg(F.sum("v").alias("v"), F.count("*").alias("c"))
best = sums.fragment("best").groupBy(window("2 seconds")).agg(F.max("v").alias("v"))
best.output("best")
"""
# What the deployments of these tests begin with.
COMMON = """
network = "network.py"
chaos = true
[timing]
delay = "4 seconds"
heartbeat = "100 ms"
[sources.load]
keep = true
[clients.reader]
output = "best"
"""
COPIES = ("main-1", "main-2", "best-1", "best-2")


class Hosted:
    """A deployment in this process: its nodes are started and stopped by name."""

    def __init__(self, directory: Path, network: str, deployment: str) -> None:
        directory.mkdir(exist_ok=True)
        (directory / "network.py").write_text(network)
        (directory / "deployment.toml").write_text(deployment)
        self.deployment = load_deployment(directory / "deployment.toml")
        self.network = load_network(self.deployment.network, "local[2]", {})
        write_plan(self.deployment, plan_of(self.network))
        security = self.deployment.security
        self.book = Addresses.choose(self.deployment).book(security.read())
        self.failures: list[BaseException] = []
        self.copies: dict[str, ReplicaNode] = {}

    def producer_of(self, source: str) -> Producer:
        security = self.deployment.security.read()
        return Producer(source, self.book[f"entry-{source}"], name="test", security=security)

    def _host(self, process: str) -> ProcessHost:
        host = ProcessHost(self.deployment, process)
        host.fatal = self.failures.append  # type: ignore[method-assign,assignment]
        # The JVM is that of the tests: nobody ends because of it, and hosts are not stopped.
        host._watch_engine = lambda spark: None  # type: ignore[method-assign]
        return host

    def start(self, *names: str) -> None:
        hosts = {node: name for name, nodes in self.deployment.processes.items() for node in nodes}
        for name in names:
            (node,) = self._host(hosts[name])._replicas([name])
            assert isinstance(node, ReplicaNode)
            self.copies[name] = node
            node.start()

    def stop(self, *names: str) -> None:
        for name in names:
            self.copies.pop(name).stop()

    def lose(self, *names: str) -> None:
        """Replicas are gone, and their directories with them."""
        self.stop(*names)
        for name in names:
            shutil.rmtree(self.deployment.data / "processes" / name)


class World(Hosted):
    """An entry point, two fragments with two copies each, a client, and somebody who sends."""

    def __init__(
        self,
        spark: SparkSession,
        directory: Path,
        deployment: str,
        names: Sequence[str] = COPIES,
    ) -> None:
        super().__init__(directory, NETWORK, deployment)
        self.entry = self._host("entry-load")._entry("entry-load")
        self.entry.start()
        self.start(*names)
        self.producer = self.producer_of("load")
        self.client = Client.of(self.deployment.path, "best", name="reader")
        self.view = View()
        self._stopping = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def cut(self, one: str, other: str) -> None:
        """The copies hear nothing of each other."""
        self.copies[one].links.cut(other)
        self.copies[other].links.cut(one)

    def heal(self, one: str, other: str) -> None:
        self.copies[one].links.heal(other)
        self.copies[other].links.heal(one)

    def _send(self) -> None:
        random = np.random.default_rng(5)
        while not self._stopping.wait(0.02):
            if self.producer.pending < 30:
                rows = {"k": random.integers(0, 3, 10), "v": random.random(10)}
                self.producer.send(pa.table(rows))

    def read(self, until: Callable[[], bool], seconds: float = 120.0) -> None:
        """Take what the client gets until something holds."""
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, self.story()
            assert not self.failures
            event = self.client.read(0.05)
            if event is not None:
                self.view.apply(event)

    def go_on(self) -> None:
        """New stable results come."""
        had = self.view.stable_until
        self.read(lambda: self.view.stable_until > had + 400_000)

    def is_in(self, name: str, *copy: str) -> Callable[[], bool]:
        return lambda: self.copies[name].status()["copy"] in copy

    def is_protected(self, *names: str) -> Callable[[], bool]:
        """The copies sleep and hold checkpoints that are not older than the question.

        On a machine that is busy with other things the newest may be seconds behind, always.
        """
        asked = time.time()

        def protected() -> bool:
            for name in names:
                status = self.copies[name].status()
                recent = status["boundary"] / 1e6 > asked - 6.0
                if status["copy"] != "suspended" or not recent:
                    return False
            return True

        return protected

    def finish(self) -> None:
        """Stop sending; the client ends with exactly what an undisturbed run gives."""
        self._stopping.set()
        self._sender.join()
        self.producer.close(30.0)
        newest = int(time.time() * 1e6)
        self.read(lambda: self.view.stable_until > newest)
        log = self.deployment.data / "processes" / "entry-load" / "streams" / "load"
        expected = undisturbed(self.network, {"load": logged_tuples(log)}, self.view.stable_until)
        found = self.view.stable
        assert found is not None
        assert found.combine_chunks().equals(expected["best"].combine_chunks())
        assert not self.failures

    def story(self) -> str:
        return "\n".join(str(node.status()) for node in self.copies.values())

    def close(self) -> None:
        self._stopping.set()
        self.client.close()
        self.stop(*list(self.copies))
        self.entry.stop()
