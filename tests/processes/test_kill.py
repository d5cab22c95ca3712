"""Exactly once through three fragments, with kill -9 of anything at random moments."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.deployment import load_deployment
from holdfast.runtime.networks import load_network
from holdfast.testing.deployed import Killer, Load, expected_file, supervised, wait_for_lines
from holdfast.testing.undisturbed import logged_tuples

EXAMPLE = Path(__file__).parents[2] / "examples" / "deployment"
CONTINUOUS = 'checkpoint = "continuous"\nextent = 40\ninterval = "5 ms"\nperiod = "20 ms"'
KILLS = {"entry-load": 9, "recorder": 9, "worker": 2}


def readings(first: int, count: int) -> pa.Table:
    random = np.random.default_rng(first)
    return pa.table(
        {
            "number": np.arange(first, first + count),
            "server": random.integers(0, 4, count),
            "cpu": random.random(count) - 0.05,
        }
    )


@pytest.mark.long
@pytest.mark.timeout(300)
def test_twenty_kills_leave_no_trace(tmp_path: Path, spark: SparkSession) -> None:
    shutil.copy(EXAMPLE / "network.py", tmp_path / "network.py")
    # The oracle needs every tuple.
    text = (EXAMPLE / "deployment.toml").read_text()
    text = text.replace("[sources.load]", "[sources.load]\nkeep = true")
    # One fragment keeps no state, one its windows in its log, one the whole beside it.
    text = text.replace("[fragments.summary]", f"[fragments.summary]\n{CONTINUOUS}")
    (tmp_path / "deployment.toml").write_text(text)
    deployment = load_deployment(tmp_path / "deployment.toml")
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", readings)
        time.sleep(2.0)
        Killer(supervisor, seed=20).kill(KILLS, (0.05, 1.2))
        sent = load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "busy")
        found = deployment.data / "busy.jsonl"
        wait_for_lines(supervisor, found, expected.count("\n"), 120.0)
        time.sleep(1.0)
    assert found.read_text() == expected
    # Every tuple is in the entry point's log once, in the order it was sent.
    log = deployment.data / "processes" / "entry-load" / "streams" / "load"
    assert logged_tuples(log)["number"].to_pylist() == list(range(sent))
    for process, times in KILLS.items():
        assert supervisor.restarts(process) >= times
