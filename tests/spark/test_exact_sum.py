"""Sums of doubles: the rounded exact result, whatever the order, the buckets, the parts."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.spark import exact_sum
from holdfast.spark.exact_sum import STATE, add, rounded, spreads, squares_of, terms_of

ANY = st.floats(width=64)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
SPLIT = st.lists(st.integers(0, 40), max_size=4)


def exact(values: list[float]) -> float:
    """The sum of real numbers, rounded once."""
    odd = [value for value in values if not math.isfinite(value)]
    if odd:
        return sum(odd)
    whole = sum(map(Fraction, values), Fraction(0))
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def states(rows: list[tuple[int, float]], groups: int, cuts: list[int]) -> pa.Array:
    """The states of groups, after the rows have come in parts."""
    found, old = np.zeros(groups, dtype=np.bool_), pa.array([], STATE)
    edges = [0, *sorted(cuts), len(rows)]
    for begin, end in itertools.pairwise(edges):
        part = rows[begin:end]
        codes = np.array([code for code, _ in part], dtype=np.int64)
        values = np.array([value for _, value in part], dtype=np.float64)
        old = add(old, found, terms_of(values, codes, groups))
        found = np.ones(groups, dtype=np.bool_)
    return old


def same(found: float, expected: float) -> bool:
    return found == expected or (math.isnan(found) and math.isnan(expected))


@given(st.lists(st.tuples(st.integers(0, 3), ANY), max_size=40), SPLIT, st.randoms())
@example([(0, 1e308), (0, 1e308), (0, -1e308), (1, 5e-324)], [1], None)
@example([(0, 2.0**53), (0, 1.0), (0, 2.0**-1074)], [], None)
@example([(0, 2.0**53), (0, 1.0)], [1], None)
@example([(0, 1.0), (0, 2.0**-53), (0, 2.0**-1000)], [], None)
@example([(0, 2.0**-1000), (0, 2.0**-1074), (0, -(2.0**-1060)), (0, 2.0**-1022)], [2], None)
@example([(0, -0.0), (1, math.inf), (1, -math.inf), (2, math.inf), (3, math.nan)], [2], None)
@example([(0, 1.7976931348623157e308), (0, 9.979201547673598e291)], [], None)
def test_a_sum_is_the_exact_one_rounded_once(
    rows: list[tuple[int, float]], cuts: list[int], chance: object
) -> None:
    kept = states(rows, 4, cuts)
    found = rounded(kept)
    for group in range(4):
        assert same(found[group], exact([value for code, value in rows if code == group]))
    if chance is not None:
        chance.shuffle(rows)  # type: ignore[attr-defined]
        assert states(rows, 4, []).equals(kept)  # not only the result: the state, too


@given(st.lists(st.tuples(st.integers(0, 9), NUMBERS), max_size=30), SPLIT)
def test_many_groups_are_taken_in_parts(rows: list[tuple[int, float]], cuts: list[int]) -> None:
    whole = states(rows, 10, cuts)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_sum, "_CELLS", 100)
        patch.setattr(exact_sum, "_AT_ONCE", 2)
        assert states(rows, 10, cuts).equals(whole)


@given(st.lists(NUMBERS, min_size=2, max_size=20))
@example([1e308, -1e308])
@example([5e-324, 0.0, 5e-324])
@example([0.1, 0.2, 0.7, 1e10])
@example([1e15 + each for each in range(5)])
def test_a_deviation_is_exact_until_it_is_rounded(values: list[float]) -> None:
    numbers, codes = np.array(values), np.zeros(len(values), dtype=np.int64)
    none, fresh = pa.array([], STATE), np.zeros(1, dtype=np.bool_)
    sums = add(none, fresh, terms_of(numbers, codes, 1))
    squares = add(none, fresh, squares_of(numbers, codes, 1))
    mean = sum(map(Fraction, values)) / len(values)
    spread = sum((Fraction(value) - mean) ** 2 for value in values) / (len(values) - 1)
    try:
        expected = float(spread)
    except OverflowError:
        expected = math.inf
    assert spreads([len(values)], sums, squares)[0] == expected


def test_the_state_of_numbers_of_like_size_is_small() -> None:
    values = np.random.default_rng(1).random(100_000) * 100
    codes = np.arange(100_000, dtype=np.int64) % 100
    kept = add(pa.array([], STATE), np.zeros(100, dtype=np.bool_), terms_of(values, codes, 100))
    assert kept.nbytes / 100 <= 28
    assert rounded(kept)[7] == math.fsum(values[codes == 7])
