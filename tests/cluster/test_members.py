"""Clients are retired and replicas removed: what is decided, and what is refused."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast
from holdfast.cli import main
from holdfast.client import Client
from holdfast.cluster import members
from holdfast.cluster.desired import SUBMITTED
from holdfast.cluster.members import (
    MembershipError,
    add_replica,
    move_replica,
    remove_replica,
    retire_client,
)
from holdfast.core.records import ConsumersRecord, Membership
from holdfast.core.settings import Protection
from holdfast.deployment import Deployment, DeploymentError, load_deployment, read_tables
from holdfast.durable import Damaged, read_document, write_document
from holdfast.errors import StateError
from holdfast.kept.consumers import keep_consumers, read_consumers
from holdfast.plans.addresses import Addresses
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.plans.membership_file import (
    MembershipFile,
    change_membership,
    read_membership,
)
from holdfast.plans.plan import Plan, SourcePlan
from holdfast.plans.topology import Topology
from holdfast.producer import Producer
from tests.flight.nodes import location, make_entry, numbers, read_until

DEPLOYMENT = """
name = "small"
network = "network.py"
[sources.load]
[fragments.main]
replicas = 3
[fragments.pair]
protection = "hybrid"
[fragments.one]
replicas = 1
[clients.screen]
output = "best"
sink = "console"
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Path:
    (tmp_path / "network.py").write_text("")
    path = tmp_path / "deployment.toml"
    path.write_text(DEPLOYMENT)
    return path


def test_a_client_is_retired_once(deployment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["client", "retire", str(deployment), "screen"]) == 0
    said = capsys.readouterr().out
    assert "screen is retired (epoch 1)" in said
    assert "never started from this directory, so nobody has heard of it" in said
    found = load_deployment(deployment)
    assert read_membership(found.data) == Membership(1, (("screen", 1),))
    assert "screen" not in found.processes
    assert "screen" not in found.endpoints
    assert main(["client", "retire", str(deployment), "screen"]) == 1
    assert "screen is gone already" in capsys.readouterr().err


@pytest.mark.parametrize("submitted", ["data/submitted", ""], ids=["from here", "its copy"])
def test_of_what_a_cluster_runs_nobody_else_decides_who_takes_part(
    deployment: Path, capsys: pytest.CaptureFixture[str], submitted: str
) -> None:
    mark = deployment.parent / submitted / SUBMITTED
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text("10.0.0.1:4700")
    for command in (
        ["client", "retire", str(deployment), "screen"],
        ["replica", "remove", str(deployment), "main-2", "--force"],
        ["replica", "add", str(deployment), "main"],
        ["replica", "move", str(deployment), "main-1", "127.0.0.1"],
    ):
        assert main(command) == 1
        said = capsys.readouterr().err
        assert "was submitted to a cluster (10.0.0.1:4700)" in said
        assert "--to HOST:PORT" in said
    assert read_membership(load_deployment(deployment).data).epoch == 0


def test_a_client_that_the_deployment_does_not_name_is_no_client(deployment: Path) -> None:
    with pytest.raises(MembershipError, match=r"no client 'reader'.*it names: screen"):
        retire_client(deployment, "reader")


@pytest.mark.parametrize(
    ("replica", "why"),
    [
        ("main-4", "there is no replica 'main-4'; there are main-1, main-2, main-3"),
        ("pair-1", "was never started"),
        ("one-1", "the only replica of one"),
        ("main-1", "was never started"),
    ],
)
def test_who_cannot_be_done_without_is_not_removed(
    deployment: Path, replica: str, why: str
) -> None:
    with pytest.raises(MembershipError, match=why):
        remove_replica(deployment, replica)
    assert read_membership(load_deployment(deployment).data).epoch == 0


def test_who_is_left_is_who_takes_part(deployment: Path) -> None:
    assert holdfast.remove_replica(deployment, "main-2", force=True).epoch == 1
    assert holdfast.retire_client(deployment, "screen").epoch == 2
    found = load_deployment(deployment)
    assert sorted(found.processes) == [
        "entry-load", "main-1", "main-3", "one-1", "pair-1", "pair-2",
    ]  # fmt: skip
    topology = Topology(found, plan())
    assert topology.producers["sums"] == ("main-1", "main-3")
    assert topology.replica("main-3").partners == ("main-1",)
    # That nobody is left to keep an output for is known by who was there.
    assert topology.consumers["best"] == ("screen",)


def test_what_counts_at_once_is_not_said_to_count_later(
    deployment: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Addresses.choose(load_deployment(deployment))
    changed = retire_client(deployment, "screen", wait_s=0.0)
    assert changed.started
    assert "entry-load" in changed.unaware


def test_a_replica_is_added_where_it_is_wanted(deployment: Path) -> None:
    with pytest.raises(MembershipError, match="was never started"):
        add_replica(deployment, "main")
    before = Addresses.choose(load_deployment(deployment))
    with pytest.raises(MembershipError, match="no fragment 'other'; there are main, one, pair"):
        add_replica(deployment, "other")
    with pytest.raises(MembershipError, match="hybrid and has its two copies, pair-1 and pair-2"):
        add_replica(deployment, "pair")
    with pytest.raises(DeploymentError, match="write it as host, host:port or a server"):
        add_replica(deployment, "main", "here:there")
    assert read_membership(load_deployment(deployment).data).epoch == 0
    name, changed = add_replica(deployment, "one", wait_s=0.0)
    assert (name, changed.epoch) == ("one-2", 1)
    assert "entry-load" in changed.unaware, "nobody runs"
    remove_replica(deployment, "main-3", force=True, wait_s=0.0)
    assert add_replica(deployment, "main", "127.0.0.1:4711", wait_s=0.0)[0] == "main-4"
    found = load_deployment(deployment)
    assert found.fragments["one"].protection is Protection.ACTIVE
    assert read_membership(found.data).added == (("one-2", "one-1"), ("main-4", "main-1"))
    # Everybody else is where it was, and the new ones have places, too.
    after = Addresses.read(found)
    assert after.of("main-4").port == 4711
    assert all(after.of(name) == each for name, each in before.nodes.items() if name != "main-3")
    assert Topology(found, plan()).replica("main-1").partners == ("main-2", "main-4")
    # A server is sent the tables as they are now, and reads them the same.
    copy = deployment.parent / "data" / "copy"
    copy.mkdir()
    (copy / "network.py").write_text("")
    (copy / "deployment.json").write_text(json.dumps(read_tables(deployment)))
    shutil.copytree(found.data, copy / "data", ignore=shutil.ignore_patterns("copy"))
    assert load_deployment(copy / "deployment.json").processes == found.processes


def test_a_copy_has_the_place_of_the_one_that_went(deployment: Path) -> None:
    Addresses.choose(load_deployment(deployment))
    with pytest.raises(
        MembershipError, match=r"pair-3 at 127\.0\.0\.1 has the place of pair-1, and"
    ):
        move_replica(deployment, "pair-1", "127.0.0.1", force=True, wait_s=0.0)
    found = load_deployment(deployment)
    assert {"pair-2", "pair-3"} <= found.processes.keys()
    assert "pair-1" not in found.processes
    assert found.fragments["pair"].protection is Protection.HYBRID
    for name, begins_empty in (("pair-2", True), ("pair-3", False)):
        topology = Topology(found, plan())
        pair = topology.standby(name)
        assert pair is not None
        assert pair.copies == ("pair-3", "pair-2")
        assert topology.replica(name).begins_empty is begins_empty
        assert topology.replica(name).partners == ()
    # A server is sent the tables as they are now, and reads them the same.
    tables = read_tables(deployment)
    (deployment.parent / "copy.json").write_text(json.dumps(tables))
    assert load_deployment(deployment.parent / "copy.json").processes == found.processes
    # Alone, and with another one again.
    remove_replica(deployment, "pair-2", force=True, wait_s=0.0)
    with pytest.raises(MembershipError, match="the only replica of pair"):
        remove_replica(deployment, "pair-3", force=True, wait_s=0.0)
    assert add_replica(deployment, "pair", wait_s=0.0)[0] == "pair-4"
    pair = Topology(load_deployment(deployment), plan()).standby("pair-4")
    assert pair is not None
    assert pair.copies == ("pair-3", "pair-4")
    # It is nothing that a file would say.
    text = deployment.read_text().replace("[fragments.pair]", "[fragments.pair]\narrived = 1")
    deployment.write_text(text)
    with pytest.raises(DeploymentError, match="'arrived' means nothing here"):
        load_deployment(deployment)


@pytest.mark.parametrize(
    ("change", "other"),
    [
        (lambda path: remove_replica(path, "pair-1", force=True), "pair-2"),
        (lambda path: move_replica(path, "pair-1", "127.0.0.1", force=True), "pair-2"),
        (lambda path: remove_replica(path, "main-1"), "main-2"),
    ],
    ids=["removed", "moved", "the only one with a state"],
)
def test_of_two_who_are_removed_at_once_one_stays(
    deployment: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], object], other: str
) -> None:
    Addresses.choose(load_deployment(deployment))
    # main-3 has just been added.
    states = {"main-1": "stable", "main-2": "stable", "main-3": "recovering"}
    said = {name: {"state": each, "trimmed_below": {}} for name, each in states.items()}
    monkeypatch.setattr(members, "node_status", lambda _, asked: {one: said[one] for one in asked})
    checked = members._check_removable

    def meanwhile(found: Deployment, *more: Any) -> None:
        checked(found, *more)
        change_membership(found, lambda known: known.without(other))

    monkeypatch.setattr(members, "_check_removable", meanwhile)
    with pytest.raises(MembershipError, match=f"stays: {other}, which would have been left, has"):
        change(deployment)
    assert read_membership(load_deployment(deployment).data).gone == ((other, 1),)


def test_a_copy_from_which_nobody_takes_over_stays(
    deployment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Addresses.choose(load_deployment(deployment))
    said = {
        "pair-1": {"copy": "primary", "state": "stable", "awake": True},
        "pair-2": {"copy": "suspended", "state": "suspended", "awake": False},
    }
    monkeypatch.setattr(members, "node_status", lambda _, asked: {one: said[one] for one in asked})
    monkeypatch.setattr(members, "RELIEVE_SECONDS", 0.05)
    with pytest.raises(MembershipError, match=r"pair-1 stays, because pair-2 has not taken over"):
        remove_replica(deployment, "pair-1")
    found = read_membership(load_deployment(deployment).data)
    assert (found.gone, found.leaving, found.epoch) == ((), (), 2)


def plan() -> Plan:
    """load -> main -> sums -> pair -> best, and one beside it."""
    schema = pa.schema([("k", pa.int64())])

    def part(name: str, source: str, stream: str) -> FragmentPlan:
        output = FragmentStream(stream, schema, frozenset([source]))
        return FragmentPlan(name, {source: schema}, (output,), False, ())

    parts = [part("main", "load", "sums"), part("pair", "sums", "best"), part("one", "load", "c")]
    source = SourcePlan(schema, None, ())
    return Plan(200_000, {"load": source}, {one.name: one for one in parts}, ("best", "c"))


def test_a_file_that_was_tampered_with_is_told(deployment: Path) -> None:
    found = load_deployment(deployment)
    change_membership(found, lambda known: known.without("screen"))
    path = found.data / "membership.json"
    path.write_text(path.read_text().replace("screen", "main-1"))
    with pytest.raises(Damaged, match="its checksum is another"):
        read_membership(found.data)


def test_a_file_of_another_format_is_refused(deployment: Path) -> None:
    found = load_deployment(deployment)
    change_membership(found, lambda known: known.without("screen"))
    path = found.data / "membership.json"
    older = read_document(path)
    del older["format"]
    write_document(path, older)
    for read in (lambda: read_membership(found.data), lambda: load_deployment(deployment)):
        with pytest.raises(StateError, match="has format None, this version of Holdfast reads 1"):
            read()


def test_what_a_provider_kept_in_another_format_is_refused(tmp_path: Path) -> None:
    record = ConsumersRecord(3, (("a", 9),), Membership(1, (("screen", 1),)))
    keep_consumers(tmp_path, record)
    assert read_consumers(tmp_path) == record
    path = tmp_path / "consumers.json"
    write_document(path, {"number": 3, "lives": {"a": 9}})
    with pytest.raises(StateError, match="has format None, this version of Holdfast reads 1"):
        read_consumers(tmp_path)


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60.0
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_what_is_kept_for_a_retired_client_goes_and_the_client_is_told(deployment: Path) -> None:
    found = load_deployment(deployment)
    directory = found.data / "processes" / "entry-load"
    node = make_entry(directory, membership=MembershipFile(found.data))
    node.start()
    try:
        producers = {"entry-load": location(node)}
        with Producer("load", location(node), name="test") as producer:
            producer.send(numbers(0, 10))
            producer.flush(30.0)
        with Client("load", producers, name="reader") as client:
            read_until(client, 10, 30.0)
        # It has acknowledged nothing of what it has read last, and stays away.
        assert node.entry.served.first_id < 10
        change_membership(found, lambda known: known.without("reader"))
        wait(lambda: node.entry.served.first_id == 10)
        kept = read_consumers(directory)
        assert kept is not None
        assert kept.membership == Membership(1, (("reader", 1),))
        with (
            Client("load", producers, name="reader", next_id=10) as client,
            pytest.raises(holdfast.RetiredError, match="reader was retired or removed"),
        ):
            read_until(client, 11, 30.0)
        # Others read what is there, and what comes.
        with Client("load", producers, name="other", next_id=10) as client:
            # Nothing is kept for it, so it is there before more comes: it is told how far all is.
            wait(lambda: client.read(1.0) is not None)
            with Producer("load", location(node), name="test") as producer:
                producer.send(numbers(10, 5))
            read_until(client, 15, 30.0)
    finally:
        node.stop()
