"""A deployment on two machines: ``holdfast up`` on one, ``holdfast server`` on the other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.cli import main
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.deployment import load_deployment
from holdfast.plans.addresses import free_ports
from holdfast.plans.plan import write_plan
from holdfast.testing.deployed import expected_file
from tests.processes.machines import Machine, two_machines

NETWORK = """
from holdfast import Network, window
from pyspark.sql import functions as F
import names

network = Network("two", bucket="200 ms")
load = network.source(names.SOURCE, "value bigint")
load.groupBy(window("200 ms"), F.expr("value % 3").alias("k")).agg(
    F.sum("value").alias("total")
).output("sums")
"""
DEPLOYMENT = """
name = "two"
network = "network.py"
chaos = true
files = ["names.py"]

[security]
directory = "security/here"

[servers.east]
listen = "{server}"

[timing]
record_interval = "500 ms"

[sources.load]
from = "rate:1000"
listen = "{host}"
keep = true

[fragments.main]
replicas = ["east"]

[clients.recorder]
output = "sums"
sink = "jsonl:sums.jsonl"
"""


@contextmanager
def running(command: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    with output.open("wb") as file:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30.0)
        finally:
            process.kill()


class Pair:
    """The deployment on its two machines."""

    def __init__(
        self, here: Machine, there: Machine, directory: Path, deployment: str = DEPLOYMENT
    ) -> None:
        self.here = here
        self.directory = directory / "here"
        self.server_data = directory / "there"
        self.said = directory / "up.txt"
        self.server_said = directory / "server.txt"
        loopback = there.host == "127.0.0.1"
        port = free_ports({"east": there.host}, [])["nodes"]["east"] if loopback else 4700
        self.directory.mkdir()
        self.path = self.directory / "deployment.toml"
        (self.directory / "network.py").write_text(NETWORK)
        (self.directory / "names.py").write_text('SOURCE = "load"\n')
        listen = f"{there.host}:{port}"
        self.path.write_text(deployment.format(host=here.host, server=listen))
        assert main(["security", "init", str(self.path)]) == 0
        secrets = self.directory / "security" / "east"
        options = ["--listen", listen, "--data", self.server_data, "--security", secrets]
        self.serve = there.holdfast("server", *options)
        self.recorded = self.directory / "sums.jsonl"

    def ask(self, command: str, *more: str) -> str:
        """A command on the deployment; what it prints."""
        asked = self.here.holdfast(command, self.path, *more)
        wide = {**os.environ, "COLUMNS": "200"}
        done = subprocess.run(
            asked, capture_output=True, text=True, check=False, timeout=120, env=wide
        )
        assert done.returncode == 0, (asked, done.stdout, done.stderr, self.story())
        return done.stdout

    def wait(self, until: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            assert time.monotonic() < deadline, f"waited for: {what}\n{self.story()}"
            time.sleep(0.05)

    def story(self) -> str:
        logs = sorted(self.server_data.glob("two/data/logs/*.log"))
        logs += sorted(self.directory.glob("data/logs/*.log"))
        files = [path for path in (self.said, self.server_said, *logs) if path.exists()]
        return "\n".join(f"{path.name}:\n{path.read_text()[-1500:]}" for path in files)

    def lines(self) -> int:
        return self.recorded.read_bytes().count(b"\n") if self.recorded.exists() else 0

    def is_silent(self) -> bool:
        have = self.lines()
        time.sleep(0.7)
        return self.lines() == have

    def grows(self, what: str) -> None:
        """More results come."""
        have = self.lines()
        self.wait(lambda: self.lines() > have + 10, what)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_replica_on_another_machine(tmp_path: Path, spark: SparkSession) -> None:
    with two_machines() as (here, there):
        pair = Pair(here, there, tmp_path)
        # Planned here, because Spark is up already.
        network = load_network(pair.directory / "network.py", "local[2]", {})
        write_plan(load_deployment(pair.path), plan_of(network))
        up = here.holdfast("up", pair.path)
        with ExitStack() as started:
            server = started.enter_context(running(pair.serve, pair.server_said))
            pair.wait(lambda: "listening" in pair.server_said.read_text(), "the server")
            started.enter_context(running(up, pair.said))
            pair.wait(lambda: "all up" in pair.said.read_text(), "all up")
            pair.grows("results")
            table = pair.ask("status")
            assert "main-1@east" in table, table
            assert "Spark is up" in pair.ask("logs", "main-1")

            # The cable is cut: nothing comes over it. It heals: all of it does.
            pair.ask("chaos", "cut", "recorder", "main-1")
            assert "cut from main-1" in pair.ask("status")
            pair.wait(pair.is_silent, "silence")
            pair.ask("chaos", "heal")
            pair.grows("results after the cut")

            # It starts again with what code there is, and goes on.
            assert "main-1 is back (1 of 1)" in pair.ask("restart", "main-1", "--rolling")
            pair.grows("results after the restart")

            # The server dies, and what it runs dies with it.
            server.kill()
            server.wait()
            pair.wait(pair.is_silent, "silence")
            assert "server east at" in pair.ask("status")
        expected = expected_file(network, load_deployment(pair.path), "sums")
        assert pair.lines() > 30
        assert expected.startswith(pair.recorded.read_text())
