"""A deployment is submitted to a cluster of real servers; servers with its replicas are lost."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from holdfast.cli import main
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.cluster.submitting import submit
from holdfast.deployment import load_deployment
from holdfast.plans.plan import write_plan
from holdfast.testing.deployed import expected_file
from tests.processes.clusters import TestCluster, running

NETWORK = """
from holdfast import Network, window
from pyspark.sql import functions as F

network = Network("placed", bucket="200 ms")
load = network.source("load", "value bigint")
load.groupBy(window("200 ms"), F.expr("value % 3").alias("k")).agg(
    F.sum("value").alias("total")
).output("sums")
"""
DEPLOYMENT = """
name = "placed"
network = "network.py"
[security]
token_file = "token"
[timing]
delay = "5 seconds"
[sources.load]
from = "rate:100"
listen = "a"
keep = true
[fragments.main]
replicas = 2
protection = "active"
[clients.recorder]
output = "sums"
sink = "jsonl:sums.jsonl"
listen = "a"
"""


def placed(cluster: TestCluster, asked: str) -> list[str]:
    found: dict[str, Any] = cluster.status(asked)["submissions"].get("placed", {})
    servers: list[str] = found.get("placed", {}).get("main", [])
    return servers


@pytest.mark.thorough
def test_a_submission_is_placed_and_outlives_a_server(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a", "b", "c"]
    with running(tmp_path, names, "--replace-after", "4 seconds") as cluster:
        path = tmp_path / "deployment.toml"
        (tmp_path / "network.py").write_text(NETWORK)
        path.write_text(DEPLOYMENT)
        deployment = load_deployment(path)
        network = load_network(deployment.network, "local[2]", {})
        write_plan(deployment, plan_of(network))
        cluster.wait(lambda: cluster.coordinator(*names), "a coordinator")
        cluster.wait(lambda: len(cluster.status("b")["servers"]) == 3, "all three")
        cluster.wait(cluster.is_taken_in, "who is who")
        submitted, places = submit(path, cluster.addresses["b"], lambda text: None)
        assert len(set(places["main"])) == 2

        recorded = cluster.data("a") / "placed" / "sums.jsonl"

        def grows() -> bool:
            before = recorded.read_bytes() if recorded.exists() else b""
            cluster.wait(
                lambda: recorded.exists() and recorded.stat().st_size > len(before), "results", 240
            )
            return True

        assert grows()
        # Again, it is known; another one under its name is refused.
        again = submit(path, cluster.addresses["c"], lambda text: None)
        assert again == (submitted, places)
        path.write_text(DEPLOYMENT.replace("5 seconds", "6 seconds"))
        with pytest.raises(Exception, match="is submitted already, and is another one"):
            submit(path, cluster.addresses["c"], lambda text: None)
        path.write_text(DEPLOYMENT)

        # A server with a replica is lost; the other replica's server has the source.
        lost = next(name for name in places["main"] if name != "a")
        cluster.kill(lost)
        left = [name for name in names if name != lost]
        there = [name for name in left if name != "a"]
        cluster.wait(
            lambda: lost not in placed(cluster, "a") and set(there) <= set(placed(cluster, "a")),
            "another replica has taken its place",
            240,
        )
        assert grows()
        capsys.readouterr()
        assert main(["placement", "explain", str(path), "--to", cluster.addresses["a"]]) == 0
        assert f"main at {there[0]}: its streams cost" in capsys.readouterr().out

        # It comes back, and runs nothing of it any more.
        cluster.start(lost)
        cluster.wait(lambda: cluster.coordinator(*names), "all obey one again")
        cluster.wait(
            lambda: not (cluster.data(lost) / "placed" / "hosted.json").exists(), "it was told", 120
        )
        assert grows()

        assert main(["withdraw", str(path), "--to", cluster.addresses[there[0]]]) == 0
        for name in left:
            cluster.wait(partial(_is_stopped, cluster, name), "it is stopped", 120)
    expected = expected_file(network, load_deployment(recorded.parent / "deployment.json"), "sums")
    assert expected.startswith(recorded.read_text())


def _is_stopped(cluster: TestCluster, name: str) -> bool:
    return not (cluster.data(name) / "placed" / "hosted.json").exists()
