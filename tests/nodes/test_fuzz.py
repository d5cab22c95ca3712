"""Thousands of messages nobody should send: no process ends, and nothing is taken for true."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cluster.children import Children
from holdfast.cluster.server import Server
from holdfast.cluster.status import node_status
from holdfast.core.messages import HeartbeatReply, HeartbeatRequest
from holdfast.core.settings import Input, Output, Protection, ReplicaSettings, StandbySettings
from holdfast.deployment import Deployment, SecuritySpec
from holdfast.errors import HoldfastError
from holdfast.flight.peers import call, connect
from holdfast.flight.roles import Role
from holdfast.flight.security import Security
from holdfast.flight.wire import WireError, decode_message, decode_metadata, encode_message
from holdfast.network import Network
from holdfast.nodes.hosted import Place
from holdfast.nodes.replica_node import ReplicaNode
from holdfast.plans.addresses import Addresses
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.producer import Producer
from holdfast.testing.fuzz import Caller, Fuzz
from tests.flight.nodes import numbers
from tests.nodes.strangers import SCHEMA, BareNode, location, running
from tests.nodes.test_strangers import BOOK, SETTINGS, say
from tests.processes.planned import planned

DEPLOYMENT = """
network = "network.py"
[sources.load]
[fragments.main]
"""
MESSAGES = 800


def callers(security: Security, *names: str) -> list[Caller]:
    """Whoever has a secret under every name, and strangers."""
    known = [
        Caller(name, Security(tokens={role: secret}, token=security.token), role)
        for role, secret in (security.tokens or {Role.OPERATE: "x"}).items()
        for name in names
    ]
    return [*known, Caller("stranger", Security()), Caller(names[0], Security(token="guessed"))]


def wait_up(deployment: Deployment) -> None:
    deadline = time.monotonic() + 60.0
    while "error" in node_status(deployment, ["entry-load"])["entry-load"]:
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_process_survives_what_it_is_told(tmp_path: Path) -> None:
    deployment = planned(tmp_path, DEPLOYMENT)
    deployment.security.make()
    Addresses.choose(deployment)
    told: list[str] = []
    children = Children(deployment, ["entry-load"], told.append)
    children.start()
    try:
        wait_up(deployment)
        pid = children["entry-load"].pid
        security = deployment.security.read()
        place = Addresses.read(deployment).book(security)["entry-load"]
        names = ("main-1", "entry-load", "holdfast", "sensor")
        fuzz = Fuzz(place, callers(security, *names), ["load"], seed=7)
        fuzz.run(MESSAGES)
        children.watch()
        assert children.states()["entry-load"]["pid"] == pid, told
        assert children.states()["entry-load"]["restarts"] == 0, told
        status = node_status(deployment, ["entry-load"])["entry-load"]
        assert "error" not in status, status
        assert status["trimmed_below"] == 0
        # Who runs the deployment need not say a word about tokens.
        with Producer.of(deployment.path, "load", name="p") as producer:
            producer.send(numbers(0, 3))
        assert fuzz.outcomes["timed out"] == 0, fuzz.outcomes
        assert fuzz.outcomes["refused"] > fuzz.outcomes["answered"] > 0, fuzz.outcomes
    finally:
        children.stop()


def test_a_replica_survives_what_it_is_told(tmp_path: Path) -> None:
    node = BareNode(SETTINGS, tmp_path, BOOK)
    everybody = [Caller(name, Security()) for name in ("r2", "reader", "entry-x", "stranger")]
    with running(node):
        fuzz = Fuzz(location(node), everybody, ["o", "x"], seed=11)
        fuzz.run(MESSAGES)
        request = encode_message(HeartbeatRequest(("o",), (), (), 0))
        with connect(location(node), Security()) as client:
            reply = decode_message(say(client, "reader", "heartbeat", request)[0])
    assert isinstance(reply, HeartbeatReply)
    assert node.broken == []
    assert fuzz.outcomes["timed out"] == 0, fuzz.outcomes


def test_a_copy_survives_what_it_is_told(tmp_path: Path) -> None:
    """Also by its other copy, whose checkpoints and reports it takes."""
    broken: list[BaseException] = []

    def load() -> Network:
        raise HoldfastError("there is no Spark here")

    stream = FragmentStream("o", SCHEMA, frozenset({"x"}))
    node = ReplicaNode(
        ReplicaSettings(
            "main-1",
            (Input("x", ("entry-x",)),),
            (Output("o", frozenset({"x"}), ("reader",)),),
        ),
        StandbySettings(("main-1", "main-2"), Protection.PASSIVE),
        FragmentPlan("main", {"x": SCHEMA}, (stream,), False, ()),
        load,
        tmp_path,
        Place("127.0.0.1", 0, {**BOOK, "main-2": BOOK["entry-x"]}, Security()),
        broken.append,
    )
    names = ("main-2", "main-2", "main-2", "reader", "entry-x", "stranger")
    with running(node):
        everybody = [Caller(name, Security()) for name in names]
        fuzz = Fuzz(location(node), everybody, ["o", "x"], seed=3)
        fuzz.run(MESSAGES)
        assert call(location(node), Security(), "reader", "status")["copy"]
    assert broken == []
    assert fuzz.outcomes["timed out"] == 0, fuzz.outcomes


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    made = Server("127.0.0.1", 0, tmp_path / "there", SecuritySpec(tmp_path / "token"))
    yield made
    made._listener.close()


def test_a_server_survives_what_it_is_told(server: Server, tmp_path: Path) -> None:
    security = SecuritySpec(tmp_path / "token").read()
    place = security.location("127.0.0.1", server.port)
    fuzz = Fuzz(place, callers(security, "holdfast"), ["load"], seed=13)
    fuzz.run(MESSAGES)
    asked = {"host": "127.0.0.1", "nodes": ["a"], "metrics": []}
    assert call(place, security, "holdfast", "ports", asked)["nodes"]["a"]
    assert fuzz.outcomes["timed out"] == 0, fuzz.outcomes
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there", "token"]
    assert list((tmp_path / "there").glob("*/hosted.json")) == []


def test_the_codec_takes_messages_or_says_so() -> None:
    fuzz = Fuzz("grpc://127.0.0.1:9", [Caller("x", Security())], ["load"], seed=17)
    taken = 0
    for _ in range(3_000):
        body = fuzz._body()
        for decode in (decode_message, decode_metadata):
            try:
                decode(body)
                taken += 1
            except WireError:
                pass
    assert taken
