"""Shards whose processes are killed: the ring does their work, and nobody finds a trace."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.networks import load_network
from holdfast.cluster.rescaling import rescale
from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment, load_deployment
from holdfast.testing.deployed import (
    Killer,
    Load,
    expected_file,
    expected_files,
    supervised,
    wait_for_lines,
)
from holdfast.testing.undisturbed import logged_tuples
from tests.processes.copies import NETWORK

# So many tuples are in what a Load sends at once.
_BATCH = 40


def _running(deployment: Deployment) -> set[str]:
    """The copies of shards that run, as they say themselves."""
    names = [name for name in deployment.endpoints if name.startswith("main.")]
    told = node_status(deployment, names)
    return {name for name, status in told.items() if status.get("awake")}


def _await(holds: Callable[[], bool], seconds: float, story: Callable[[], object]) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, story()
        time.sleep(0.05)


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("ring", "lost", "heirs"),
    [
        # Each part of a lost shard goes on at another survivor.
        ('heirs = "spread"', ["main.1"], [{"main.1.1-2", "main.1.2-2"}]),
        # Of three shards two are lost at once, and the third does the work of all.
        ("copies = 2", ["main.1", "main.2"], [{"main.1-3", "main.2-2"}]),
        # Either of those that hold its state, by what they had to do.
        ('copies = 2\nheirs = "least-loaded"', ["main.1"], [{"main.1-2"}, {"main.1-3"}]),
    ],
)
def test_processes_of_a_ring_are_killed_and_their_heirs_do_the_work(
    tmp_path: Path, spark: SparkSession, ring: str, lost: list[str], heirs: list[set[str]]
) -> None:
    (tmp_path / "network.py").write_text(NETWORK.partition("best = ")[0] + 'sums.output("sums")')
    shards = f'shards = 3\nprotection = "hybrid"\n{ring}'
    (tmp_path / "deployment.toml").write_text(KILLED.replace("shards = 2", shards))
    deployment = load_deployment(tmp_path / "deployment.toml")
    found = deployment.data / "sums.jsonl"
    homes = {name for name in deployment.endpoints if name.startswith("main.") and name[-1] == "1"}
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", _readings)

        def story() -> object:
            return node_status(deployment, list(deployment.endpoints))

        def settled() -> bool:
            return _running(deployment) == homes

        wait_for_lines(supervisor, found, 100, 120.0)
        _await(settled, 120.0, story)
        for name in lost:
            assert supervisor.kill(name)
        # Before whoever was lost is back.
        _await(lambda: any(some <= _running(deployment) for some in heirs), 30.0, story)
        _await(settled, 120.0, story)
        kills = {"main.1": 1, "main.2": 1, "main.3": 1, "main-1": 2}
        Killer(supervisor, seed=5).kill(kills, (0.2, 1.5))
        sent = load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "sums")
        wait_for_lines(supervisor, found, expected.count("\n"), 240.0)
    _check_entry(deployment, sent)
    assert found.read_text() == expected


KILLED = """
network = "network.py"
[timing]
delay = "3 seconds"
[sources.load]
keep = true
[fragments.main]
shards = 2
[clients.recorder]
output = "sums"
sink = "jsonl:data/sums.jsonl"
"""


def _check_entry(deployment: Deployment, sent: int) -> None:
    """What is expected is computed from the entry point's log, which has to have all that was sent,
    once and in its order, though it was killed as well."""
    log = deployment.data / "processes" / "entry-load" / "streams" / "load"
    logged = logged_tuples(log).select(["k", "v"]).combine_chunks()
    made = pa.concat_tables([_readings(first, _BATCH) for first in range(0, sent, _BATCH)])
    assert logged.equals(made.combine_chunks())


def _readings(first: int, count: int) -> pa.Table:
    random = np.random.default_rng(first)
    return pa.table({"k": random.integers(0, 50, count), "v": random.random(count)})


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protection", ["none", "active", "race"])
def test_kills_of_shards_and_of_what_merges_them_leave_no_trace(
    tmp_path: Path, spark: SparkSession, protection: str
) -> None:
    (tmp_path / "network.py").write_text(NETWORK.partition("best = ")[0] + 'sums.output("sums")')
    shards = f'shards = 2\nprotection = "{protection}"'
    (tmp_path / "deployment.toml").write_text(KILLED.replace("shards = 2", shards))
    deployment = load_deployment(tmp_path / "deployment.toml")
    kills = {"main.1-1": 2, "main.2-1": 2, "main-1": 4, "entry-load": 2, "recorder": 2}
    if protection != "none":
        # Both replicas of a shard, and of what merges, at any moment, also at the same one.
        kills |= {"main.1-2": 2, "main-2": 2}
    found = deployment.data / "sums.jsonl"
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", _readings)
        wait_for_lines(supervisor, found, 100, 120.0)
        Killer(supervisor, seed=3).kill(kills, (0.2, 1.5))
        sent = load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "sums")
        wait_for_lines(supervisor, found, expected.count("\n"), 240.0)
    _check_entry(deployment, sent)
    assert found.read_text() == expected
    assert expected.count("\n") > 200


@pytest.mark.thorough
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("", "main.1-1", {"main.g2.3-1", "main-2"}),
        ('protection = "hybrid"', "main.1", {"main.g2.3", "main-3", "main-4"}),
        (
            'protection = "hybrid"\nheirs = "spread"',
            "main.1",
            {"main.g2.3", "main-3", "main-4"},
        ),
        ('checkpoint = "continuous"', "main.1-1", {"main.g2.3-1", "main-2"}),
        (
            'checkpoint = "continuous"\nprotection = "passive"',
            "main.1",
            {"main.g2.3", "main-3", "main-4"},
        ),
        ('delivery = "at-least-once"', "main.1-1", {"main.g2.3-1", "main-2"}),
    ],
    ids=["none", "hybrid", "spread", "continuous", "continuous passive", "at least once"],
)
def test_shards_are_rescaled_while_processes_are_killed(
    tmp_path: Path, spark: SparkSession, kind: str, old: str, new: set[str]
) -> None:
    (tmp_path / "network.py").write_text(NETWORK.partition("best = ")[0] + 'sums.output("sums")')
    told = KILLED.replace("shards = 2", f"shards = 2\n{kind}")
    (tmp_path / "deployment.toml").write_text(told)
    deployment = load_deployment(tmp_path / "deployment.toml")
    found = deployment.data / "sums.jsonl"
    with supervised(deployment) as supervisor, ThreadPoolExecutor(1) as pool:
        load = Load(deployment, "load", _readings)
        # A passive copy that stands in before the first job starts Spark once more in its process.
        wait_for_lines(supervisor, found, 100, 180.0, stalled_s=180.0)
        under_way = pool.submit(rescale, deployment.path, "main", 3, wait_s=240.0)
        Killer(supervisor, seed=4).kill({old: 1, "main-1": 1, "entry-load": 1}, (0.2, 1.5))
        assert under_way.result(300.0).shards == 3
        assert set(supervisor.deployment.processes) >= new
        sent = load.stop()
        network = load_network(deployment.network, "local[2]", {})
        expected = expected_file(network, deployment, "sums")
        wait_for_lines(supervisor, found, expected.count("\n"), 240.0)
    _check_entry(deployment, sent)
    assert found.read_text() == expected


BESIDE = """
[fragments.more]
shards = 2
colocate = "pool"
[clients.other]
output = "also"
sink = "jsonl:data/also.jsonl"
"""


@pytest.mark.thorough
@pytest.mark.timeout(900)
def test_shards_at_most_once_leave_processes_that_go_on_with_others_work(
    tmp_path: Path, spark: SparkSession
) -> None:
    network = NETWORK.partition("best = ")[0] + 'sums.output("sums")\n'
    network += 'load.fragment("more").groupBy(window("1 second"), "k").count().output("also")'
    (tmp_path / "network.py").write_text(network)
    told = KILLED.replace("shards = 2", 'shards = 2\ncolocate = "pool"\ndelivery = "at-most-once"')
    (tmp_path / "deployment.toml").write_text(told + BESIDE)
    deployment = load_deployment(tmp_path / "deployment.toml")
    sums, also = deployment.data / "sums.jsonl", deployment.data / "also.jsonl"
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", _readings)
        wait_for_lines(supervisor, sums, 100, 120.0)
        pids = [supervisor.pid(name) for name in ("pool.1", "pool.2")]
        assert rescale(deployment.path, "main", 3, wait_s=240.0).shards == 3
        had = sums.read_text().count("\n")
        wait_for_lines(supervisor, sums, had + 200, 120.0)
        load.stop()
        made = load_network(deployment.network, "local[2]", {})
        expected = expected_files(made, deployment, ["sums", "also"])
        wait_for_lines(supervisor, also, expected["also"].count("\n"), 240.0)
        assert supervisor.deployment.processes["pool.1"] == ("more.1-1",)
        assert [supervisor.pid(name) for name in ("pool.1", "pool.2")] == pids
    assert also.read_text() == expected["also"]
    found = [json.loads(line) for line in sums.read_text().splitlines()]
    expected_rows = [json.loads(line) for line in expected["sums"].splitlines()]
    whole = {(one["stime"], one["k"]): one["c"] for one in expected_rows}
    windows = [(one["stime"], one["k"]) for one in found]
    # Each window once, in order, with no more tuples than there were.
    assert len(windows) == len(set(windows))
    assert [stime for stime, _ in windows] == sorted(stime for stime, _ in windows)
    assert all(one["c"] <= whole[one["stime"], one["k"]] for one in found)
