"""A process that comes back gives way to whoever does its work, as long as somebody does."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.cluster import giving_way
from holdfast.cluster.giving_way import GivingWay, are_at_work, how_far, set_share, stand_ins
from holdfast.deployment import Deployment, load_deployment
from holdfast.errors import InputError

DEPLOYMENT = """
network = "network.py"
[sources.load]
[fragments.both]
replicas = 2
colocate = ["left", "right"]
[fragments.copied]
protection = "hybrid"
colocate = ["left", "right"]
[fragments.alone]
[clients.reader]
output = "counts"
sink = "jsonl:data/counts.jsonl"
"""
AT_WORK = {"both-2": {"state": "stable"}, "copied-2": {"state": "stable", "copy": "primary"}}
# Of a session of its own: what its share is before, meanwhile and after.
PROGRAM = """
from pathlib import Path
from holdfast.cluster.giving_way import set_share
share = lambda: Path("/proc/self/autogroup").read_text().split()[-1]
said = [share(), set_share(10), share(), set_share(0), share()]
print(*said)
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    (tmp_path / "network.py").write_text("")
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT)
    return load_deployment(tmp_path / "deployment.toml")


def test_only_a_process_with_stand_ins_for_all_of_it_gives_way(deployment: Deployment) -> None:
    assert stand_ins(deployment, "left") == {"both-1": ["both-2"], "copied-1": ["copied-2"]}
    assert stand_ins(deployment, "alone-1") == {}
    assert stand_ins(deployment, "entry-load") == {}
    assert stand_ins(deployment, "reader") == {}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({}, True),
        ({"both-2": {"state": "up_failure"}}, True),
        ({"both-2": {"state": "recovering"}}, False),
        ({"both-2": {"name": "both-2", "error": "no answer"}}, False),
        ({"copied-2": {"state": "suspended", "copy": "suspended"}}, False),
        ({"copied-2": {"state": "stable", "copy": "awake"}}, False),
    ],
)
def test_who_is_at_work(changed: dict[str, dict[str, str]], expected: bool) -> None:
    assert are_at_work({**AT_WORK, **changed}, [["both-2"], ["copied-2"]]) is expected


def test_one_of_several_is_enough() -> None:
    said = {"a-2": {"error": "gone"}, "a-3": {"state": "stable"}}
    assert are_at_work(said, [["a-2", "a-3"]])


class Given:
    """A process that gives way, with what it does to its share and says."""

    def __init__(self, deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> None:
        self.shares: list[int] = []
        self.said: list[tuple[str, dict[str, Any]]] = []
        self.others: dict[str, dict[str, str]] = dict(AT_WORK)
        self.placed = threading.Event()
        monkeypatch.setattr(giving_way, "set_share", self._set)
        monkeypatch.setattr(giving_way, "node_status", lambda *_: self.others)
        monkeypatch.setattr(giving_way, "_LOOK_SECONDS", 0.005)
        monkeypatch.setattr(giving_way, "_ASK_SECONDS", 0.01)
        self.way = GivingWay(deployment, "left", self.placed.is_set, self._say)

    def _set(self, nice: int) -> bool:
        self.shares.append(nice)
        return True

    def _say(self, event: str, **about: Any) -> None:
        self.said.append((event, about))

    def wait(self, holds: Callable[[], bool]) -> None:
        pause, left = threading.Event(), 2_000
        while not holds() and left:
            pause.wait(0.005)
            left -= 1
        assert holds()


@pytest.fixture
def given(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Given:
    return Given(deployment, monkeypatch)


def test_it_gives_way_until_it_has_its_place(given: Given) -> None:
    given.way.start()
    given.wait(lambda: bool(given.said))
    assert given.shares == [giving_way.NICE]
    assert given.said == [("gives way", {"to": ["both-2", "copied-2"]})]
    given.placed.set()
    given.wait(lambda: len(given.said) == 2)
    assert given.shares == [giving_way.NICE, 0]
    assert given.said[1][1]["why"] == "it has its place"


def test_it_gives_way_no_more_once_nobody_does_its_work(given: Given) -> None:
    given.way.start()
    given.wait(lambda: bool(given.said))
    given.others = {**AT_WORK, "both-2": {"error": "gone"}}
    given.wait(lambda: len(given.said) == 2)
    assert given.shares[-1] == 0
    assert given.said[1][1]["why"] == "nobody does its work"


def test_it_does_not_give_way_for_long(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_way, "MOST_SECONDS", 0.05)
    given.way.start()
    given.wait(lambda: len(given.said) == 2)
    assert given.shares == [giving_way.NICE, 0]
    assert given.said[1][1]["why"] == "0.05 s are over"


def test_it_does_not_give_way_if_nobody_does_its_work(given: Given) -> None:
    given.others = {**AT_WORK, "copied-2": {"error": "gone"}}
    given.way.start()
    given.wait(lambda: not given.way._thread.is_alive())
    assert given.shares == []


def test_the_environment_may_say_how_far(given: Given, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(giving_way.VARIABLE, "0")
    given.way.start()
    assert given.way._thread.ident is None
    for wrong in ("20", "-1", "much"):
        monkeypatch.setenv(giving_way.VARIABLE, wrong)
        with pytest.raises(InputError, match="0 to 19"):
            how_far()


def test_the_share_of_a_session_is_given_back() -> None:
    """Where the system divides processors so; elsewhere nothing is tried."""
    if not giving_way.GROUP.exists():
        assert not set_share(1)
        return
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        start_new_session=True,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["0", "True", "10", "True", "0"]


def test_the_share_of_somebody_elses_session_is_left_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from holdfast.cluster.giving_way import *; print(set_share(1))"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["False"]
