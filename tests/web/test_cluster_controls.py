"""What the page asks a cluster for, and what it refuses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from benchmarks.web_made_up import small
from holdfast.errors import InputError
from holdfast.web.clusters import SubmissionEye
from holdfast.web.controls import Controls
from holdfast.web.history import History


class Eye:
    """A cluster that answers."""

    name = "small"

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def change(self, action: str, **asked: Any) -> dict[str, Any]:
        self.asked.append((action, asked))
        if action == "cluster-add":
            return {"replica": "main-3", "server": asked["server"] or "b"}
        if action == "cluster-move":
            return {"replica": "main-4", "server": asked["server"]}
        if action == "cluster-remove":
            return {"replica": asked["replica"], "left": ["main-2"]}
        return {"said": "", "before": 71.0}


def controls(directory: Path, eye: Eye | None) -> Controls:
    deployment = small(directory)
    return Controls(lambda: deployment, History(), lambda: True, cast(SubmissionEye, eye))


def test_a_cluster_is_asked_for_one_more_and_to_collect(tmp_path: Path) -> None:
    eye = Eye()
    found = controls(tmp_path, eye)
    said = found.carry_out("ada", {"action": "add", "fragment": "main", "place": ""})
    assert said == "add a replica of main: main-3 joins at b"
    said = found.carry_out("ada", {"action": "collect", "cost": 50, "least": 2})
    assert "nothing may go; its streams cost 71" in said
    assert eye.asked == [
        ("cluster-add", {"name": "small", "fragment": "main", "server": None}),
        ("cluster-collect", {"name": "small", "cost": 50.0, "least": 2}),
    ]


def test_a_cluster_is_asked_to_move_and_remove_replicas(tmp_path: Path) -> None:
    eye = Eye()
    found = controls(tmp_path, eye)
    said = found.carry_out("ada", {"action": "move", "replica": "main-1", "place": "c"})
    assert said == "move main-1 to c: main-4 joins at c; when it is stable main-1 goes"
    said = found.carry_out("ada", {"action": "remove", "replica": "main-1"})
    assert said == "remove main-1: it ends; main-2 goes on"
    assert eye.asked == [
        ("cluster-move", {"name": "small", "replica": "main-1", "server": "c"}),
        ("cluster-remove", {"name": "small", "replica": "main-1"}),
    ]
    with pytest.raises(InputError, match="place must be a name"):
        found.carry_out("ada", {"action": "move", "replica": "main-1", "place": ""})


@pytest.mark.parametrize("action", ["add", "move", "remove"])
def test_a_page_of_a_file_does_not_go_behind_the_back_of_a_cluster(
    tmp_path: Path, action: str
) -> None:
    with pytest.raises(InputError, match="watch one of its servers, holdfast web HOST:PORT"):
        controls(tmp_path, None).carry_out("ada", {"action": action, "replica": "main-1"})


def test_without_a_cluster_nothing_is_collected(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="holdfast web HOST:PORT"):
        controls(tmp_path, None).carry_out("ada", {"action": "collect", "cost": 1})
