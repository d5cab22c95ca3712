"""A changed network goes on where the one before stopped, on two machines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.deployment import load_deployment
from holdfast.network import Network
from holdfast.plans.plan import write_plan
from holdfast.testing.deployed import expected_file
from tests.processes.machines import two_machines
from tests.processes.test_server import DEPLOYMENT, NETWORK, Pair, running

BOTH = DEPLOYMENT.replace('replicas = ["east"]', 'replicas = ["{host}", "east"]')
CHANGES = {
    "--from-now": NETWORK.replace("F.sum", "F.max"),
    "--keep-state": NETWORK.replace('.output("sums")', '.filter("k < 2").output("sums")'),
}


def network_of(pair: Pair, text: str, name: str) -> Network:
    """Another network in the place of the one there is; each under a name of its own."""
    path = pair.directory / f"{name}.py"
    path.write_text(text)
    path.replace(pair.directory / "network.py")
    return load_network(pair.directory / "network.py", "local[2]", {})


@pytest.mark.thorough
@pytest.mark.timeout(400)
@pytest.mark.parametrize("flag", list(CHANGES))
def test_replicas_on_two_machines_go_on_with_a_changed_network(
    tmp_path: Path, spark: SparkSession, flag: str
) -> None:
    with two_machines() as (here, there):
        pair = Pair(here, there, tmp_path, BOTH)
        first = network_of(pair, NETWORK, "first")
        write_plan(load_deployment(pair.path), plan_of(first))
        with running(pair.serve, pair.server_said):
            pair.wait(lambda: "listening" in pair.server_said.read_text(), "the server")
            with running(here.holdfast("up", pair.path), pair.said):
                pair.wait(lambda: "all up" in pair.said.read_text(), "all up")
                pair.grows("results")
            had = pair.lines()
            changed = network_of(pair, CHANGES[flag], "changed")
            with running(here.holdfast("up", pair.path, flag), pair.said):
                pair.wait(lambda: "all up" in pair.said.read_text(), "all up again")
                assert "fragment 'main'" in pair.said.read_text()
                pair.grows("results of the changed network")
                # The replica here is killed: that of the other machine has the same.
                pair.ask("chaos", "kill", "main-1")
                pair.grows("results of the other machine")
        deployment = load_deployment(pair.path)
        old = expected_file(first, deployment, "sums").splitlines()
        found = pair.recorded.read_text().splitlines()
        # Windows are as long as buckets: none is open where the change takes effect.
        same = [one == other for one, other in zip(found, old, strict=False)]
        at = same.index(False)
        assert had <= at < len(found)
        assert found[:at] == old[:at]
        if flag == "--from-now":
            new = expected_file(changed, deployment, "sums").splitlines()
            assert found[at:] == new[at : len(found)]
        else:
            rest = [row for row in map(json.loads, old[at:]) if row["k"] < 2]
            for number, row in enumerate(rest):
                row["seq"] = at + number  # the next one, though results are left out
            assert list(map(json.loads, found[at:])) == rest[: len(found) - at]
