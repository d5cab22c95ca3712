"""Who does the work of each shard, and whom it knows, as ``holdfast status`` says it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.commands.shard_lines import shard_lines, shard_views, shards_json
from holdfast.deployment import Deployment, load_deployment
from holdfast.plans.addresses import Addresses
from holdfast.plans.fragment_plans import Routes
from holdfast.plans.plan import write_plan
from tests.processes.test_shard_plans import plan_with

GONE = {"error": "cannot be reached"}


def written(directory: Path, fragment: str) -> Deployment:
    (directory / "network.py").write_text("")
    text = f'network = "network.py"\n[sources.load]\n[fragments.main]\n{fragment}\n'
    (directory / "deployment.toml").write_text(text)
    return load_deployment(directory / "deployment.toml")


def said(slots: tuple[int, int]) -> dict[str, Any]:
    known = {"above": {"load": ["entry-load"]}, "below": {"out": ["main-1", "main-2"]}}
    return {"state": "stable", "shard": {"slots": list(slots), **known}}


def copy(shard: int, term: int, slots: tuple[int, int]) -> dict[str, Any]:
    """What a copy says; of two, the first is the primary in even terms."""
    primary = f"main.{shard}-{term % 2 + 1}"
    return {**said(slots), "copy": "any", "awake": True, "term": term, "primary": primary}


def ring(first: int = 2, second: int = 4, third: int = 0) -> dict[str, dict[str, Any]]:
    """What the copies of three shards say, by the terms they are in."""
    told: dict[str, dict[str, Any]] = {}
    for shard, (term, slots) in enumerate(
        ((first, (0, 341)), (second, (341, 682)), (third, (682, 1024))), 1
    ):
        told |= {f"main.{shard}-{each}": copy(shard, term, slots) for each in (1, 2)}
    return told


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return written(tmp_path, 'shards = 3\nprotection = "hybrid"')


BELOW = "below out (main-1, main-2)"


def test_whoever_does_a_neighbours_work_is_named_in_its_place(deployment: Deployment) -> None:
    first, second, third = shard_lines(shard_views(deployment, ring()))
    assert first == (
        "shard main.1: main.1-1 in process main.1, term 2; slots 0 to 340; above load (entry-load);"
        f" beside main.2 (main.2-1), main.3 (main.3-1); {BELOW}"
    )
    # The process of the first shard is lost, and with it the copy of the third. The second one
    # does the work of both.
    lost = ring(first=3) | {"main.1-1": GONE, "main.3-2": GONE}
    views = shard_views(deployment, lost)
    assert views["main.1"].work == (("main.1-2", "main.2"),)
    first, second, third = shard_lines(views)
    assert first.startswith("shard main.1: main.1-2 in process main.2, term 3; slots 0 to 340;")
    assert second.startswith("shard main.2: main.2-1 in process main.2, term 4; slots 341 to 681;")
    assert "beside main.1 (main.1-2), main.3 (main.3-1)" in second
    assert "beside main.1 (main.1-2), main.2 (main.2-1)" in third
    # It is back and has its work again.
    back = shard_views(deployment, ring(first=4))
    assert back["main.2"].beside == {"main.1": ("main.1-1",), "main.3": ("main.3-1",)}


def test_the_newest_term_counts_and_who_does_not_answer_is_said(deployment: Deployment) -> None:
    late = ring() | {"main.1-2": copy(1, 3, (0, 341))}
    assert shard_views(deployment, late)["main.1"].work == (("main.1-2", "main.2"),)
    # Nobody has noticed yet that the first is lost.
    told = ring() | {"main.1-1": GONE}
    first, *_ = shard_lines(shard_views(deployment, told))
    assert first.startswith(
        "shard main.1: main.1-1 in process main.1, term 2, main.1-1 does not answer; slots 0 to 340"
    )
    nobody = ring() | {"main.1-1": GONE, "main.1-2": GONE}
    first, second, _ = shard_lines(shard_views(deployment, nobody))
    assert first == (
        "shard main.1: nobody that answers; beside main.2 (main.2-1), main.3 (main.3-1)"
    )
    assert "beside main.1 (nobody), main.3 (main.3-1)" in second
    found = shards_json(shard_views(deployment, told))["main.2"]
    assert found["work"] == {"main.2-1": "main.2"}
    assert found["beside"] == {"main.1": ("main.1-1",), "main.3": ("main.3-1",)}
    assert found["below"] == {"out": ("main-1", "main-2")}


def test_replicas_that_all_run_all_do_the_work(tmp_path: Path) -> None:
    active = written(tmp_path, 'shards = 2\nprotection = "active"')
    told = {f"main.{shard}-{each}": said((0, 512)) for shard in (1, 2) for each in (1, 2)}
    first, second = shard_lines(shard_views(active, told | {"main.2-1": GONE}))
    assert first.startswith("shard main.1: main.1-1 and main.1-2; slots 0 to 511;")
    # Of two shards the other one is both before and after.
    assert "beside main.2 (main.2-2);" in first
    assert "beside main.1 (main.1-1, main.1-2);" in second
    alone = written(tmp_path, "shards = 1")
    assert shard_views(alone, {"main.1-1": said((0, 1024))})["main.1"].beside == {}


def test_copies_that_can_be_lost_together_are_told_of(tmp_path: Path) -> None:
    places = '[servers.east]\nlisten = "127.0.0.1:4700"\n[servers.west]\nlisten = "127.0.0.1:4701"'
    for listed, told in (
        ('["east", "east"]', "; all copies at east, to be lost together"),
        ('["127.0.0.1", "127.0.0.1"]', "; all copies at this machine, to be lost together"),
        ('["east", "west"]', ""),
    ):
        found = written(tmp_path, f'shards = {listed}\nprotection = "hybrid"\n{places}')
        first, _ = shard_lines(shard_views(found, {}))
        assert first.endswith(f"beside main.2 (nobody){told}")


def test_a_shard_without_slots_and_parts_of_one_that_is_spread(tmp_path: Path) -> None:
    spread = written(tmp_path, 'shards = 3\nprotection = "hybrid"\nheirs = "spread"')
    told = {
        node: {**said((0, 0)), "term": 0, "primary": f"{node[:-1]}1"}
        for node in spread.endpoints
        if node.startswith("main.")
    }
    views = shard_views(spread, told)
    assert views["main.1.2"].beside == {
        f"main.{number}.{part}": (f"main.{number}.{part}-1",)
        for number in (2, 3)
        for part in (1, 2)
    }
    assert "; no slots;" in shard_lines(views)[0]


def test_the_command_has_a_line_for_each_shard(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_plan(deployment, plan_with(Routes({"load": ("k",)})))
    Addresses.choose(deployment)
    (deployment.data / "processes.json").write_text("{}")
    told = ring(first=3) | {"main.1-1": GONE, "main.3-2": GONE}

    def asked(deployment: Deployment, nodes: list[str], within_s: float) -> dict[str, Any]:
        return {name: told.get(name, GONE) for name in nodes}

    monkeypatch.setattr("holdfast.cluster.status.node_status", asked)
    main(["status", str(deployment.path)])
    lines = capsys.readouterr().out.splitlines()
    shown = [line for line in lines if line.startswith("shard ")]
    assert [line.partition(",")[0] for line in shown] == [
        "shard main.1: main.1-2 in process main.2",
        "shard main.2: main.2-1 in process main.2",
        "shard main.3: main.3-1 in process main.3",
    ]
    main(["status", "--json", str(deployment.path)])
    found = json.loads(capsys.readouterr().out)["shards"]
    assert found["main.2"]["beside"]["main.1"] == ["main.1-2"]
