"""Which transitions of which tables were taken, and which never were."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from holdfast.core import (
    ahead,
    benchmark_detector,
    client,
    consistency,
    continuous,
    detector,
    early_lane,
    entry,
    joining,
    pairs,
    source_time,
    soutput,
    standby,
    sunion,
    sweeping,
    upstream,
    versions,
)
from holdfast.core.machine import Machine
from holdfast.core.succession import Succession

# Those of a cluster's servers are counted apart (``cluster_run``).
TABLES: dict[str, Mapping[tuple[Enum, Enum], Enum]] = {
    "FailureDetector": detector.TABLE,
    "BenchmarkDetector": benchmark_detector.TABLE,
    "Upstream": upstream.TABLE,
    "SUnion": sunion.TABLE,
    "ConsistencyManager": consistency.TABLE,
    "Versions": versions.TABLE,
    "SOutput": soutput.TABLE,
    "StandbySwitch": standby.TABLE,
    "SweepingCheckpointer": sweeping.TABLE,
    "Checkpointer": continuous.TABLE,
    "EntryPoint": entry.TABLE,
    "Lane": source_time.TABLE,
    "Joining": joining.TABLE,
    "Succession": Succession.TABLE,
    "EarlyLane": early_lane.TABLE,
    "AheadLanes": ahead.TABLE,
    "PairLane": pairs.TABLE,
    "Client": client.TABLE,
}


class Coverage:
    """Visits of every transition, over any number of runs."""

    def __init__(self) -> None:
        self.visits: Counter[tuple[str, str, str]] = Counter()

    def collect(self, machines: Iterable[Machine[Any, Any]]) -> None:
        for machine in machines:
            kind = type(machine).__name__.removeprefix("Unordered")
            for (state, trigger), count in machine.visits.items():
                self.visits[kind, state, trigger] += count

    def add(self, visits: Mapping[tuple[str, str, str], int]) -> None:
        self.visits.update(visits)

    @property
    def never_taken(self) -> list[str]:
        return [
            f"{kind}: {state.name} --{trigger.name}--> {target.name}"
            for kind, table in TABLES.items()
            for (state, trigger), target in table.items()
            if not self.visits[kind, state.name, trigger.name]
        ]

    @property
    def share(self) -> float:
        """How much of all tables has been visited."""
        total = sum(len(table) for table in TABLES.values())
        return 1 - len(self.never_taken) / total
