"""What nodes have kept on another machine is asked for and changed as what they have kept here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from holdfast.cluster import kept_nodes
from holdfast.cluster.kept_elsewhere import KeptElsewhere
from holdfast.cluster.kept_nodes import KeptNodes
from holdfast.cluster.remote import ServerError
from holdfast.cluster.server import Server
from holdfast.core.frame import Kind
from holdfast.core.records import RecoveryRecord
from holdfast.core.settings import Keeping
from holdfast.deployment import Deployment
from holdfast.flight.credentials import SecuritySpec
from holdfast.frames import data_frame
from holdfast.kept.packed_codec import decode_record, encode_record
from holdfast.kept.state_directory import StateDirectory
from holdfast.log import StreamLog
from holdfast.plans.addresses import free_ports
from tests.blocks_for_tests import boundary_frame
from tests.processes.planned import planned
from tests.processes.test_store import SCHEMA, batch

DEPLOYMENT = """
name = "kept"
network = "network.py"
[security]
token_file = "token"
[servers.east]
listen = "127.0.0.1:{port}"
[sources.load]
[fragments.main]
replicas = ["127.0.0.1", "east"]
"""
RECORD = RecoveryRecord(3, 3, (("load", 2),), (("out", 3),), 0, 7)


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    here = tmp_path / "here"
    here.mkdir()
    (here / "token").write_text("secret")
    (here / "token").chmod(0o600)
    port = free_ports({"east": "127.0.0.1"}, [])["nodes"]["east"]
    return planned(here, DEPLOYMENT.format(port=port))


@contextmanager
def serving(deployment: Deployment) -> Iterator[Path]:
    """A server for it, and where it keeps what its nodes have."""
    endpoint = deployment.servers["east"]
    token = SecuritySpec(token_file=deployment.path.parent / "token")
    data = deployment.path.parent.parent / "there"
    made = Server(endpoint.host, endpoint.port, data, token, None)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    try:
        yield data / "kept" / "data"
    finally:
        made.request_stop()
        thread.join(30.0)


def stopped(data: Path, node: str, record: RecoveryRecord, tuples: int = 3) -> None:
    """A replica that has stopped behind so many tuples, each a microsecond after the other."""
    directory = data / "processes" / node
    state = StateDirectory(directory / "state")
    state.write_manifest({"network": ["old"], "kept": "state", "record": encode_record(record)})
    state.close()
    with StreamLog.open(directory / "streams" / "out", SCHEMA) as log:
        log.append([data_frame(Kind.STABLE, 0, batch(0, tuples)), boundary_frame(tuples, tuples)])


def manifest_of(data: Path, node: str) -> dict[str, object]:
    state = StateDirectory(data / "processes" / node / "state")
    try:
        assert state.manifest is not None
        return {**state.manifest, "record": decode_record(state.manifest["record"])}
    finally:
        state.close()


def test_it_is_asked_for_and_changed_as_on_this_machine(deployment: Deployment) -> None:
    with serving(deployment) as there:
        both: list[tuple[KeptNodes, Path]] = [
            (KeptNodes(deployment.data), deployment.data),
            (KeptElsewhere(deployment, "east"), there),
        ]
        for kept, data in both:
            assert kept.place("main-1", ["out"]) is None
            assert kept.log_end("main-1", "out") is None
            stopped(data, "main-1", RECORD)
            place = kept.place("main-1", ["out"])
            assert place is not None
            assert (place.record, place.keeping) == (RECORD, Keeping.STATE)
            assert (place.boundary, place.torn, place.ends["out"].next_id) == (3, None, 3)
            assert kept.log_end("main-1", "out") == 3
            assert kept.first_id("main-1", "out", 2) == 0
            assert kept.first_id("main-1", "out", 3) == 3
            kept.begin("main-1", ["new"], RECORD, keeps=False, flag="--from-now")
            assert manifest_of(data, "main-1")["network"] == ["new"]
            assert (data / "aside" / "main-1-state-1" / "manifest.json").exists()
            kept.begin_new("more-1", ["more"], RECORD, Keeping.NOTHING)
            more = {"network": ["more"], "kept": "nothing", "record": RECORD}
            assert more.items() <= manifest_of(data, "more-1").items()
        first, second = (kept.place("main-1", ["out"]) for kept, _ in both)
        assert first == second


@pytest.mark.parametrize("giver", [0, 1], ids=["to the server", "from the server"])
def test_a_replica_begins_as_one_of_another_machine(
    deployment: Deployment, giver: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_nodes, "PIECE_BYTES", 1000)  # so that there are several
    with serving(deployment) as there:
        both: list[tuple[KeptNodes, Path]] = [
            (KeptNodes(deployment.data), deployment.data),
            (KeptElsewhere(deployment, "east"), there),
        ]
        (one, from_data), (other, to_data) = both[giver], both[1 - giver]
        stopped(from_data, "main-1", RECORD, tuples=500)
        stopped(to_data, "main-2", RecoveryRecord(1, 1, (), (("out", 1),), 0, 9), tuples=1)
        one.pack("main-1")
        offset = 0
        while piece := one.read("main-1", offset):
            other.write("main-2", offset, piece)
            offset += len(piece)
        other.unpack("main-2")
        assert offset > 2000
        place = other.place("main-2", ["out"])
        assert place is not None
        # Where it begins is the first one's; which life it is, its own.
        assert (place.record.boundary, place.record.incarnation) == (3, 9)
        assert place.ends["out"].next_id == 500
        assert (to_data / "aside" / "main-2-1" / "streams" / "out").is_dir()
        assert not list(to_data.glob("processes/*.parcel"))
        assert not list(from_data.glob("processes/*.parcel"))


@pytest.mark.parametrize("node", ["../main-1", "..", ""])
def test_what_is_no_node_is_refused(deployment: Deployment, node: str) -> None:
    with serving(deployment), pytest.raises(ServerError, match="the name of a node or a stream"):
        KeptElsewhere(deployment, "east").pack(node)
