"""The Flight server of a process, made anew when its certificates change.

Tokens are read again with the next call. A Flight server keeps the certificates it was made with,
and lets nobody share its port; so it is closed, and another is made: for a moment nobody listens,
feeds end, and subscribers come back from where they stood. What cannot be a certificate and its
key changes nothing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from typing import Any

import pyarrow as pa

from holdfast.core.messages import Message
from holdfast.flight.refused import refused
from holdfast.flight.security import Security
from holdfast.flight.server import PutBatch, StreamServer
from holdfast.nodes.journal import Journal

LOOK_SECONDS = 1.0

# A server for a port.
Make = Callable[[int], StreamServer]


class NoStreams:
    """What is behind a Flight server that has nothing but control."""

    name: str
    schemas: Mapping[str, pa.Schema] = {}

    def receive(self, sender: str, message: Message) -> Future[Message]:
        raise refused(f"{self.name} serves no stream, and takes no messages about one")

    def put(
        self, sender: str, stream: str, options: dict[str, Any], batches: Iterator[PutBatch]
    ) -> None:
        raise refused(f"{self.name} takes no tuples; entry points do")


class Listener:
    """Listens for a process, with the certificates of the day."""

    def __init__(self, make: Make, port: int, security: Security, journal: Journal) -> None:
        self._make = make
        self._security = security
        self._journal = journal
        self._made_with = security.current().server_options()
        self._said = self._problem = ""
        self.server = make(port)
        self.port = int(self.server.port)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)
        if security.renewed is not None:
            self._thread.start()

    def close(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self.server.close()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            security = self._security.current()
            self._tell(security.problem or "")
            if security.server_options() != self._made_with:
                self._renew(security)

    def _tell(self, problem: str) -> None:
        """Say what is wrong with the files, once."""
        if problem and problem != self._problem:
            self._journal.write("secrets not taken", level="error", problem=problem)
        self._problem = problem

    def _renew(self, security: Security) -> None:
        from holdfast.flight.certificates import check_pair

        try:
            assert security.certificate is not None
            assert security.key is not None
            check_pair(security.certificate, security.key)
            self.server.close(within_s=0.2)
            self._made_with = {}  # whatever happens now, another is made
            self.server = self._make(self.port)
        except Exception as error:  # half of it is written, or the port is not free yet
            if str(error) != self._said:
                self._said = str(error)
                self._journal.write("certificates not taken", level="error", problem=str(error))
            return
        self._made_with, self._said = security.server_options(), ""
        self._journal.write("certificates renewed")
