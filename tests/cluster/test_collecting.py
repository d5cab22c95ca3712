"""What a coordinator discards of a submission, and adds again, with servers and nodes made up."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.cluster.collecting import way_ms
from holdfast.cluster.placing import NotPlaced
from holdfast.core.collection import FeedFacts, Running, StreamReplica
from tests.cluster.test_coordinating import World


class Racing(World):
    """Three racing replicas, at a, b and c; "screen" at a counts how early they are."""

    def __init__(
        self, directory: Path, monkeypatch: pytest.MonkeyPatch, cost: float, least: int = 1
    ) -> None:
        super().__init__(directory, monkeypatch)
        tables: dict[str, Any] = {
            **self.sent["tables"],  # type: ignore[dict-item]
            "fragments": {"main": {"replicas": 3, "protection": "race"}},
            "collection": {"network_cost": cost, "least": least, "every": "1 minute"},
        }
        # How much of each tuple is owed to whom, in the order of the replicas.
        self.early = [1.0, 0.5, 1 / 3, 1.0]
        self.collected: list[str] = []
        self.revived: list[str] = []
        self.errors: dict[str, str] = {}
        self.joined: set[str] = set()
        self.coordinating.submit({**self.sent, "tables": tables})

    def _status(self, deployment: Any, nodes: list[str], within_s: float = 0) -> Any:
        found = super()._status(deployment, nodes, within_s)
        spared = [
            producer
            for reader, _, producer, _ in self.membership().collected
            if reader == "screen" and producer not in self.revived
        ]
        for name in nodes:
            late = name in self.joined
            found[name] |= {"incarnation": int(late), "trimmed_below": {"out": 50 * late}}
            if name in self.errors:
                found[name] = {"error": self.errors[name]}
        if "screen" in found:
            come = self.passed_s * 10
            found["screen"]["inputs"] = {
                "out": {
                    "from": "main-1",
                    "weights": {
                        f"main-{index + 1}": share * come for index, share in enumerate(self.early)
                    },
                    "collected": spared,
                    "revived": list(self.revived),
                }
            }
        return found

    def fragment(self) -> Any:
        submission = self.member.desired.submissions["one"]
        return self.coordinating.staged("one", submission).fragments["main"]

    def change_cost(self, cost: float) -> None:
        submission = self.member.desired.submissions["one"]
        tables = {**submission.tables, "collection": {"network_cost": cost}}
        changed = replace(submission, tables=tables)
        self.member.desired = self.member.desired.with_submission("one", changed)

    def pass_by(self, minutes: int) -> list[str]:
        """What is said while so many minutes pass."""
        return [note for _ in range(3 * minutes) if (note := self.look())]

    @property
    def feeds(self) -> list[str]:
        return [one[2] for one in self.membership().collected]


def test_the_least_useful_feeds_and_replicas_go_until_the_cost_is_what_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # 100 tuples a second go to main, 10 to the screen; b is 10 ms from a, c 60.
    world = Racing(tmp_path, monkeypatch, cost=2_500)
    assert world.placed == ["a", "b", "c"]
    said = world.pass_by(4)
    # The feed of main-3 is worth least, and so is all of main-3, which costs more.
    assert any("collected" in one and "main-3" in one for one in said), said
    assert world.placed == ["a", "b"]
    assert world.coordinating._wanted_of("one", world.fragment()) == 2
    assert world.pass_by(5) == [], "it costs no more than that now"


def test_never_below_the_least_and_never_less_than_flows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Racing(tmp_path, monkeypatch, cost=0, least=2)
    world.pass_by(6)
    assert world.placed == ["a", "b"]
    assert world.feeds == []


def test_one_that_is_always_first_stays_wherever_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Racing(tmp_path, monkeypatch, cost=0)
    world.early = [1 / 3, 0.5, 1.0]
    world.pass_by(6)
    assert world.placed == ["c"]


def test_nothing_is_decided_while_somebody_does_not_answer_or_is_not_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Racing(tmp_path, monkeypatch, cost=0)
    world.errors = {"main-2": "nobody listens"}
    assert "while main-2 does not answer" in " ".join(world.pass_by(3))
    world.errors = {}
    world.states["main-1"] = "failure"
    assert "while main-1 is failure" in " ".join(world.pass_by(3))
    assert world.placed == ["a", "b", "c"]


def test_a_feed_that_its_reader_has_revived_stays_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Racing(tmp_path, monkeypatch, cost=7_200)
    # The other two have older tuples, for which somebody may ask, and do not go.
    world.joined = {"main-1"}
    world.pass_by(3)
    assert world.feeds == ["main-3"]
    assert world.placed == ["a", "b", "c"]
    world.revived = ["main-3"]
    before = world.membership().epoch
    world.pass_by(2)
    assert world.membership().epoch == before, "it is needed"
    world.pass_by(4)
    assert world.membership().epoch > before, "and then looked at again"


def test_below_the_cost_a_replica_that_went_is_added_where_it_shortens_the_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Racing(tmp_path, monkeypatch, cost=0)
    world.early = [0.4, 1.0, 0.3]
    world.pass_by(6)
    assert world.placed == ["b"]
    world.change_cost(10_000)
    said = world.pass_by(4)
    assert any("one more of main brings results 20 ms sooner" in one for one in said), said
    assert sorted(world.placed) == ["a", "b"]
    # A third one would bring nothing sooner.
    world.pass_by(6)
    assert sorted(world.placed) == ["a", "b"]


def test_by_hand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Racing(tmp_path, monkeypatch, cost=1e9)
    world.pass_by(3)
    assert world.placed == ["a", "b", "c"]
    found = world.coordinating.collector.collect({"name": "one", "cost": 0, "least": 2})
    assert "main-3" in found["said"]
    assert found["after"] < found["before"]
    assert world.placed == ["a", "b"]
    added = world.coordinating.collector.add({"name": "one", "fragment": "main", "server": "d"})
    assert added == {"replica": "main-4", "server": "d"}
    assert world.placed == ["a", "b", "d"]
    assert world.look() == "", "it is wanted"
    add = world.coordinating.collector.add
    with pytest.raises(NotPlaced, match="d has a replica of main already"):
        add({"name": "one", "fragment": "main", "server": "d"})
    with pytest.raises(NotPlaced, match="no fragment 'other'; it has main"):
        add({"name": "one", "fragment": "other", "server": None})
    with pytest.raises(NotPlaced, match="server 'x' does not answer now"):
        add({"name": "one", "fragment": "main", "server": "x"})
    with pytest.raises(NotPlaced, match="'two' is not submitted"):
        add({"name": "two", "fragment": "main", "server": None})
    with pytest.raises(NotPlaced, match="at least 1 replica"):
        world.coordinating.collector.collect({"name": "one", "cost": 0, "least": 0})


def test_a_replica_moves_by_hand_and_the_other_goes_when_it_is_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Racing(tmp_path, monkeypatch, cost=1e9)
    move = world.coordinating.collector.move
    with pytest.raises(NotPlaced, match="no replica 'main-9'; it has main-1, main-2, main-3"):
        move({"name": "one", "replica": "main-9", "server": "d"})
    # The cheapest of all goes, because it is said.
    assert move({"name": "one", "replica": "main-1", "server": "d"})["replica"] == "main-4"
    world.states["main-4"] = "recovering"
    assert "main-4 is not stable yet" in world.look()
    world.states["main-4"] = "stable"
    assert world.look() == "main-1 is removed"
    assert world.placed == ["b", "c", "d"]
    assert world.member.desired.submissions["one"].moves == {}
    world.pass_by(2)
    assert world.placed == ["b", "c", "d"]


def test_a_replica_goes_by_hand_while_another_one_is_stable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Racing(tmp_path, monkeypatch, cost=1e9)
    remove = world.coordinating.collector.remove
    with pytest.raises(NotPlaced, match="no replica 'main-9'; it has main-1, main-2, main-3"):
        remove({"name": "one", "replica": "main-9"})
    assert remove({"name": "one", "replica": "main-1"})["left"] == ["main-2", "main-3"]
    assert world.placed == ["b", "c"]
    assert world.look() == "", "nobody takes its place"
    world.states["main-3"] = "recovering"
    with pytest.raises(NotPlaced, match="main-2 stays until another one of main is stable"):
        remove({"name": "one", "replica": "main-2"})
    remove({"name": "one", "replica": "main-3"})
    with pytest.raises(NotPlaced, match="main-2 is the only one of main"):
        remove({"name": "one", "replica": "main-2"})
    assert world.placed == ["b"]


def test_it_says_what_each_is_worth(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = Racing(tmp_path, monkeypatch, cost=7_200)
    world.joined = {"main-1"}
    world.pass_by(3)
    found = world.coordinating.explain({"name": "one"})
    worth = {each["replica"]: each["utility"] for each in found["choices"]}
    # What is collected is worth nothing; the others share what is left.
    assert worth == {
        "main-1": pytest.approx(2 / 3),
        "main-2": pytest.approx(1 / 3),
        "main-3": 0.0,
    }
    feeds = {each["producer"]: each["utility"] for each in found["feeds"]}
    assert feeds["main-3"] is None
    assert found["cost"] == pytest.approx(7_111, rel=0.05)
    status = world.coordinating.collector.status("one")
    assert status["collected"] == {"feeds": 1, "replicas": 0, "revived": 0, "added": 0}


def test_the_way_is_as_long_as_the_longest_input_by_its_shortest_feed() -> None:
    delays = {
        StreamReplica("s", "source", "a1"): 5.0,
        StreamReplica("s", "source", "a2"): 9.0,
        StreamReplica("a", "a1", "screen"): 30.0,
        StreamReplica("a", "a2", "screen"): 10.0,
        StreamReplica("t", "other", "screen"): 12.0,
    }
    running = Running({}, {}, {"screen": 2.0}, dict.fromkeys(delays, FeedFacts(1.0, 1.0)))
    assert way_ms(running, delays.__getitem__) == 2 * 19.0
