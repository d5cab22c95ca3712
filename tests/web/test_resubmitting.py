"""What becomes of a submission that is changed on the page."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.cluster.desired import Submission
from holdfast.deployment import Deployment, load_deployment
from holdfast.errors import InputError
from holdfast.web.clusters import SubmissionEye
from holdfast.web.history import History
from holdfast.web.resubmitting import Resubmitter, next_name

TABLES: dict[str, Any] = {
    "name": "monitoring",
    "timing": {"delay": "2 seconds"},
    "servers": {name: {"listen": f"127.0.0.1:470{place}"} for place, name in enumerate("abc")},
    "sources": {"load": {"from": "rate:10", "listen": "a"}},
    "fragments": {
        "main": {"protection": "race", "replicas": ["b", "c"]},
        "best": {"protection": "active", "replicas": ["a", "c"]},
    },
    "clients": {"recorder": {"output": "busy", "sink": "jsonl:busy.jsonl", "listen": "a"}},
}
SUBMISSION = Submission(
    TABLES,
    "network.py",
    {"network.py": "bmV0d29yayA9IE5vbmUK"},
    "{}",
    placed={"main": ["b", "c"], "best": ["a", "c"]},
    stays=["best"],
)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return load_deployment(SUBMISSION.write(tmp_path, {}))


@pytest.fixture
def editor(deployment: Deployment) -> Resubmitter:
    servers: dict[str, Any] = {name: {} for name in ("a", "b", "c")}
    eye = SimpleNamespace(submission=SUBMISSION, name="monitoring", latest={"servers": servers})
    return Resubmitter(lambda: deployment, History(), cast(SubmissionEye, eye))


def test_places_are_knobs_and_replicas_that_were_placed_a_number_again(
    editor: Resubmitter,
) -> None:
    found = editor.texts()
    knobs = {each["name"]: each for each in found["knobs"]}
    assert found["network"] == "network = None\n"
    # Whatever a deployment says is among what it may say, or its form would say something else.
    assert knobs["fragments.main.protection"]["value"] == "race"
    assert all(each["value"] in each["choices"] for each in knobs.values() if each["choices"])
    assert knobs["fragments.main.replicas"]["value"] == 2
    assert "fragments.best.replicas" not in knobs  # its places were given
    assert knobs["sources.load.listen"]["value"] == "a"
    assert knobs["clients.recorder.listen"]["choices"] == ["a", "b", "c"]
    assert knobs["collection.network_cost"]["value"] is None


def test_the_cost_of_all_streams_is_set_and_taken_back(
    editor: Resubmitter, deployment: Deployment
) -> None:
    def collection(cost: Any) -> Any:
        asked = {"knobs": {"collection.network_cost": cost}}
        return json.loads(editor._candidate(deployment, asked).toml).get("collection")

    assert collection(5000) == {"network_cost": 5000}
    assert collection(None) is None
    with pytest.raises(InputError, match="network_cost is a number; got 'much'"):
        collection("much")


def test_a_change_is_made_of_what_was_submitted(
    editor: Resubmitter, deployment: Deployment
) -> None:
    knobs = {"sources.load.listen": "c", "timing.delay": "3 seconds", "fragments.main.replicas": 3}
    candidate = editor._candidate(deployment, {"network": None, "knobs": knobs})
    tables = json.loads(candidate.toml)
    assert candidate.network == "network = None\n"
    assert tables["sources"]["load"]["listen"] == "c"
    assert tables["timing"] == {"delay": "3 seconds"}
    assert tables["fragments"]["main"]["replicas"] == 3
    assert tables["fragments"]["best"]["replicas"] == ["a", "c"]
    assert not {"servers", "name", "security"} & tables.keys()
    # What it was made of is as it was.
    assert TABLES["sources"]["load"]["listen"] == "a"


@pytest.mark.parametrize(
    "name", ["sources.other.listen", "sources.load.from", "name", "security.x"]
)
def test_nothing_else_is_changed(editor: Resubmitter, deployment: Deployment, name: str) -> None:
    with pytest.raises(InputError, match="no knob of this page"):
        editor._candidate(deployment, {"knobs": {name: "x"}})


def test_a_place_is_a_server(editor: Resubmitter, deployment: Deployment) -> None:
    with pytest.raises(InputError, match="'mars' is no server"):
        editor._candidate(deployment, {"knobs": {"sources.load.listen": "mars"}})


def test_names_are_counted() -> None:
    assert next_name("monitoring") == "monitoring-2"
    assert next_name("monitoring-2") == "monitoring-3"
    assert next_name("east-9") == "east-10"
