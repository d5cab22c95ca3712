"""Looks at a deployment again and again: what its nodes, supervisor and servers say.

There is one of these however many people watch, and it keeps its connections: a look costs a node
one answer to "status".
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pyarrow.flight as flight

from holdfast.cluster.remote import RemoteServer, ServerError
from holdfast.cluster.status import no_answer
from holdfast.cluster.supervisor import local_state, supervisor_pid
from holdfast.cluster.usage import with_usage
from holdfast.deployment import Deployment, load_deployment, membership_path
from holdfast.errors import HoldfastError
from holdfast.flight.peers import act, connect
from holdfast.flight.roles import COMMANDS
from holdfast.plans.addresses import Addresses
from holdfast.web.clusters import ClusterEye

LOOK_SECONDS = 0.5
_NODE_SECONDS = 1.0
_ASKED_AT_ONCE = 16
_ASKED_FOR_A_CLUSTER = 5


@dataclass(frozen=True)
class Look:
    """A deployment at one moment.

    at          seconds since the epoch
    supervisor  the process that looks after it, if any does
    processes   of each: pid, restarts, uptime_s, problem, cpu_s, memory_bytes; or an error
    nodes       what each answers to "status", or its error
    problem     why nothing can be said; None if something can
    cluster     what the cluster says whose servers these are, if they are in one
    """

    at: float
    deployment: Deployment
    supervisor: int | None = None
    processes: dict[str, dict[str, Any]] = field(default_factory=dict)
    nodes: dict[str, dict[str, Any]] = field(default_factory=dict)
    problem: str | None = None
    cluster: dict[str, Any] | None = None


class Looker:
    """Looks at a deployment; ``close`` it."""

    def __init__(self, deployment: Deployment, eye: ClusterEye | None = None) -> None:
        """``eye``: what looks at the cluster, if that is what is watched."""
        self._deployment = deployment
        self._changed_at = _changed_at(deployment)
        self._security = deployment.security.read()
        self._clients: dict[str, tuple[str, flight.FlightClient]] = {}
        self._pool = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="holdfast-look")
        self._eye = eye
        if eye is None and deployment.servers:
            known = list(deployment.servers.values())[:_ASKED_FOR_A_CLUSTER]
            self._eye = ClusterEye([f"{each.host}:{each.port}" for each in known], self._security)
        if self._eye is not None:
            self._eye.start()

    @property
    def deployment(self) -> Deployment:
        """As its file was when it was last looked at."""
        return self._deployment

    def look(self) -> Look:
        """How it is now; never raises for what a deployment may be like."""
        self._read_again()
        deployment = self._deployment
        try:
            supervisor = supervisor_pid(deployment)
            processes = self._processes()
            book = Addresses.read(deployment).book(self._security)
        except (HoldfastError, OSError, ValueError) as error:
            return Look(time.time(), deployment, problem=str(error), cluster=self._cluster())
        names = list(deployment.endpoints)
        found = self._pool.map(lambda name: self._ask(name, book.get(name)), names)
        nodes = dict(zip(names, found, strict=True))
        return Look(time.time(), deployment, supervisor, processes, nodes, cluster=self._cluster())

    def _cluster(self) -> dict[str, Any] | None:
        return None if self._eye is None else self._eye.latest

    def close(self) -> None:
        if self._eye is not None:
            self._eye.close()
        self._pool.shutdown(cancel_futures=True)
        for _, client in self._clients.values():
            client.close()

    def _read_again(self) -> None:
        """The file may have been edited, by hand or on the page."""
        changed_at = _changed_at(self._deployment)
        if changed_at == self._changed_at:
            return
        try:
            self._deployment = load_deployment(self._deployment.path)
            self._security = self._deployment.security.read()
        except HoldfastError:
            return  # half of it may be written
        self._changed_at = changed_at

    def _processes(self) -> dict[str, dict[str, Any]]:
        deployment = self._deployment
        found: dict[str, dict[str, Any]] = {}
        if deployment.hosted_by(None):
            found = with_usage(local_state(deployment))
        used = [name for name in deployment.servers if deployment.hosted_by(name)]
        for each in self._pool.map(self._on_server, used):
            found |= each
        return found

    def _on_server(self, server: str) -> dict[str, dict[str, Any]]:
        try:
            return RemoteServer(self._deployment, server).states()
        except ServerError as error:
            unknown = {"pid": None, "restarts": 0, "error": str(error)}
            return dict.fromkeys(self._deployment.hosted_by(server), unknown)

    def _ask(self, name: str, location: str | None) -> dict[str, Any]:
        if location is None:
            return {"name": name, "error": "it has no address yet"}
        try:
            known = self._clients.get(name)
            if known is None or known[0] != location:
                known = self._clients[name] = (location, connect(location, self._security))
            return act(known[1], self._security, COMMANDS, "status", timeout_s=_NODE_SECONDS)
        except Exception as error:
            gone = self._clients.pop(name, None)
            if gone is not None:
                gone[1].close()
            return no_answer(name, error, _NODE_SECONDS)


class Looking:
    """A thread that looks, and tells what it saw."""

    def __init__(self, looker: Looker, tell: Callable[[Look], None]) -> None:
        self._looker = looker
        self._tell = tell
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-web-look", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(10.0)
        self._looker.close()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            self._tell(self._looker.look())


def _changed_at(deployment: Deployment) -> tuple[int, ...]:
    """When the file was written, and when replicas were last added or removed."""
    found = []
    for path in (deployment.path, membership_path(deployment.data)):
        try:
            found.append(path.stat().st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)
