"""Every policy, and both ways to reconcile, on real nodes through the same failure.

Two entry points, a replica for each policy and its client talk over Flight, all in this
process, so that one SparkSession does. Each replica is alone: there is no partner to ask.
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
from holdfast.core.consistency import NodeState
from holdfast.core.entry import EntrySettings
from holdfast.core.replica import Replica
from holdfast.core.settings import (
    Input,
    Output,
    Policy,
    Reconcile,
    ReplicaSettings,
    Timing,
)
from holdfast.flight.security import Security
from holdfast.fragments import fragment_network, plan_fragments
from holdfast.frames import TIME
from holdfast.nodes.entry_node import EntryNode
from holdfast.nodes.hosted import Place
from holdfast.nodes.replica_node import ReplicaNode
from holdfast.plans.addresses import free_ports
from holdfast.producer import Producer
from holdfast.spark.engine import Engine, input_schema
from holdfast.testing.undisturbed import logged_tuples, undisturbed

# A redo of a few buckets at a time, so that there is something to see of it.
TIMING = Timing(
    bucket_us=500_000,
    delay_us=2_000_000,
    heartbeat_interval_us=100_000,
    record_interval_us=1_000_000,
    redo_buckets=8,
)
SOURCES = ("left", "right")
S, D, P = Policy.SUSPEND, Policy.DELAY, Policy.PROCESS
# By name: while failed, while stabilizing, reconciling by.
POLICIES = {
    "suspend-suspend": (S, S, Reconcile.RESTORE),
    "delay-suspend": (D, S, Reconcile.RESTORE),
    "delay-delay": (D, D, Reconcile.RESTORE),
    "delay-process": (D, P, Reconcile.RESTORE),
    "process-suspend": (P, S, Reconcile.RESTORE),
    "process-delay": (P, D, Reconcile.RESTORE),
    "process-process": (P, P, Reconcile.RESTORE),
    "process-process-undo": (P, P, Reconcile.UNDO),
}


class Reading:
    """One client and what it got."""

    def __init__(self, client: Client) -> None:
        self.view = View()
        self.tentative = 0
        self.lacked: set[str] = set()
        self.told_until = 0
        self._client = client
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for event in self._client:
            self.view.apply(event)
            if isinstance(event, Tuples) and not event.stable:
                self.tentative += event.table.num_rows
                assert event.why is not None
                self.lacked |= {one.stream for one in event.why.missing}
                self.told_until = int(event.table["stime"].cast(pa.int64())[-1].as_py())

    def close(self) -> None:
        self._client.close()


def running(node: ReplicaNode) -> Replica:
    """The replica that a node runs."""
    replica = node.copy.replica
    assert replica is not None
    return replica


class World:
    """Two entry points, the replicas, their clients, and somebody who sends."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._directory = directory
        self.failures: list[BaseException] = []
        self.network = Network("policies", spark=spark)
        left, right = (self.network.source(name, "k bigint, v double") for name in SOURCES)
        # Windows that overlap: there is always state to give up.
        left.union(right).groupBy(window("2 seconds", "1 second"), "k").agg(
            F.sum("v").alias("v"), F.count("*").alias("c")
        ).output("sums")
        self._fragment = fragment_network(self.network, "main")
        names = [*(f"entry-{name}" for name in SOURCES), *POLICIES]
        ports = free_ports(dict.fromkeys(names, "127.0.0.1"), [])["nodes"]
        self._book = {name: f"grpc://127.0.0.1:{port}" for name, port in ports.items()}
        self._places = {
            name: Place("127.0.0.1", port, self._book, Security()) for name, port in ports.items()
        }
        self._warm()
        self.entries = {name: self._entry(name) for name in SOURCES}
        self.replicas = {name: self._replica(name) for name in POLICIES}
        for node in [*self.entries.values(), *self.replicas.values()]:
            node.start()
        self.readings = {
            name: Reading(Client("sums", {name: self._book[name]}, name="client", timing=TIMING))
            for name in POLICIES
        }
        self._producers = [
            Producer(name, self._book[f"entry-{name}"], name="test") for name in SOURCES
        ]
        self._stopping = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def _warm(self) -> None:
        """Plan the queries once, so that the first bucket is no failure."""
        times = pa.array([1]).cast(TIME)
        rows = pa.table({"stime": times, "tmax": times, "k": [1], "v": [1.0]})
        undisturbed(self.network, dict.fromkeys(SOURCES, rows))

    def _entry(self, source: str) -> EntryNode:
        operator, name = self.network.sources[source], f"entry-{source}"
        return EntryNode(
            EntrySettings(name, source, tuple(POLICIES), boundary_interval_us=50_000),
            operator.declaration,
            input_schema(operator),
            None,
            TIMING.bucket_us,
            self._directory / name,
            self._places[name],
            self.failures.append,
            keep=True,
        )

    def _replica(self, name: str) -> ReplicaNode:
        while_failed, while_stabilizing, reconcile = POLICIES[name]
        settings = ReplicaSettings(
            name,
            tuple(Input(each, (f"entry-{each}",)) for each in SOURCES),
            (Output("sums", frozenset(SOURCES), ("client",)),),
            (),
            TIMING,
            while_failed,
            while_stabilizing,
            reconcile,
        )
        (plan,) = plan_fragments(self.network)
        return ReplicaNode(
            settings, None, plan, lambda: self._fragment, self._directory / name,
            self._places[name], self.failures.append,
        )  # fmt: skip

    def _send(self) -> None:
        random = np.random.default_rng(5)
        while not self._stopping.wait(0.05):
            for producer in self._producers:
                rows = {"k": random.integers(0, 3, 20), "v": random.random(20)}
                producer.send(pa.table(rows))

    def until(self, what: str, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 90.0
        while not condition():
            assert not self.failures, self.failures
            assert time.monotonic() < deadline, f"{what} did not come\n{self.story()}"
            time.sleep(0.02)

    def until_stable(self) -> None:
        """Until everything sent by now has its stable result everywhere."""
        now = time.time_ns() // 1000 + 1_000_000
        self.until(
            "a stable stream",
            lambda: all(each.view.stable_until > now for each in self.readings.values()),
        )

    def cut(self) -> None:
        for name in POLICIES:
            self.entries["right"].links.cut(name)

    def heal(self) -> None:
        self.entries["right"].links.heal()

    def check(self) -> None:
        """Every client holds what an undisturbed run gives, to the bit."""
        until = min(each.view.stable_until for each in self.readings.values())
        sources = {
            name: logged_tuples(self._directory / f"entry-{name}" / "streams" / name)
            for name in SOURCES
        }
        expected = undisturbed(self.network, sources, until)["sums"].combine_chunks()
        assert expected.num_rows
        for name, reading in self.readings.items():
            found = reading.view.stable
            assert found is not None
            assert found.slice(0, expected.num_rows).combine_chunks().equals(expected), name
        assert not self.failures

    def positions(self, while_failed: str) -> list[int]:
        """How far the live versions of replicas with this policy are, the last one first."""
        found = [
            running(node).sunion.live_position or 0
            for name, node in self.replicas.items()
            if name.startswith(while_failed)
        ]
        return sorted(found)

    def visits(self, name: str) -> set[tuple[str, str]]:
        """The transitions that the output and the versions of a replica have taken."""
        replica = running(self.replicas[name])
        return {*replica.soutputs["sums"].visits, *replica.versions.visits}

    def story(self) -> str:
        return "\n".join(
            f"{name}: {node.status()}\n{running(node).manager.story()}"
            for name, node in self.replicas.items()
        )

    def close(self) -> None:
        self._stopping.set()
        self._sender.join()
        for producer in self._producers:
            producer.close()
        for reading in self.readings.values():
            reading.close()
        for node in [*self.replicas.values(), *self.entries.values()]:
            node.stop()


@pytest.fixture
def world(spark: SparkSession, tmp_path: Path) -> Iterator[World]:
    made = World(spark, tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.thorough
@pytest.mark.alone
@pytest.mark.long
def test_every_policy_keeps_its_word(world: World) -> None:
    readings = world.readings
    world.until_stable()
    # Nine of them begin at once on two cores: a first bucket may be late, which is said, too.
    before = {name: each.tentative for name, each in readings.items()}
    world.cut()
    cut_at = time.time_ns() // 1000
    going_on = [name for name in POLICIES if not name.startswith("suspend")]
    world.until(
        "tentative results",
        lambda: min(readings[name].told_until for name in going_on) > cut_at + 2 * TIMING.delay_us,
    )
    world.until(
        "whoever delays behind whoever does not",
        lambda: (
            world.positions("delay")[-1] + 2 * TIMING.bucket_us <= world.positions("process")[0]
        ),
    )
    assert {running(node).state for node in world.replicas.values()} == {NodeState.UP_FAILURE}
    world.heal()
    world.until(
        "corrections of everything",
        lambda: all(
            running(node).state is NodeState.STABLE and world.readings[name].view.tentative is None
            for name, node in world.replicas.items()
        ),
    )
    world.until_stable()
    world.check()
    # Suspending never says anything tentative.
    assert readings["suspend-suspend"].tentative == 0
    for name in going_on:
        assert readings[name].view.undone == readings[name].tentative > before[name]
        assert "right" in readings[name].lacked
        assert ("TENTATIVE", "CORRECTION") in world.visits(name)
    # Who suspends new tuples while it reconciles never mixes them with corrections.
    for name in ("delay-suspend", "process-suspend"):
        assert ("CORRECTING", "LIVE_BESIDE") not in world.visits(name)
    # Undo gives the state up and builds it anew, checkpoints keep it.
    assert ("FORKED", "GIVE_UP") in world.visits("process-process-undo")
    assert any(trigger == "REBUILT" for _, trigger in world.visits("process-process-undo"))
    assert ("WHOLE", "FORK") in world.visits("process-process")


def test_engines_of_one_fragment_can_share_a_session(spark: SparkSession) -> None:
    network = Network("shared", spark=spark)
    network.source("load", "k bigint").filter("k > 0").output("out")
    fragment = fragment_network(network, "main")
    one, two = Engine(fragment), Engine(fragment)
    assert one.directory != two.directory
    one.close()
    two.close()
