"""A function of the query raises on a row: it is said where, and what is advised works."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import load_deployment
from holdfast.producer import Producer
from holdfast.testing.deployed import supervised

NETWORK = """
from holdfast import Network

def doubled(key, rows, state):
    for value in rows["n"].to_pylist():
        if value < 0:
            raise ValueError(f"{value} is negative")
    return rows.select(["stime", "n"]), state

network = Network("raising", bucket="200 ms", partitions=1)
load = network.source("load", "k bigint, n bigint")
load.groupBy("k").process(doubled, "n bigint", "struct<n bigint>").output("out")
"""
DEPLOYMENT = """
network = "network.py"
[timing]
delay = "2 seconds"
[spark]
master = "local[1]"
[sources.load]
[fragments.main]
replicas = 2
on_error = "{on_error}"
[clients.reader]
output = "out"
sink = "jsonl:data/out.jsonl"
"""
NODES = ("main-1", "main-2")
SECONDS = 120.0


def wait(until: Callable[[], object], what: Callable[[], str]) -> None:
    deadline = time.monotonic() + SECONDS
    while not until():
        assert time.monotonic() < deadline, what()
        time.sleep(0.1)


def problems(supervisor: Supervisor) -> list[str]:
    found = node_status(supervisor.deployment, list(NODES))
    return [json.dumps(found[node]) for node in NODES]


def lines(path: Path) -> list[dict[str, Any]]:
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.thorough
@pytest.mark.timeout(500)
def test_a_row_that_stops_a_fragment_is_named_and_left_out_when_told(tmp_path: Path) -> None:
    (tmp_path / "network.py").write_text(NETWORK)
    path = tmp_path / "deployment.toml"
    path.write_text(DEPLOYMENT.format(on_error="stop"))
    with supervised(load_deployment(path)) as supervisor:
        producer = Producer.of(path, "load", name="test")
        producer.send(pa.table({"k": [1, 1, 2], "n": [1, -2, 3]}))
        producer.close(60.0)
        wait(
            lambda: all("-2 is negative" in each for each in problems(supervisor)),
            lambda: f"the row is not named: {problems(supervisor)}",
        )
        for each in problems(supervisor):
            assert "fragment main" in each
            assert 'set on_error = \\"dead-letter\\"' in each
    path.write_text(DEPLOYMENT.format(on_error="dead-letter"))
    data = tmp_path / "data"
    with supervised(load_deployment(path)) as supervisor:
        wait(
            lambda: sorted(line["n"] for line in lines(data / "out.jsonl")) == [1, 3],
            lambda: f"{lines(data / 'out.jsonl')}: {problems(supervisor)}",
        )
        for node in NODES:
            letters = data / "processes" / node / "dead-letters.jsonl"
            wait(partial(lines, letters), lambda: f"a replica left nothing: {problems(supervisor)}")
            assert "-2 is negative" in lines(letters)[0]["reason"]
