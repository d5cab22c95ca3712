"""Sums of whole numbers and decimals: whether one fits depends on no split, only on the total."""

from __future__ import annotations

import decimal
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from holdfast import Network, window
from holdfast.spark.engine import Engine
from holdfast.spark.folds import STATE_DIGITS, Fold
from holdfast.spark.groups import Groups
from holdfast.spark.runs import as_array
from holdfast.testing import run, split, tuples
from tests.spark.support import SECOND

LEAST, MOST = -(2**63), 2**63 - 1
GROUPS = 3
WIDE = Fold("add_wide", "v", ("total", "total_high"), (pa.int64(), pa.int32()))
SUM = Fold("within_bigint", None, (), (), beside=WIDE.columns)
MEAN = Fold("as_double", None, (), (), beside=WIDE.columns)
DECIMAL = Fold("add_decimal", "v", ("total",), (pa.decimal256(STATE_DIGITS, 2),))
NINES = Decimal("9" * 36 + ".99")

bigints = st.one_of(
    st.integers(LEAST, MOST),
    st.sampled_from([LEAST, LEAST + 1, -1, 0, 1, 2**32 - 1, 2**32, -(2**32), MOST - 1, MOST]),
)
decimals = st.sampled_from(
    [NINES, NINES.copy_negate(), Decimal("0.01"), Decimal("-0.01"), Decimal(10**35)]
)


def folded(fold: Fold, rows: Sequence[tuple[int, Any]], cuts: Sequence[int]) -> list[pa.Array]:
    """The state of each of the groups after these rows in parts; first rows of nought in all."""
    rows = [*((group, 0) for group in range(GROUPS)), *rows]
    state = [pa.nulls(GROUPS, kind).fill_null(0) for kind in fold.types]
    places = [0, *sorted(cuts), len(rows)]
    for low, high in pairwise(places):
        part = rows[low:high]
        seen = sorted({group for group, _ in part})
        codes = np.array([seen.index(group) for group, _ in part], np.int64)
        first = np.array([codes.tolist().index(code) for code in range(len(seen))], np.int64)
        kind = pa.int64() if fold is WIDE else pa.decimal128(38, 2)
        values = pa.array([value for _, value in part], kind)
        there = np.array([group % 2 == 0 or low > 0 for group in seen], np.bool_)
        old = [each.take(pa.array(np.array(seen, int)[there])) for each in state]
        new = fold.run(values, Groups(codes, first), there, list(old))
        state = [
            pa.array(
                [
                    as_array(made)[seen.index(group)].as_py() if group in seen else was.as_py()
                    for group, was in enumerate(before)
                ],
                before.type,
            )
            for made, before in zip(new, state, strict=True)
        ]
    return state


def result(fold: Fold, state: list[pa.Array], group: int) -> Any:
    try:
        return as_array(fold.finish([each.slice(group, 1) for each in state])[0])[0].as_py()
    except OverflowError:
        return None


@given(
    rows=st.lists(st.tuples(st.integers(0, GROUPS - 1), bigints), max_size=30),
    cuts=st.lists(st.integers(0, 30), max_size=4),
)
def test_a_sum_of_bigints_is_exact_and_only_its_total_must_fit(
    rows: list[tuple[int, int]], cuts: list[int]
) -> None:
    state = folded(WIDE, rows, [min(cut, len(rows)) for cut in cuts])
    for group in range(GROUPS):
        total = sum(value for one, value in rows if one == group)
        low, high = (each[group].as_py() for each in state)
        assert high * 2**64 + low == total
        assert result(SUM, state, group) == (total if LEAST <= total <= MOST else None)
        assert result(MEAN, state, group) == float(total)  # Python rounds it once


@given(
    rows=st.lists(st.tuples(st.integers(0, GROUPS - 1), decimals), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=4),
)
def test_a_sum_of_decimals_is_exact_and_only_its_total_must_fit(
    rows: list[tuple[int, Decimal]], cuts: list[int]
) -> None:
    state = folded(DECIMAL, rows, [min(cut, len(rows)) for cut in cuts])
    for group in range(GROUPS):
        with decimal.localcontext(decimal.Context(prec=STATE_DIGITS)):
            total = sum((value for one, value in rows if one == group), start=Decimal("0.00"))
        assert state[0][group].as_py() == total
        fits = NINES.copy_negate() <= total <= NINES
        assert result(DECIMAL, state, group) == (total if fits else None)


@pytest.fixture(scope="module")
def sums(spark: SparkSession) -> Engine:
    network = Network("sums", spark=spark)
    source = network.source("s", "k string, v bigint, d decimal(38, 2)")
    wanted = ["sum(v) AS sum_v", "avg(v) AS avg_v", "sum(d) AS sum_d", "count(v) AS n"]
    source.groupBy(window("1 second"), "k").agg(*wanted).output("sums")
    return Engine(network)


def outcome(engine: Engine, values: Sequence[int], cuts: Sequence[int]) -> list[Any]:
    """What comes of a window with these values."""
    rows = [(at, "a", value, Decimal(value)) for at, value in enumerate(values)]
    rows += [(at, "b", 1, NINES.copy_negate() if at % 2 else NINES) for at in range(len(values))]
    tables = {"s": tuples(engine, "s", sorted(rows))}
    out = run(engine, split(tables, [0, *cuts, 2 * SECOND]))["sums"]
    return sorted(out.drop_columns(["stime", "tmax", "seq"]).to_pylist(), key=repr)


def test_no_split_makes_a_sum_fail_that_another_gives(sums: Engine) -> None:
    comes_back = [2**61] * 6 + [-(2**61)] * 6
    whole = outcome(sums, comes_back, [])
    assert [(row["k"], row["sum_v"], row["avg_v"], row["n"]) for row in whole] == [
        ("a", 0, 0.0, 12),
        ("b", 12, 1.0, 12),
    ]
    assert outcome(sums, comes_back, [2, 4, 6, 8, 10]) == whole


def test_a_mean_is_there_where_no_sum_would_be(spark: SparkSession) -> None:
    """As of nanoseconds since 1970, six of which are beyond the range of BIGINT."""
    moments = [1_760_000_000_123_456_789 + 10**9 * each for each in range(60)]
    network = Network("means", spark=spark)
    source = network.source("s", "v bigint")
    source.groupBy(window("1 second")).agg("avg(v) AS mean", "avg(-v) AS less").output("means")
    for columns in (True, False):
        engine = Engine(network, columns=columns)
        tables = {"s": tuples(engine, "s", list(enumerate(moments)))}
        for cuts in ([], [4, 7, 30]):
            out = run(engine, split(tables, [0, *cuts, 2 * SECOND]))["means"]
            mean = float(sum(moments)) / 60
            assert out.select(["mean", "less"]).to_pylist() == [{"mean": mean, "less": -mean}]


def test_a_sum_beside_a_mean_is_refused_where_it_does_not_fit(spark: SparkSession) -> None:
    network = Network("both", spark=spark)
    both = ["avg(v) AS mean", "sum(v) AS sum"]
    network.source("s", "v bigint").groupBy(window("1 second")).agg(*both).output("sums")
    engine = Engine(network)
    tables = {"s": tuples(engine, "s", [(0, MOST), (1, 1)])}
    with pytest.raises(Exception, match="beyond the range of BIGINT"):
        run(engine, split(tables, [0, 2 * SECOND]))
