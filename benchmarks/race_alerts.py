"""What came to the operator of benchmark race: alerts, when they were made, and when they came."""

from __future__ import annotations

import threading
import time

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.standby_chain import now_us
from holdfast.client import Boundary, Client, Tuples

Times = npt.NDArray[np.int64]


class Alerts:
    """What came to the operator, when, and when it was made."""

    def __init__(self, client: Client, usual_ms: float) -> None:
        """``usual_ms``: the time between results, where too few came to say it."""
        self._client = client
        self._usual_ms = usual_ms
        self._parts: list[tuple[int, Times, pa.Table]] = []
        self._changed = threading.Condition()
        self.boundary = 0
        self.broken = False
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def following(self) -> str:
        return self._client.following or "nobody"

    def _read(self) -> None:
        next_id = 0
        while not self._stopping.is_set():
            event = self._client.read(0.2)
            if isinstance(event, Boundary):
                self.boundary = event.stime
            elif isinstance(event, Tuples) and event.stable:
                self.broken |= event.first_id != next_id
                next_id = event.first_id + event.table.num_rows
                with self._changed:
                    made = event.table["made"].to_numpy()
                    self._parts.append((now_us(), made, event.table))
                    self._changed.notify_all()

    def wait_made(self, made_after: int, timeout_s: float) -> None:
        """Until something that was made after this time has come."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not (self._parts and self._parts[-1][1].max() > made_after):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"no new alert came in {timeout_s:g} s")
                self._changed.wait(min(left, 0.5))

    def delays_ms(self, start: int, end: int) -> npt.NDArray[np.float64]:
        """How old every alert that was made in this time was when it came."""
        with self._changed:
            parts = [(at, made[(made >= start) & (made < end)]) for at, made, _ in self._parts]
        return np.concatenate([np.zeros(0), *((at - made) / 1e3 for at, made in parts)])

    def usual_interval_ms(self, before: int) -> float:
        """The median of the last times between results."""
        with self._changed:
            times = [at for at, _, _ in self._parts if at < before][-20:]
        return float(np.median(np.diff(times))) / 1e3 if len(times) > 1 else self._usual_ms

    def longest_interval_ms(self, start: int, end: int) -> float:
        """The longest time without a result, from the last before ``start`` on."""
        with self._changed:
            earlier = [at for at, _, _ in self._parts if at < start][-1:]
            times = [at for at, _, _ in self._parts if start <= at < end]
        return float(np.diff([*(earlier or [start]), *times, end]).max()) / 1e3

    def table(self) -> pa.Table:
        with self._changed:
            return pa.concat_tables([table for _, _, table in self._parts])

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)
