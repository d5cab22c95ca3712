"""The state of a fragment, seen from the driver: immutable lists of runs.

A ``State`` names, for every stateful operator, state family and partition, the runs that hold
it. Keeping a checkpoint is keeping the object, forking is using it twice, restoring is going
back to it. A run's file is deleted when the last State that names it is gone.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.spark.task import FOREVER


class Run:
    """One run file; owns it."""

    def __init__(self, path: Path, rows: int, low: int, high: int) -> None:
        self.path = path
        self.rows = rows
        self.low = low
        self.high = high
        self._delete = weakref.finalize(self, _unlink, str(path))

    def __repr__(self) -> str:
        return f"Run({self.path.name})"


def _unlink(path: str) -> None:
    try:
        os.unlink(path)
        os.rmdir(os.path.dirname(path))  # the step's directory, once its last run is gone
    except OSError:
        pass  # gone already, or the directory still has other runs


# operator -> family -> runs of each partition, oldest first
Runs = Mapping[str, Mapping[str, tuple[tuple[Run, ...], ...]]]


@dataclass(frozen=True)
class State:
    """One version of a fragment's state.

    version   counts the advances of the engine that made it; rows written later have a
              higher one, which is how changes since an older version are found.
    boundary  everything older has been processed.
    """

    version: int
    boundary: int
    runs: Runs = field(default_factory=dict)

    def all_runs(self) -> Iterator[tuple[str, str, int, Run]]:
        """Every run with its operator, family and partition."""
        for operator, families in self.runs.items():
            for family, partitions in families.items():
                for partition, runs in enumerate(partitions):
                    for run in runs:
                        yield operator, family, partition, run

    def rows(self) -> int:
        """How many state rows there are at most (replaced ones count until merged)."""
        return sum(run.rows for *_, run in self.all_runs())


EMPTY = State(0, -FOREVER)


def collect_runs(
    state: State, directory: Path, partitions: int, first_open: Mapping[tuple[str, str], int]
) -> Runs:
    """The runs after a step: those of ``state`` plus the files the step's tasks left.

    ``first_open`` gives, for operators and families whose slots are times, the oldest slot
    that still matters; runs entirely before it are dropped.
    """
    runs = {
        operator: {family: [list(each) for each in parts] for family, parts in families.items()}
        for operator, families in state.runs.items()
    }
    for entry in sorted(os.listdir(directory)):
        operator, family, partition, swallowed, rows, low, high = entry.split("~")
        families = runs.setdefault(operator, {})
        lists = families.setdefault(family, [[] for _ in range(partitions)])
        mine = lists[int(partition)]
        del mine[len(mine) - int(swallowed) :]
        mine.append(Run(directory / entry, int(rows), int(low), int(high)))
    if not os.listdir(directory):
        os.rmdir(directory)
    return {
        operator: {
            family: tuple(
                tuple(
                    run for run in part if run.high >= first_open.get((operator, family), run.high)
                )
                for part in parts
            )
            for family, parts in families.items()
        }
        for operator, families in runs.items()
    }
