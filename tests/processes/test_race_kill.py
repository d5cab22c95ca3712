"""Exactly once through three racing fragments, with kill -9 of anything at random moments.

One of them has no state, one its windows in its log, one the whole beside it. A client writes what
comes in order; another takes it without an order, all the while.
"""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.client import Boundary, Client, Tuples, Undo, Unordered
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.deployment import load_deployment
from holdfast.plans.topology import Topology
from holdfast.testing.deployed import Killer, Load, expected_files, supervised, wait_for_lines
from holdfast.testing.undisturbed import logged_tuples, undisturbed
from tests.processes.test_kill import WINDOWS, readings

OUTPUTS = ("found", "totals")
RACE = 'protection = "race"\ncolocate = ["east", "west"]'
KILLS = {"east": 2, "west": 2, "entry-load": 2, "recorder": 1}


class Watcher:
    """A client without an order, read by a thread of its own."""

    def __init__(self, deployment: Path) -> None:
        self._client = Client.of(deployment, "found", name="watcher", ordered=False)
        self.tables: list[pa.Table] = []
        self.boundary = 0
        self.wrong: list[object] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            event = self._client.read(0.05)
            match event:
                case Unordered(table):
                    self.tables.append(table)
                case Boundary(stime):
                    self.boundary = stime
                case Tuples() | Undo():
                    self.wrong.append(event)

    def wait_for(self, stime: int, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while self.boundary <= stime:
            assert time.monotonic() < deadline, f"it is at {self.boundary}, not at {stime}"
            time.sleep(0.1)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(30.0)
        self._client.close()


def in_columns(table: pa.Table) -> pa.Table:
    """The same tuples, sorted by all their columns; times as numbers, which can be sorted by."""
    keys = [(name, "ascending") for name in table.column_names]
    return table.sort_by(keys).combine_chunks()


@pytest.mark.long
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_kills_of_racing_replicas_leave_no_trace(tmp_path: Path, spark: SparkSession) -> None:
    shutil.copy(WINDOWS / "network.py", tmp_path / "network.py")
    text = (WINDOWS / "deployment.toml").read_text()
    text = text.replace("[sources.load]", "[sources.load]\nkeep = true")
    text = text.replace('colocate = "worker"', RACE)
    text += '\n[clients.watcher]\noutput = "found"\n'
    (tmp_path / "deployment.toml").write_text(text)
    deployment = load_deployment(tmp_path / "deployment.toml")
    log = deployment.data / "processes" / "entry-load" / "streams" / "load"
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", readings)
        watcher = Watcher(deployment.path)
        try:
            time.sleep(2.0)
            Killer(supervisor, seed=17).kill(KILLS, (0.05, 1.5))
            sent = load.stop()
            network = load_network(deployment.network, "local[2]", {})
            early = Topology(deployment, plan_of(network)).early
            assert "found" in early, "pairs come early, or nothing is shown"
            expected = expected_files(network, deployment, OUTPUTS)
            found = {name: deployment.data / f"{name}.jsonl" for name in OUTPUTS}
            for name in OUTPUTS:
                wait_for_lines(supervisor, found[name], expected[name].count("\n"), 120.0)
            tuples = logged_tuples(log)
            watcher.wait_for(tuples["stime"][-1].value, 120.0)
        finally:
            watcher.close()
    for name in OUTPUTS:
        assert found[name].read_text() == expected[name], name
    assert not watcher.wrong
    whole = undisturbed(network, {"load": tuples}, watcher.boundary)["found"]
    assert in_columns(pa.concat_tables(watcher.tables)).equals(in_columns(whole))
    assert tuples["number"].to_pylist() == list(range(sent))
    for process, times in KILLS.items():
        assert supervisor.restarts(process) >= times
