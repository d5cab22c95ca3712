"""What ``holdfast rescale`` decides and writes down, with nobody who runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.cluster import calling_off, following, rescaling
from holdfast.cluster import generations as generations_module
from holdfast.cluster.following import Following
from holdfast.cluster.members import MembershipError, remove_replica
from holdfast.cluster.rescaling import rescale
from holdfast.core.scaling import ScalingSettings
from holdfast.deployment import Deployment, DeploymentError, load_deployment
from holdfast.deployment_shards import only_server_of
from holdfast.plans.fragment_plans import Routes
from holdfast.plans.membership_file import change_membership, read_membership
from holdfast.plans.plan import read_plan, write_plan
from holdfast.plans.topology import Topology
from holdfast.slots import SLOTS
from tests.processes.test_shard_plans import SERVERS, addressed, plan_with, written

SPREAD = 'shards = {}\nprotection = "hybrid"\nheirs = "spread"\n{}'


def planned(directory: Path, shards: str, more: str = "") -> Deployment:
    """A ring in parts, as if it had been started once."""
    found = addressed(written(directory, SPREAD.format(shards, more)))
    write_plan(found, plan_with(Routes({"load": ("k",)})))
    return found


def generations(deployment: Deployment) -> list[tuple[int, int, int]]:
    """The number of each generation, and how many shards and fragments it has."""
    found = load_deployment(deployment.path)
    Topology(found, read_plan(found))
    about = found.fragments["main"].generations
    for one in about:
        slots = [found.fragments[name].shard for name in one.names]
        assert [(part.number, part.shards) for part in slots if part] == [
            (number, one.shards)
            for number in range(1, one.shards + 1)
            for _ in range(len(one.names) // one.shards)
        ]
    return [(one.number, one.shards, len(one.names)) for one in about]


def take_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rescaling, "_wait_until_taken_over", lambda *given: None)
    monkeypatch.setattr(generations_module, "wait_for_epoch", lambda *given: ())


@pytest.mark.parametrize(("shards", "parts"), [(2, 1), (4, 3), (6, 3)])
def test_a_ring_in_parts_is_counted_in_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int, parts: int
) -> None:
    found = planned(tmp_path, "3")
    with pytest.raises(MembershipError, match="main has 3 shards already"):
        rescale(found.path, "main", 3, wait_s=0.0)
    # Interrupted, it goes on where it was, and with nothing else.
    for _ in range(2):
        with pytest.raises(MembershipError, match="have not taken over after 0 s"):
            rescale(found.path, "main", shards, wait_s=0.0)
        assert generations(found) == [(1, 3, 6), (2, shards, shards * parts)]
    with pytest.raises(MembershipError, match=f"from 3 to {shards} shards; let that end first"):
        rescale(found.path, "main", 5, wait_s=0.0)
    take_over_at_once(monkeypatch)
    done = rescale(found.path, "main", shards)
    assert (done.shards, done.generation) == (shards, 2)
    assert generations(found) == [(2, shards, shards * parts)]
    done = rescale(found.path, "main", 3, wait_s=0.0)
    assert (done.shards, done.generation) == (3, 3)
    assert generations(found) == [(3, 3, 6)]
    after = load_deployment(found.path)
    topology = Topology(after, read_plan(after))
    names = after.fragments["main"].generations[0].names
    slots = [topology.fragment_plan(f"{name}-1").shard for name in names]
    assert [one.slots for one in slots if one] == [
        (at * SLOTS // 6, (at + 1) * SLOTS // 6) for at in range(6)
    ]


@pytest.mark.parametrize(
    "protection", ['protection = "hybrid"', 'protection = "passive"', "replicas = 2"]
)
@pytest.mark.parametrize(
    ("places", "shards"), [(3, 4), (2, 3), (3, 1), (2, 1), (3, 2), (2, 5), (3, 7)]
)
def test_a_lost_server_takes_one_copy_of_each_shard_whatever_their_number(
    tmp_path: Path, places: int, shards: int, protection: str
) -> None:
    """The last shard and the first one may be on one server: there its copy would be lost, too."""
    ring = ["10.0.0.1", "east", "west"][:places]
    found = written(tmp_path, f"shards = {ring}\n{protection}", SERVERS)
    write_plan(found, plan_with(Routes({"load": ("k",)})))
    about = {"given": places, "generations": [[1, places], [2, shards]]}
    change_membership(found, lambda known: known, shards={"main": about})
    after = load_deployment(found.path)
    Topology(after, read_plan(after))
    for name in (*after.fragments["main"].generations[1].names, "main"):
        servers = [after.endpoints[node].server for node in after.fragments[name].processes]
        assert len(set(servers[-2:])) == 2, name
        assert only_server_of(after, name) is None
    for nodes in after.processes.values():
        assert len({after.endpoints[node].server for node in nodes}) == 1
    first = after.fragments["main.g2.1"].processes
    own = [name for name, nodes in after.processes.items() if set(first) & set(nodes)]
    assert len(own) == 2


def test_neighbours_on_one_server_hold_no_state_for_each_other(tmp_path: Path) -> None:
    ring = 'shards = ["east", "east", "west", "west"]\nprotection = "hybrid"'
    found = written(tmp_path, ring, SERVERS)
    write_plan(found, plan_with(Routes({"load": ("k",)})))
    topology = Topology(found, read_plan(found))
    shards = [topology.fragment_plan(f"main.{number}-1").shard for number in range(1, 5)]
    assert [one.heirs for one in shards if one] == [
        ("main.3",),
        ("main.3",),
        ("main.1",),
        ("main.1",),
    ]
    assert [found.endpoints[f"main-{number}"].server for number in (1, 2)] == ["east", "west"]


def test_one_shard_that_does_everything_gets_no_parts(tmp_path: Path) -> None:
    found = planned(tmp_path, "2", 'routing = "primary"')
    with pytest.raises(DeploymentError, match="one shard does everything, in one piece"):
        rescale(found.path, "main", 3, wait_s=0.0)
    assert generations(found) == [(1, 2, 2)]


def test_a_ring_in_parts_follows_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shards are counted, not their parts, also where it goes on with what has begun."""
    found = planned(tmp_path, '"auto"', "shards_between = [2, 4]")
    busy = 0.8
    told: list[str] = []

    def node_status(deployment: Deployment, names: list[str]) -> dict[str, dict[str, Any]]:
        said = {"state": "stable", "behind_s": 0.0, "delay_s": 3.0, "input_ratio": 1.0}
        return {name: {**said, "busy": busy} for name in names if name.endswith("-1")} | {
            name: {"state": "suspended"} for name in names if not name.endswith("-1")
        }

    monkeypatch.setattr(following, "node_status", node_status)
    monkeypatch.setattr(following, "_WAIT_SECONDS", 0.0)
    at_once = lambda least, most: ScalingSettings(least, most, 0, 0)  # noqa: E731
    monkeypatch.setattr(following, "ScalingSettings", at_once)
    follows = Following(found, told.append)

    def look() -> list[tuple[int, int, int]]:
        for fragment, machine in follows._machines.items():
            follows._look_at(fragment, machine)
        return generations(found)

    assert look() == look() == [(1, 2, 2), (2, 4, 12)]
    take_over_at_once(monkeypatch)
    assert look() == [(2, 4, 12)]
    # Each of the three parts of a shard has a tenth of a driver to do.
    busy = 0.1
    assert look() == [(3, 3, 6)]
    assert [text for text in told if "follow" in text] == [
        "main: 2 shards have 0.80 to do; 4 follow",
        "main: 4 shards have 0.30 to do; 3 follow",
    ]


def test_a_change_is_called_off_and_its_number_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned(tmp_path, "3")
    with pytest.raises(MembershipError, match="have not taken over after 0 s"):
        rescale(found.path, "main", 4, wait_s=0.0)
    under_way = load_deployment(found.path)
    with pytest.raises(
        MembershipError, match=r"rescale deployment\.toml main 4; or call it off: .* 3"
    ):
        rescale(found.path, "main", 5, wait_s=0.0)
    # Nobody answers: those before may have lost what only the new ones have.
    with pytest.raises(MembershipError, match="not called off: of those before nobody can go on"):
        rescale(found.path, "main", 3, wait_s=0.0)
    assert generations(found) == [(1, 3, 6), (2, 4, 12)]
    well = {"state": "stable", "incarnation": 0, "boundary": 5}
    monkeypatch.setattr(calling_off, "node_status", lambda at, names: dict.fromkeys(names, well))
    take_over_at_once(monkeypatch)
    told: list[str] = []
    done = rescale(found.path, "main", 3, tell=told.append)
    assert (done.shards, done.generation) == (3, 1)
    assert told == ["the change of main to 4 shards is called off: new shards end"]
    assert generations(found) == [(1, 3, 6)]
    after = load_deployment(found.path)
    assert after.processes == found.processes
    new = {name for one in under_way.processes.values() for name in one} - {
        name for one in found.processes.values() for name in one
    }
    assert {"main.g2.4.3-2", "main-3", "main-4"} <= new
    assert after.gone == new
    # Whoever waited for the change hears of it, and does not remove those that are left.
    with pytest.raises(MembershipError, match="to 4 shards was called off meanwhile"):
        rescaling._finish(under_way, "main", 4, 2)
    assert generations(found) == [(1, 3, 6)]
    with pytest.raises(MembershipError, match="main has 3 shards already"):
        rescale(found.path, "main", 3)
    done = rescale(found.path, "main", 4)
    assert (done.shards, done.generation) == (4, 3)
    assert generations(found) == [(3, 4, 12)]
    last = load_deployment(found.path)
    taking_part = [name for name in last.fragments["main"].processes if name not in last.gone]
    assert taking_part == ["main-5", "main-6"]


def beside_another(directory: Path) -> Deployment:
    """Two shards that read one source, and somebody who reads another one."""
    more = "[sources.far]\n[fragments.apart]\n"
    found = addressed(written(directory, "shards = 2", more))
    plan = plan_with(Routes({"load": ("k",)}))
    ((_, main),) = plan.fragments.items()
    schema = plan.sources["load"].schema
    output = replace(main.outputs[0], stream="elsewhere", reached_by=frozenset(["far"]))
    apart = replace(
        main, name="apart", inputs={"far": schema}, outputs=(output,), routes=Routes({})
    )
    plan = replace(
        plan,
        sources={**plan.sources, "far": plan.sources["load"]},
        fragments={"main": main, "apart": apart},
        outputs=("out", "elsewhere"),
    )
    write_plan(found, plan)
    return found


def test_a_change_waits_for_those_whom_it_concerns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = beside_another(tmp_path)
    monkeypatch.setattr(generations_module, "wait_for_epoch", lambda *given: ())
    monkeypatch.setattr(rescaling, "LOOK_SECONDS", 0.0)
    looks: list[list[str]] = []

    def node_status(deployment: Deployment, names: list[str]) -> dict[str, dict[str, Any]]:
        """The source hears of it at the third look; a new shard is lost at that and the next."""
        looks.append(names)
        well = {"state": "stable", "epoch": 1, "trimmed_below": {"out": 3}}
        said: dict[str, dict[str, Any]] = {name: dict(well) for name in names}
        said["entry-load"] = {"epoch": 1 if len(looks) > 2 else 0}
        if len(looks) in (3, 4):
            said["main.g2.3-1"] = {"error": "cannot be reached"}
        return said

    monkeypatch.setattr(rescaling, "node_status", node_status)
    with pytest.raises(
        MembershipError, match=r"after 0 s: entry-load has not heard of the change yet\. Both"
    ):
        rescale(found.path, "main", 3, wait_s=0.0)
    # Nobody is removed while a new shard is lost, though all have heard by then.
    assert rescale(found.path, "main", 3, wait_s=60.0).shards == 3
    assert len(looks) == 5
    assert {"entry-load", "main.1-1", "main.g2.3-1", "main-1", "main-2"} <= {*looks[0]}
    assert not {"entry-far", "apart-1"} & {*looks[0]}


@pytest.mark.parametrize("protection", ['protection = "hybrid"', "replicas = 2"])
def test_what_merges_loses_no_replica(tmp_path: Path, protection: str) -> None:
    """Who takes over from it counts on one for each, and nobody could be added again."""
    found = addressed(written(tmp_path, f"shards = 2\n{protection}"))
    write_plan(found, plan_with(Routes({"load": ("k",)})))
    for force in (False, True):
        with pytest.raises(MembershipError, match=r"main-2 merges the shards of main: .* spare"):
            remove_replica(found.path, "main-2", force=force)
    assert found.gone == load_deployment(found.path).gone == frozenset()
    # An earlier version has let go of one: there are as many again.
    gone = ["main-2", "main.1-2"] if "replicas" in protection else ["main-2"]
    change_membership(found, lambda known: known.without(*gone))
    with pytest.raises(MembershipError, match="have not taken over after 0 s"):
        rescale(found.path, "main", 3, wait_s=0.0)
    known = read_membership(found.data)
    assert known.added == (("main-3", "main-1"), ("main-4", "main-1"))
    assert not {like for _, like in known.taking} & set(gone)
    assert generations(found) == [(1, 2, 2), (2, 3, 3)]


def test_what_has_settled_is_not_called_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned(tmp_path, "3")
    with pytest.raises(MembershipError, match="have not taken over after 0 s"):
        rescale(found.path, "main", 2, wait_s=0.0)
    under_way = load_deployment(found.path)
    take_over_at_once(monkeypatch)
    rescale(found.path, "main", 2)
    monkeypatch.setattr(calling_off, "_wait_until_old_can_go_on", lambda *given: None)
    with pytest.raises(MembershipError, match="the 2 new shards of main have taken over meanwhile"):
        calling_off.call_off(under_way, "main", 0.0, lambda text: None)
    assert generations(found) == [(2, 2, 2)]


def test_a_number_that_follows_the_load_can_be_called_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = planned(tmp_path, '"auto"', "shards_between = [2, 4]")
    with pytest.raises(MembershipError, match="have not taken over after 0 s"):
        rescaling.change_number(found, "main", 3, 0.0, lambda text: None)
    with pytest.raises(MembershipError, match="the shards of main follow the load"):
        rescale(found.path, "main", 3)
    take_over_at_once(monkeypatch)
    monkeypatch.setattr(calling_off, "_wait_until_old_can_go_on", lambda *given: None)
    assert rescale(found.path, "main", 2).shards == 2
    assert generations(found) == [(1, 2, 2)]


@pytest.mark.parametrize(
    ("differs", "waits_for"),
    [
        ({}, None),
        ({"main.1-1": {"state": "up_failure"}}, None),
        ({"main.1-1": {"state": "recovering", "boundary": 7}}, None),
        ({"main.2-1": {"state": "recovering"}}, "main.2-1"),
        ({"main.2-1": {"error": "nobody listens"}}, "main.2-1"),
        ({"main-1": {"error": "nobody listens"}}, "main-1"),
        # It has joined, and trimmed what a reader of the new one may still ask for.
        ({"main-1": {"incarnation": 4, "trimmed_below": {"out": 9}}}, "main-1"),
        ({"main-1": {"incarnation": 4, "trimmed_below": {"out": 3}}}, None),
        (
            {
                "main-1": {"incarnation": 4, "trimmed_below": {"out": 9}},
                "main-2": {"state": "recovering"},
            },
            None,
        ),
    ],
)
def test_those_before_must_be_able_to_go_on(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    differs: dict[str, dict[str, Any]],
    waits_for: str | None,
) -> None:
    found = addressed(written(tmp_path, "shards = 2"))
    write_plan(found, plan_with(Routes({"load": ("k",)})))
    with pytest.raises(MembershipError, match="have not taken over after 0 s"):
        rescale(found.path, "main", 3, wait_s=0.0)
    take_over_at_once(monkeypatch)

    def node_status(deployment: Deployment, names: list[str]) -> dict[str, dict[str, Any]]:
        well = {"state": "stable", "incarnation": 0, "trimmed_below": {"out": 3}}
        said = {name: dict(well) for name in names}
        for name, other in differs.items():
            said[name] |= other
            if "state" in other:
                said[name].setdefault("boundary", 1 if other["state"] == "up_failure" else 0)
        return said

    monkeypatch.setattr(calling_off, "node_status", node_status)
    if waits_for is None:
        assert rescale(found.path, "main", 2, wait_s=0.0).shards == 2
        return
    with pytest.raises(MembershipError, match=f"after 0 s: {waits_for}: .*Both stay"):
        rescale(found.path, "main", 2, wait_s=0.0)
