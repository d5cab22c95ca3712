"""Numbered tuples for fragments of every kind of delivery, and who notes which of them came."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.client import Client
from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment
from holdfast.stream_events import Boundary, Tuples

EXACTLY, LEAST, MOST = "exactly-once", "at-least-once", "at-most-once"
NAMES = {EXACTLY: "exactly", LEAST: "least", MOST: "most"}
WAIT_SECONDS = 60.0


def name_of(kind: str, shards: int) -> str:
    """The fragment of a kind of delivery with so many shards."""
    return f"{NAMES[kind]}{shards}"


def now_us() -> int:
    return int(time.time() * 1e6)


def numbered(size: int, first: int, count: int) -> pa.Table:
    payload = pa.array(["x" * size]).take(pa.array(np.zeros(count, dtype=np.int64)))
    return pa.table({"number": np.arange(first, first + count), "payload": payload})


class Reader:
    """A client of one kind that notes which numbers came, and when the newest was made."""

    def __init__(self, deployment: Deployment, kind: str, shards: int) -> None:
        self.kind = kind
        self.name = name_of(kind, shards)
        self._deployment = deployment
        self.source = f"{self.name}_in"
        self.next_number = 0
        self.until = self.newest = 0
        self._came: list[np.ndarray[Any, Any]] = []
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        output, reader = f"{self.name}_out", f"{self.name}_reader"
        self._client = Client.of(deployment.path, output, name=reader)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            while not self._stopping.is_set():
                event = self._client.read(0.05)
                if isinstance(event, Tuples) and event.stable:
                    self._came.append(event.table["number"].to_numpy())
                    self.newest = event.table["stime"][-1].value
                elif isinstance(event, Boundary):
                    self.until = event.stime
        except BaseException as error:
            self._failure = error

    def numbers(self) -> np.ndarray[Any, Any]:
        return np.concatenate([np.empty(0, dtype=np.int64), *self._came])

    def reach(self, stime: int) -> None:
        """Wait until everything is stable up to a time."""
        self._wait(stime, lambda: self.until)

    def get_newer(self, stime: int) -> None:
        """Wait until there are results of tuples that were made after a time.

        That everything is stable up to then says less: at most once all of it may be lost.
        """
        self._wait(stime, lambda: self.newest)

    def _wait(self, stime: int, come_to: Callable[[], int]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while (come := come_to()) <= stime:
            if self._failure is not None:
                raise self._failure
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{self.name}: the client is {(stime - come) / 1e6:.1f} s behind after "
                    f"{WAIT_SECONDS:g} s; the processes say: {self._told()}"
                )
            time.sleep(0.005)

    def _told(self) -> str:
        """How everybody on the way is."""
        names = (self.name, f"entry-{self.name}")
        nodes = [one for one in self._deployment.endpoints if one.startswith(names)]
        return json.dumps(node_status(self._deployment, nodes), indent=1)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)
        self._client.close()
