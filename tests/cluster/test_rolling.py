"""Who is asked to end, and when, in a rolling restart; the processes are only said to be there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from holdfast.cluster import rolling
from holdfast.cluster.rolling import restart_rolling
from holdfast.cluster.supervisor import SupervisorError
from holdfast.deployment import Deployment
from tests.processes.planned import planned

DEPLOYMENT = """
network = "network.py"
[sources.load]
[fragments.main]
protection = "hybrid"
[fragments.main.standby]
persist = false
[clients.reader]
output = "out"
sink = "jsonl:data/out.jsonl"
"""


class Said:
    """What processes would say of themselves, one look after the other, and who was asked to end.

    A copy that was restarted is the secondary at once, and holds a state ``looks`` looks later.
    """

    def __init__(self, deployment: Deployment, looks: int) -> None:
        self._looks = looks
        self._without: dict[str, int] = {}
        self.pids = dict.fromkeys(deployment.processes, 1)
        self.asked: list[str] = []
        self.primary = "main-1"
        self.lost = False
        # So many looks long a server that has just started knows of no process.
        self.just_started = 0
        self.relieved: list[str] = []
        self.stayed: list[str] = []
        # Why nobody takes over; None if somebody does.
        self.alone: str | None = None

    def relieve(
        self, deployment: Deployment, copy: str, others: list[str], wait_s: float
    ) -> str | None:
        assert copy == self.primary
        self.relieved.append(copy)
        if self.alone is None:
            (self.primary,) = others
        return self.alone

    def let_stay(self, deployment: Deployment, copy: str) -> None:
        if copy in self.relieved:
            self.stayed.append(copy)

    def state(self, deployment: Deployment) -> dict[str, dict[str, Any]]:
        if self.just_started:
            self.just_started -= 1
            return {}
        return {name: {"pid": pid} for name, pid in self.pids.items()}

    def end(self, deployment: Deployment, process: str) -> int:
        self.asked.append(process)
        self.pids[process] += 1
        if process.startswith("main"):
            others = {"main-1", "main-2"} - {process}
            self.lost = self.lost or any(self._without.get(each) for each in others)
            assert process != self.primary, "a primary was asked to end"
            self._without[process] = self._looks
        return self.pids[process] - 1

    def status(self, deployment: Deployment, nodes: list[str], within_s: float) -> dict[str, Any]:
        return {name: self._of(name) for name in nodes}

    def _of(self, name: str) -> dict[str, Any]:
        if not name.startswith("main"):
            return {"kind": "entry", "state": "running"}
        if name == self.primary:
            return {"kind": "replica", "state": "stable", "copy": "primary", "awake": True}
        left = self._without.get(name, 0)
        self._without[name] = max(0, left - 1)
        return {"kind": "replica", "state": "suspended", "copy": "suspended", "holds": left == 0}


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    return planned(tmp_path, DEPLOYMENT)


def said(deployment: Deployment, monkeypatch: pytest.MonkeyPatch, looks: int) -> Said:
    found = Said(deployment, looks)
    monkeypatch.setattr(rolling, "read_state", found.state)
    monkeypatch.setattr(rolling, "end_process", found.end)
    monkeypatch.setattr(rolling, "node_status", found.status)
    monkeypatch.setattr(rolling, "relieve", found.relieve)
    monkeypatch.setattr(rolling, "let_stay", found.let_stay)
    monkeypatch.setattr(rolling, "_LOOK_SECONDS", 0.001)
    return found


def test_a_primary_goes_only_once_the_other_copy_holds_a_state(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = said(deployment, monkeypatch, looks=5)
    done = restart_rolling(deployment.path, wait_s=20)
    assert done == world.asked == ["entry-load", "main-2", "main-1", "reader"]
    assert not world.lost, "a primary was asked to end while the other copy held nothing"
    assert world.relieved == world.stayed == ["main-1"]


def test_a_primary_that_nobody_relieves_is_not_asked_to_end(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = said(deployment, monkeypatch, looks=0)
    world.alone = "main-2 has not taken over from it after 20 s"
    with pytest.raises(SupervisorError, match="main-1 is not restarted, because main-2 has not"):
        restart_rolling(deployment.path, wait_s=20)
    assert world.asked == ["entry-load", "main-2"]
    assert world.stayed == ["main-1"]


def test_who_waits_for_a_state_is_told_of(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = said(deployment, monkeypatch, looks=1_000_000)
    with pytest.raises(SupervisorError, match="main-2: it holds no state yet"):
        restart_rolling(deployment.path, wait_s=0.1)
    assert world.asked == ["entry-load", "main-2"]


def test_a_server_that_has_just_started_is_asked_again(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = said(deployment, monkeypatch, looks=0)
    world.just_started = 3
    assert restart_rolling(deployment.path, ["reader"], wait_s=20) == ["reader"]
    assert world.just_started == 0
