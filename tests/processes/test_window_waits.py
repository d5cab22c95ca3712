"""A window ends while an input is missing and nobody has another row: it is answered within X.

One row, one window, real processes: no job that a tuple causes comes to its help.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.cluster import chaos
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.deployment import load_deployment
from holdfast.plans.plan import write_plan
from holdfast.producer import Producer
from holdfast.testing.deployed import supervised
from tests.processes.promises import Reader

NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("waits", bucket="200 ms")
a, b = (network.source(name, "k bigint") for name in ("a", "b"))
a.union(b).groupBy(window("8 seconds"), "k").agg(F.count("*").alias("n")).output("counts")
"""
DEPLOYMENT = """
network = "network.py"
chaos = true
[timing]
delay = "1500 ms"
heartbeat = "100 ms"
[fragments.main]
[sources.a]
[sources.b]
[clients.reader]
output = "counts"
"""
WINDOW_US = 8_000_000
pytestmark = pytest.mark.timeout(300)


def _until(what: str, condition: Callable[[], bool], timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.02)


def _stable_past(reader: Reader, stime: int) -> bool:
    return reader.view.stable_until > stime


def test_the_last_window_is_answered_without_another_row(tmp_path: Path, spark: object) -> None:
    (tmp_path / "network.py").write_text(NETWORK)
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    deployment = load_deployment(tmp_path / "deployment.toml")
    write_plan(deployment, plan_of(load_network(deployment.network, "local[2]", {})))
    path = deployment.path
    with (
        supervised(deployment),
        closing(Producer.of(path, "a", name="test")) as producer,
        closing(Reader(path, "counts")) as reader,
    ):
        _until("a boundary", lambda: reader.view.stable_until > 0)
        # On a busy machine a row may be stable only after its window's end: then the next one.
        for _ in range(10):
            producer.send(pa.table({"k": [7]}))
            sent = time.time_ns() // 1000
            end = sent - sent % WINDOW_US + WINDOW_US
            _until("the row's bucket", partial(_stable_past, reader, sent))
            if reader.view.stable_until < end - 1_000_000:
                break
        chaos.cut(deployment, "entry-b", "main-1")
        assert reader.view.stable_until < end, "the window had ended before b was missing"
        _until("a tentative result", lambda: reader.tentative > 0)
        assert reader.told_until == end - 1
        chaos.heal(deployment, "entry-b", "main-1")
        _until("the stable result", lambda: reader.view.stable_until > end)
        table = reader.stable(end)
        assert table["n"].to_pylist()[-1] >= 1
        assert not reader.broken, reader.broken
