"""Copies that stand by as processes: overloaded, parted, killed asleep and awake, and both."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.chaos import heal, partition
from holdfast.cluster.networks import load_network
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import Deployment, load_deployment
from holdfast.testing.deployed import (
    ComingUp,
    Killer,
    Load,
    expected_file,
    supervised,
    wait_for_lines,
)
from tests.processes.test_kill import EXAMPLE, readings

Status = dict[str, Any]

STANDBY = """
[timing]
delay = "3 seconds"
heartbeat = "100 ms"
[sources.load]
keep = true
[fragments.main]
protection = "hybrid"
colocate = ["left", "right"]
[fragments.summary]
protection = "hybrid"
colocate = ["left", "right"]
[fragments.busy]
protection = "passive"
colocate = ["left", "right"]
[clients.recorder]
output = "busy"
sink = "jsonl:data/busy.jsonl"
"""


def wait_for_more(supervisor: Supervisor, path: Path) -> None:
    """Until the client has written new results."""
    have = path.read_bytes().count(b"\n") if path.exists() else 0
    wait_for_lines(supervisor, path, have + 8, 90.0)


def wait_until(deployment: Deployment, nodes: list[str], holds: Callable[[Status], bool]) -> None:
    """Until this holds for all of them; a minute counts from when one was last seen to come up."""
    deadline = time.monotonic() + 60.0
    coming = ComingUp()
    status: dict[str, Status] = {}
    while not status or not all(holds(each) for each in status.values()):
        assert time.monotonic() < deadline, status
        time.sleep(0.05)
        status = node_status(deployment, nodes)
        if coming.news(status):
            deadline = time.monotonic() + 60.0


def is_awake(status: Status) -> bool:
    return bool(status.get("awake"))


def stands_by(status: Status) -> bool:
    """Asleep, or running if the copies have changed places, and not behind."""
    recent = int(status.get("boundary", 0)) / 1e6 > time.time() - 3.0
    return status.get("state") in ("suspended", "stable") and recent


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_failures_of_copies_leave_no_trace(tmp_path: Path, spark: SparkSession) -> None:
    shutil.copy(EXAMPLE / "network.py", tmp_path / "network.py")
    (tmp_path / "deployment.toml").write_text('network = "network.py"\nchaos = true\n' + STANDBY)
    deployment = load_deployment(tmp_path / "deployment.toml")
    found = deployment.data / "busy.jsonl"
    left, right = (deployment.processes[name] for name in ("left", "right"))
    hybrid = ["main-2", "summary-2"]
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", readings, 500)
        wait_for_more(supervisor, found)
        # The secondaries die asleep, and their primaries are overloaded again and again.
        supervisor.kill("right")
        Killer(supervisor, seed=3).pause({"left": 3}, (0.3, 0.6), (0.3, 1.0))
        wait_for_more(supervisor, found)
        wait_until(deployment, list(right), stands_by)
        # A false alarm: all are well, and do not hear each other.
        partition(deployment, left, right)
        wait_until(deployment, hybrid, is_awake)
        heal(deployment)
        # The secondaries die while they run: their primaries stand still.
        supervisor.signal("left", signal.SIGSTOP)
        wait_until(deployment, hybrid, is_awake)
        supervisor.kill("right")
        supervisor.signal("left", signal.SIGCONT)
        wait_for_more(supervisor, found)
        wait_until(deployment, list(right), stands_by)
        # The primaries of fragments in a row die, then those that took over, whether the others
        # are back or not: what counts is on disk.
        supervisor.kill("left")
        wait_for_more(supervisor, found)
        wait_until(deployment, hybrid, is_awake)
        supervisor.kill("right")
        wait_for_more(supervisor, found)
        load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "busy")
        wait_for_lines(supervisor, found, expected.count("\n"), 90.0)
        time.sleep(0.5)
    assert found.read_text() == expected
