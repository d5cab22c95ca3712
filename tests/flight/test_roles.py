"""Who may do what: each role by its own token, and names that are bound to them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.flight as flight
import pytest

from holdfast.client import Boundary, Client, ClientError
from holdfast.core.messages import HeartbeatRequest, Subscribe
from holdfast.flight import peers
from holdfast.flight.credentials import SecuritySpec
from holdfast.flight.roles import (
    Role,
    identity,
    including,
    make_token,
    roles_of_identity,
    roles_of_token,
)
from holdfast.flight.security import Security
from holdfast.flight.wire import encode_message
from holdfast.kept.packed_codec import SCHEMA
from holdfast.nodes.entry_node import EntryNode
from holdfast.producer import Producer, ProducerError
from tests.flight.nodes import entry_point, location, numbers

SECRETS = {role: f"the secret of {role.value}" for role in Role}
MACHINES = {"here": frozenset({"entry-load"}), "east": frozenset({"main-1"})}
SERVED = Security(tokens=SECRETS, machines=MACHINES)


def only(*roles: Role) -> Security:
    """What somebody has who was given these roles."""
    return Security(tokens={role: SECRETS[role] for role in roles})


@pytest.fixture
def node(tmp_path: Path) -> Iterator[EntryNode]:
    """The consumer "reader" of its stream is a client outside, "main-1" is a node."""
    with entry_point(tmp_path, SERVED) as made:
        yield made


def act(node: EntryNode, role: Role, name: str, action: str, body: bytes = b"") -> list[bytes]:
    headers = only(role).headers(name, role)
    options = flight.FlightCallOptions(timeout=10, headers=headers)
    with peers.connect(location(node), only(role)) as client:
        found = client.do_action(flight.Action(action, body), options)
        return [each.body.to_pybytes() for each in found]


def subscribe(node: EntryNode, role: Role, name: str) -> Any:
    options = flight.FlightCallOptions(timeout=10, headers=only(role).headers(name, role))
    with peers.connect(location(node), only(role)) as client:
        ticket = flight.Ticket(encode_message(Subscribe("load", 1, 0, 0)))
        return client.do_get(ticket, options).read_chunk()


def put(node: EntryNode, role: Role, name: str, said: dict[str, Any]) -> None:
    options = flight.FlightCallOptions(timeout=10, headers=only(role).headers(name, role))
    with peers.connect(location(node), only(role)) as client:
        command = flight.FlightDescriptor.for_command(json.dumps(said).encode())
        writer, reader = client.do_put(command, SCHEMA, options)
        writer.done_writing()
        reader.read()
        writer.close()


HEARTBEAT = encode_message(HeartbeatRequest(("load",), (), (), 0))
CUT = json.dumps({"cut": ["main-1"]}).encode()


@pytest.mark.parametrize("role", list(Role))
def test_a_role_may_do_its_own_and_no_more(node: EntryNode, role: Role) -> None:
    name = "main-1" if role is Role.REPLICATE else "somebody"
    opening = json.dumps({"producer": name}).encode()
    calls: dict[str, Callable[[], object]] = {
        "status": lambda: act(node, role, name, "status"),
        "heartbeat": lambda: act(node, role, name, "heartbeat", HEARTBEAT),
        "subscribe": lambda: subscribe(node, role, name),
        "open": lambda: act(node, role, name, "producer", opening),
        "links": lambda: act(node, role, name, "links", CUT),
        "clock": lambda: act(node, role, name, "clock", b"{}"),
    }
    allowed = {
        Role.PRODUCE: {"status", "open"},
        Role.READ: {"status", "heartbeat", "subscribe"},
        Role.REPLICATE: {"status", "heartbeat", "subscribe"},
        Role.OPERATE: set(calls),
    }[role]
    done, refused = set(), []
    for what, call in calls.items():
        try:
            call()
            done.add(what)
        except flight.FlightUnauthorizedError as error:
            refused.append(str(error))
    assert done == allowed
    assert all(f"it came with {role.value}" in each for each in refused), refused
    assert node.links.hears("main-1") is (role is not Role.OPERATE)


def test_producing_and_checkpoints_have_roles_of_their_own(node: EntryNode) -> None:
    producing = {"stream": "load", "producer": "p", "epoch": 1}
    for role in (Role.READ, Role.REPLICATE):
        with pytest.raises(flight.FlightError, match="to produce needs the role produce"):
            put(node, role, "p", producing)
    with pytest.raises(flight.FlightError, match="a checkpoint needs the role replicate"):
        put(node, Role.PRODUCE, "p", {"checkpoint": True})


def test_nobody_speaks_for_another_producer(node: EntryNode) -> None:
    taken = "takes no other producer's place"
    with pytest.raises(flight.FlightError, match=taken):
        act(node, Role.PRODUCE, "burglar", "producer", b'{"producer": "sensor"}')
    with pytest.raises(flight.FlightError, match=taken):
        put(node, Role.PRODUCE, "burglar", {"stream": "load", "producer": "sensor", "epoch": 1})


def test_nobody_acknowledges_under_a_node_s_name(node: EntryNode) -> None:
    """An acknowledgement under another's name trimmed its tuples."""
    with Producer("load", location(node), name="p", security=only(Role.PRODUCE)) as producer:
        producer.send(numbers(0, 10))
    acknowledged = encode_message(HeartbeatRequest(("load",), (("load", 10),), (), 0))
    for role in (Role.READ, Role.PRODUCE):
        with pytest.raises(flight.FlightUnauthenticatedError, match="the wrong token"):
            act(node, role, "main-1", "heartbeat", acknowledged)
    # A token that was handed out is good for its name only.
    stolen = Security(token=make_token(Role.READ, SECRETS[Role.READ], "screen"))
    with pytest.raises(flight.FlightUnauthenticatedError, match="the wrong token"):
        peers.call(location(node), stolen, "reader", "heartbeat")
    assert peers.call(location(node), stolen, "screen", "status")["trimmed_below"] == 0


def test_producers_and_clients_need_their_role(node: EntryNode) -> None:
    with pytest.raises(ProducerError, match="entry-load refuses p: 'producer' needs the role"):
        Producer("load", location(node), name="p", security=only(Role.READ))
    wrong = Client("load", {"entry-load": location(node)}, security=only(Role.PRODUCE))
    with wrong, pytest.raises(ClientError, match=r"needs the role read or replicate"):
        wrong.read(10.0)
    right = Client("load", {"entry-load": location(node)}, security=only(Role.READ))
    with right:
        assert isinstance(right.read(10.0), Boundary)


def test_a_token_is_good_for_its_role_and_name() -> None:
    token = make_token(Role.READ, SECRETS[Role.READ], "screen")
    assert roles_of_token(token, "screen", SECRETS) == {Role.READ}
    assert roles_of_token(token, "other", SECRETS) == set()
    assert roles_of_token(token.replace("read", "operate"), "screen", SECRETS) == set()
    assert roles_of_token("", "screen", SECRETS) == set()
    assert roles_of_token(token, "screen", {}) == set()


@pytest.mark.parametrize(
    ("role", "who", "name", "may"),
    [
        (Role.READ, "screen", "screen", True),
        (Role.READ, "screen", "other", False),
        (Role.PRODUCE, "sensor", "sensor", True),
        (Role.REPLICATE, "east", "main-1", True),
        (Role.REPLICATE, "east", "entry-load", False),
        (Role.REPLICATE, "west", "main-1", False),
        (Role.OPERATE, "here", "holdfast", True),
        (Role.OPERATE, "here", "entry-load", True),
        (Role.OPERATE, "here", "sensor", True),
        (Role.OPERATE, "here", "main-1", False),
    ],
)
def test_a_certificate_is_good_for_its_names(role: Role, who: str, name: str, may: bool) -> None:
    found = roles_of_identity(identity(role, who), name, MACHINES)
    assert found == (including(role) if may else frozenset())


@pytest.mark.parametrize("text", ["", "main-1", "holdfast://", "holdfast://king/east", "10.0.0.2"])
def test_other_certificates_are_good_for_nothing(text: str) -> None:
    assert roles_of_identity(text, "main-1", MACHINES) == frozenset()


def test_tokens_are_made_once_and_private(tmp_path: Path) -> None:
    spec = SecuritySpec(tokens=tmp_path / "data" / "tokens", own_tokens=True)
    assert not spec.read().has_token  # nothing was started yet
    spec.make()
    made = spec.read().tokens
    assert set(made) == set(Role)
    assert len(set(made.values())) == len(Role)
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "data" / "tokens").iterdir()}
    assert modes == {0o600}
    spec.make()
    assert spec.read().tokens == made


def test_tokens_are_read_again_when_they_change(tmp_path: Path) -> None:
    spec = SecuritySpec(tokens=tmp_path / "tokens", own_tokens=True, machines=MACHINES)
    spec.make()
    served, used = spec.read(), spec.read()
    old = Security(tokens=dict(used.tokens))
    with entry_point(tmp_path / "entry", served) as node:
        peers.call(location(node), used, "holdfast", "status")
        for role in Role:
            (tmp_path / "tokens" / role.value).unlink()
        spec.make()
        peers.call(location(node), used, "holdfast", "status")
        assert served.current().former is not None
        peers.call(location(node), old, "holdfast", "status")  # for a moment it is still let in


def test_former_tokens_are_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.flight.credentials.GRACE_SECONDS", 0.0)
    spec = SecuritySpec(tokens=tmp_path / "tokens", own_tokens=True)
    spec.make()
    served = spec.read()
    old = Security(tokens=dict(served.tokens))
    with entry_point(tmp_path / "entry", served) as node:
        (tmp_path / "tokens" / "operate").unlink()
        spec.make()
        with pytest.raises(flight.FlightUnauthenticatedError, match="the wrong token"):
            peers.call(location(node), old, "holdfast", "status")
        # Tokens that are gone let nobody in who was not let in before.
        for role in Role:
            (tmp_path / "tokens" / role.value).unlink()
        with pytest.raises(flight.FlightUnauthenticatedError, match="no token"):
            peers.call(location(node), Security(), "holdfast", "status")


def test_chaos_is_for_deployments_that_allow_it(tmp_path: Path) -> None:
    with entry_point(tmp_path, SERVED, chaos=False) as made:
        for action, body in (("links", CUT), ("clock", b'{"step_us": 1000000}')):
            with pytest.raises(flight.FlightServerError, match="write chaos = true"):
                act(made, Role.OPERATE, "holdfast", action, body)
        assert made.links.hears("main-1")


def test_a_token_that_cannot_be_taken_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("holdfast.nodes.listening.LOOK_SECONDS", 0.01)
    spec = SecuritySpec(tokens=tmp_path / "tokens", own_tokens=True)
    spec.make()
    served = spec.read()
    used = Security(tokens=dict(served.tokens))
    path = tmp_path / "tokens" / "operate"
    said = ""
    with entry_point(tmp_path / "entry", served) as node:
        path.write_text("")
        deadline = time.monotonic() + 30.0
        while "secrets not taken" not in said:
            assert time.monotonic() < deadline
            time.sleep(0.02)
            said += capsys.readouterr().err
        peers.call(location(node), used, "holdfast", "status")  # what was read before counts
        time.sleep(0.1)
        said += capsys.readouterr().err
    assert said.count("secrets not taken") == 1
    assert "operate: the token is empty" in said
