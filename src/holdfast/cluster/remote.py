"""Talking to the servers that run a part of a deployment's processes (``server.py``)."""

from __future__ import annotations

import base64
import signal
from pathlib import Path
from typing import Any

from holdfast.deployment import Deployment, Endpoint, membership_path, read_tables
from holdfast.errors import HoldfastError
from holdfast.flight.peers import call, explain
from holdfast.flight.security import Security
from holdfast.plans.plan import plan_path
from holdfast.ports import host_and_port

_START_SECONDS = 60.0
_STOP_SECONDS = 40.0


class ServerError(HoldfastError):
    """A server cannot be reached or cannot do what it is asked."""


class RemoteServer:
    """One server, as the machine that started the deployment sees it."""

    def __init__(self, deployment: Deployment, name: str, endpoint: Endpoint | None = None) -> None:
        """``endpoint``: where it listens, if not where the deployment says."""
        self.name = name
        self._deployment = deployment
        self._security = deployment.security.read()
        endpoint = endpoint or deployment.servers[name]
        self._host = endpoint.host
        self._location = self._security.location(endpoint.host, endpoint.port)

    def ports(self, nodes: list[str], processes: list[str]) -> dict[str, dict[str, int]]:
        """Free ports on that machine: for nodes, and for the metrics of processes."""
        asked = {"host": self._host, "nodes": nodes, "metrics": processes}
        found: dict[str, dict[str, int]] = self._call("ports", asked)
        return found

    def deploy(self, restart: bool = True) -> None:
        """Send all it needs, and have it start its processes; those that run as they should
        are left alone. Without ``restart`` those that run are left alone in any case."""
        deployment = self._deployment
        self._call(
            "deploy",
            {
                "tables": read_tables(deployment.path),
                **sent_files(deployment),
                "addresses": (deployment.data / "addresses.json").read_text(),
                "membership": _text(membership_path(deployment.data)),
                "processes": list(deployment.hosted_by(self.name)),
                "restart": restart,
            },
            _START_SECONDS,
        )

    def states(self) -> dict[str, dict[str, Any]]:
        """pid, restarts, uptime, CPU time and memory of its processes; empty if it runs none."""
        found: dict[str, dict[str, Any]] = self._call("processes")
        return found

    def signal(self, process: str, number: signal.Signals, *, jvm: bool = False) -> int | None:
        """Signal a process and its JVM, or that alone; its pid, None if it does not run now."""
        asked = {"process": process, "signal": number.name, "jvm": jvm}
        answer = self._call("signal", asked)
        pid: int | None = answer["pid"]
        return pid

    def restart(self, process: str) -> int | None:
        """Have a process end in order and start again; its pid, None if it does not run now."""
        pid: int | None = self._call("restart", {"process": process})["pid"]
        return pid

    def logs(self, process: str, offset: int | None, lines: int) -> tuple[list[str], int]:
        """The last lines of a process, or those after ``offset``; and where they end."""
        answer = self._call("logs", {"process": process, "offset": offset, "lines": lines})
        return list(answer["lines"]), int(answer["offset"])

    def disturb(self, options: dict[str, Any]) -> None:
        """Slow a process down or load the machine, for a while (``disturbances.py``)."""
        self._call("disturb", options)

    def ask_kept(self, options: dict[str, Any], timeout_s: float) -> Any:
        """About what its nodes have kept while they stand (``kept_elsewhere``)."""
        return self._call("kept", options, timeout_s)["answer"]

    def stop(self) -> None:
        """Have it stop its processes."""
        self._call("stop", timeout_s=_STOP_SECONDS)

    def _call(
        self, action: str, options: dict[str, Any] | None = None, timeout_s: float = 5.0
    ) -> dict[str, Any]:
        asked = {"deployment": self._deployment.name, **(options or {})}
        try:
            return call(self._location, self._security, "holdfast", action, asked, timeout_s)
        except Exception as error:
            raise ServerError(f"server {self.name} at {self._location}: {explain(error)}") from None


def ask_server(
    address: str, security: Security, action: str, asked: dict[str, Any], within_s: float = 60.0
) -> Any:
    """What a server at host:port answers; ServerError if it does not.

    What changes a cluster waits for a majority of its servers: hence the minute.
    """
    host, port = host_and_port(address)
    try:
        location = security.location(host, port)
        return call(location, security, "holdfast", action, asked, within_s)
    except HoldfastError:
        raise
    except Exception as error:
        raise ServerError(f"server {address}: {explain(error)}") from None


def sent_files(deployment: Deployment) -> dict[str, Any]:
    """The files of a deployment, by their paths from its own, and its plan, for servers."""
    base = deployment.path.parent

    def relative(file: Path) -> str:
        return str(file.relative_to(base)) if file.is_relative_to(base) else file.name

    return {
        "network": relative(deployment.network),
        "files": {
            relative(file): base64.b64encode(file.read_bytes()).decode()
            for file in (deployment.network, *deployment.files)
        },
        "plan": plan_path(deployment).read_text(),
    }


def _text(file: Path) -> str | None:
    return file.read_text() if file.is_file() else None
