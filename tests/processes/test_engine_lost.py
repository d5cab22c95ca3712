"""Only the JVM of a hybrid primary stops, then dies: its process answers as if nothing were wrong.

The copy wakes, results go on, and a process without a JVM ends with the reason and comes back.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

from holdfast.cluster.children import log_path
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import load_deployment
from holdfast.testing.deployed import Load, supervised

NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("lost", bucket="200 ms", partitions=1)
load = network.source("load", "n bigint")
load.groupBy(window("400 ms")).agg(F.count("*").alias("n")).output("counts")
"""
DEPLOYMENT = """
network = "network.py"
[timing]
delay = "2 seconds"
[spark]
master = "local[1]"
[sources.load]
[fragments.main]
protection = "hybrid"
[clients.reader]
output = "counts"
sink = "jsonl:data/counts.jsonl"
"""
SECONDS = 120.0


class Watched:
    """A running deployment, and what its client has."""

    def __init__(self, supervisor: Supervisor) -> None:
        self.supervisor = supervisor
        self._file = supervisor.deployment.data / "counts.jsonl"

    def status(self, node: str) -> dict[str, Any]:
        return node_status(self.supervisor.deployment, [node])[node]

    def wait(self, until: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + SECONDS
        while not until():
            nodes = [self.status(name) for name in ("main-1", "main-2")]
            assert time.monotonic() < deadline, f"{what}: {nodes}"
            time.sleep(0.1)

    def results_go_on(self, during: str) -> None:
        had = self._lines()
        self.wait(lambda: self._lines() >= had + 3, f"no results {during}")

    def _lines(self) -> int:
        return self._file.read_bytes().count(b"\n") if self._file.exists() else 0

    def jvm(self, process: str) -> psutil.Process:
        pid = self.supervisor.pid(process)
        assert pid is not None
        (found,) = [each for each in psutil.Process(pid).children() if each.name() == "java"]
        return found

    def primary(self) -> str:
        """Who runs, once the other sleeps."""
        found: list[str] = []

        def is_settled() -> bool:
            copies = {name: self.status(name).get("copy") for name in ("main-1", "main-2")}
            found[:] = [name for name, copy in copies.items() if copy == "primary"]
            return sorted(map(str, copies.values())) == ["primary", "suspended"]

        self.wait(is_settled, "no primary and no copy that sleeps")
        return found[0]


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    deployment = load_deployment(tmp_path / "deployment.toml")
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", lambda first, count: pa.table({"n": range(count)}), 200)
        yield Watched(supervisor)
        load.stop()


@pytest.mark.long
@pytest.mark.thorough
@pytest.mark.timeout(500)
def test_results_go_on_when_only_the_jvm_stops_or_dies(watched: Watched) -> None:
    watched.results_go_on("at the start")
    first = watched.primary()
    other = "main-2" if first == "main-1" else "main-1"
    stopped = watched.jvm(first)
    stopped.send_signal(signal.SIGSTOP)
    watched.wait(lambda: bool(watched.status(other)["awake"]), f"{other} sleeps on")
    watched.results_go_on("while the JVM stands still")
    # It says so, in its log, unless the other is the primary for good by then: it sleeps then.
    log = log_path(watched.supervisor.deployment, first)
    watched.wait(
        lambda: (
            "is not done after" in log.read_text()
            or watched.status(first).get("copy") == "suspended"
        ),
        f"{first} neither says it nor sleeps",
    )
    # By now its process may have ended for it, and taken it along.
    with contextlib.suppress(psutil.NoSuchProcess):
        stopped.send_signal(signal.SIGCONT)

    primary = watched.primary()
    restarts = watched.supervisor.restarts(primary)
    os.kill(watched.jvm(primary).pid, signal.SIGKILL)
    watched.wait(lambda: watched.supervisor.restarts(primary) > restarts, "nothing restarts")
    assert "was killed by SIGKILL" in str(watched.supervisor._state(primary)["problem"])
    watched.results_go_on("after the JVM was killed")
    watched.primary()
