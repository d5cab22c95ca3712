"""Ports that are kept: outside the kernel's range, and given up when somebody else has them."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast import ports
from holdfast.cluster.children import Children
from holdfast.cluster.server import Server
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import Deployment, DeploymentError, Endpoint, SecuritySpec
from holdfast.plans.addresses import Addresses, free_ports, taken_ports
from holdfast.ports import NotOwnHost, PortTaken, check_free, ephemeral_ports, free_port, is_free
from holdfast.producer import Producer
from tests.flight.nodes import numbers
from tests.processes.planned import planned

DEPLOYMENT = """
name = "ports"
network = "network.py"
[sources.load]
[fragments.main]
"""
LOOPBACK = "127.0.0.1"


@contextlib.contextmanager
def connection_from(port: int) -> Iterator[None]:
    """An outgoing connection whose own port this is."""
    with (
        socket.create_server((LOOPBACK, 0)) as server,
        socket.create_connection(server.getsockname(), source_address=(LOOPBACK, port)),
    ):
        yield


@contextlib.contextmanager
def other_program(port: int) -> Iterator[None]:
    """Somebody who listens there, and hangs up on whoever calls."""

    def hang_up(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                server.accept()[0].close()

    with socket.create_server((LOOPBACK, port)) as server:
        threading.Thread(target=hang_up, args=(server,), daemon=True).start()
        try:
            yield
        finally:
            server.shutdown(socket.SHUT_RDWR)


def test_chosen_ports_are_not_those_of_outgoing_connections() -> None:
    names = [f"n{i}" for i in range(50)]
    found = free_ports(dict.fromkeys(names, LOOPBACK), names)
    chosen = {*found["nodes"].values(), *found["metrics"].values()}
    assert len(chosen) == 100
    assert not chosen & set(ephemeral_ports())


def test_every_port_is_tried_in_the_end() -> None:
    tried = list(ports._candidates())
    assert len(set(tried[: ports._DRAWN])) > ports._DRAWN // 2
    usable = set(range(10_000, 65_536)) - set(ephemeral_ports())
    assert set(tried) == {*usable, 0}


def test_a_chosen_port_that_is_taken_is_chosen_anew(tmp_path: Path) -> None:
    deployment = planned(tmp_path, DEPLOYMENT)
    first = Addresses.choose(deployment)
    assert taken_ports(deployment) == []
    port = first.of("entry-load").port
    with connection_from(port):
        assert not is_free(LOOPBACK, port)
        assert taken_ports(deployment) == ["entry-load"]
        second = Addresses.choose(deployment, anew=["entry-load"])
    assert second.of("entry-load").port != port
    assert second.of("main-1") == first.of("main-1")


def test_a_port_that_the_deployment_names_and_somebody_has_is_refused(tmp_path: Path) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        listen = DEPLOYMENT.replace("[sources.load]", f'[sources.load]\nlisten = ":{port}"')
        deployment = planned(tmp_path, listen)
        Addresses.choose(deployment)
        refused = f"deployment.toml: entry-load: port {port} of 127.0.0.1 is in use by another"
        with pytest.raises(DeploymentError, match=refused):
            taken_ports(deployment, patience_s=0.0)


def test_a_server_whose_port_is_taken_says_so(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    (tmp_path / "token").chmod(0o600)
    security = SecuritySpec(token_file=tmp_path / "token")
    with socket.create_server((LOOPBACK, 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortTaken, match=f"port {port} of 127.0.0.1 is in use"):
            Server(LOOPBACK, port, tmp_path / "data", security)


def test_a_process_whose_port_was_taken_while_it_was_down_gets_another(tmp_path: Path) -> None:
    """Its producer finds it there."""
    deployment = planned(tmp_path, DEPLOYMENT)
    told: list[str] = []
    supervisor = Supervisor(deployment, told.append)
    supervisor._children = _only(supervisor, "entry-load")
    Addresses.choose(deployment)
    with contextlib.ExitStack() as stack:
        stack.callback(supervisor._children.stop)
        supervisor._children.start()
        producer = stack.enter_context(Producer.of(deployment.path, "load", name="p"))
        producer.send(numbers(0, 10))
        assert producer.flush() == 10
        before = Addresses.read(deployment).of("entry-load")
        child = supervisor._children["entry-load"]
        assert child.popen is not None
        child.popen.kill()
        child.popen.wait()
        stack.enter_context(other_program(before.port))
        producer.send(numbers(10, 10))
        _watch_until_moved(supervisor, deployment, before)
        deadline = time.monotonic() + 60.0
        while child.pid is None:
            assert time.monotonic() < deadline, told
            supervisor._children.watch()
            time.sleep(0.02)
        assert producer.flush() == 20
    assert any("is in use by another program" in each for each in told), told


def _only(supervisor: Supervisor, *names: str) -> Children:
    return Children(supervisor.deployment, names, supervisor._tell, supervisor._new_ports)


def _watch_until_moved(supervisor: Supervisor, deployment: Deployment, before: Endpoint) -> None:
    deadline = time.monotonic() + 60.0
    while Addresses.read(deployment).of("entry-load") == before:
        assert time.monotonic() < deadline
        supervisor._children.watch()
        time.sleep(0.02)


# 192.0.2.1 is of a network that is kept for documentation, and the name of one that is for none.
@pytest.mark.parametrize("host", ["192.0.2.1", "east.invalid"])
def test_a_host_that_is_not_of_this_machine_is_refused_at_once(host: str, tmp_path: Path) -> None:
    with contextlib.ExitStack() as held, pytest.raises(NotOwnHost, match=f"'{host}' is no address"):
        free_port(host, held)
    with pytest.raises(NotOwnHost):
        check_free(host, 12_345)
    text = DEPLOYMENT.replace("[fragments.main]", f'[fragments.main]\nreplicas = ["{host}"]')
    with pytest.raises(NotOwnHost, match="or a server that"):
        Supervisor(planned(tmp_path, text)).start()
