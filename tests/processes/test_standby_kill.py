"""Copies that stand by as processes: paused again and again, killed, both of them killed."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.deployment import Deployment, load_deployment
from holdfast.runtime.networks import load_network
from holdfast.runtime.supervisor import Supervisor, node_status
from holdfast.testing.deployed import Killer, Load, expected_file, supervised, wait_for_lines
from tests.processes.test_kill import EXAMPLE, readings

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


def wait_until_awake(deployment: Deployment, nodes: list[str]) -> None:
    deadline = time.monotonic() + 30.0
    status: dict[str, dict[str, Any]] = {}
    while not status or not all(each.get("awake") for each in status.values()):
        assert time.monotonic() < deadline, status
        status = node_status(deployment, nodes)


@pytest.mark.timeout(300)
def test_pauses_and_kills_of_copies_leave_no_trace(tmp_path: Path, spark: SparkSession) -> None:
    shutil.copy(EXAMPLE / "network.py", tmp_path / "network.py")
    (tmp_path / "deployment.toml").write_text('network = "network.py"\n' + STANDBY)
    deployment = load_deployment(tmp_path / "deployment.toml")
    found = deployment.data / "busy.jsonl"
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", readings, 500)
        wait_for_more(supervisor, found)
        # Overloaded again and again: the other copies wake and go back to sleep.
        Killer(supervisor, seed=3).pause({"left": 2, "right": 1}, (0.3, 0.6), (0.3, 1.0))
        wait_for_more(supervisor, found)
        supervisor.kill("left")
        wait_for_more(supervisor, found)
        wait_until_awake(deployment, ["main-2", "summary-2"])
        # The one that took over, whether the other is back or not.
        supervisor.kill("right")
        wait_for_more(supervisor, found)
        load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "busy")
        wait_for_lines(supervisor, found, expected.count("\n"), 90.0)
        time.sleep(0.5)
    assert found.read_text() == expected
