"""Moves of replicas on real servers, for benchmark placement: what a reader notices of them.

Four ``holdfast server`` processes form a cluster; a racing fragment of two replicas is submitted,
and the links to and from its replicas are made as long as those between cities. Its replicas move
from server to server. Before each move, in its place, a Spark session that has nothing to do with
it starts on the same machine: a new replica starts one as well, and what that takes from the others
is no matter of moving.
"""

from __future__ import annotations

import contextlib
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from benchmarks.replace_watch import longest_gap_us
from benchmarks.standby_chain import now_us
from holdfast.client import Client, Tuples
from holdfast.cluster.chaos import delay
from holdfast.cluster.desired import Submission
from holdfast.cluster.submitting import submit
from holdfast.deployment import Deployment, load_deployment
from holdfast.flight.credentials import SecuritySpec
from holdfast.flight.distance import Distance
from holdfast.flight.peers import call
from holdfast.plans.addresses import free_ports

SERVERS = ("a", "b", "c", "d")
# Milliseconds, one way, between what runs on "a" and what runs on the others.
APART_MS = {"b": 12.0, "c": 35.0, "d": 20.0}
_NETWORK = """
from holdfast import Network, window
from pyspark.sql import functions as F

network = Network("moving", bucket="200 ms")
load = network.source("load", "value bigint")
load.groupBy(window("200 ms"), F.expr("value % 3").alias("k")).agg(
    F.sum("value").alias("total")
).output("sums")
"""
_DEPLOYMENT = """
name = "moving"
network = "network.py"
chaos = true
[security]
token_file = "token"
[timing]
delay = "10 seconds"
[sources.load]
from = "rate:500"
listen = "a"
[fragments.main]
replicas = ["b", "c"]
protection = "race"
[clients.watch]
output = "sums"
"""
_SESSION = """
from pyspark.sql import SparkSession
session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
session.range(1000).count()
session.stop()
"""
_WAIT_SECONDS = 240.0


class Cluster:
    """Servers of this machine, each a process, with a token that all of them know."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.token = directory / "token"
        self.token.write_text("moves of the benchmark\n")
        self.token.chmod(0o600)
        hosts = {name: f"127.0.0.{number}" for number, name in enumerate(SERVERS, 1)}
        ports = free_ports(hosts, [])["nodes"]
        self.addresses = {name: f"{hosts[name]}:{ports[name]}" for name in SERVERS}
        self._security = SecuritySpec(self.token).read()
        self._processes = [self._start(name) for name in SERVERS]

    def _start(self, name: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "holdfast.cli", "server", "--name", name]
        command += ["--listen", self.addresses[name], "--data", str(self.directory / name)]
        command += ["--token-file", str(self.token), "--seeds", ",".join(self.addresses.values())]
        with (self.directory / f"{name}.txt").open("ab") as said:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=said, stderr=said)

    def ask(self, action: str, **options: Any) -> dict[str, Any]:
        host, _, port = self.addresses["a"].rpartition(":")
        location = self._security.location(host, int(port))
        return call(location, self._security, "holdfast", action, options, 60.0)

    @property
    def is_ready(self) -> bool:
        """Whether somebody coordinates, and all have been taken in."""
        try:
            return bool(self.ask("cluster-status")["version"][1] > len(SERVERS) // 4) and all(
                f'\\"{name}\\"' in (self.directory / "a" / "cluster" / "record.json").read_text()
                for name in SERVERS
            )
        except Exception:
            return False

    @property
    def placed(self) -> list[str]:
        found: list[str] = self.ask("cluster-status")["submissions"]["moving"]["placed"]["main"]
        return found

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            try:
                process.wait(30.0)
            except subprocess.TimeoutExpired:
                process.kill()


class Watch:
    """Reads the output; when each result came, and whether any is missing or came twice."""

    def __init__(self, path: Path) -> None:
        self.came: list[int] = []
        self.wrong = 0
        self._next_id = 0
        self._client = Client.of(path, "sums", name="watch")
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        for event in self._client:
            if isinstance(event, Tuples) and event.stable:
                self.came.append(now_us())
                self.wrong += event.first_id != self._next_id
                self._next_id = event.first_id + event.table.num_rows

    def close(self) -> None:
        self._client.close()


def _until(done: Callable[[], bool], what: str, seconds: float = _WAIT_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {seconds:g} s for {what}")
        time.sleep(0.2)


@contextlib.contextmanager
def running_cluster(network: str, deployment: str) -> Iterator[tuple[Cluster, Path]]:
    """Servers to which this was submitted, and its file as the cluster has it."""
    with tempfile.TemporaryDirectory(prefix="holdfast-moves-") as directory:
        root = Path(directory)
        cluster = Cluster(root)
        try:
            (root / "network.py").write_text(network)
            (root / "deployment.toml").write_text(deployment)
            _until(lambda: cluster.is_ready, "a coordinator that knows all servers")
            path, _ = submit(root / "deployment.toml", cluster.addresses["a"], lambda text: None)
            yield cluster, path
        finally:
            cluster.close()


def _make_longer(deployment: Deployment, replica: str, server: str) -> None:
    """The links of a replica are those between cities, as soon as it listens."""
    distance = Distance(APART_MS[server], APART_MS[server] / 10)
    for other in ("entry-load", "watch"):
        _until(
            lambda other=other: not delay(deployment, other, replica, distance),  # type: ignore[misc]
            f"the link between {other} and {replica}",
        )


def moves(turns: int) -> dict[str, Any]:
    """So many moves, each after an unrelated Spark session has started in its place."""
    with running_cluster(_NETWORK, _DEPLOYMENT) as (cluster, path):
        watch = Watch(path)
        _until(lambda: len(watch.came) > 20, "results")
        deployment = load_deployment(path)
        names = {"main-1": "b", "main-2": "c"}
        for name, server in names.items():
            _make_longer(deployment, name, server)
        control: list[int] = []
        moving: list[int] = []
        took: list[float] = []
        for turn in range(turns):
            time.sleep(2.0)
            since = now_us()
            subprocess.run([sys.executable, "-c", _SESSION], check=True, capture_output=True)
            time.sleep(1.0)
            control.append(longest_gap_us(watch.came, since, now_us()))
            leaving = sorted(names)[turn % 2]
            place = next(each for each in APART_MS if each not in names.values())
            time.sleep(2.0)
            since = now_us()
            added = _move(cluster, path, leaving, place)
            took.append((now_us() - since) / 1e6)
            time.sleep(1.0)
            moving.append(longest_gap_us(watch.came, since, now_us()))
            del names[leaving]
            names[added] = place
        watch.close()
        return {
            "moves_gap_over_control": round(
                statistics.median(moving) / statistics.median(control), 3
            ),
            "moves": {
                "servers": len(SERVERS),
                "gap_ms": [round(each / 1e3) for each in moving],
                "control_gap_ms": [round(each / 1e3) for each in control],
                "took_s": [round(each, 1) for each in took],
                "lost_or_doubled": watch.wrong,
            },
        }


def _move(cluster: Cluster, path: Path, replica: str, place: str) -> str:
    """A replica moves, and the other is gone; its name."""
    here = cluster.placed
    asked = {"name": "moving", "replica": replica, "server": place}
    added = str(cluster.ask("cluster-move", **asked)["replica"])
    _until(lambda: place in cluster.placed, f"{added} in the register")
    # Where it listens, for the reader, which is a program outside of the cluster.
    found = Submission(**cluster.ask("cluster-submission", name="moving")["submission"])
    found.write(path.parent, SecuritySpec(cluster.token).table())
    _make_longer(load_deployment(path), added, place)
    _until(lambda: len(cluster.placed) == len(here), f"{replica} to go")
    return added
