"""Whom a supervisor watches for spares, and whom it asks; the servers are only said to be there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.cluster import spares
from holdfast.cluster.remote import ServerError
from holdfast.cluster.spares import Spares
from holdfast.deployment import Deployment, Endpoint, load_deployment
from holdfast.plans.addresses import Addresses
from holdfast.plans.membership_file import change_membership

DEPLOYMENT = """
name = "spares"
network = "network.py"
[security]
token_file = "token"
[servers.east]
listen = "127.0.0.1:4701"
[servers.west]
listen = "127.0.0.2:4702"
spare = "1 ms"
[sources.load]
[fragments.main]
protection = "active"
replicas = 2
"""


class Silent:
    """A server that does not answer, but for one that has another machine in its place."""

    def __init__(self, deployment: Deployment, name: str, endpoint: Endpoint | None = None) -> None:
        self._answers = (endpoint or deployment.servers[name]).port == 4702

    def states(self) -> dict[str, Any]:
        if not self._answers:
            raise ServerError("server east does not answer")
        return {}

    def ports(self, nodes: list[str], processes: list[str]) -> dict[str, dict[str, int]]:
        return {
            "nodes": {name: 5000 + number for number, name in enumerate(nodes)},
            "metrics": {name: 6000 + number for number, name in enumerate(processes)},
        }

    def deploy(self, restart: bool = True) -> None:
        pass

    def stop(self) -> None:
        self.states()


class World:
    def __init__(self, directory: Path) -> None:
        (directory / "network.py").write_text("")
        (directory / "token").write_text("secret")
        (directory / "token").chmod(0o600)
        (directory / "deployment.toml").write_text(DEPLOYMENT)
        self.deployment = load_deployment(directory / "deployment.toml")
        Addresses.choose(self.deployment)
        self.told: list[str] = []
        self.moved: list[str] = []
        self.asked: list[list[str]] = []
        self.problems: list[Exception] = []
        self.spares = Spares(self.deployment, self.told.append, self._move)

    def _move(self, deployment: Deployment, server: str) -> None:
        self.moved.append(server)

    def status(self, deployment: Deployment, nodes: list[str]) -> dict[str, dict[str, Any]]:
        if self.problems:
            raise self.problems.pop()
        self.asked.append(nodes)
        gone = deployment.gone
        return {name: {"error": "gone"} if name in gone else {"state": "stable"} for name in nodes}

    def move(self) -> None:
        """Another replica, on a server that had none, has the place of one that is gone."""
        change_membership(
            self.deployment,
            lambda known: known.with_another("main-3", "main-1").without("main-1"),
            {"main-3": "east"},
        )
        changed = load_deployment(self.deployment.path)
        Addresses.choose(changed, lambda server, *asked: Silent(changed, "west").ports(*asked))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    made = World(tmp_path)
    monkeypatch.setattr(spares, "_LOOK_SECONDS", 0.01)
    monkeypatch.setattr(spares, "RemoteServer", Silent)
    monkeypatch.setattr(spares, "node_status", made.status)
    made.spares.start()
    yield made
    made.spares.stop()


def wait(until: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20.0
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_server_that_got_its_first_replica_later_has_a_spare(world: World) -> None:
    world.move()
    wait(lambda: world.moved)
    assert world.moved == ["east"]
    assert world.asked == [["main-2"]], "who is gone was asked"
    assert any("west takes its place" in each for each in world.told)


def test_whatever_goes_wrong_it_is_looked_at_again(world: World) -> None:
    world.problems = [OSError("no room"), OSError("no room"), ValueError("not a request")]
    world.move()
    wait(lambda: world.moved)
    assert [each for each in world.told if "whether a spare" in each] == [
        "whether a spare is needed for east: not a request",
        "whether a spare is needed for east: no room",
    ]
