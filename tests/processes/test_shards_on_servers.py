"""Shards on servers get another number of them while they run."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.networks import load_network
from holdfast.cluster.remote import RemoteServer
from holdfast.cluster.rescaling import rescale
from holdfast.cluster.server import Server
from holdfast.deployment import Deployment, SecuritySpec, load_deployment
from holdfast.plans.addresses import free_ports
from holdfast.testing.deployed import Load, expected_file, supervised, wait_for_lines
from tests.processes.copies import NETWORK
from tests.processes.test_shard_kills import KILLED, _readings

SERVERS = """
[security]
token_file = "token"
[servers.east]
listen = "127.0.0.1:{east}"
[servers.west]
listen = "127.0.0.1:{west}"
"""


@contextmanager
def serving(deployment: Deployment, name: str) -> Iterator[None]:
    endpoint = deployment.servers[name]
    token = SecuritySpec(token_file=deployment.path.parent / "token")
    made = Server(endpoint.host, endpoint.port, deployment.path.parent / name, token, None)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        made.request_stop()
        thread.join(60.0)


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_new_shards_start_on_the_servers_of_the_old_ones_and_take_over(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "network.py").write_text(NETWORK.partition("best = ")[0] + 'sums.output("sums")')
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    ports = free_ports({"east": "127.0.0.1", "west": "127.0.0.1"}, [])["nodes"]
    told = KILLED.replace("shards = 2", 'shards = ["east", "west"]') + SERVERS.format(**ports)
    (tmp_path / "deployment.toml").write_text(told)
    deployment = load_deployment(tmp_path / "deployment.toml")
    found = deployment.data / "sums.jsonl"
    with (
        serving(deployment, "east"),
        serving(deployment, "west"),
        supervised(deployment) as supervisor,
    ):
        load = Load(deployment, "load", _readings)
        wait_for_lines(supervisor, found, 100, 180.0, stalled_s=180.0)
        assert rescale(deployment.path, "main", 3, wait_s=240.0).unaware == ()
        hosted = {
            name: set(RemoteServer(load_deployment(deployment.path), name).states())
            for name in ("east", "west")
        }
        load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "sums")
        wait_for_lines(supervisor, found, expected.count("\n"), 240.0)
    assert found.read_text() == expected
    assert {"main.g2.1-1", "main.g2.3-1", "main-2"} <= hosted["east"]
    assert "main.g2.2-1" in hosted["west"]
