"""What every kind of node is to its process: a name, a place, a server, what is wrong with it."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast import disk
from holdfast.clock import Clock
from holdfast.core.records import Membership
from holdfast.disk import Fault
from holdfast.durable import make_private
from holdfast.flight.distance import Distance
from holdfast.flight.links import Links
from holdfast.flight.security import Security
from holdfast.flight.server import Control, StreamServer
from holdfast.kept.quiet import Quiet
from holdfast.nodes.journal import Journal
from holdfast.nodes.links import if_allowed, kept_links, links_control, told_distances
from holdfast.nodes.listening import Listener, NoStreams
from holdfast.nodes.metrics import NodeMetrics
from holdfast.nodes.pace import Busy
from holdfast.nodes.problems import Problems
from holdfast.nodes.standstill import Standstill, Watched


@dataclass(frozen=True)
class Place:
    """Where a node listens, whom it can reach, and its time.

    book   the Flight location of every process of the deployment.
    chaos  whether it may be made to fail on purpose: links cut, its clock set.
    distances  how far it is to other nodes, where that is not the machine's own business.
    membership  who takes part now, as far as this machine knows.
    at_work  how much of its time the process runs jobs, of all its nodes.
    quiet  when none of them runs any.
    """

    host: str
    port: int
    book: Mapping[str, str]
    security: Security
    clock: Clock = field(default_factory=Clock)
    chaos: bool = False
    distances: Mapping[str, Distance] = field(default_factory=dict)
    membership: Callable[[], Membership] = Membership
    at_work: Busy = field(default_factory=lambda: Busy(time.monotonic()))
    quiet: Quiet = field(default_factory=Quiet)


def disk_control(options: dict[str, Any]) -> dict[str, Any]:
    """Have writes of this process fail with ``error`` where ``paths`` match; none heals them."""
    error = options.get("error")
    if error is None:
        disk.plant()
    else:
        disk.plant(Fault.named(str(error), str(options.get("paths", "*"))))
    return {"error": error}


class Hosted(NoStreams, ABC):
    """A node of a process; several can share one, each with its own address."""

    kind = "node"

    def __init__(
        self,
        name: str,
        place: Place,
        directory: Path,
        on_fatal: Callable[[BaseException], None],
        watched: tuple[Watched, ...],
    ) -> None:
        """``watched``: its threads, and what they work on."""
        place.security.check_binding(place.host)
        make_private(directory)
        self.name = name
        self.place = place
        self._directory = directory
        self._on_fatal = on_fatal
        self.journal = Journal(name)
        self.metrics = NodeMetrics(name, self.kind)
        self.links = kept_links(directory, place.distances) if place.chaos else Links()
        self.problems = Problems(self.journal, self.metrics)
        self._started = time.monotonic()
        self._listener: Listener | None = None
        self._standstill = Standstill(watched, self.problems, on_fatal)

    @property
    def port(self) -> int:
        """The port the node listens on."""
        assert self._listener is not None
        return self._listener.port

    @property
    def server(self) -> StreamServer | None:
        """What listens; another one after its certificates have changed."""
        return None if self._listener is None else self._listener.server

    def listen(self) -> None:
        self._listener = Listener(
            self._make_server, self.place.port, self.place.security, self.journal
        )
        self._standstill.start()

    def listen_no_more(self) -> None:
        self._standstill.close()
        if self._listener is not None:
            self._listener.close()

    def _make_server(self, port: int) -> StreamServer:
        return StreamServer(
            self,
            self.place.host,
            port,
            self.place.security,
            self.controls(),
            self.links,
            self.journal.refused_call,
            self.metrics.sent_tuples,
        )

    @abstractmethod
    def start(self) -> None:
        """Listen and run."""

    @abstractmethod
    def stop(self) -> None:
        """Serve no more, and finish what is under way."""

    def health(self) -> list[str]:
        """What keeps this node from making progress; nothing if it does, or has nothing to do."""
        return self.problems.blocking

    def controls(self) -> dict[str, Control]:
        return {
            "status": lambda options: self.status(),
            "links": if_allowed(self.place.chaos, links_control(self.links)),
            "disk": if_allowed(self.place.chaos, disk_control),
        }

    def status(self) -> dict[str, Any]:
        """What ``holdfast status`` shows."""
        return {
            "name": self.name,
            "kind": self.kind,
            "uptime_s": round(time.monotonic() - self._started, 1),
            "cut": self.links.listed(),
            "distances_ms": told_distances(self.links),
            "problems": self.problems.texts,
        }
