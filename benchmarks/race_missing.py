"""What a watcher gets of a union while one of its two inputs is cut off, in benchmark race."""

from __future__ import annotations

import threading
import time

import numpy as np
import pyarrow as pa

from benchmarks.race_alerts import Times
from benchmarks.race_deployment import SERVERS, WATCHER, Running
from benchmarks.standby_chain import now_us
from holdfast.client import Boundary, Client, Tuples, Unordered
from holdfast.deployment import Deployment

MISSING = "latency_west"
WITHIN_SECONDS = 120.0
# Whoever asks first for early results has engines made for them.
SETTLE_SECONDS = 3.0
REPLICAS = ("merged-1", "merged-2", "merged-3")


class Watcher:
    """What came to the watcher, and when. It begins to read when it is first asked for."""

    def __init__(self, deployment: Deployment, ordered: bool) -> None:
        self.ordered = ordered
        self.tentative = 0
        self.boundary = 0
        self._deployment = deployment
        self._client: Client | None = None
        self._parts: list[tuple[int, pa.Table]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)

    def begin(self) -> None:
        """Read, from the beginning on."""
        path = self._deployment.path
        self._client = Client.of(path, "slow", name=WATCHER, ordered=self.ordered)
        self._thread.start()
        self.wait_for(now_us())

    def _read(self) -> None:
        assert self._client is not None
        while not self._stopping.is_set():
            event = self._client.read(0.2)
            if isinstance(event, Boundary):
                self.boundary = event.stime
            elif isinstance(event, Unordered) or (isinstance(event, Tuples) and event.stable):
                self._parts.append((now_us(), event.table))
            elif isinstance(event, Tuples):
                self.tentative += event.table.num_rows

    def wait_for(self, stime: int) -> bool:
        """Until everything older has come; whether it has."""
        deadline = time.monotonic() + WITHIN_SECONDS
        while self.boundary < stime and time.monotonic() < deadline:
            time.sleep(0.1)
        return self.boundary >= stime

    def ages_ms(self, start: int, end: int) -> Times:
        """Of results of the input that was there, made in between: how old they were."""
        found = []
        for at, table in list(self._parts):
            made = table["made"].to_numpy()
            wanted = (made >= start) & (made < end) & (table["origin"].to_numpy() < SERVERS // 2)
            found.append((at - made[wanted]) / 1e3)
        return np.concatenate(found)

    def finish(self, stime: int) -> bool:
        """Whether all of it has come, up to this time."""
        complete = self.wait_for(stime)
        self.stop()
        return complete

    def table(self) -> pa.Table:
        return pa.concat_tables([table for _, table in self._parts])

    def is_all_of(self, came: pa.Table, expected: pa.Table) -> bool:
        """Whether what came is what an undisturbed run gives, in order or without."""
        columns = [name for name in came.column_names if name != "tmax"]
        one, other = came.select(columns), expected.select(columns)
        if not self.ordered:
            keys = [(name, "ascending") for name in columns]
            one, other = one.sort_by(keys), other.sort_by(keys)
        return bool(one.combine_chunks().equals(other.combine_chunks()))

    def stop(self) -> None:
        self._stopping.set()
        if self._client is not None:
            self._thread.join(5.0)
            self._client.close()


def without_an_input(running: Running, watcher: Watcher, seconds: float) -> tuple[float, float]:
    """The median and the 99th percentile of the ages, with one input of the union cut off."""
    watcher.begin()
    time.sleep(SETTLE_SECONDS)
    for name in REPLICAS:
        running.tell_links(name, {"cut": [f"entry-{MISSING}"]})
    start = now_us()
    time.sleep(seconds)
    end = now_us()
    for name in REPLICAS:
        running.tell_links(name, {"heal": None})
    watcher.wait_for(end)
    ages = watcher.ages_ms(start, end)
    return float(np.percentile(ages, 50)), float(np.percentile(ages, 99))
