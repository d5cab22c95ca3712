"""What is worth least of a submission goes, on real servers; the results are the same."""

from __future__ import annotations

from pathlib import Path

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
from tests.processes.test_submitted import DEPLOYMENT, NETWORK, placed

COLLECTED = """
[collection]
network_cost = 0
every = "2 seconds"
"""


@pytest.mark.thorough
def test_useless_replicas_go_and_one_is_added_again(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["a", "b", "c"]
    with running(tmp_path, names) as cluster:
        path = tmp_path / "deployment.toml"
        (tmp_path / "network.py").write_text(NETWORK)
        text = DEPLOYMENT.replace("replicas = 2", "replicas = 3").replace("active", "race")
        path.write_text(text + COLLECTED)
        deployment = load_deployment(path)
        network = load_network(deployment.network, "local[2]", {})
        write_plan(deployment, plan_of(network))
        cluster.wait(lambda: cluster.coordinator(*names), "a coordinator")
        cluster.wait(cluster.is_taken_in, "who is who")
        _, places = submit(path, cluster.addresses["b"], lambda text: None)
        assert sorted(places["main"]) == names

        recorded = cluster.data("a") / "placed" / "sums.jsonl"
        _grows(cluster, recorded)
        cluster.wait(lambda: len(placed(cluster, "a")) == 1, "two replicas are collected", 300)
        _grows(cluster, recorded)
        (left,) = placed(cluster, "a")
        other = next(name for name in names if name != left)
        assert main(["placement", "explain", str(path), "--to", cluster.addresses["c"]]) == 0
        assert f"main at {left}: its streams cost" in capsys.readouterr().out
        asked = ["replicas", "add", str(path), "main", "--to", cluster.addresses["a"]]
        assert main([*asked, "--at", other]) == 0
        # It joins, is watched, and is collected again or stays: there is always one.
        cluster.wait(lambda: len(placed(cluster, "a")) == 1, "it is collected again", 300)
        _grows(cluster, recorded)
        assert main(["withdraw", str(path), "--to", cluster.addresses["a"]]) == 0
        stopped = cluster.data("a") / "placed" / "hosted.json"
        cluster.wait(lambda: not stopped.exists(), "it is stopped", 120)
    expected = expected_file(network, load_deployment(recorded.parent / "deployment.json"), "sums")
    assert expected.startswith(recorded.read_text())


def _grows(cluster: TestCluster, recorded: Path) -> None:
    before = recorded.stat().st_size if recorded.exists() else 0
    cluster.wait(lambda: recorded.exists() and recorded.stat().st_size > before, "results", 240)
