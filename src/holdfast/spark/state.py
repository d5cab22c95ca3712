"""The state of a fragment, seen from the driver: immutable lists of runs.

A ``State`` names, for every stateful operator, state family and partition, the runs that hold
it. Keeping a checkpoint is keeping the object, forking is using it twice, restoring is going
back to it. A run's file is deleted when the last State that names it is gone.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path

from holdfast.spark.bundles import BUNDLE, members
from holdfast.spark.replay import TIMES_MARK
from holdfast.spark.step_directories import StepDirectory
from holdfast.spark.task import FOREVER


class RunFile:
    """A file with a run or several; owns it."""

    def __init__(self, directory: StepDirectory, path: str) -> None:
        self.path = path
        # It is used for another step once no run is in it.
        self._directory = directory
        self._delete = weakref.finalize(self, _unlink, path)


class Run:
    """One run; its file is there for as long as one of its runs is.

    address  where it is (``bundles``).
    """

    def __init__(self, file: RunFile, address: str, told: Sequence[int], size: int | None) -> None:
        """``told``: how many rows it has, and the first and last of their slots."""
        self._file = file
        self.address = address
        self.rows, self.low, self.high = told
        self._size = size

    @property
    def path(self) -> Path:
        """The file it is in, perhaps with others."""
        return Path(self._file.path)

    def size(self) -> int:
        """Its bytes."""
        return self.path.stat().st_size if self._size is None else self._size

    def __repr__(self) -> str:
        return f"Run({self.address})"


def _unlink(path: str) -> None:
    with contextlib.suppress(OSError):  # it may be gone already
        os.unlink(path)  # noqa: PTH108 (a fifth of the time, with every run that goes)


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

    def paths(self) -> dict[str, dict[str, list[list[str]]]]:
        """The files of the runs of every operator, family and partition."""
        return {
            operator: {
                family: [[run.address for run in part] for part in parts]
                for family, parts in families.items()
            }
            for operator, families in self.runs.items()
        }

    def rows(self) -> int:
        """How many state rows there are at most (replaced ones count until merged)."""
        return sum(run.rows for *_, run in self.all_runs())

    def sizes(self) -> dict[str, dict[str, int]]:
        """Rows and bytes of each operator's runs, and from which slot to which they reach."""
        found: dict[str, dict[str, int]] = {}
        for operator, _, _, run in self.all_runs():
            size = found.setdefault(
                operator, {"rows": 0, "bytes": 0, "low": run.low, "high": run.high}
            )
            size["rows"] += run.rows
            size["low"], size["high"] = min(size["low"], run.low), max(size["high"], run.high)
            with contextlib.suppress(OSError):  # merged into another meanwhile
                size["bytes"] += run.size()
        return found


EMPTY = State(0, -FOREVER)


def collect_runs(
    state: State,
    directory: StepDirectory,
    partitions: int,
    first_open: Mapping[tuple[str, str], int],
) -> Runs:
    """The runs after a step: those of ``state`` plus the files the step's tasks left.

    ``first_open`` gives, for operators and families whose slots are times, the oldest slot
    that still matters; runs entirely before it are dropped.
    """
    runs: dict[str, dict[str, list[Sequence[Run]]]] = {
        operator: {family: list(parts) for family, parts in families.items()}
        for operator, families in state.runs.items()
    }
    for name, run in new_runs(directory):
        operator, family, partition, swallowed, *_ = name
        families = runs.setdefault(operator, {})
        lists = families.setdefault(family, [()] * partitions)
        mine = lists[int(partition)]
        lists[int(partition)] = (*mine[: len(mine) - int(swallowed)], run)
    return {
        operator: {
            family: tuple(_still_needed(part, first_open.get((operator, family))) for part in parts)
            for family, parts in families.items()
        }
        for operator, families in runs.items()
    }


def new_runs(directory: StepDirectory) -> list[tuple[list[str], Run]]:
    """The runs that a step has left, each with what its name tells, in the order of names."""
    found = []
    mine, place = f"~{directory.number}", str(directory.path)
    for file_name in os.listdir(place):  # noqa: PTH208 (no object for each file)
        if not file_name.endswith(mine):
            continue
        path = f"{place}/{file_name}"
        file = RunFile(directory, path)
        inside: Sequence[tuple[str, str, int | None]] = [(file_name, path, None)]
        if file_name.startswith(f"{BUNDLE}~"):
            inside = members(path)
        for name, address, size in inside:
            told = name.split("~")
            found.append((told, Run(file, address, [int(each) for each in told[4:7]], size)))
    return sorted(found, key=itemgetter(0))


def without_times(runs: Runs) -> Runs:
    """The runs of a recovered state without the families that say how old its windows are."""
    return {
        operator: {family: parts for family, parts in families.items() if family[-1] != TIMES_MARK}
        for operator, families in runs.items()
    }


def _still_needed(runs: Sequence[Run], first_open: int | None) -> tuple[Run, ...]:
    if first_open is None:
        return tuple(runs)
    return tuple([run for run in runs if run.high >= first_open])
