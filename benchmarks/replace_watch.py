"""A reader of one output in benchmark replace: when results came, how late, and whether all did."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pyarrow as pa

from benchmarks.output_reader import OutputReader
from benchmarks.replace_setting import Numbers, Sales
from benchmarks.standby_chain import now_us
from holdfast.client import Boundary, ClientEvent, Tuples
from holdfast.deployment import Deployment


@dataclass(frozen=True)
class Compared:
    """What an output has against the right answer."""

    results: int
    lost: int
    doubled: int
    differing: int


class Reader(OutputReader):
    """Keeps what was stable, and when everything came."""

    def __init__(self, deployment: Deployment, output: str, name: str) -> None:
        self.tentative = 0
        # When results came; and when everything before a time had come, and which time.
        self._came: list[int] = []
        self._reached: list[tuple[int, int]] = []
        self._held: list[pa.Table] = []
        super().__init__(deployment.path, output, name)

    def came(self, event: ClientEvent) -> None:
        now = now_us()
        if isinstance(event, Boundary):
            self._reached.append((now, event.stime))
        elif isinstance(event, Tuples):
            self._came.append(now)
            if event.stable:
                self._held.append(event.table.select(["newest", "paid"]))
            else:
                self.tentative += event.table.num_rows

    def gap_us(self, since: int, until: int) -> int:
        """The longest time without a result that touches a stretch."""
        return longest_gap_us(list(self._came), since, until)

    def lateness_us(self, since: int, until: int) -> Numbers:
        """How long after a bucket was over its last result came, of those that came meanwhile."""
        found = [at - stime for at, stime in list(self._reached) if since <= at < until]
        return np.array(found, dtype=np.int64)

    def lateness_to_next_us(self, since: int, until: int) -> Numbers:
        """The same, with the first one after it: what happens last in it makes that one late."""
        after = [at for at, _ in list(self._reached) if at >= until]
        return self.lateness_us(since, min(after, default=until) + 1)

    def compare(self, sales: Sales, sent: int) -> Compared:
        """What is stable against the right answer for so many tuples."""
        return compared(pa.concat_tables(self._held), sales.right_answer(sent))


def longest_gap_us(came: list[int], since: int, until: int) -> int:
    """The longest of the times between two results, one of which is in a stretch."""
    before = [at for at in came if at < since]
    after = [at for at in came if at >= until]
    within = [at for at in came if since <= at < until]
    marks = [max(before, default=since), *within, min(after, default=until)]
    return max(later - earlier for earlier, later in pairwise(marks))


def compared(held: pa.Table, expected: pa.Table) -> Compared:
    """Results against the right ones; each has the number of its last sale as its name."""
    newest, first = np.unique(held["newest"].to_numpy(), return_index=True)
    wanted = expected["newest"].to_numpy()
    known = np.isin(newest, wanted)
    paid = held["paid"].to_numpy()[first][known]
    right = expected["paid"].to_numpy()[np.searchsorted(wanted, newest[known])]
    return Compared(
        expected.num_rows,
        lost=len(wanted) - int(known.sum()),
        doubled=held.num_rows - len(newest),
        differing=int((paid != right).sum()) + int((~known).sum()),
    )
