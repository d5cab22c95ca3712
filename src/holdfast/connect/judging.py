"""The rows of a batch, judged a column at a time by the rules of ``core.source_time``."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from holdfast.core.source_time import FAR, Rules

Int64s = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Judged:
    """What each row is, the boundary it was judged by, and the newest that is not ahead."""

    future: Booleans
    late: Booleans
    boundary: Int64s
    newest: int


def judge(stime: Int64s, rules: Rules) -> Judged:
    """The same verdicts as one row after the other would get."""
    settings = rules.settings
    future = stime > rules.latest
    counting = np.where(future, -FAR, stime)
    newest_before = np.maximum.accumulate(np.concatenate(([rules.newest], counting[:-1])))
    low = np.maximum(newest_before - settings.lateness_us, rules.promised)
    low = np.minimum(low, rules.cap)
    boundary = np.maximum(low // settings.bucket_us * settings.bucket_us, rules.floor)
    late = ~future & (stime < boundary)
    return Judged(future, late, boundary, int(counting.max(initial=-FAR)))
