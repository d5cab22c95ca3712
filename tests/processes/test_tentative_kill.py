"""Sinks that take tentative results, whose processes are killed while such stand: each stable row
is there once, and in the end nothing else stands."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.chaos import cut, heal
from holdfast.cluster.networks import load_network
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import load_deployment
from holdfast.testing.deployed import Load, supervised
from holdfast.testing.undisturbed import logged_tuples, undisturbed

NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("told", bucket="200 ms")
left = network.source("left", "number bigint, v double")
right = network.source("right", "number bigint, v double")
sums = left.union(right).groupBy(window("1 second")).agg(
    F.count("*").alias("tuples"), F.sum("v").alias("total")
)
sums.select("tuples", "total").output("sums")
"""
SINKS = {
    "lines": "jsonl:data/sums.jsonl",
    "parts": "parquet:data/sums",
    "table": "sqlite:data/s.db",
}
DEPLOYMENT = """
network = "network.py"
chaos = true
[timing]
delay = "2 seconds"
heartbeat = "100 ms"
[sources.left]
keep = true
[sources.right]
keep = true
[fragments.main]
""" + "".join(
    f'[clients.{name}]\noutput = "sums"\nsink = "{sink},tentative=true"\n'
    for name, sink in SINKS.items()
)
Rows = list[dict[str, Any]]


def readings(first: int, count: int) -> pa.Table:
    values = np.random.default_rng(first).random(count)
    return pa.table({"number": np.arange(first, first + count), "v": values})


def lines(data: Path) -> Rows:
    path = data / "sums.jsonl"
    whole = path.read_text().rpartition("\n")[0] if path.exists() else ""
    return [json.loads(line) for line in whole.splitlines()]


def parts(data: Path) -> Rows:
    found: Rows = []
    for path in sorted((data / "sums").glob("part-*.parquet")):
        found += pq.read_table(path).to_pylist()
    return found


def table(data: Path) -> Rows:
    if not (data / "s.db").exists():
        return []
    connection = sqlite3.connect(data / "s.db", timeout=20.0)
    try:
        connection.row_factory = sqlite3.Row
        found = connection.execute("SELECT * FROM sums ORDER BY seq").fetchall()
    except sqlite3.OperationalError:
        return []  # its table is not made yet
    finally:
        connection.close()
    return [{**row, "change": "stable" if row["is_stable"] else "tentative"} for row in found]


READ: dict[str, Callable[[Path], Rows]] = {"lines": lines, "parts": parts, "table": table}


def standing(rows: Rows) -> list[str]:
    """The changes that stand when all are obeyed."""
    found: Rows = []
    for row in rows:
        if row["change"] == "undo":
            found = [
                one for one in found if one["change"] == "stable" or one["stime"] >= row["stime"]
            ]
        else:
            found.append(row)
    return [row["change"] for row in found]


def wait(until: Callable[[], bool], what: str, seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not until():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def kill_all(supervisor: Supervisor) -> None:
    before = {name: supervisor.restarts(name) for name in SINKS}
    for name in SINKS:
        supervisor.kill(name)
    wait(lambda: all(supervisor.restarts(name) > before[name] for name in SINKS), "restarts")


@pytest.mark.long
@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_sinks_that_are_killed_while_results_are_tentative(
    tmp_path: Path, spark: SparkSession
) -> None:
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    deployment = load_deployment(tmp_path / "deployment.toml")
    data = deployment.data

    def changes(name: str, change: str) -> int:
        return sum(row["change"] == change for row in READ[name](data))

    def has(change: str, more: int) -> Callable[[], bool]:
        had = {name: changes(name, change) for name in SINKS}
        return lambda: all(changes(name, change) >= had[name] + more for name in SINKS)

    with supervised(deployment) as supervisor:
        loads = [Load(deployment, name, readings) for name in ("left", "right")]
        wait(has("stable", 2), "stable results")
        cut(deployment, "main-1", "entry-right")
        wait(has("tentative", 2), "tentative results")
        kill_all(supervisor)
        # Those who are back are told what stands; and are killed again while it is corrected.
        wait(
            lambda: all("tentative" in standing(READ[name](data)) for name in SINKS), "what stands"
        )
        heal(deployment)
        kill_all(supervisor)
        wait(has("stable", 3), "corrections")
        for load in loads:
            load.stop()
        network = load_network(deployment.network, "local[2]", {})
        logs = {
            name: logged_tuples(data / "processes" / f"entry-{name}" / "streams" / name)
            for name in ("left", "right")
        }
        ends = [max(each["stime"].cast(pa.int64()).to_pylist()) for each in logs.values()]
        expected = undisturbed(network, logs, max(ends) + 1)["sums"]
        wait(
            lambda: all(changes(name, "stable") >= expected.num_rows for name in SINKS),
            f"{expected.num_rows} stable results",
        )
    wanted = expected.select(["tuples", "total"]).to_pylist()
    for name, read in READ.items():
        rows = read(data)
        stable = [row for row in rows if row["change"] == "stable"][: len(wanted)]
        assert [row["seq"] for row in stable] == list(range(len(wanted))), name
        assert [{"tuples": row["tuples"], "total": row["total"]} for row in stable] == wanted, name
        ids = [row["seq"] for row in rows if row["change"] == "stable"]
        assert len(ids) == len(set(ids)), name
        assert set(standing(rows)) == {"stable"}, name
