"""Servers of a cluster in one process: they find each other, elect, keep what they agreed on."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import main
from holdfast.cluster.member import ClusterOptions, check_name
from holdfast.cluster.server import Server
from holdfast.core.election import ElectionTiming
from holdfast.errors import InputError
from holdfast.flight.credentials import SecuritySpec
from holdfast.flight.peers import call
from holdfast.plans.addresses import free_ports

TIMING = ElectionTiming(200_000, 1_000_000)
HOST = "127.0.0.1"


@contextmanager
def serving(directory: Path, ports: dict[str, int], names: str) -> Iterator[SecuritySpec]:
    """Servers with these names; the seeds are all that have ports."""
    token = directory / "token"
    token.write_text("a secret of the test\n")
    token.chmod(0o600)
    security = SecuritySpec(token)
    seeds = tuple(sorted(f"{HOST}:{port}" for port in ports.values()))
    with ExitStack() as stack:
        for name in names:
            options = ClusterOptions(name, seeds, f"zone {name}", timing=TIMING)
            server = Server(HOST, ports[name], directory / name, security, cluster=options)
            thread = threading.Thread(target=server.run)
            thread.start()
            stack.callback(thread.join, 30.0)
            stack.callback(server.request_stop)
        yield security


def ask(security: SecuritySpec, port: int, action: str, **options: Any) -> dict[str, Any]:
    read = security.read()
    return call(read.location(HOST, port), read, "holdfast", action, options, 20.0)


def wait(until: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + 60.0
    while not (found := until()):
        assert time.monotonic() < deadline, f"waited for: {what}"
        time.sleep(0.05)
    return found


def test_servers_elect_one_and_know_each_other_after_a_restart(tmp_path: Path) -> None:
    ports = free_ports(dict.fromkeys("abc", HOST), [])["nodes"]

    def managed(security: SecuritySpec, names: str) -> dict[str, Any] | None:
        found = [ask(security, ports[name], "cluster-status") for name in names]
        agree = len({each["coordinator"] for each in found}) == 1 and found[0]["coordinator"]
        return found[0] if agree and len(found[0]["servers"]) == len(names) else None

    def taken_in() -> bool:
        records = [tmp_path / name / "cluster" / "record.json" for name in "abc"]
        values = [json.loads(each.read_text())["value"] for each in records if each.exists()]
        return len(values) == 3 and all('"c"' in value and '"a"' in value for value in values)

    with serving(tmp_path, ports, "abc") as security:
        found = wait(lambda: managed(security, "abc"), "a coordinator")
        wait(taken_in, "who is who is on every disk")
        term = found["term"]
        assert found["servers"]["b"]["zone"] == "zone b"
        with pytest.raises(Exception, match="'nothing' is not submitted"):
            ask(security, ports["a"], "cluster-withdraw", name="nothing")
        with pytest.raises(Exception, match="not a message between the servers"):
            ask(
                security,
                ports["a"],
                "cluster-message",
                **{"from": "x", "life": "y", "name": "z", "seeds": None, "message": {"type": "?"}},
            )
        card = {"address": "127.0.0.9:1", "life": "y", "name": "b"}
        with pytest.raises(Exception, match="two servers are called 'b'"):
            ask(security, ports["a"], "cluster-hello", card=card)
    # Two of three are a majority, and know of the third.
    with serving(tmp_path, ports, "ab") as security:
        found = wait(lambda: managed(security, "ab"), "a coordinator of two")
        assert found["term"] > term
        wait(
            lambda: (
                f"{HOST}:{ports['c']}" in ask(security, ports["b"], "cluster-status")["missing"]
            ),
            "the third is missing",
        )
    with serving(tmp_path, ports, "c") as security:
        found = ask(security, ports["c"], "cluster-status")
        assert "1 of 3 servers that vote can be reached, which is no majority" in found["unmanaged"]
        with pytest.raises(Exception, match="nothing is managed now"):
            ask(security, ports["c"], "cluster-withdraw", name="nothing")


CERTIFIED = """
network = "network.py"
[fragments.main]
"""


def test_servers_with_certificates_operate_each_other(tmp_path: Path) -> None:
    ports = free_ports(dict.fromkeys("abc", HOST), [])["nodes"]
    listed = [f'[servers.{name}]\nlisten = "{HOST}:{port}"' for name, port in ports.items()]
    (tmp_path / "network.py").write_text("# never run\n")
    path = tmp_path / "deployment.toml"
    path.write_text("\n".join([CERTIFIED, *listed]))
    assert main(["security", "init", str(path), "--cluster"]) == 0
    security = {name: SecuritySpec.at(tmp_path / "security" / name) for name in ("here", *"abc")}
    seeds = tuple(sorted(f"{HOST}:{port}" for port in ports.values()))
    with ExitStack() as stack:
        for name in "abc":
            stack.enter_context(serving_one(tmp_path, ports[name], security[name], seeds, name))

        def managed() -> bool:
            found = [ask(security["here"], ports[name], "cluster-status") for name in "abc"]
            coordinators = {each["coordinator"] for each in found}
            return len(coordinators) == 1 and coordinators <= set(seeds)

        wait(managed, "a coordinator")
    # Those of an ordinary deployment may replicate, and no more.
    assert main(["security", "init", str(path), "--renew"]) == 0
    read = security["b"].read()
    location = read.location(HOST, ports["a"])
    with (
        serving_one(tmp_path, ports["a"], security["a"], seeds),
        pytest.raises(Exception, match="needs the role operate"),
    ):
        call(location, read, "b", "cluster-status", {}, 20.0)


@contextmanager
def serving_one(
    directory: Path, port: int, security: SecuritySpec, seeds: tuple[str, ...], name: str = "a"
) -> Iterator[None]:
    options = ClusterOptions(name, seeds, timing=TIMING)
    server = Server(HOST, port, directory / f"data-{name}", security, cluster=options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield
    finally:
        server.request_stop()
        thread.join(30.0)


def test_servers_that_were_given_other_seeds_do_not_form_a_cluster(tmp_path: Path) -> None:
    ports = free_ports(dict.fromkeys("abc", HOST), [])["nodes"]
    with serving(tmp_path, {name: ports[name] for name in "ab"}, "a") as security:
        envelope = {
            "from": f"{HOST}:{ports['b']}",
            "life": "y",
            "name": "b",
            "seeds": sorted(f"{HOST}:{port}" for port in ports.values()),
            "message": {"type": "AskVote", "term": 1, "version": [0, 0], "is_trial": True},
        }
        with pytest.raises(Exception, match="start all with the same"):
            ask(security, ports["a"], "cluster-message", **envelope)


@pytest.mark.parametrize("name", ["", "here", "a/b", "10.0.0.1:4700"])
def test_a_server_has_a_plain_name(name: str) -> None:
    with pytest.raises(InputError, match="plain name"):
        check_name(name)
