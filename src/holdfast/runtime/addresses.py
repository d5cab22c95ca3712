"""Where the processes of a deployment listen, with the ports that were chosen for them."""

from __future__ import annotations

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.deployment import Deployment, Endpoint
from holdfast.errors import HoldfastError
from holdfast.flight.security import Security
from holdfast.runtime.durable import write_whole


@dataclass(frozen=True)
class Addresses:
    """Every port of a deployment; they stay the same when a process restarts."""

    nodes: Mapping[str, Endpoint]
    metrics_ports: Mapping[str, int]

    @classmethod
    def choose(cls, deployment: Deployment) -> Addresses:
        """The addresses of an earlier start where they fit, else free ports; kept on disk."""
        path = _path(deployment)
        known: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        before: dict[str, Any] = known.get("nodes", {})
        taken: list[socket.socket] = []
        nodes = {}
        for name, endpoint in deployment.endpoints.items():
            host, port = endpoint.host, endpoint.port
            if port == 0 and before.get(name, [None])[0] == host:
                port = int(before[name][1])
            nodes[name] = Endpoint(host, port or _free_port(host, taken))
        metrics = {
            name: int(known.get("metrics", {}).get(name, 0)) or _free_port("127.0.0.1", taken)
            for name in deployment.processes
        }
        for each in taken:
            each.close()
        found = cls(nodes, metrics)
        deployment.data.mkdir(parents=True, exist_ok=True)
        text = {
            "nodes": {name: [each.host, each.port] for name, each in nodes.items()},
            "metrics": metrics,
        }
        write_whole(path, json.dumps(text, indent=1).encode())
        return found

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
            found["metrics"],
        )

    def of(self, node: str) -> Endpoint:
        return self.nodes[node]

    def metrics(self, process: str) -> tuple[str, int]:
        """Metrics carry no tuples and need no token, so they stay on this machine."""
        return "127.0.0.1", self.metrics_ports[process]

    def book(self, security: Security) -> dict[str, str]:
        """The Flight location of every node."""
        return {
            name: security.location(endpoint.host, endpoint.port)
            for name, endpoint in self.nodes.items()
        }


def _path(deployment: Deployment) -> Path:
    return deployment.data / "addresses.json"


def _free_port(host: str, taken: list[socket.socket]) -> int:
    """A port nobody listens on; kept open until all are chosen."""
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.bind((host, 0))
    taken.append(made)
    return int(made.getsockname()[1])
