"""What happened in the demonstration: answers, states and marks, by seconds since its start."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from holdfast.client import ClientEvent, Tuples, View

STABLE, TENTATIVE, CORRECTED = "stable", "tentative", "corrected"


@dataclass(frozen=True)
class Answer:
    """What the client heard about one second: all servers' results together.

    at       when it came
    delay_s  how long after the end of its second that was
    before   the probes a tentative answer had counted, if this one corrects it
    """

    at: float
    stime: int
    kind: str
    delay_s: float
    servers: int
    probes: int
    latency_ms: float
    slowest: str
    slowest_ms: float
    before: int | None = None


class History:
    """Everything the views and the picture show. One thread writes."""

    def __init__(self, seconds: float, delay_s: float) -> None:
        """``delay_s`` is X."""
        self.seconds = seconds
        self.delay_s = delay_s
        self.view = View()
        self.answers: list[Answer] = []
        self.standing: list[tuple[float, int]] = []
        self.states: dict[str, list[tuple[float, str]]] = {}
        self.marks: list[tuple[float, str]] = []
        self.counts = {STABLE: 0, TENTATIVE: 0, CORRECTED: 0}
        self._told: dict[int, int] = {}
        self.started = False
        self._started = time.time()

    def start(self) -> None:
        """The warm-up is over: times count from now."""
        self.started = True
        self._started = time.time()
        self.answers.clear()
        self.standing.clear()
        self.counts = dict.fromkeys(self.counts, 0)
        self.states = {name: [(0.0, found[-1][1])] for name, found in self.states.items()}

    @property
    def now(self) -> float:
        return time.time() - self._started

    @property
    def tentative(self) -> int:
        """How many tentative tuples stand."""
        table = self.view.tentative
        return 0 if table is None else int(table.num_rows)

    def take(self, event: ClientEvent) -> list[Answer]:
        """Note what the client got; the answers in it."""
        self.view.apply(event)
        found = self._answers(event) if isinstance(event, Tuples) else []
        self.answers += found
        count = self.tentative
        if not self.standing or self.standing[-1][1] != count:
            self.standing.append((self.now, count))
        return found

    def _answers(self, event: Tuples) -> list[Answer]:
        found = []
        stimes = event.table["stime"].cast(pa.int64())
        for stime in sorted(set(stimes.to_pylist())):
            rows = event.table.filter(pc.equal(stimes, stime)).to_pylist()
            probes = sum(row["probes"] for row in rows)
            before = self._told.pop(stime, None) if event.stable else None
            kind = TENTATIVE if not event.stable else STABLE if before is None else CORRECTED
            if not event.stable:
                self._told[stime] = probes
            self.counts[kind] += len(rows)
            slowest = max(rows, key=lambda row: row["latency_ms"])
            found.append(
                Answer(
                    self.now,
                    stime,
                    kind,
                    time.time() - stime / 1e6,
                    len(rows),
                    probes,
                    sum(row["latency_ms"] * row["probes"] for row in rows) / probes,
                    slowest["server"],
                    slowest["latency_ms"],
                    before,
                )
            )
        return found

    def in_state(self, name: str, state: str, at: float | None = None) -> None:
        """Note a state of a node; ``at`` is seconds since the epoch."""
        when = self.now if at is None else at - self._started
        known = self.states.setdefault(name, [])
        if not known or known[-1][1] != state:
            known.append((max(0.0, when), state))

    def state(self, name: str) -> str:
        known = self.states.get(name)
        return known[-1][1] if known else "starting"

    def mark(self, text: str) -> None:
        self.marks.append((self.now, text))

    def longest_wait_s(self) -> float:
        """The longest a second had to wait for its first answer."""
        first = (each.delay_s for each in self.answers if each.kind != CORRECTED)
        return max(first, default=0.0)

    def corrected_s(self) -> float:
        """How long after the end of the last cut the last correction came."""
        last = max((each.at for each in self.answers if each.kind == CORRECTED), default=0.0)
        healed = (at for found in self.states.values() for at, state in found if state == "up")
        return last - max((at for at in healed if at <= last), default=last)
