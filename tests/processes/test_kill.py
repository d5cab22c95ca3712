"""Exactly once through three fragments, with kill -9 of anything at random moments.

One of them has windows of every kind and a join, and keeps their states in its log.
"""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.networks import load_network
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import load_deployment
from holdfast.testing.deployed import Killer, Load, expected_files, supervised, wait_for_lines
from holdfast.testing.undisturbed import logged_tuples

EXAMPLES = Path(__file__).parents[2] / "examples"
EXAMPLE = EXAMPLES / "deployment"
WINDOWS = EXAMPLES / "continuous"
KNOBS = 'extent = 40\ninterval = "5 ms"\nperiod = "20 ms"'
OUTPUTS = ("found", "totals")
# Beside two of the worker, the second while it recovers.
FEW, MANY = {"entry-load": 2, "recorder": 1}, {"entry-load": 9, "recorder": 9}


def readings(first: int, count: int) -> pa.Table:
    random = np.random.default_rng(first)
    return pa.table(
        {
            "number": np.arange(first, first + count),
            "server": random.integers(0, 4, count),
            "cpu": random.random(count) - 0.05,
        }
    )


def kill_while_recovering(supervisor: Supervisor, node: str, process: str) -> None:
    """Kill a process, and again as soon as it has read its log and computes what came since."""
    assert supervisor.kill(process)
    deadline = time.monotonic() + 180.0
    while node_status(supervisor.deployment, [node])[node].get("state") != "recovering":
        assert time.monotonic() < deadline, f"{node} does not come back"
        time.sleep(0.02)
    assert supervisor.kill(process)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "kills", [FEW, pytest.param(MANY, marks=pytest.mark.thorough)], ids=["five", "twenty"]
)
def test_kills_leave_no_trace(tmp_path: Path, spark: SparkSession, kills: dict[str, int]) -> None:
    shutil.copy(WINDOWS / "network.py", tmp_path / "network.py")
    # One fragment has no state, one its windows in its log, one the whole beside it. The oracle
    # needs every tuple.
    text = (WINDOWS / "deployment.toml").read_text()
    text = text.replace("[sources.load]", "[sources.load]\nkeep = true")
    text = text.replace('recover_within = "2 seconds"', KNOBS)
    (tmp_path / "deployment.toml").write_text(text)
    deployment = load_deployment(tmp_path / "deployment.toml")
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", readings)
        time.sleep(2.0)
        Killer(supervisor, seed=20).kill(kills, (0.05, 1.2))
        kill_while_recovering(supervisor, "windows-1", "worker")
        sent = load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_files(network, deployment, OUTPUTS)
        found = {name: deployment.data / f"{name}.jsonl" for name in OUTPUTS}
        for name in OUTPUTS:
            wait_for_lines(supervisor, found[name], expected[name].count("\n"), 120.0)
        time.sleep(1.0)
    for name in OUTPUTS:
        assert found[name].read_text() == expected[name], name
    kinds = {json.loads(line)["kind"] for line in expected["found"].splitlines()}
    assert kinds == {"second", "dozen", "overlap", "burst", "drop", "pace"}
    # Every tuple is in the entry point's log once, in the order it was sent.
    log = deployment.data / "processes" / "entry-load" / "streams" / "load"
    assert logged_tuples(log)["number"].to_pylist() == list(range(sent))
    for process, times in {**kills, "worker": 2}.items():
        assert supervisor.restarts(process) >= times
