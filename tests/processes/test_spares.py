"""A machine that never comes back: a spare server takes its place, and a new copy stands by."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.cluster import spares
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.cluster.spares import why_not
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import DeploymentError, load_deployment, read_tables
from holdfast.network import Network
from holdfast.plans.addresses import Addresses, free_ports
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.plans.plan import Plan, SourcePlan, write_plan
from holdfast.plans.topology import Topology
from holdfast.testing.deployed import Load, expected_file, supervised, wait_for_lines
from tests.processes.test_kill import readings

NETWORK = """
from holdfast import Network, window
from pyspark.sql import functions as F

network = Network("spares", bucket="200 ms")
load = network.source("load", "number bigint, server bigint, cpu double")
means = load.groupBy(window("400 ms"), "server").agg(F.avg("cpu").alias("cpu"))
means.output("means")
"""
DEPLOYMENT = """
name = "spares"
network = "network.py"
chaos = true
[security]
token_file = "token"
[timing]
delay = "3 seconds"
[servers.east]
listen = "127.0.0.1:{east}"
[servers.west]
listen = "127.0.0.2:{west}"
spare = "2 seconds"
[sources.load]
keep = true
[fragments.main]
protection = "{protection}"
replicas = ["east", "127.0.0.1"]
colocate = ["far", "near"]
[clients.recorder]
output = "means"
sink = "jsonl:means.jsonl"
"""


HOSTS = {"east": "127.0.0.1", "west": "127.0.0.2"}


def write(directory: Path, protection: str, ports: dict[str, int]) -> Path:
    (directory / "network.py").write_text(NETWORK)
    (directory / "token").write_text("a secret of the test\n")
    (directory / "token").chmod(0o600)
    path = directory / "deployment.toml"
    path.write_text(DEPLOYMENT.format(protection=protection, **ports))
    return path


def wait(until: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, f"waited for: {what}"
        time.sleep(0.1)


@contextmanager
def serving(directory: Path, name: str, listen: str) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "holdfast.cli", "server", "--listen", listen]
    command += ["--data", str(directory / name), "--token-file", str(directory / "token")]
    said = directory / f"{name}.txt"
    with said.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        wait(lambda: "listening" in said.read_text(), f"server {name}")
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30.0)
        finally:
            process.kill()


@contextmanager
def without_east(
    directory: Path, protection: str
) -> Iterator[tuple[Supervisor, list[str], Load, Network]]:
    """A deployment that works, and whose server east was killed; what its supervisor says."""
    ports = free_ports(HOSTS, [])["nodes"]
    deployment = load_deployment(write(directory, protection, ports))
    network = load_network(deployment.network, "local[2]", {})
    write_plan(deployment, plan_of(network))
    said = list[str]()
    with ExitStack() as running:
        servers = {
            name: running.enter_context(serving(directory, name, f"{host}:{ports[name]}"))
            for name, host in HOSTS.items()
        }
        supervisor = running.enter_context(supervised(deployment, said.append))
        load = Load(deployment, "load", readings, 500)
        wait_for_lines(supervisor, directory / "means.jsonl", 4, 90.0)
        servers["east"].kill()
        yield supervisor, said, load, network


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_a_spare_takes_the_place_of_a_machine_that_is_gone(
    tmp_path: Path, spark: SparkSession
) -> None:
    with without_east(tmp_path, "hybrid") as (supervisor, said, load, network):
        deployment = supervisor.deployment
        path, found = deployment.path, tmp_path / "means.jsonl"

        def stand_by() -> bool:
            status = node_status(load_deployment(path), ["main-1"])["main-1"]
            recent = int(status.get("boundary", 0)) / 1e6 > time.time() - 3.0
            return status.get("copy") == "suspended" and recent

        wait(lambda: any("west takes its place" in each for each in said), "the spare")
        wait(stand_by, "a new copy that holds a recent checkpoint", 240.0)
        assert Addresses.read(deployment).of("main-1").host == "127.0.0.2"
        # It is good for something: the one that took over is lost, too.
        lines = found.read_bytes().count(b"\n")
        assert supervisor.kill("near")
        wait_for_lines(supervisor, found, lines + 8, 60.0)
        # The old machine comes back, and is told to stop what it ran.
        east = deployment.servers["east"]
        with serving(tmp_path, "east", f"{east.host}:{east.port}"):
            hosted = tmp_path / "east" / "spares" / "hosted.json"
            assert hosted.exists()
            wait(lambda: not hosted.exists(), "the old machine to stop")
            load.stop()
            expected = expected_file(network, deployment, "means")
            wait_for_lines(supervisor, found, expected.count("\n"), 90.0)
            time.sleep(0.5)
    assert found.read_text() == expected


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_an_active_replica_joins_where_the_spare_is(tmp_path: Path, spark: SparkSession) -> None:
    with without_east(tmp_path, "active") as (supervisor, said, load, network):
        deployment = supervisor.deployment
        path, found = deployment.path, tmp_path / "means.jsonl"

        def is_stable() -> bool:
            status = node_status(load_deployment(path), ["main-1"])["main-1"]
            return bool(status.get("state") == "stable")

        wait(lambda: any("west takes its place" in each for each in said), "the spare")
        wait(is_stable, "the replica to have joined", 240.0)
        assert Addresses.read(deployment).of("main-1").host == "127.0.0.2"
        # It is good for something: results rest on it alone now.
        lines = found.read_bytes().count(b"\n")
        assert supervisor.signal("near", signal.SIGSTOP) is not None
        wait_for_lines(supervisor, found, lines + 8, 60.0)
        supervisor.signal("near", signal.SIGCONT)
        load.stop()
        expected = expected_file(network, deployment, "means")
        wait_for_lines(supervisor, found, expected.count("\n"), 90.0)
    assert found.read_text() == expected


def test_what_cannot_begin_anew_is_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path, "active", {"east": 4701, "west": 4702})
    states = {"main-2": {"state": "recovering"}}
    monkeypatch.setattr(spares, "node_status", lambda _, asked: {one: states[one] for one in asked})
    refused = "main-2, which would give main-1 its state, cannot now"
    assert why_not(load_deployment(path), "east") == refused
    states["main-2"]["state"] = "stable"
    assert why_not(load_deployment(path), "east") is None
    alone = path.read_text().replace(', "127.0.0.1"', "").replace(', "near"', "")
    path.write_text(alone.replace("active", "none"))
    assert why_not(load_deployment(path), "east") == "main-1 has on its disk what nobody else has"


def test_a_copy_on_a_spare_takes_a_place_as_another_life(tmp_path: Path) -> None:
    """The one that was there before may still run, cut off from whoever replaced it."""
    path = write(tmp_path, "hybrid", {"east": 4701, "west": 4702})
    schema = pa.schema([("cpu", pa.float64())])
    means = FragmentStream("means", schema, frozenset(["load"]))
    main = FragmentPlan("main", {"load": schema}, (means,), False, ())
    plan = Plan(200_000, {"load": SourcePlan(schema, None, ())}, {"main": main}, ("means",))

    def begins_empty(path: Path) -> list[bool]:
        topology = Topology(load_deployment(path), plan)
        return [topology.replica(name).begins_empty for name in ("main-1", "main-2")]

    assert begins_empty(path) == [True, True]
    moved = {"east": {"was": "127.0.0.1:4701", "now": "127.0.0.2:4702"}}
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "moved.json").write_text(json.dumps(moved))
    assert begins_empty(path) == [False, True]
    # A server is sent the tables as they are now, and reads them the same.
    (tmp_path / "copy.json").write_text(json.dumps(read_tables(path)))
    assert begins_empty(tmp_path / "copy.json") == [False, True]
    path.write_text('moved = ["east"]\n' + path.read_text())
    with pytest.raises(DeploymentError, match="'moved' means nothing here"):
        load_deployment(path)


def test_a_spare_runs_nothing_else(tmp_path: Path) -> None:
    path = write(tmp_path, "hybrid", {"east": 4701, "west": 4702})
    path.write_text(path.read_text().replace('"east", "127.0.0.1"', '"east", "west"'))
    with pytest.raises(DeploymentError, match=r"servers\.west\.spare: it runs near"):
        load_deployment(path)
