"""What the page is told, of made-up looks."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.deployment import Deployment, OutputSpec, load_deployment
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.plans.plan import OperatorPlan, Plan
from holdfast.web.looking import Look
from holdfast.web.model import Places, fixed, live, troubles

DEPLOYMENT = """\
network = "network.py"
chaos = true

[sources.load]
from = "socket:127.0.0.1:4000,password=sesame"

[fragments.main]
replicas = 2

[clients.recorder]
output = "busy"
sink = "jsonl:busy.jsonl"
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "network.py").touch()
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    return load_deployment(tmp_path / "deployment.toml")


def replica(next_id: int, **more: Any) -> dict[str, Any]:
    inputs = {"load": {"from": "entry-load", "next_id": next_id, "boundary": 1}}
    return {
        "kind": "replica",
        "state": "stable",
        "boundary": 99_000_000,
        "inputs": inputs,
        "outputs": {"busy": next_id // 10},
        **more,
    }


def look(deployment: Deployment, at: float, next_id: int) -> Look:
    nodes: dict[str, dict[str, Any]] = {
        "entry-load": {"kind": "entry", "state": "serving", "next_id": next_id, "boundary": 1},
        "main-1": replica(next_id),
        "main-2": replica(next_id, cut={"incoming": ["entry-load"], "outgoing": []}),
        "recorder": {"kind": "client", "state": "stable", "from": "main-1", "next_id": next_id},
    }
    processes = {
        name: {"pid": 7, "restarts": 1, "cpu_s": at / 2, "memory_bytes": 1000} for name in nodes
    }
    return Look(at, deployment, 1, processes, nodes)


def test_rates_and_use_come_from_two_looks(deployment: Deployment) -> None:
    found = live(look(deployment, 100.0, 1000), look(deployment, 98.0, 800), Places(deployment))
    assert found["nodes"]["entry-load"]["rate"] == 100.0
    assert found["nodes"]["main-1"]["rate"] == 10.0
    assert found["nodes"]["main-1"]["behind_s"] == 1.0
    assert found["nodes"]["main-1"]["of"] == "main"
    assert found["processes"]["main-1"]["cpu"] == 0.5
    links = found["links"]
    link = links["entry-load\tmain-1\tload"]
    assert (link["rate"], link["cut"]) == (100.0, False)
    assert links["entry-load\tmain-2\tload"]["cut"]
    assert links["main-1\trecorder\tbusy"]["rate"] == 100.0


def test_a_node_that_begins_anew_has_no_negative_rate(deployment: Deployment) -> None:
    found = live(look(deployment, 100.0, 10), look(deployment, 98.0, 800), Places(deployment))
    assert found["nodes"]["entry-load"]["rate"] == 0.0


def test_the_first_look_has_no_rates(deployment: Deployment) -> None:
    found = live(look(deployment, 100.0, 1000), None, Places(deployment))
    assert found["nodes"]["main-1"]["rate"] == 0.0
    assert found["processes"]["main-1"]["cpu"] is None


def test_who_does_not_answer_is_gone_and_says_why(deployment: Deployment) -> None:
    now = look(deployment, 100.0, 1000)
    now.nodes["main-1"] = {"error": "no connection"}
    now.processes["main-1"] = {"pid": None, "restarts": 3, "problem": "it could not start"}
    found = live(now, look(deployment, 99.0, 900), Places(deployment))
    assert found["nodes"]["main-1"]["state"] == "gone"
    assert found["nodes"]["main-1"]["says"] == "it could not start"
    paused = replace(now, processes={**now.processes, "main-1": {"pid": 7, "paused": True}})
    assert live(paused, None, Places(deployment))["nodes"]["main-1"]["state"] == "paused"
    said = troubles(found["nodes"])
    assert "main-1 does not answer" in said
    assert "main-2: cut from entry-load" in said


def test_operators_come_with_what_they_do_and_no_secret(deployment: Deployment) -> None:
    operators = (
        OperatorPlan("load", "source 'load'", "source", "main", (), "cpu double"),
        OperatorPlan("filter_1", "filter cpu > 1", "stateless", "main", ("load",), "cpu double"),
    )
    plan = Plan(200_000, {}, {}, ("busy",), operators, {"busy": "filter_1"})
    found = fixed(deployment, plan)
    assert [each["name"] for each in found["operators"]] == ["load", "filter_1"]
    assert found["outputs"] == {"busy": "filter_1"}
    assert found["sources"]["load"] == {"node": "entry-load", "reads": "socket"}
    assert "sesame" not in str(found)
    assert fixed(deployment, None)["operators"] == []


def test_an_output_is_told_with_its_x_from_the_sources_on(deployment: Deployment) -> None:
    schema = pa.schema([])
    fragments = {
        "first": FragmentPlan(
            "first",
            {"load": schema},
            (FragmentStream("first.map_1", schema, frozenset({"load"})),),
            False,
            (),
        ),
        "main": FragmentPlan(
            "main",
            {"first.map_1": schema},
            (FragmentStream("busy", schema, frozenset({"load"})),),
            False,
            (),
        ),
    }
    plan = Plan(200_000, {}, fragments, ("busy",))
    assert fixed(deployment, plan)["output_delays"] == {"busy": 6.0}
    given = replace(deployment, outputs={"busy": OutputSpec(4_000_000)})
    assert fixed(given, plan)["output_delays"] == {"busy": 4.0}


def test_a_node_that_is_slow_to_answer_is_not_gone(deployment: Deployment) -> None:
    now = look(deployment, 100.0, 1000)
    now.nodes["main-1"] = {"name": "main-1", "state": "slow", "error": "did not answer within 1 s"}
    now.nodes["main-2"] = {"name": "main-2", "error": "cannot be reached"}
    nodes = live(now, look(deployment, 98.0, 800), Places(deployment))["nodes"]
    assert (nodes["main-1"]["state"], nodes["main-2"]["state"]) == ("slow", "gone")
    assert "main-1 does not answer" in troubles(nodes)
