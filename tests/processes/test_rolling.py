"""Every process of a deployment is restarted, one after the other, and nobody notices."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from holdfast.cli import main
from holdfast.cluster.desired import SUBMITTED
from holdfast.cluster.networks import load_network
from holdfast.deployment import load_deployment
from holdfast.testing.deployed import Load, expected_file, supervised, wait_for_lines
from tests.processes.planned import planned

NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("rolling", bucket="200 ms", partitions=1)
load = network.source("load", "n bigint")
counts = load.groupBy(window("400 ms")).agg(F.count("*").alias("c"), F.max("n").alias("n"))
counts.fragment("last").filter("c > 0").output("counts")
"""
DEPLOYMENT = """
network = "network.py"
[timing]
delay = "4 seconds"
[spark]
master = "local[1]"
[sources.load]
keep = true
[fragments.main]
replicas = 2
[fragments.last]
protection = "hybrid"
[clients.reader]
output = "counts"
sink = "jsonl:data/counts.jsonl"
"""


@pytest.mark.long
@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_rolling_restart_loses_and_doubles_nothing(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "network.py").write_text(NETWORK)
    path = tmp_path / "deployment.toml"
    path.write_text(DEPLOYMENT)
    deployment = load_deployment(path)
    file = deployment.data / "counts.jsonl"
    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", numbers, 200)
        wait_for_lines(supervisor, file, 5, 120.0)
        before = {name: supervisor.pid(name) for name in deployment.processes}
        assert main(["restart", str(path), "--rolling", "--seconds", "120"]) == 0
        assert all(supervisor.pid(name) not in (None, pid) for name, pid in before.items())
        assert all(supervisor.restarts(name) == 1 for name in before)
        load.stop()
        expected = expected_file(
            load_network(deployment.network, "local[2]", {}), deployment, "counts"
        )
        wait_for_lines(supervisor, file, expected.count("\n"), 120.0)
    assert file.read_text() == expected
    assert f"{len(before)} of {len(before)}" in capsys.readouterr().out


def numbers(first: int, count: int) -> pa.Table:
    return pa.table({"n": range(first, first + count)})


def test_what_cannot_be_restarted_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment = planned(tmp_path, DEPLOYMENT.partition("[fragments.last]")[0])
    path = str(deployment.path)
    assert main(["restart", path, "nobody", "--rolling"]) == 1
    assert (
        "there is no process 'nobody'; there are ['entry-load', 'main-1'" in capsys.readouterr().err
    )
    assert main(["restart", path, "--rolling"]) == 1
    assert "was never started here" in capsys.readouterr().err
    deployment.network.write_text("# another network\n")
    assert main(["restart", path, "--rolling"]) == 1
    assert "has changed since" in capsys.readouterr().err


def test_of_what_a_cluster_runs_nothing_is_restarted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deployment = planned(tmp_path, DEPLOYMENT.partition("[fragments.last]")[0])
    mark = deployment.data / SUBMITTED / SUBMITTED
    mark.parent.mkdir(parents=True)
    mark.write_text("10.0.0.1:4700")
    assert main(["restart", str(deployment.path), "--rolling"]) == 1
    said = capsys.readouterr().err
    assert "was submitted to a cluster (10.0.0.1:4700)" in said
    assert "restart its servers one after the other" in said
