"""Where the processes of a deployment listen, with the ports that were chosen for them."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from holdfast.deployment import Deployment, DeploymentError, Endpoint
from holdfast.durable import make_private, write_whole
from holdfast.errors import HoldfastError
from holdfast.flight.security import Security
from holdfast.ports import PortTaken, free_port, is_free

# Metrics carry no tuples and need no token, so they stay on their machine.
_METRICS_HOST = "127.0.0.1"

# {"nodes": {node: port}, "metrics": {process: port}}
Ports = Mapping[str, Mapping[str, int]]
# (server, nodes, processes) -> ports
Ask = Callable[[str, list[str], list[str]], Ports]


@dataclass(frozen=True)
class Addresses:
    """Every port of a deployment; they stay the same when a process restarts."""

    nodes: Mapping[str, Endpoint]
    metrics_ports: Mapping[str, int]

    @classmethod
    def choose(
        cls, deployment: Deployment, ask: Ask | None = None, anew: Collection[str] = ()
    ) -> Addresses:
        """The addresses of an earlier start where they fit, else free ports; kept on disk.

        ``ask`` finds ports on a server; a server whose ports are known is not asked. ``anew``:
        processes that have moved to another machine.
        """
        nodes, metrics = _known(deployment, anew)
        for server in (None, *deployment.servers):
            lacking = [
                name for name, each in nodes.items() if each.server == server and not each.port
            ]
            processes = [each for each in deployment.hosted_by(server) if not metrics[each]]
            if not lacking and not processes:
                continue
            if server is None:
                ports: Ports = free_ports({name: nodes[name].host for name in lacking}, processes)
            else:
                assert ask is not None
                ports = ask(server, lacking, processes)
            nodes |= {name: replace(nodes[name], port=ports["nodes"][name]) for name in lacking}
            metrics |= {name: ports["metrics"][name] for name in processes}
        text = {
            "nodes": {name: [each.host, each.port] for name, each in nodes.items()},
            "metrics": {name: [deployment.server_of(name), port] for name, port in metrics.items()},
        }
        make_private(deployment.data)
        write_whole(_path(deployment), json.dumps(text, indent=1).encode())
        return cls.read(deployment)

    @classmethod
    def read(cls, deployment: Deployment) -> Addresses:
        """What ``choose`` found."""
        path = _path(deployment)
        try:
            found = json.loads(path.read_text())
        except OSError:
            raise HoldfastError(
                f"{deployment.name} was never started here: there is no {path}; run holdfast up"
            ) from None
        return cls(
            {name: Endpoint(host, port) for name, (host, port) in found["nodes"].items()},
            {name: port for name, (_, port) in found["metrics"].items()},
        )

    def of(self, node: str) -> Endpoint:
        return self.nodes[node]

    def metrics(self, process: str) -> tuple[str, int]:
        """Where a process serves its metrics, on its own machine."""
        return _METRICS_HOST, self.metrics_ports[process]

    def book(self, security: Security) -> dict[str, str]:
        """The Flight location of every node."""
        return {
            name: security.location(endpoint.host, endpoint.port)
            for name, endpoint in self.nodes.items()
        }


class Book(Mapping[str, str]):
    """The Flight locations of nodes as they are now: read again when the addresses change."""

    def __init__(
        self, deployment: Deployment, security: Security, names: tuple[str, ...] | None = None
    ) -> None:
        """``names``: of these nodes only."""
        self._deployment = deployment
        self._security = security
        self._names = names
        self._changed_at = 0
        self._found: dict[str, str] = {}

    def __getitem__(self, name: str) -> str:
        return self._now()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._now() if self._names is None else self._names)

    def __len__(self) -> int:
        return len(self._now() if self._names is None else self._names)

    def _now(self) -> dict[str, str]:
        changed_at = _path(self._deployment).stat().st_mtime_ns
        if changed_at != self._changed_at:
            self._found = Addresses.read(self._deployment).book(self._security)
            self._changed_at = changed_at
        return self._found


def is_addressed(deployment: Deployment) -> bool:
    """Whether it was started before, so that its addresses are known."""
    return _path(deployment).is_file()


def _path(deployment: Deployment) -> Path:
    return deployment.data / "addresses.json"


def _known(
    deployment: Deployment, anew: Collection[str]
) -> tuple[dict[str, Endpoint], dict[str, int]]:
    """What is given or was chosen before, port 0 for the rest: of nodes and of metrics."""
    path = _path(deployment)
    known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    before: dict[str, Any] = known.get("nodes", {})
    for process in anew:
        known.get("metrics", {}).pop(process, None)
        for node in deployment.processes[process]:
            before.pop(node, None)
    nodes, metrics = dict(deployment.endpoints), {}
    for name, endpoint in nodes.items():
        if endpoint.port == 0 and before.get(name, [None])[0] == endpoint.host:
            nodes[name] = replace(endpoint, port=int(before[name][1]))
    for process in deployment.processes:
        server, port = known.get("metrics", {}).get(process, [None, 0])
        metrics[process] = int(port) if server == deployment.server_of(process) else 0
    return nodes, metrics


def taken_ports(deployment: Deployment, patience_s: float = 10.0) -> list[str]:
    """The processes of this machine whose chosen ports somebody else has by now.

    A port that the deployment itself names cannot be changed: that it is taken is an error, after
    some patience, for a process of an earlier start may just be ending.
    """
    addresses = Addresses.read(deployment)
    given = {
        name: endpoint
        for name, endpoint in deployment.endpoints.items()
        if endpoint.server is None and endpoint.port
    }
    deadline = time.monotonic() + patience_s
    for name, endpoint in given.items():
        while not is_free(endpoint.host, endpoint.port):
            if time.monotonic() > deadline:
                raise DeploymentError(
                    f"{deployment.path.name}: {name}: {PortTaken(endpoint.host, endpoint.port)}"
                )
            time.sleep(0.1)
    return [
        process
        for process in deployment.hosted_by(None)
        if not is_free(*addresses.metrics(process))
        or any(
            not is_free(addresses.of(node).host, addresses.of(node).port)
            for node in deployment.processes[process]
            if node not in given
        )
    ]


def free_ports(hosts: Mapping[str, str], processes: list[str]) -> dict[str, dict[str, int]]:
    """Ports nobody listens on, for nodes on their hosts and for metrics; they all differ."""
    wanted = [
        *(("nodes", name, host) for name, host in hosts.items()),
        *(("metrics", name, _METRICS_HOST) for name in processes),
    ]
    found: dict[str, dict[str, int]] = {"nodes": {}, "metrics": {}}
    with contextlib.ExitStack() as held:
        for what, name, host in wanted:
            found[what][name] = free_port(host, held)
    return found
