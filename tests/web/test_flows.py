"""Who reads what from whom on the page, what is not read, and what replicas are worth."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.deployment import Deployment, load_deployment
from holdfast.web.flows import links, utilities
from holdfast.web.looking import Look

DEPLOYMENT = """
network = "network.py"
[sources.load]
[fragments.main]
replicas = 2
[fragments.best]
replicas = 2
[clients.recorder]
output = "best"
sink = "jsonl:best.jsonl"
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "network.py").write_text("")
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    return load_deployment(tmp_path / "deployment.toml")


def reading(sender: str, next_id: int, **shares: float) -> dict[str, Any]:
    named = {name.replace("_", "-"): share for name, share in shares.items()}
    return {"from": sender, "next_id": next_id, "boundary": 99_000_000, "shares": named}


def look(deployment: Deployment, at: float, count: int) -> Look:
    shares = {"main_1": 0.75, "main_2": 0.25}
    best = [{"sums": reading("main-1", count, **shares)} for _ in range(2)]
    nodes: dict[str, dict[str, Any]] = {
        "entry-load": {"kind": "entry"},
        "main-1": {"kind": "replica", "inputs": {"load": reading("entry-load", count)}},
        "main-2": {"kind": "replica", "inputs": {"load": reading("entry-load", count)}},
        "best-1": {"kind": "replica", "inputs": best[0]},
        "best-2": {"kind": "replica", "inputs": best[1], "cut": {"incoming": ["main-2"]}},
        "recorder": {"kind": "client", "from": "best-1", "next_id": count, "boundary": 0},
    }
    return Look(at, deployment, 1, {}, nodes)


def test_links_say_how_fast_how_late_and_who_was_first(deployment: Deployment) -> None:
    producers = {"sums": ("main-1", "main-2"), "best": ("best-1", "best-2")}
    now, before = look(deployment, 100.0, 300), look(deployment, 98.0, 100)
    found = links(now, before, 2.0, producers)
    assert found["main-1\tbest-1\tsums"] == {
        "rate": 100.0,
        "cut": False,
        "behind_s": 1.0,
        "share": 0.75,
    }
    assert found["main-2\tbest-2\tsums"]["cut"]
    # The client reads one of two; the other one is there to be read.
    assert found["best-1\trecorder\tbest"]["behind_s"] is None
    unused = found["best-2\trecorder\tbest"]
    assert unused == {"rate": 0.0, "cut": False, "unused": True, "collected": False}


def test_a_feed_that_was_collected_is_not_read_and_shown_as_such(deployment: Deployment) -> None:
    now = look(deployment, 100.0, 300)
    now.nodes["best-1"]["inputs"]["sums"]["collected"] = ["main-2"]
    found = links(now, None, 0.0, {"sums": ("main-1", "main-2")})
    assert found["main-2\tbest-1\tsums"]["collected"]
    assert found["main-2\tbest-1\tsums"]["unused"]
    # All that best-1 is worth comes from main-1 now.
    assert utilities(now)["main-1"] == 1.0


def test_what_a_replica_is_worth_comes_from_the_applications(deployment: Deployment) -> None:
    now = look(deployment, 100.0, 300)
    # The client reads best-1 alone, which takes three quarters from main-1.
    assert utilities(now) == {"main-1": 0.75, "main-2": 0.25, "best-1": 1.0, "best-2": 0.0}
    # Without it somebody elsewhere reads both, for all that is known here.
    del now.nodes["recorder"]
    assert utilities(now) == {"main-1": 1.5, "main-2": 0.5, "best-1": 1.0, "best-2": 1.0}
    assert utilities(Look(1.0, deployment)) == {}
