"""Certificates: strangers get nowhere, names are bound to machines, new ones need no restart."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow.flight as flight
import pytest
from cryptography import x509

from holdfast.cli import main
from holdfast.client import Client, ClientError
from holdfast.deployment import load_deployment
from holdfast.flight import gate, peers
from holdfast.flight.certificates import Authority, issued
from holdfast.flight.credentials import SecuritySpec
from holdfast.flight.roles import Role
from holdfast.flight.secrets import SecurityError
from holdfast.flight.security import Security
from holdfast.nodes.entry_node import EntryNode
from holdfast.producer import Producer, ProducerError
from tests.flight.nodes import entry_point, location, numbers, read_until

DEPLOYMENT = """
network = "network.py"
[security]
directory = "security/here"
[servers.east]
listen = "10.0.0.2:4700"
[sources.load]
listen = "10.0.0.1"
[fragments.main]
replicas = ["10.0.0.1", "east"]
"""
NODES = {"here": frozenset({"entry-load", "main-1"}), "east": frozenset({"main-2"})}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A deployment on two machines, with all that ``holdfast security`` made for it."""
    (tmp_path / "network.py").write_text("")
    path = tmp_path / "deployment.toml"
    path.write_text(DEPLOYMENT)
    assert main(["security", "init", str(path)]) == 0
    return path


@pytest.fixture
def node(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EntryNode]:
    """The entry point of that deployment, on loopback for once."""
    monkeypatch.setattr("holdfast.nodes.listening.LOOK_SECONDS", 0.05)
    deployment = load_deployment(path)
    assert deployment.security.machines == NODES
    with entry_point(path.parent / "entry", deployment.security.read()) as made:
        yield made


def of(path: Path, machine: str) -> Security:
    return Security.of(path.parent / "security" / machine)


def test_strangers_do_not_get_to_say_anything(
    path: Path, node: EntryNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    start_call = gate.Gatekeeper.start_call

    def counted(self: gate.Gatekeeper, info: object, headers: dict[str, list[str]]) -> gate.Caller:
        asked.append("somebody")
        return start_call(self, info, headers)

    monkeypatch.setattr(gate.Gatekeeper, "start_call", counted)
    trusts = (path.parent / "security" / "authority.pem").read_bytes()
    other = Authority.at(tmp_path / "other", "other")
    other.issue(tmp_path / "theirs", Role.OPERATE, "here", ["127.0.0.1"], 1)
    theirs = Security.of(tmp_path / "theirs")
    for stranger in (
        Security(authority=trusts),
        Security(None, theirs.certificate, theirs.key, trusts),
        Security(token="guessed", authority=trusts),
    ):
        with pytest.raises(flight.FlightUnavailableError):
            peers.call(location(node), stranger, "holdfast", "status", {"large": "x" * 1_000_000})
    assert asked == []
    assert peers.call(location(node), of(path, "here"), "holdfast", "status")["name"] == node.name
    assert asked == ["somebody"]


def test_a_machine_speaks_for_its_own_nodes(path: Path, node: EntryNode) -> None:
    here, east = of(path, "here"), of(path, "east")
    assert peers.call(location(node), east, "main-2", "status")
    for security, name in ((east, "main-1"), (east, "holdfast"), (here, "main-2")):
        with pytest.raises(flight.FlightUnauthenticatedError, match="which is not it"):
            peers.call(location(node), security, name, "status")
    cut = {"cut": ["main-1"]}
    with pytest.raises(flight.FlightUnauthorizedError, match="needs the role operate"):
        peers.call(location(node), east, "main-2", "links", cut)
    assert node.links.hears("main-1")
    peers.call(location(node), here, "holdfast", "links", cut)
    assert not node.links.hears("main-1")


def test_certificates_for_producers_and_clients(path: Path, node: EntryNode) -> None:
    for role, name in (("produce", "sensor"), ("read", "screen")):
        assert main(["security", "issue", str(path), role, name]) == 0
    sensor, screen = of(path, "sensor"), of(path, "screen")
    producers = {"entry-load": location(node)}
    with (
        Producer("load", location(node), name="sensor", security=sensor) as producer,
        Client("load", producers, name="screen", security=screen) as client,
    ):
        producer.send(numbers(0, 3))
        assert read_until(client, 3, 20.0).stable is not None
    with pytest.raises(ProducerError, match="refuses sensor-2: it sent a certificate for"):
        Producer("load", location(node), name="sensor-2", security=sensor)
    wrong = Client("load", producers, name="sensor", security=sensor)
    with wrong, pytest.raises(ClientError, match="needs the role read or replicate"):
        wrong.read(10.0)


def test_new_certificates_are_taken_without_a_restart(
    path: Path, node: EntryNode, capsys: pytest.CaptureFixture[str]
) -> None:
    here = path.parent / "security" / "here"
    security = of(path, "here")
    before = issued(here)
    assert before is not None
    assert shown(node, here) == before.serial_number
    with (
        Producer("load", location(node), name="p", security=security) as producer,
        Client("load", {"entry-load": location(node)}, security=security) as client,
    ):
        producer.send(numbers(0, 3))
        read_until(client, 3, 20.0)
        assert main(["security", "init", str(path), "--renew"]) == 0
        after = issued(here)
        assert after is not None
        assert after.serial_number != before.serial_number
        wait(lambda: shown(node, here) == after.serial_number)
        producer.send(numbers(3, 3))
        producer.flush()
        read_until(client, 6, 30.0)
    # A key that is not the certificate's is not taken, and said.
    (here / "key.pem").write_bytes((here.parent / "east" / "key.pem").read_bytes())
    wait(lambda: "certificates not taken" in capsys.readouterr().err)
    assert shown(node, here.parent / "east") == after.serial_number


def shown(node: EntryNode, own: Path) -> int | None:
    """The number of the certificate that is shown to a new connection; None if nobody listens."""
    context = ssl.create_default_context(cafile=own / "authority.pem")
    context.load_cert_chain(own / "certificate.pem", own / "key.pem")
    context.set_alpn_protocols(["h2"])
    try:
        with (
            socket.create_connection(("127.0.0.1", node.port), timeout=10.0) as plain,
            context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
        ):
            data = secure.getpeercert(binary_form=True)
    except ConnectionError:
        return None
    assert data is not None
    return x509.load_der_x509_certificate(data).serial_number


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_init_keeps_what_fits(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = path.parent / "security"
    before = {name: (base / name / "certificate.pem").read_bytes() for name in NODES}
    assert main(["security", "init", str(path)]) == 0
    assert "kept, valid until" in capsys.readouterr().out
    path.write_text(DEPLOYMENT.replace("10.0.0.2", "10.0.0.9"))
    assert main(["security", "init", str(path)]) == 0
    after = {name: (base / name / "certificate.pem").read_bytes() for name in NODES}
    assert after["here"] == before["here"]
    assert after["east"] != before["east"]
    said = capsys.readouterr().out
    assert "holdfast server --listen 10.0.0.9:4700 --data holdfast-data --security east" in said
    modes = {file.stat().st_mode & 0o777 for file in base.rglob("*key.pem")}
    assert modes == {0o600}


@pytest.mark.parametrize("name", ["here", "east", "main-1", "../up"])
def test_a_certificate_is_for_a_name_of_its_own(
    path: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["security", "issue", str(path), "read", name]) == 1
    assert "is a machine's or a node's name" in capsys.readouterr().err


def test_a_token_for_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "network.py").write_text("")
    path = tmp_path / "deployment.toml"
    path.write_text('network = "network.py"\n[sources.load]\n[fragments.main]\n')
    assert main(["security", "token", str(path), "produce", "sensor"]) == 0
    given = Security(token=capsys.readouterr().out.strip())
    with entry_point(tmp_path / "entry", load_deployment(path).security.read()) as node:
        with Producer("load", location(node), name="sensor", security=given) as producer:
            producer.send(numbers(0, 3))
        with pytest.raises(ProducerError, match="refuses other: it sent the wrong token"):
            Producer("load", location(node), name="other", security=given)
    assert main(["security", "token", str(path), "read", "main-1"]) == 1
    assert "is a node of" in capsys.readouterr().err


def test_a_directory_without_certificates_is_named(tmp_path: Path) -> None:
    with pytest.raises(SecurityError, match=r"pem: cannot be read: .* holdfast security init"):
        SecuritySpec.at(tmp_path).read()


def test_the_example_of_two_machines_takes_five_commands(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    example = Path(__file__).parents[2] / "examples" / "deployment"
    for name in ("two-machines.toml", "network.py"):
        (tmp_path / name).write_bytes((example / name).read_bytes())
    lines = (tmp_path / "two-machines.toml").read_text().splitlines()
    commands = [line.partition("$ ")[2] for line in lines if line.startswith("#   10.")]
    assert len(commands) == 5
    assert main(["security", "init", str(tmp_path / "two-machines.toml")]) == 0
    said = capsys.readouterr().out
    assert commands[2] in said  # it says what to run on the other machine
    assert "write into" not in said  # the file names what was made
    deployment = load_deployment(tmp_path / "two-machines.toml")
    deployment.security.read().check_binding("10.0.0.1")
    SecuritySpec.at(tmp_path / "security" / "east").read().check_binding("10.0.0.2")
