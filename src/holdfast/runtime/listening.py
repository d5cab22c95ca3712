"""The Flight server of a process, made anew when its certificates change.

Tokens are read again with the next call. A Flight server keeps the certificates it was made with,
so a new one is made on the same port, and the old one is closed: its feeds end, and subscribers
come back to the new one from where they stood.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from holdfast.flight.security import Security
from holdfast.flight.server import StreamServer
from holdfast.runtime.journal import Journal

LOOK_SECONDS = 1.0

# A server for a port.
Make = Callable[[int], StreamServer]


class Listener:
    """Listens for a process, with the certificates of the day."""

    def __init__(self, make: Make, port: int, security: Security, journal: Journal) -> None:
        self._make = make
        self._security = security
        self._journal = journal
        self._made_with = security.current().server_options()
        self._said = ""
        self.server = make(port)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="certificates", daemon=True)
        if self._made_with:
            self._thread.start()

    @property
    def port(self) -> int:
        return int(self.server.port)

    def close(self) -> None:
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(5.0)
        self.server.close()

    def _run(self) -> None:
        while not self._stopping.wait(LOOK_SECONDS):
            options = self._security.current().server_options()
            if options != self._made_with:
                self._renew(options)

    def _renew(self, options: dict[str, Any]) -> None:
        before = self.server
        try:
            self.server = self._make(self.port)
        except Exception as error:  # a key that is not the certificate's, say: half is written
            if str(error) != self._said:
                self._said = str(error)
                self._journal.write("certificates not taken", level="error", problem=str(error))
            return
        self._made_with, self._said = options, ""
        self._journal.write("certificates renewed")
        before.close()
