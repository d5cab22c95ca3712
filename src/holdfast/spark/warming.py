"""Made-up tuples that warm jobs up: Spark's first one takes seconds, whatever it computes.

The next hundred still get quicker, while Java compiles what they run. So a replica runs them
between other jobs until they do not get quicker any more, or until as many seconds are over as the
environment's HOLDFAST_WARM_UP says (0: one job only), and then says that it is ready, so that its
first minute is as good as its tenth. Where an earlier life has left something to go on from, the
first of them is a large one, as the job mostly is that catches up.
"""

from __future__ import annotations

import math
import os
from statistics import median
from typing import Any

import pyarrow as pa

from holdfast.errors import InputError
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.state import EMPTY

_SAMPLE_TIME = 1_000_000
# A century later: every window of made-up tuples has ended, also those of the results of others.
_ALL_OVER = 1 << 52
SET_TUPLES = 20
VARIABLE = "HOLDFAST_WARM_UP"
MOST_SECONDS = 5.0
# So many jobs are compared with as many before them, which took no longer than this over theirs.
_ROUND = 8
_QUICKER = 1.1


class WarmUp:
    """Whether jobs on made-up tuples still get quicker."""

    def __init__(self, most_seconds: float | None = None) -> None:
        self._most_seconds = _most_seconds() if most_seconds is None else most_seconds
        self._took: list[float] = []

    def took(self, seconds: float) -> None:
        """One more job is done."""
        self._took.append(seconds)

    @property
    def has_begun(self) -> bool:
        return bool(self._took)

    @property
    def is_short(self) -> bool:
        """Whether there is to be a single job."""
        return not self._most_seconds

    def is_over(self, lasted_s: float) -> bool:
        """Whether it is, after so many seconds."""
        if lasted_s >= self._most_seconds:
            return True
        before, last = self._took[-2 * _ROUND : -_ROUND], self._took[-_ROUND:]
        return len(before) == _ROUND and median(before) < _QUICKER * median(last)


def _most_seconds() -> float:
    said = os.environ.get(VARIABLE, str(MOST_SECONDS))
    try:
        seconds = float(said)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= 600:
        raise InputError(f"{VARIABLE} must be seconds, from 0 to 600; it is {said!r}")
    return seconds


def warm_up(
    engine: Engine, tuples: int = SET_TUPLES, large: bool = False, closes: bool = False
) -> None:
    """Plan the job and run it once on made-up tuples, whose result goes.

    ``large``: as a job of many tuples, which has a task for each core, and each of these a worker
    to start. ``closes``: and once more when all their windows are over, for what is computed of
    results; else the first window that ends waits for it to be planned.
    """
    tables = {name: sample(schema, tuples) for name, schema in engine.input_schemas.items()}
    bucket = Bucket(0, 2 * _SAMPLE_TIME, tables)
    try:
        advance = engine.advance(EMPTY, [bucket], bucket.end, large=large)
        if closes:
            engine.advance(advance.state, [], _ALL_OVER, large=large)
    except Exception:
        # The query's own code may not like the tuples; it is planned all the same.
        return


def warm_up_apart(engine: Engine) -> None:
    """The same with tasks of its own, which nobody else in this process is at when it counts."""
    with engine.apart():
        warm_up(engine, closes=True)


def sample(schema: pa.Schema, tuples: int = SET_TUPLES) -> pa.Table:
    """Tuples with plain values: ones, by which one can divide, nulls where nothing is at hand."""
    one = pa.table([_value(field) for field in schema], schema=schema)
    return pa.concat_tables([one] * tuples).combine_chunks()


def _value(field: pa.Field) -> pa.Array:
    if field.name in ("stime", "tmax"):
        return pa.array([_SAMPLE_TIME], pa.int64()).cast(field.type)
    plain: list[Any] = [1, "", False, b""]
    for value in plain:
        try:
            return pa.array([value]).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError):
            continue
    return pa.nulls(1, field.type)
