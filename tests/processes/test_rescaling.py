"""Another number of shards while real nodes run, over Flight and with their disks, without Spark.

A fragment that hands its tuples on is merged from one stream: that needs no engine but the one that
merges. What shards do with states is in tests/spark/test_shards.py.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from holdfast.client import Client, View
from holdfast.cluster.generations import Rescaled
from holdfast.cluster.members import MembershipError
from holdfast.cluster.process_main import ProcessHost
from holdfast.cluster.rescaling import rescale
from holdfast.deployment import load_deployment, membership_path
from holdfast.errors import Removed
from holdfast.frames import SEQ, STIME, TMAX
from holdfast.plans.addresses import Addresses
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream, Routes
from holdfast.plans.plan import Plan, SourcePlan, write_plan
from holdfast.producer import Producer
from holdfast.slots import SLOTS
from holdfast.spark.merging import Merge

DEPLOYMENT = """
network = "network.py"
[timing]
delay = "10 seconds"
heartbeat = "{heartbeat} ms"
[sources.load]
keep = true
[fragments.main]
shards = 2
reconcile = "undo"
replicas = {replicas}
delivery = "{delivery}"
[clients.reader]
output = "out"
"""
# Its shards share processes with those of the other fragment.
BESIDE = """
[fragments.more]
shards = 2
colocate = "pool"
reconcile = "undo"
[clients.other]
output = "also"
"""
OWN = [pa.field("k", pa.int64()), pa.field("v", pa.float64())]
ENGINE = pa.schema([STIME, TMAX, SEQ, *OWN])
WIRE = pa.schema([STIME, TMAX, *OWN])
SECONDS = 240.0


class Host(ProcessHost):
    """A process whose fragments hand on what they read."""

    def _network(self) -> Any:
        return None

    def _part(self, node: str) -> Any:
        plan = self._topology.fragment_plan(node)
        if plan.merges:
            return super()._part(node)
        return Merge(dict.fromkeys(plan.inputs, ENGINE), {plan.outputs[0].stream: ("load",)})


class World:
    """An entry point, shards that hand on, what merges them, a client, and somebody who sends."""

    def __init__(
        self,
        directory: Path,
        replicas: int = 1,
        delivery: str = "exactly-once",
        colocate: bool = False,
    ) -> None:
        (directory / "network.py").write_text("")
        self.path = directory / "deployment.toml"
        # Fifteen nodes in one process have little time for each other.
        heartbeat = 200 if replicas == 1 else 700
        text = DEPLOYMENT.format(replicas=replicas, heartbeat=heartbeat, delivery=delivery)
        streams = {"main": "out"}
        if colocate:
            text = text.replace("shards = 2", 'shards = 2\ncolocate = "pool"') + BESIDE
            streams["more"] = "also"
        self.path.write_text(text)
        routes = Routes({"load": ("k",)})
        fragments = {}
        for name, stream in streams.items():
            outputs = (FragmentStream(stream, ENGINE, frozenset(["load"])),)
            fragments[name] = FragmentPlan(
                name, {"load": WIRE}, outputs, False, ("by hand",), routes
            )
        sources = {"load": SourcePlan(ENGINE, None, ())}
        plan = Plan(200_000, sources, fragments, tuple(streams.values()))
        deployment = load_deployment(self.path)
        write_plan(deployment, plan)
        book = Addresses.choose(deployment).book(deployment.security.read())
        self.failures: list[BaseException] = []
        self.nodes: dict[str, Any] = {}
        self.hosts: dict[str, Host] = {}
        self._membership = membership_path(deployment.data)
        self._looked_at: float | None = None
        self.look()
        security = deployment.security.read()
        self.producer = Producer("load", book["entry-load"], name="test", security=security)
        self.sent: list[pa.Table] = []
        self.client = Client.of(self.path, "out", name="reader")
        self.view = View()
        self._stopping = threading.Event()
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def look(self) -> None:
        """Start and end nodes as a supervisor does, when who takes part has changed."""
        changed_at = self._membership.stat().st_mtime if self._membership.exists() else 0.0
        if changed_at == self._looked_at:
            return
        self._looked_at = changed_at
        deployment = load_deployment(self.path)
        for process, names in deployment.processes.items():
            if process not in self.hosts and process not in deployment.clients:
                host = self.hosts[process] = Host(deployment, process)
                host.fatal = self.failures.append  # type: ignore[method-assign,assignment]
                is_entry = process == "entry-load"
                host.nodes = [host._entry(process)] if is_entry else host._replicas([*names])
                for node in host.nodes:
                    self.nodes[node.name] = node
                    node.start()
        for process in [name for name in self.hosts if name not in deployment.processes]:
            for node in self.hosts.pop(process).nodes:
                self.nodes.pop(node.name).stop()

    def restart(self, name: str) -> None:
        self.nodes.pop(name).stop()
        del self.hosts[name]
        self._looked_at = None
        self.look()

    def _send(self) -> None:
        random = np.random.default_rng(5)
        while not self._stopping.wait(0.05):
            if self.producer.pending < 30:
                rows = pa.table({"k": random.integers(0, 50, 10), "v": random.random(10)})
                self.sent.append(rows)
                self.producer.send(rows)

    def read(self) -> None:
        event = self.client.read(0.05)
        if event is not None:
            self.view.apply(event)

    def go_on(self) -> None:
        """New stable results come."""
        had, deadline = self.view.stable_until, time.monotonic() + SECONDS
        while self.view.stable_until <= had + 400_000:
            assert time.monotonic() < deadline, {n: one.status() for n, one in self.nodes.items()}
            self.read()

    def rescale(self, shards: int) -> Rescaled:
        with ThreadPoolExecutor(1) as pool:
            under_way = pool.submit(rescale, self.path, "main", shards, wait_s=SECONDS)
            while not under_way.done():
                self.look()
                self.read()
            self.look()
            return under_way.result()

    def finish(self) -> None:
        """Everything that was sent is there once, in the order in which it was taken."""
        found = self._all_read()
        expected = pa.concat_tables(self.sent).combine_chunks()
        assert found.select(["k", "v"]).combine_chunks().equals(expected)

    def finish_in_part(self, sent: int) -> None:
        """What is there was sent, and is there once, in that order; also what came after some."""
        found = self._all_read()["v"].to_pylist()
        place = {v: at for at, v in enumerate(pa.concat_tables(self.sent)["v"].to_pylist())}
        places = [place[v] for v in found]
        assert places == sorted(set(places))
        assert places[-1] > sent

    def _all_read(self) -> pa.Table:
        """All stable tuples, up to now, when nobody sends any more."""
        self._stopping.set()
        self._sender.join()
        self.producer.close(60.0)
        newest, deadline = int(time.time() * 1e6), time.monotonic() + SECONDS
        while self.view.stable_until < newest:
            assert time.monotonic() < deadline
            self.read()
        found = self.view.stable
        assert found is not None
        # Those that took part no longer have said so.
        assert all(isinstance(one, Removed) for one in self.failures)
        return found

    def close(self) -> None:
        self._stopping.set()
        self.client.close()
        for host in self.hosts.values():
            for node in host.nodes:
                node.stop()


@pytest.fixture(params=[1, pytest.param(2, marks=pytest.mark.thorough)])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    with closing(World(tmp_path, request.param)) as made:
        yield made


def test_more_and_fewer_shards_take_over_and_nobody_notices(world: World) -> None:
    world.go_on()
    with pytest.raises(MembershipError, match="main has 2 shards already"):
        rescale(world.path, "main", 2)
    with pytest.raises(MembershipError, match="'best' is no fragment with shards"):
        rescale(world.path, "best", 2)
    for shards, generation in ((3, 2), (1, 3)):
        done = world.rescale(shards)
        assert (done.shards, done.generation, done.unaware) == (shards, generation, ())
        names = {name.rpartition("-")[0] for name in world.nodes}
        own = {f"main.g{generation}.{number}" for number in range(1, shards + 1)}
        assert names == {"entry", "main", *own}
        world.go_on()
        shown = world.nodes[f"main.g{generation}.1-1"].status()["shard"]
        merged_by = [name for name in world.nodes if name.rpartition("-")[0] == "main"]
        assert shown["above"] == {"load": ["entry-load"]}
        assert sorted(*shown["below"].values()) == sorted(merged_by)
    # It starts again as it is, whatever the file said first.
    world.restart("main.g3.1-1")
    shown = world.nodes["main.g3.1-1"].status()["shard"]
    assert (shown["generation"], shown["slots"]) == (3, [0, SLOTS])
    world.go_on()
    world.finish()


def test_a_change_is_called_off_and_those_that_ran_go_on(tmp_path: Path) -> None:
    with closing(World(tmp_path)) as world:
        world.go_on()
        before = dict(world.nodes)
        # Until they are up, everything is kept for new shards.
        with pytest.raises(MembershipError, match="have not taken over after 0 s"):
            rescale(world.path, "main", 3, wait_s=0.0)
        world.go_on()
        world.look()
        assert "main.g2.3-1" in world.nodes
        deadline = time.monotonic() + SECONDS
        while world.nodes["main-2"].status()["state"] != "stable":
            assert time.monotonic() < deadline
            world.read()
        # Whoever has begun to read from the new ones goes back to the old ones.
        world.client.links.cut("main-1")
        world.go_on()
        done = world.rescale(2)
        assert (done.shards, done.generation, done.unaware) == (2, 1, ())
        world.client.links.heal()
        assert world.nodes == before
        world.go_on()
        world.finish()


def test_a_client_that_was_away_gets_at_least_once_what_it_had_not_confirmed(
    tmp_path: Path,
) -> None:
    """All it knew are gone when it is back, and who has its tuples was started again."""
    with closing(World(tmp_path, delivery="at-least-once")) as world:
        world.go_on()
        world.client.links.cut("main-1")
        world.client.links.cut("main-2")
        world.rescale(1)
        assert "main-1" not in world.nodes
        had = world.view.stable_until
        world.restart("main-2")
        assert world.client.read(0.2) is None
        world.client.links.heal()
        world.go_on()
        assert world.view.stable_until > had
        world.finish()


def test_at_most_once_new_shards_begin_with_what_comes_and_old_ones_leave_a_shared_process(
    tmp_path: Path,
) -> None:
    with closing(World(tmp_path, delivery="at-most-once", colocate=True)) as world:
        world.go_on()
        shared = [world.hosts["pool.1"], world.hosts["pool.2"]]
        others = [world.nodes["more.1-1"], world.nodes["more.2-1"]]
        world.rescale(3)
        sent = sum(table.num_rows for table in world.sent)
        world.go_on()
        assert load_deployment(world.path).processes["pool.1"] == ("more.1-1",)
        new = {f"main.g2.{number}-1" for number in (1, 2, 3)}
        assert world.hosts.keys() == {*new, "main-2", "more-1", "pool.1", "pool.2", "entry-load"}
        deadline = time.monotonic() + SECONDS
        # Those that stay were not even started again.
        while [one for host in shared for one in host.nodes] != others:
            assert time.monotonic() < deadline, world.failures
            world.read()
        with Client.of(world.path, "also", name="other") as client:
            view, until = View(), world.view.stable_until
            while view.stable_until < until:
                assert time.monotonic() < deadline
                event = client.read(0.05)
                if event is not None:
                    view.apply(event)
        world.finish_in_part(sent)
