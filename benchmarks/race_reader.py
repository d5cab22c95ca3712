"""What comes to a reader of benchmark race: results, when they were made, and when they came."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.standby_chain import now_us
from holdfast.client import Boundary, Client, Tuples, Unordered
from holdfast.deployment import Deployment

Times = npt.NDArray[np.int64]
Ages = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Part:
    """What came at once."""

    at: int
    made: Times
    table: pa.Table


class Reader:
    """Takes the stable results of an output, in their order or as they are known."""

    def __init__(self, deployment: Deployment, output: str, name: str, ordered: bool) -> None:
        self.client = Client.of(deployment.path, output, name=name, ordered=ordered)
        self.ordered = ordered
        self.broken = False
        self.tentative = 0
        self._parts: list[Part] = []
        # When a boundary came, and up to where everything had come then.
        self._boundaries: list[tuple[int, int]] = []
        self._changed = threading.Condition()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    @property
    def following(self) -> str:
        return self.client.following or "nobody"

    @property
    def boundary(self) -> int:
        return self._boundaries[-1][1] if self._boundaries else 0

    def _read(self) -> None:
        next_id = 0
        while not self._stopping.is_set():
            event = self.client.read(0.2)
            if isinstance(event, Boundary):
                with self._changed:
                    self._boundaries.append((now_us(), event.stime))
                    self._changed.notify_all()
            elif isinstance(event, Unordered):
                self._take(event.table)
            elif isinstance(event, Tuples) and event.stable:
                self.broken |= event.first_id != next_id
                next_id = event.first_id + event.table.num_rows
                self._take(event.table)
            elif isinstance(event, Tuples):
                self.tentative += event.table.num_rows

    def _take(self, table: pa.Table) -> None:
        with self._changed:
            self._parts.append(Part(now_us(), table["made"].to_numpy(), table))
            self._changed.notify_all()

    def wait_made(self, made_after: int, timeout_s: float) -> None:
        """Until something that was made after this time has come."""
        with self._changed:
            seen = self._changed.wait_for(
                lambda: any(part.made.max() > made_after for part in self._parts[-20:]), timeout_s
            )
        if not seen:
            raise TimeoutError(f"no new result came in {timeout_s:g} s")

    def wait_until(self, stime: int, timeout_s: float) -> bool:
        """Until everything older has come; whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self.boundary >= stime, timeout_s)

    def ages_ms(self, start: int, end: int, origins_below: int | None = None) -> Ages:
        """How old each result that was made in this time was when it came."""
        found = [np.zeros(0)]
        for part in self.parts():
            wanted = (part.made >= start) & (part.made < end)
            if origins_below is not None:
                wanted &= part.table["origin"].to_numpy() < origins_below
            found.append((part.at - part.made[wanted]) / 1e3)
        return np.concatenate(found)

    def ages_in_order_ms(self, start: int, end: int) -> Ages:
        """The same of when all that is older had come, too: as a reader in order has them."""
        with self._changed:
            at, until = np.array([*self._boundaries]).T
        furthest = np.maximum.accumulate(until)
        found = [np.zeros(0)]
        for part in self.parts():
            wanted = (part.made >= start) & (part.made < end)
            stimes = part.table["stime"].cast(pa.int64()).to_numpy()[wanted]
            came = at[np.searchsorted(furthest, stimes, "right").clip(max=len(at) - 1)]
            found.append((np.maximum(came, part.at) - part.made[wanted]) / 1e3)
        return np.concatenate(found)

    def usual_interval_ms(self, before: int) -> float:
        """The median of the last times between results."""
        times = [part.at for part in self.parts() if part.at < before][-20:]
        return float(np.median(np.diff(times))) / 1e3

    def longest_interval_ms(self, start: int, end: int) -> float:
        """The longest time without a result, from the last before ``start`` on."""
        times = [part.at for part in self.parts()]
        earlier = [at for at in times if at < start][-1:] or [start]
        within = [at for at in times if start <= at < end]
        return float(np.diff([*earlier, *within, end]).max()) / 1e3

    def parts(self) -> list[Part]:
        with self._changed:
            return list(self._parts)

    def is_all_of(self, expected: pa.Table) -> bool:
        """Whether what came is what an undisturbed run gives, in order or without one."""
        came = pa.concat_tables([part.table for part in self.parts()])
        columns = [name for name in came.column_names if name != "tmax"]
        one, other = came.select(columns), expected.select(columns)
        if not self.ordered:
            keys = [(name, "ascending") for name in columns]
            one, other = one.sort_by(keys), other.sort_by(keys)
        return not self.broken and bool(one.combine_chunks().equals(other.combine_chunks()))

    @property
    def count(self) -> int:
        return sum(part.table.num_rows for part in self.parts())

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)
        self.client.close()
