"""What the operator tests share: drawn streams, and how they are cut, run and compared."""

from __future__ import annotations

import datetime
import decimal
import os
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.session import get_session
from holdfast.testing import OracleStream, run, same_bytes, same_rows, split, tuples

# Tests on Spark cost a few jobs per example: few examples, no deadline, and no shrinking, which
# would take minutes; examples are small to begin with.
SPARK = settings(
    deadline=None,
    max_examples=int(os.environ.get("HOLDFAST_EXAMPLES", "2")),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
SECOND = 1_000_000
# Before 1970, around it, and today: windows are aligned to the epoch by floor division.
STARTS = (-7 * SECOND, -2 * SECOND, 0, 1_700_000_000 * SECOND)
LENGTH = 6 * SECOND
SCHEMA = "k string, j int, i bigint, v double, d decimal(12,4), s string, at timestamp"

Row = tuple[Any, ...]
RowMaker = Callable[[random.Random], Row]


def full_row(rng: random.Random) -> Row:
    """The columns of SCHEMA: few keys, every kind of value, nulls everywhere."""
    doubles = [None, 0.1, 1e16, -1e16, 3.3, rng.uniform(-1e6, 1e6), rng.uniform(-1, 1)]
    if rng.random() < 0.1:
        doubles += [float("nan"), float("inf")]
    at = datetime.datetime(1969, 12, 31, 23, 59, tzinfo=datetime.UTC)
    return (
        rng.choice(["a", "b", "", "ключ", None]),
        rng.choice([1, 2, None]),
        rng.choice([None, rng.randrange(-(2**40), 2**40), rng.randrange(3)]),
        rng.choice(doubles),
        rng.choice([None, decimal.Decimal(rng.randrange(-(10**9), 10**9)).scaleb(-4)]),
        rng.choice([None, "x", "yy", "", "\u00e9"]),
        rng.choice([None, at + datetime.timedelta(microseconds=rng.randrange(10**9))]),
    )


def plain_row(rng: random.Random) -> Row:
    """``k string, n bigint, x double`` with doubles whose sums are exact in any order."""
    return (rng.choice(["a", "b", "c", None]), rng.randrange(5), rng.randrange(-40, 40) / 4)


PLAIN = "k string, n bigint, x double"


@dataclass(frozen=True)
class Case:
    """A stream for each source, cut somewhere and run in some grouping."""

    seed: int
    start: int
    cuts: tuple[int, ...]
    groups: tuple[int, ...]

    @property
    def boundary(self) -> int:
        return self.start + LENGTH

    @property
    def edges(self) -> list[int]:
        return [self.start, *(self.start + cut for cut in self.cuts), self.boundary]

    def rows(self, make: RowMaker, most: int = 60, salt: int = 0) -> list[Row]:
        """Up to ``most`` rows, many of them with equal times."""
        rng = random.Random(self.seed * 31 + salt)
        grain = rng.choice([1, 1000, 100_000, 500_000])
        return [
            (self.start + rng.randrange(LENGTH) // grain * grain, *make(rng))
            for _ in range(rng.choice([0, 3, most // 2, most]))
        ]


def cases() -> st.SearchStrategy[Case]:
    """Streams of a few seconds, cut anywhere, in any grouping."""
    cut = st.one_of(st.integers(1, LENGTH - 1), st.integers(1, 11).map(lambda half: half * 500_000))
    return st.builds(
        Case,
        st.integers(0, 2**31),
        st.sampled_from(STARTS),
        st.lists(cut, max_size=4).map(tuple),
        st.lists(st.sampled_from([1, 1, 1, 2, 3]), max_size=4).map(tuple),
    )


Oracle = Callable[[Mapping[str, OracleStream]], Mapping[str, OracleStream]]
Rows = Mapping[str, Sequence[Row]]


def check(engine: Engine, case: Case, rows: Rows, oracle: Oracle) -> dict[str, pa.Table]:
    """Runs over one bucket and over groups of many agree bit for bit, and with the oracle row
    by row; returns the outputs.
    """
    tables = {name: tuples(engine, name, each) for name, each in rows.items()}
    whole = run(engine, split(tables, [case.start, case.boundary]))
    if case.cuts:
        cut = run(engine, split(tables, case.edges), case.groups)
        same_bytes(cut, whole, "many buckets and one")
    spark = get_session()
    streams = {name: OracleStream.of(spark, each, case.boundary) for name, each in tables.items()}
    for name, expected in oracle(streams).items():
        same_rows(whole[name], expected.result(), name)
    return whole


def bucket(engine: Engine, start: int, end: int, **rows: Sequence[Row]) -> Bucket:
    """One bucket from plain rows."""
    return Bucket(start, end, {name: tuples(engine, name, each) for name, each in rows.items()})
