"""The other servers of a cluster: a connection to each, how far it is, and what it says of itself.

Every second each server calls each other one it knows (``cluster-hello``), tells its *card* and
takes the other's, with the addresses that one knows. The time a call takes is the round trip: what
the network takes, and the other's answer, which waits for nothing. Of the last ones the median
counts, so that one slow call changes nothing and a link whose delay jumps is as long as it mostly
is.
"""

from __future__ import annotations

import contextlib
import queue
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import psutil
import pyarrow.flight as flight

from holdfast.core.cluster_messages import ClusterMessage
from holdfast.flight.peers import act, connect, explain
from holdfast.flight.security import Security
from holdfast.nodes.journal import Journal
from holdfast.nodes.load import CpuLoad
from holdfast.ports import host_and_port

HELLO_SECONDS = 1.0
_CALL_SECONDS = 2.0
_QUEUED = 64
_MEASURED = 15

Card = dict[str, Any]


class Neighbour:
    """One other server, as this one knows it."""

    def __init__(self, owner: Neighbours, address: str) -> None:
        self.address = address
        self.card: Card = {}
        self.heard_at: float | None = None
        self.problem = ""
        self._owner = owner
        self._round_trips_s: deque[float] = deque(maxlen=_MEASURED)
        self._queue: queue.Queue[ClusterMessage | None] = queue.Queue(_QUEUED)
        self._stopping = threading.Event()
        for target in (self._greet, self._deliver):
            threading.Thread(target=target, name=f"to {address}", daemon=True).start()

    @property
    def delay_ms(self) -> float | None:
        """One way: half of the median round trip."""
        found = list(self._round_trips_s)
        return 500 * statistics.median(found) if found else None

    def send(self, message: ClusterMessage) -> None:
        # One that takes nothing is told the rest later: a coordinator repeats itself.
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(message)

    def close(self) -> None:
        self._stopping.set()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)

    def _greet(self) -> None:
        client: flight.FlightClient | None = None
        while not self._stopping.is_set():
            began = time.monotonic()
            try:
                client = client or self._owner.connect(self.address)
                answer = self._owner.call(client, "cluster-hello", {"card": self._owner.card()})
            except Exception as error:
                _close(client)
                client = None
                self._failed(error)
            else:
                self._round_trips_s.append(time.monotonic() - began)
                self.heard_at = time.monotonic()
                self.problem = ""
                self.card = answer["card"]
                self._owner.meet(answer["known"])
            self._stopping.wait(max(0.05, HELLO_SECONDS - (time.monotonic() - began)))
        _close(client)

    def _deliver(self) -> None:
        client: flight.FlightClient | None = None
        while not self._stopping.is_set():
            message = self._queue.get()
            if message is None:
                break
            try:
                client = client or self._owner.connect(self.address)
                self._owner.call(client, "cluster-message", self._owner.envelope(message))
            except Exception as error:
                _close(client)
                client = None
                self._failed(error)
        _close(client)

    def _failed(self, error: Exception) -> None:
        said = explain(error)
        if said != self.problem:
            self.problem = said
            self._owner.tell(self.address, said)


class Neighbours:
    """Everyone else in the cluster."""

    def __init__(
        self,
        address: str,
        name: str,
        security: Security,
        card: Callable[[], Card],
        envelope: Callable[[ClusterMessage], dict[str, Any]],
        on_meet: Callable[[tuple[str, ...]], None],
        journal: Journal,
    ) -> None:
        self._address = address
        self._name = name
        self._security = security
        self.card = card
        self.envelope = envelope
        self._on_meet = on_meet
        self._journal = journal
        self._found: dict[str, Neighbour] = {}
        self._lock = threading.Lock()
        self._closed = False

    def __iter__(self) -> Any:
        with self._lock:
            return iter(list(self._found.values()))

    def get(self, address: str) -> Neighbour | None:
        return self._found.get(address)

    def meet(self, addresses: list[str] | tuple[str, ...]) -> None:
        """Get to know servers, if there are any new ones."""
        with self._lock:
            fresh = [
                each for each in addresses if each != self._address and each not in self._found
            ]
            if self._closed or not fresh:
                return
            for address in fresh:
                self._found[address] = Neighbour(self, address)
            known = tuple(self._found)
        self._on_meet(known)

    def send(self, to: str, message: ClusterMessage) -> None:
        self.meet([to])
        neighbour = self._found.get(to)
        if neighbour is not None:
            neighbour.send(message)

    def connect(self, address: str) -> flight.FlightClient:
        return connect(self._security.location(*host_and_port(address)), self._security)

    def call(
        self, client: flight.FlightClient, action: str, options: dict[str, Any]
    ) -> dict[str, Any]:
        return act(client, self._security, self._name, action, options, _CALL_SECONDS)

    def ask(self, address: str, action: str, options: dict[str, Any], within_s: float) -> Any:
        """One call to a server, on a connection of its own."""
        with self.connect(address) as client:
            return act(client, self._security, self._name, action, options, within_s)

    def tell(self, address: str, problem: str) -> None:
        if not self._closed:
            self._journal.write("server", level="warning", address=address, problem=problem)

    def close(self) -> None:
        self._closed = True
        for neighbour in self:
            neighbour.close()


class Machine:
    """How busy this machine is: the share of its processors and memory in use."""

    def __init__(self) -> None:
        self._load = CpuLoad()
        self._looked_at = 0.0
        self._found: dict[str, float] = {"cpu": 0.0, "memory": 0.0}
        self._lock = threading.Lock()

    def look(self) -> dict[str, float]:
        """As of the last few seconds."""
        with self._lock:
            if time.monotonic() - self._looked_at >= 2.0:
                first, self._looked_at = not self._looked_at, time.monotonic()
                cpu = self._load.look()
                before = self._found["cpu"]
                memory = psutil.virtual_memory().percent / 100
                # A moment's load is no reason to place nothing here.
                smooth = cpu if first else before + 0.2 * (cpu - before)
                self._found = {"cpu": round(smooth, 3), "memory": round(memory, 3)}
            return dict(self._found)


def _close(client: flight.FlightClient | None) -> None:
    if client is not None:
        with contextlib.suppress(Exception):
            client.close()
