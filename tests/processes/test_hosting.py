"""What a server does with the processes it is given, and whom it does not listen to."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cluster import desired
from holdfast.cluster.chaos import ChaosError, disturb
from holdfast.cluster.children import Children
from holdfast.cluster.disturbances import Disturbance
from holdfast.cluster.remote import RemoteServer, ServerError
from holdfast.cluster.rolling import restart_rolling
from holdfast.cluster.server import Server
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import (
    Supervisor,
    SupervisorError,
    read_state,
    send_signal,
)
from holdfast.deployment import Deployment, SecuritySpec, load_deployment
from holdfast.errors import HoldfastError
from holdfast.flight.security import SecurityError
from holdfast.plans.addresses import Addresses, free_ports
from holdfast.producer import Producer
from tests.flight.nodes import numbers
from tests.processes.planned import planned

DEPLOYMENT = """
name = "hosting"
network = "network.py"
chaos = true
[security]
token_file = "token"
[servers.east]
listen = "127.0.0.1:{port}"
[sources.load]
listen = "east"
[fragments.main]
"""


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """Its entry point runs on the server, its replica nowhere."""
    here = tmp_path / "here"
    here.mkdir()
    (here / "token").write_text("secret")
    (here / "token").chmod(0o600)
    port = free_ports({"east": "127.0.0.1"}, [])["nodes"]["east"]
    return planned(here, DEPLOYMENT.format(port=port))


@contextmanager
def serving(deployment: Deployment, networks: Path | None = None) -> Iterator[Server]:
    endpoint = deployment.servers["east"]
    token = SecuritySpec(token_file=deployment.path.parent / "token")
    data = deployment.path.parent.parent / "there"
    made = Server(endpoint.host, endpoint.port, data, token, networks)
    thread = threading.Thread(target=made.run, daemon=True)
    thread.start()
    try:
        yield made
    finally:
        made.request_stop()
        thread.join(30.0)


def deployed(deployment: Deployment) -> RemoteServer:
    """As ``holdfast up`` does it."""
    remote = RemoteServer(deployment, "east")
    Addresses.choose(deployment, lambda server, nodes, processes: remote.ports(nodes, processes))
    remote.deploy()
    deployment.data.joinpath("processes.json").write_text("{}")
    return remote


def wait(until: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30.0
    while not until():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_server_runs_what_it_is_given_until_it_is_told_to_stop(deployment: Deployment) -> None:
    def is_up() -> bool:
        return "error" not in node_status(deployment, ["entry-load"])["entry-load"]

    with serving(deployment):
        remote = deployed(deployment)
        wait(is_up)
        first = remote.states()["entry-load"]["pid"]
        remote.deploy()  # again, as after a restart of whoever started it: nothing changes
        assert remote.states()["entry-load"]["pid"] == first
        with Producer.of(deployment.path, "load", name="p") as producer:
            producer.send(numbers(0, 10))
        assert any('"ready"' in line for line in remote.logs("entry-load", None, 10)[0])
        _, end = remote.logs("entry-load", 0, 0)
        assert remote.logs("entry-load", end, 0)[0] == []

        # It is paused for a while, as a loaded machine would make it.
        disturb(deployment, Disturbance(0.3, "entry-load"))
        # It is killed and comes back.
        assert send_signal(deployment, "entry-load", signal.SIGKILL) == first
        wait(lambda: read_state(deployment)["entry-load"]["restarts"] == 1 and is_up())
    assert not is_up()
    with serving(deployment):  # the machine is back: so is what it ran, with what it had
        wait(is_up)
        with Producer.of(deployment.path, "load", name="p") as producer:
            assert producer.tuples == 10
        remote.stop()
        with pytest.raises(ServerError, match="nothing of the deployment 'hosting' runs here"):
            remote.states()
    with serving(deployment):
        time.sleep(0.1)
        with pytest.raises(ServerError, match="runs here"):
            remote.states()


def test_a_server_that_is_gone_holds_nobody_up(deployment: Deployment) -> None:
    with serving(deployment):
        deployed(deployment)
    told: list[str] = []
    supervisor = Supervisor(deployment, told.append)
    supervisor._children = Children(deployment, [], told.append)  # no Spark here
    supervisor.start()
    try:
        assert any("server east at" in each and "asking again" in each for each in told), told
        with pytest.raises(SupervisorError, match=r"main-1 did not come up within 0\.2 s"):
            supervisor.wait_ready(0.2)
        with serving(deployment):
            wait(lambda: _watched(supervisor, told, "server east runs entry-load"))
            supervisor.stop()
    finally:
        supervisor.stop()


def _watched(supervisor: Supervisor, told: list[str], text: str) -> bool:
    supervisor.watch()
    return text in told


def test_a_server_listens_to_nobody_without_the_token(deployment: Deployment) -> None:
    guess = deployment.path.parent / "guess"
    guess.write_text("guessed")
    guess.chmod(0o600)
    with serving(deployment):
        guessing = replace(deployment, security=SecuritySpec(token_file=guess))
        with pytest.raises(ServerError, match="refuses holdfast: it sent the wrong token"):
            deployed(guessing)
    with pytest.raises(SecurityError, match="needs a token, on loopback, too"):
        Server("127.0.0.1", 0, deployment.data, SecuritySpec())


def test_a_server_disturbs_only_what_may_be_disturbed(deployment: Deployment) -> None:
    text = deployment.path.read_text().replace("chaos = true", "chaos = false")
    deployment.path.write_text(text)
    calm = load_deployment(deployment.path)
    with serving(calm):
        remote = deployed(calm)
        with pytest.raises(ServerError, match="write chaos = true"):
            remote.signal("entry-load", signal.SIGSTOP)
        with pytest.raises(ServerError, match="write chaos = true"):
            remote.disturb({"seconds": 0.1, "process": "entry-load"})
        with pytest.raises(ChaosError, match=r"hosting: .* write chaos = true"):
            disturb(calm, Disturbance(0.1, "entry-load"))
        remote.stop()


def test_a_server_restarts_what_may_not_be_disturbed(deployment: Deployment) -> None:
    text = deployment.path.read_text().replace("chaos = true", "chaos = false")
    deployment.path.write_text(text)
    with serving(deployment):
        remote = deployed(load_deployment(deployment.path))
        wait(lambda: "error" not in node_status(deployment, ["entry-load"])["entry-load"])
        first = remote.states()["entry-load"]["pid"]
        (deployment.data / "processes.json").write_text("{}")  # what runs here is no matter
        told: list[str] = []
        restarted = restart_rolling(deployment.path, ["entry-load"], wait_s=30.0, tell=told.append)
        assert restarted == ["entry-load"]
        assert told == ["entry-load is back (1 of 1)"]
        found = remote.states()["entry-load"]
        assert (found["restarts"], found["problem"]) == (1, None)
        assert found["pid"] != first
        remote.stop()


@pytest.mark.parametrize("path", ["../up", "/etc/passwd", "data/plan.json", "deployment.json", ""])
def test_a_server_writes_only_below_its_directory(path: str) -> None:
    with pytest.raises(HoldfastError, match="has no place on a server"):
        desired.checked_path(path)


@pytest.mark.parametrize("name", ["../up", "a/b", ".hidden", ""])
def test_a_deployment_on_a_server_has_a_plain_name(name: str) -> None:
    with pytest.raises(HoldfastError, match="needs a plain name"):
        desired.checked_name(name)
