"""What a cluster says of itself: who is there, how far apart, how busy, and what is submitted.

Any server can tell. One that does not answer is passed over; where no server is in a cluster,
nothing is said. What was submitted is written as a deployment of its own, as ``holdfast submit``
does, and again whenever the cluster has moved a replica.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.cluster.desired import Submission
from holdfast.cluster.remote import ask_server
from holdfast.durable import write_whole
from holdfast.errors import HoldfastError
from holdfast.flight.credentials import SecuritySpec
from holdfast.flight.security import Security

_ASK_SECONDS = 1.0
_AGAIN_SECONDS = 10.0
_CALL_SECONDS = 3.0
# What changes something waits for a majority of the servers.
_CHANGE_SECONDS = 60.0


def ask_any(
    addresses: Sequence[str],
    security: Security,
    action: str,
    within_s: float = _CALL_SECONDS,
    **asked: Any,
) -> Any:
    """What the first of these servers answers that does; HoldfastError if none does."""
    said = []
    for address in addresses:
        try:
            return ask_server(address, security, action, asked, within_s)
        except HoldfastError as error:
            said.append(str(error))
    raise HoldfastError("; ".join(said) or "there are no servers to ask")


class ClusterEye:
    """A thread that asks a cluster how it is; ``close`` it."""

    def __init__(self, addresses: Sequence[str], security: Security) -> None:
        self._addresses = list(addresses)
        self._security = security
        self._stopping = threading.Event()
        self.latest: dict[str, Any] | None = None
        self.problem: str | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-web-cluster", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(_CALL_SECONDS + 1.0)

    def look(self) -> dict[str, Any]:
        """Ask now; HoldfastError if nobody answers."""
        found: dict[str, Any] = ask_any(self._addresses, self._security, "cluster-status")
        # Who answers today may be gone tomorrow: all that are known are asked, those there first.
        there = [str(card["address"]) for card in found["servers"].values()]
        self._addresses = [*there, *(each for each in self._addresses if each not in there)]
        return found

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                self.latest, self.problem = {**self.look(), "at": time.time()}, None
                self.changed()
            except (HoldfastError, OSError, KeyError, ValueError) as error:
                self.problem = str(error)
            self._stopping.wait(_ASK_SECONDS if self.latest is not None else _AGAIN_SECONDS)

    def changed(self) -> None:
        """Something may be different now."""


class SubmissionEye(ClusterEye):
    """The same, which also keeps one submission on disk as the cluster has it."""

    def __init__(
        self, address: str, security: SecuritySpec, name: str | None, directory: Path
    ) -> None:
        super().__init__([address], security.read())
        self._table = security.table()
        self.directory = directory
        self._lock = threading.Lock()
        self._version: list[int] | None = None
        self._written: dict[str, Any] | None = None
        self.name = self._chosen(name)
        self.path = self.write()

    @property
    def submission(self) -> Submission:
        """As the cluster had it when it was last asked."""
        assert self._written is not None, "it is written when it is made"
        return Submission(**self._written)

    @property
    def own(self) -> dict[str, Any]:
        """What a deployment file of it has beside what was submitted."""
        return {"network": self.submission.network, "security": self._table, "data": "data"}

    @property
    def address(self) -> str:
        """One of the servers, one that answers if any does."""
        return self._addresses[0]

    def change(self, action: str, **asked: Any) -> Any:
        """Have the cluster do something, through one server: nothing is asked for twice."""
        return ask_any([self.address], self._security, action, _CHANGE_SECONDS, **asked)

    def follow(self, name: str) -> None:
        """Look at another submission from now on."""
        with self._lock:
            self.name = name
        self.write()

    def write(self) -> Path:
        """The submission as a deployment; its file."""
        with self._lock:
            answer = ask_any(self._addresses, self._security, "cluster-submission", name=self.name)
            found = answer["submission"]
            if found != self._written:
                self.path = Submission(**found).write(self.directory, self._table)
                # Nothing of it runs on this machine.
                write_whole(self.directory / "data" / "processes.json", b"{}")
                self._written = found
            return self.path

    def changed(self) -> None:
        if self.latest is not None and self.latest["version"] != self._version:
            self.write()
            self._version = self.latest["version"]

    def _chosen(self, name: str | None) -> str:
        known = sorted(str(each) for each in self.look()["submissions"])
        if name is None and known:
            return known[0]
        if name not in known:
            listed = ", ".join(known) or "nothing: hand it something with holdfast submit"
            wrong = "there is nothing to show" if name is None else f"{name!r} is not submitted"
            raise HoldfastError(f"{wrong}; submitted are: {listed}")
        return name
