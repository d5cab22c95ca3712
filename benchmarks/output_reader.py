"""A program that reads one output in a benchmark, and sees that its ids have no gap."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from pathlib import Path

from holdfast.client import Boundary, Client, ClientEvent, Tuples


class OutputReader(ABC):
    """Reads one output, stable and tentative; ``came`` is called with everything that comes."""

    def __init__(self, deployment: Path, output: str, name: str) -> None:
        self.broken: list[str] = []
        self.stable_until = 0
        self._output = output
        self._next_id = 0
        self._client = Client.of(deployment, output, name=name)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for event in self._client:
                self._take(event)
        except BaseException as error:
            self.broken.append(f"{self._output}: {error!r}")

    def _take(self, event: ClientEvent) -> None:
        if isinstance(event, Boundary):
            self.stable_until = event.stime
        elif isinstance(event, Tuples) and event.stable:
            if event.first_id != self._next_id:
                self.broken.append(f"{self._output}: id {event.first_id} after {self._next_id}")
            self._next_id = event.first_id + event.table.num_rows
        self.came(event)

    @abstractmethod
    def came(self, event: ClientEvent) -> None:
        """What else is to be noted of it."""

    def close(self) -> None:
        self._client.close()
        self._thread.join(5.0)
