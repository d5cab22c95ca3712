"""Replay: a step catches up from window states of different ages.

A recovered state has each window as it was at its own time, which lies beside it in a family
of its own (``since_family``). The input is replayed from the oldest of these times on. A tuple
counts for a window only if it is not older than the window's state; a window that is not in
the state at all was closed before the moment that is being restored, so its tuples count for
nothing. Windows that close during the replay do so as they always do, and emit nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from holdfast.spark.groups import Groups
from holdfast.spark.lookups import Keys, lookup
from holdfast.spark.open_runs import OpenRun
from holdfast.spark.runs import Int64s, numbers

if TYPE_CHECKING:
    from holdfast.spark.task import Step

SINCE = "since"
NEVER = 2**62
TIMES_MARK = "@"


def since_family(family: str) -> str:
    """The family that has, row by row, since when tuples count for a family's windows."""
    return f"{family}{TIMES_MARK}"


def since(step: Step, family: str, keys: Keys, names: tuple[str, ...]) -> Int64s:
    """For each key, the stime from which on tuples count for its window."""
    times = step.read(since_family(family))
    runs = [
        OpenRun(run.rows.append_column(SINCE, time.rows[SINCE]))
        for run, time in zip(step.read(family), times, strict=True)
    ]
    found, rows = lookup(runs, keys, names)
    result = np.full(len(keys.hash), NEVER)
    if rows is not None:
        result[found] = numbers(rows[SINCE])
    return result


def unseen(
    step: Step, family: str, rows: pa.Table, groups: Groups, keys: Keys, names: tuple[str, ...]
) -> pa.Table:
    """The tuples that the windows they belong to have not counted yet."""
    times = since(step, family, keys, names)
    return rows.filter(pa.array(numbers(rows["stime"]) >= times[groups.codes]))
