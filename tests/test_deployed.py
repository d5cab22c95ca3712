"""Waiting for a deployment: what counts as coming up, and when it stands still."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from holdfast.cluster.supervisor import Supervisor
from holdfast.testing import deployed
from holdfast.testing.deployed import ComingUp, wait_for_lines

DOWN = {"error": "cannot be reached: Connection refused"}


def test_each_state_of_each_node_is_new_once() -> None:
    coming = ComingUp()
    assert coming.news({"main": {"state": "stable"}, "left": DOWN})
    assert not coming.news({"main": {"state": "stable"}, "left": DOWN})
    assert coming.news({"main": {"state": "stable"}, "left": {"state": "recovering"}})
    assert coming.news({"main": {"state": "stable"}, "left": {"state": "stable"}})
    # One that dies again and again, or changes its mind again and again, gets nowhere.
    assert not coming.news({"main": DOWN, "left": DOWN})
    assert not coming.news({"main": {"state": "stable"}, "left": {"state": "recovering"}})


class Watched:
    """A file of a deployment whose time passes while somebody waits for it."""

    def __init__(self, path: Path, written: dict[int, str], states: dict[int, str]) -> None:
        """``written`` and ``states``: what is added, and what the one node says, from when on."""
        self.now = 0.0
        self._path, self._written, self._states = path, written, states
        self.supervisor = cast(
            Supervisor, SimpleNamespace(deployment=SimpleNamespace(endpoints={"main": None}))
        )

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        for at in [at for at in self._written if at <= self.now]:
            with self._path.open("a") as file:
                file.write(self._written.pop(at))

    def status(self, *_: Any) -> dict[str, dict[str, Any]]:
        said = [state for at, state in sorted(self._states.items()) if at <= self.now]
        return {"main": {"state": said[-1]} if said else DOWN}


Patched = Callable[[Watched], Watched]


@pytest.fixture
def patched(monkeypatch: pytest.MonkeyPatch) -> Patched:
    def begin(watched: Watched) -> Watched:
        monkeypatch.setattr(deployed, "time", watched)
        monkeypatch.setattr(deployed, "node_status", watched.status)
        monkeypatch.setattr(deployed, "_look_into", lambda supervisor: "")
        return watched

    return begin


def test_a_network_that_comes_up_slowly_is_waited_for(tmp_path: Path, patched: Patched) -> None:
    path = tmp_path / "found"
    watched = patched(Watched(path, {110: "one\n"}, {40: "recovering", 75: "stable"}))
    wait_for_lines(watched.supervisor, path, 1, timeout_s=90.0)
    assert watched.now < 111


@pytest.mark.parametrize(
    ("states", "within_s"), [({}, 46), ({0: "stable"}, 52), ({40: "recovering"}, 92)]
)
def test_a_network_that_stands_is_not(
    tmp_path: Path, patched: Patched, states: dict[int, str], within_s: float
) -> None:
    path = tmp_path / "found"
    watched = patched(Watched(path, {150: "one\n"}, states))
    with pytest.raises(TimeoutError, match="0 of 1 lines came"):
        wait_for_lines(watched.supervisor, path, 1, timeout_s=90.0)
    assert watched.now < within_s


def test_lines_that_come_too_slowly_are_not_waited_for_either(
    tmp_path: Path, patched: Patched
) -> None:
    path = tmp_path / "found"
    watched = patched(Watched(path, dict.fromkeys(range(0, 300, 4), "one\n"), {0: "stable"}))
    with pytest.raises(TimeoutError, match="of 60 lines came"):
        wait_for_lines(watched.supervisor, path, 60, timeout_s=90.0)
    assert watched.now < 92
