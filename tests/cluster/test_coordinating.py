"""What a coordinator decides, with servers and nodes that only say what the test has them say."""

from __future__ import annotations

import base64
import json
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from holdfast.cluster import collector, coordinating, members, rates
from holdfast.cluster.coordinating import Coordinating
from holdfast.cluster.desired import Desired
from holdfast.cluster.placing import NotPlaced, Servers
from holdfast.core.adaptation import AdaptationSettings
from holdfast.core.cluster_messages import Version
from holdfast.core.records import Membership
from holdfast.errors import HoldfastError
from holdfast.flight.wire import decode_membership
from holdfast.nodes.journal import Journal
from tests.processes.planned import planned

TOML = """
name = "one"
network = "network.py"
[sources.load]
listen = "{listen}"
[fragments.main]
replicas = 2
protection = "active"
[clients.screen]
output = "out"
sink = "jsonl:out.jsonl"
listen = "{listen}"
"""


class FakeMember:
    """A server that coordinates; the others are what ``cards`` says."""

    name, address = "a", "127.0.0.1:1"
    is_coordinating = True

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.desired = Desired()
        self.version = Version(1, 1)
        self.cards: dict[str, dict[str, Any]] = {}
        self.silent: dict[str, float] = {}
        self.voters = tuple(f"127.0.0.1:{number}" for number in (1, 2, 3))
        self.delays(b=10.0, c=60.0, d=90.0)
        self._ports = iter(range(20_000, 30_000))

    def delays(self, **from_a: float) -> None:
        """How far the others are from a, and so from each other."""
        where = {"a": 0.0, **from_a}
        self.cards = {
            name: {
                "name": name,
                "address": f"127.0.0.1:{number}",
                "zone": "",
                "life": name,
                "cores": 4,
                "cpu": 0.1,
                "memory": 0.1,
                "delays_ms": {
                    f"127.0.0.1:{other}": abs(where[there] - where[name])
                    for other, there in enumerate(where, 1)
                    if there != name
                },
            }
            for number, name in enumerate(where, 1)
        }

    @property
    def newest(self) -> tuple[Version, Desired]:
        return self.version, self.desired

    def offer(
        self, desired: Desired, based_on: Version, voters: tuple[str, ...] | None = None
    ) -> Version:
        assert based_on == self.version
        self.voters = self.voters if voters is None else voters
        self.version = Version(1, self.version.number + 1)
        self.desired = Desired.read(desired.text())
        return self.version

    def there(self) -> Servers:
        return Servers({name: card for name, card in self.cards.items() if name not in self.silent})

    def silent_s(self) -> dict[str, float]:
        return {self.cards[name]["address"]: after for name, after in self.silent.items()}

    def ask(self, address: str, action: str, options: dict[str, Any], within_s: float) -> Any:
        assert action == "ports"
        return {
            "nodes": {name: next(self._ports) for name in options["nodes"]},
            "metrics": {name: next(self._ports) for name in options["metrics"]},
        }


class World:
    """A coordinator, its servers, and a deployment to submit."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.member = FakeMember()
        self.states: dict[str, str] = {}
        # The first result of those who have joined; how many all have read.
        self.joined_at: dict[str, int] = {}
        self.read = 0
        self.passed_s = 0.0
        # Plan and network are made where "a" is no server yet.
        deployment = planned(directory / "own", TOML.format(listen="127.0.0.1"))
        self.sent = {
            "name": "one",
            "tables": {
                "sources": {"load": {"listen": "a"}},
                "fragments": {"main": {"replicas": 2, "protection": "active"}},
                "clients": {"screen": {"output": "out", "sink": "jsonl:out.jsonl", "listen": "a"}},
            },
            "network": "network.py",
            "files": {"network.py": base64.b64encode(deployment.network.read_bytes()).decode()},
            "plan": (deployment.data / "plan.json").read_text(),
        }
        token = directory / "token"
        token.write_text("a secret of the test\n")
        token.chmod(0o600)
        settings = AdaptationSettings(hold_us=100_000_000, rest_us=200_000_000)
        self.coordinating = Coordinating(
            self.member,  # type: ignore[arg-type]
            directory / "staged",
            {"token_file": str(token)},
            30.0,
            settings,
            Journal("test"),
        )
        for module in (coordinating, collector, members, rates):
            monkeypatch.setattr(module, "node_status", self._status)
        self.clock = SimpleNamespace(
            monotonic_ns=lambda: int(self.passed_s * 1e9), monotonic=lambda: self.passed_s
        )
        for module in (coordinating, collector, rates):
            monkeypatch.setattr(module, "time", self.clock)
        self.coordinating._take_in()

    def _status(self, deployment: Any, nodes: list[str], within_s: float = 0) -> Any:
        come = int(100 * self.passed_s)
        found = {"next_id": come, "outputs": {"out": come // 10}}
        return {
            name: {
                "state": self.states.get(name, "stable"),
                "incarnation": int(name in self.joined_at),
                "trimmed_below": {"out": max(self.read, self.joined_at.get(name, 0))},
                **found,
            }
            for name in nodes
        }

    def look(self, seconds: float = 20.0) -> str:
        self.passed_s += seconds
        self.coordinating._look_after("one")
        return self.coordinating.notes["one"]

    @property
    def placed(self) -> list[str]:
        return self.member.desired.submissions["one"].placed["main"]

    def membership(self) -> Membership:
        text = self.member.desired.submissions["one"].membership
        return Membership() if text is None else decode_membership(json.loads(text)["membership"])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


def test_servers_are_written_down_and_a_submission_is_placed(world: World) -> None:
    assert world.member.desired.names().keys() == {"a", "b", "c", "d"}
    answer = world.coordinating.submit(world.sent)
    assert answer["submission"]["placed"] == {"main": ["a", "b"]}
    assert world.placed == ["a", "b"]
    addresses = json.loads(world.member.desired.submissions["one"].addresses)
    assert addresses["nodes"].keys() == {"entry-load", "main-1", "main-2", "screen"}
    version = world.member.version
    assert world.coordinating.submit(world.sent)["version"] == list(version)
    other = {**world.sent, "files": {"network.py": "eA=="}}
    with pytest.raises(NotPlaced, match="is submitted already, and is another one"):
        world.coordinating.submit(other)
    world.coordinating.withdraw({"name": "one"})
    assert not world.member.desired.submissions


def test_what_a_lost_server_ran_is_replaced_and_removed_when_the_new_one_is_stable(
    world: World,
) -> None:
    world.coordinating.submit(world.sent)
    assert world.look() == ""
    world.member.silent = {"b": 10.0}
    assert world.look() == ""
    world.member.silent = {"b": 31.0}
    world.states["main-3"] = "recovering"
    assert world.look() == "main-3 at c takes the place of main-2"
    assert world.placed == ["a", "b", "c"]
    assert world.membership().added == (("main-3", "main-1"),)
    assert "main-3 is not stable yet" in world.look()
    world.states["main-3"] = "stable"
    assert world.look() == "main-2 is removed"
    assert world.placed == ["a", "c"]
    assert [name for name, _ in world.membership().gone] == ["main-2"]
    for _ in range(3):
        assert world.look() == ""
    assert world.placed == ["a", "c"]


def test_a_client_of_a_submission_is_retired_by_who_coordinates(world: World) -> None:
    world.coordinating.submit(world.sent)
    with pytest.raises(NotPlaced, match=r"no client 'reader'; it has screen"):
        world.coordinating.retire({"name": "one", "client": "reader"})
    assert world.membership() == Membership()
    assert world.coordinating.retire({"name": "one", "client": "screen"}) == {"epoch": 1}
    assert world.membership().gone == (("screen", 1),)
    with pytest.raises(NotPlaced, match="no client 'screen'"):
        world.coordinating.retire({"name": "one", "client": "screen"})
    assert world.membership().epoch == 1


def test_what_only_one_disk_has_waits_for_it(world: World) -> None:
    world.coordinating.submit(world.sent)
    world.member.silent = {"a": 31.0, "b": 31.0}
    world.member.address = "127.0.0.1:4"
    said = world.look()
    assert "main-1, main-2 waits for a, b: nobody else has what it has on disk" in said
    assert "entry-load waits for a, which has its log" in said
    assert world.placed == ["a", "b"]


def test_a_replica_moves_to_where_it_has_long_been_better_off(world: World) -> None:
    world.coordinating.submit(world.sent)
    world.look()
    # b is far away from now on, and c near.
    world.member.delays(b=80.0, c=10.0, d=90.0)
    for _ in range(5):
        assert world.look() == ""
    assert world.look() == "main-3 at c is to take the place of main-2 at b"
    world.states["main-3"] = "recovering"
    assert "main-3 is not stable yet" in world.look()
    world.states["main-3"] = "stable"
    # What a client that is away has not read yet only this one has: the others joined later.
    world.joined_at = {"main-1": 40, "main-3": 50}
    assert "main-2 has older results than any other" in world.look()
    world.read = 60
    assert world.look() == "main-2 is removed"
    assert world.placed == ["a", "c"]
    # All is well again: nothing else moves.
    for _ in range(60):
        assert world.look() == ""
    assert world.placed == ["a", "c"]


def test_a_link_that_jumps_moves_nothing(world: World) -> None:
    world.coordinating.submit(world.sent)
    for number in range(60):
        far = 80.0 if number % 3 else 10.0
        world.member.delays(b=far, c=20.0, d=90.0)
        assert world.look() == ""
    assert world.placed == ["a", "b"]


def test_places_that_were_given_stay(world: World) -> None:
    tables = {**world.sent["tables"], "fragments": {"main": {"replicas": ["a", "d"]}}}  # type: ignore[dict-item]
    world.coordinating.submit({**world.sent, "tables": tables})
    assert world.placed == ["a", "d"]
    for _ in range(20):
        assert world.look() == ""
    assert world.placed == ["a", "d"]


def test_it_says_why_with_the_rates_that_were_measured(world: World) -> None:
    world.coordinating.submit(world.sent)
    for _ in range(3):
        world.look()
    found = world.coordinating.explain({"name": "one"})
    assert found["rates"]["load"] == pytest.approx(100.0)
    assert found["rates"]["out"] == pytest.approx(10.0, rel=0.1)
    choice = next(each for each in found["choices"] if each["server"] == "b")
    # 100 tuples a second come in and 10 go out, over 10 ms.
    assert choice["cost"] == pytest.approx(1_100.0, rel=0.05)
    assert choice["runner_up"][0] == "c"
    with pytest.raises(NotPlaced, match="'two' is not submitted; submitted are: one"):
        world.coordinating.explain({"name": "two"})


def test_votes_are_given_and_taken_and_servers_forgotten(world: World) -> None:
    world.coordinating.submit(world.sent)
    with pytest.raises(NotPlaced, match="c votes already"):
        world.coordinating.voting.change({"server": "c", "votes": True})
    world.coordinating.voting.change({"server": "d", "votes": True})
    assert world.member.voters == tuple(f"127.0.0.1:{number}" for number in (1, 2, 3, 4))
    with pytest.raises(NotPlaced, match="d has a vote"):
        world.coordinating.voting.forget({"server": "d"})
    world.coordinating.voting.change({"server": "d", "votes": False})
    with pytest.raises(NotPlaced, match="d is there; stop it first"):
        world.coordinating.voting.forget({"server": "d"})
    world.member.silent = {"d": 31.0}
    with pytest.raises(NotPlaced, match="does not answer now"):
        world.coordinating.voting.change({"server": "d", "votes": True})
    world.coordinating.voting.forget({"server": "d"})
    assert world.member.desired.names().keys() == {"a", "b", "c"}
    with pytest.raises(NotPlaced, match="there is no server 'd'; there are a, b, c"):
        world.coordinating.voting.forget({"server": "d"})
    world.coordinating.voting.change({"server": "b", "votes": False})
    world.member.silent = {"b": 1.0, "d": 31.0}
    with pytest.raises(NotPlaced, match="b has parts of one"):
        world.coordinating.voting.forget({"server": "b"})


@pytest.mark.parametrize("name", ["../one", "/one", "cluster", ""])
def test_a_submission_has_a_plain_name(world: World, name: str) -> None:
    with pytest.raises(HoldfastError, match="needs a plain name"):
        world.coordinating.submit({**world.sent, "name": name})


@pytest.mark.parametrize("path", ["../away.py", "/away.py", "data/plan.json", "deployment.json"])
def test_its_files_stay_in_its_directory(world: World, tmp_path: Path, path: str) -> None:
    files = {**world.sent["files"], path: "eA=="}  # type: ignore[dict-item]
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(HoldfastError, match="has no place on a server"):
        world.coordinating.submit({**world.sent, "files": files})
    assert sorted(tmp_path.rglob("*")) == before
    assert not world.member.desired.submissions


def test_staged_files_are_written_only_when_something_has_changed(world: World) -> None:
    world.coordinating.submit(world.sent)
    world.look()
    staged = world.coordinating._directory / "one" / "deployment.json"
    written = staged.stat().st_mtime_ns
    for _ in range(3):
        world.look()
    assert staged.stat().st_mtime_ns == written
