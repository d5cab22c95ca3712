"""Spare servers: they take the place of a server that is gone for too long.

A replica has nothing that another one of its fragment has not, if that one is stable; nor has a
copy of a passive or hybrid fragment, once the other copy runs. So it can begin anew on another
machine, with an empty directory: it joins (``core/joining.py``), as another life of its name, so
that what the earlier one acknowledges counts no more. Entry points and replicas that are alone have
tuples or state on their disks that nobody else has, and stay where they are.

To replace a server is to say that it listens elsewhere:

    data/moved.json     {"east": {"was": "10.0.0.2:4700", "now": "10.0.0.3:4700"}}

Everybody gets the new addresses, and looks there when somebody does not answer any more. When the
old machine comes back, it is told to stop what it ran.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from holdfast.cluster.remote import RemoteServer, ServerError
from holdfast.cluster.status import is_stable, node_status
from holdfast.deployment import Deployment, Endpoint, load_deployment, moved_path
from holdfast.durable import write_whole
from holdfast.errors import HoldfastError
from holdfast.plans.addresses import Addresses
from holdfast.ports import host_and_port

_LOOK_SECONDS = 1.0

Tell = Callable[[str], None]


class Spares:
    """Watches the servers of a deployment, and replaces those that are gone."""

    def __init__(
        self, deployment: Deployment, tell: Tell, on_move: Callable[[Deployment, str], None]
    ) -> None:
        """``on_move`` gets the deployment as it is then, and the server that moved."""
        self._tell = tell
        self._on_move = on_move
        self._heard: dict[str, float] = {}
        self._watch(deployment)
        self._said: dict[str, str] = {}
        # Servers to be told the new addresses, and machines to be told to stop.
        self._untold: set[str] = set()
        self._retired = _retired(deployment)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-spares", daemon=True)

    def start(self) -> None:
        if self._deployment.spares:
            self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(10.0)

    def _run(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            # Who takes part, and where, changes while it runs.
            self._try("", lambda: self._watch(load_deployment(self._deployment.path)))
            for name in list(self._heard):
                self._try(name, partial(self._look_at, name))
            self._try("", self._tell_others)

    def _try(self, server: str, look: Callable[[], None]) -> None:
        """Whatever it is that goes wrong, it is looked at again."""
        try:
            look()
        except (HoldfastError, OSError, ValueError) as error:
            if self._said.get(server) != str(error):
                self._tell(f"whether a spare is needed{server and ' for '}{server}: {error}")
            self._said[server] = str(error)

    def _watch(self, deployment: Deployment) -> None:
        """The servers that run something of it; those that are new are heard from now on."""
        now = time.monotonic()
        self._deployment = deployment
        self._heard = {
            name: self._heard.get(name, now)
            for name in deployment.servers
            if deployment.hosted_by(name)
        }

    def _look_at(self, name: str) -> None:
        try:
            RemoteServer(self._deployment, name).states()
        except ServerError as error:
            spare = self._free_spare(time.monotonic() - self._heard[name])
            if spare is not None and not self._stopping.is_set():
                self._replace(name, spare, str(error))
        else:
            self._heard[name] = time.monotonic()

    def _free_spare(self, silent_s: float) -> str | None:
        """A spare server that may take the place of one that was silent for so long."""
        taken = {place["now"] for place in _moved(self._deployment).values()}
        for name, after_us in self._deployment.spares.items():
            if silent_s >= after_us / 1e6 and _listens(self._deployment, name) not in taken:
                return name
        return None

    def _replace(self, name: str, spare: str, problem: str) -> None:
        reason = why_not(self._deployment, name)
        if reason is None:
            try:
                RemoteServer(self._deployment, spare).ports([], [])
            except ServerError as error:
                reason = f"the spare does not answer: {error}"
        if reason is not None:
            if self._said.get(name) != reason:
                self._tell(f"{problem}; {spare} cannot take its place: {reason}")
            self._said[name] = reason
            return
        old, place = self._deployment, _listens(self._deployment, name)
        moved = _moved(old)
        _write_moved(old, moved | {name: {"was": place, "now": _listens(old, spare)}})
        new = load_deployment(old.path)
        try:
            Addresses.choose(
                new,
                lambda server, nodes, processes: RemoteServer(new, server).ports(nodes, processes),
                anew=new.hosted_by(name),
            )
        except (HoldfastError, OSError, ValueError):
            _write_moved(old, moved)  # it may be gone, too
            raise
        self._tell(f"{problem}; {spare} takes its place")
        self._deployment = new
        self._retired[name] = RemoteServer(old, name)
        self._heard[name] = time.monotonic()
        self._untold = set(self._heard) - {name}
        self._on_move(new, name)

    def _tell_others(self) -> None:
        for name in list(self._untold):
            try:
                RemoteServer(self._deployment, name).deploy(restart=False)
            except ServerError:
                continue
            self._untold.discard(name)
        for name, machine in list(self._retired.items()):
            try:
                machine.stop()
            except ServerError:
                continue
            self._tell(f"the machine that was {name} is back; it was told to stop")
            del self._retired[name]


def why_not(deployment: Deployment, server: str) -> str | None:
    """Why the processes of a server cannot begin anew elsewhere; None if they can."""
    lost = [
        node for process in deployment.hosted_by(server) for node in deployment.processes[process]
    ]
    others: dict[str, list[str]] = {}
    for node in lost:
        fragment = deployment.fragment_of(node)
        peers = [] if fragment is None else [*fragment.processes]
        others[node] = [name for name in peers if name not in deployment.gone.union(lost)]
        if not others[node]:
            return f"{node} has on its disk what nobody else has"
    asked = sorted({name for names in others.values() for name in names})
    said = node_status(deployment, asked)
    for node, names in others.items():
        if not any(_can_give(said[name]) for name in names):
            return f"{' and '.join(names)}, which would give {node} its state, cannot now"
    return None


def _can_give(status: dict[str, Any]) -> bool:
    """Whether a copy or replica has all that another one needs to begin anew."""
    if "copy" in status:
        return bool(status.get("awake"))
    return is_stable(status)


def _moved(deployment: Deployment) -> dict[str, dict[str, str]]:
    path = moved_path(deployment.data)
    found: dict[str, dict[str, str]] = json.loads(path.read_text()) if path.is_file() else {}
    return found


def _write_moved(deployment: Deployment, moved: dict[str, dict[str, str]]) -> None:
    write_whole(moved_path(deployment.data), json.dumps(moved, indent=1).encode())


def _listens(deployment: Deployment, server: str) -> str:
    endpoint = deployment.servers[server]
    return f"{endpoint.host}:{endpoint.port}"


def _retired(deployment: Deployment) -> dict[str, RemoteServer]:
    """Machines that were replaced in an earlier life and may come back."""
    found = {}
    for name, place in _moved(deployment).items():
        if name in deployment.servers and _listens(deployment, name) == place["now"]:
            found[name] = RemoteServer(deployment, name, Endpoint(*host_and_port(place["was"])))
    return found
