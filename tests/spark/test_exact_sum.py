"""Sums of doubles: the rounded exact result, whatever the order, the buckets, the parts."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.spark import exact_sum
from holdfast.spark.exact_sum import (
    STATE,
    UNIT,
    UNIT_OF_SQUARES,
    SumPart,
    add,
    rounded,
    spreads,
    squares_of,
    sums_of,
)

Rows = Sequence[tuple[int, float]]

ANY = st.floats(width=64)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
# Numbers of a few bits, far apart: sums have gaps, ties, and cancel each other.
SPARSE = st.builds(math.ldexp, st.integers(-9, 9).map(float), st.integers(-1074, 1019))
NEAR = st.builds(math.ldexp, st.integers(-9, 9).map(float), st.integers(-180, 60))
SPLIT = st.lists(st.integers(0, 40), max_size=4)
ROWS = st.one_of(
    [
        st.lists(st.tuples(st.integers(0, 3), each), max_size=40)
        for each in (ANY, SPARSE, NEAR, st.one_of(NUMBERS, NEAR))
    ]
)


def exact(values: list[float]) -> float:
    """The sum of real numbers, rounded once."""
    odd = [value for value in values if not math.isfinite(value)]
    if odd:
        return sum(odd)
    return nearest(sum(map(Fraction, values), Fraction(0)))


def nearest(whole: Fraction) -> float:
    try:
        return float(whole)
    except OverflowError:
        return math.inf if whole > 0 else -math.inf


def columns(rows: Rows) -> tuple[np.ndarray, np.ndarray]:
    codes = np.array([code for code, _ in rows], dtype=np.int64)
    return np.array([value for _, value in rows], dtype=np.float64), codes


def states(rows: Rows, groups: int, cuts: Sequence[int], squares: bool = False) -> pa.Array:
    """The states of groups, after the rows have come in parts."""
    found, old = np.zeros(groups, dtype=np.bool_), pa.array([], STATE)
    unit = UNIT_OF_SQUARES if squares else UNIT
    for begin, end in itertools.pairwise([0, *sorted(cuts), len(rows)]):
        values, codes = columns(rows[begin:end])
        # As an operator does: only groups with tuples are touched.
        touched = np.unique(codes)
        have = found[touched]
        was = old.take(pa.array((np.cumsum(found) - 1)[touched[have]]))
        parts = (squares_of if squares else sums_of)(
            values, np.searchsorted(touched, codes), len(touched)
        )
        kept = dict(zip(np.flatnonzero(found).tolist(), old.to_pylist(), strict=True))
        kept |= dict(zip(touched.tolist(), add(was, have, parts, unit).to_pylist(), strict=True))
        found[touched] = True
        old = pa.array([kept[group] for group in sorted(kept)], STATE)
    new = pa.array([[]] * int((~found).sum()), STATE)
    order = np.argsort(np.concatenate([np.flatnonzero(found), np.flatnonzero(~found)]))
    return pa.concat_arrays([old, new]).take(pa.array(order))


def same_bits(found: pa.Array, expected: pa.Array) -> bool:
    """Whether both are the same states; to Arrow NaN is not itself."""
    pairs = zip(found.to_pylist(), expected.to_pylist(), strict=True)
    return all(np.array(a).tobytes() == np.array(b).tobytes() for a, b in pairs)


def same(found: float, expected: float) -> bool:
    return found == expected or (math.isnan(found) and math.isnan(expected))


HALF = 2.0**-53


@given(ROWS, SPLIT, st.randoms())
@example([(0, 1e308), (0, 1e308), (0, -1e308), (1, 5e-324)], [1], None)
@example([(0, 1e308)] * 20 + [(0, 5e-324), (0, -1e308)], [3, 9, 21], None)
@example([(0, 2.0**53), (0, 1.0), (0, 2.0**-1074)], [], None)
@example([(0, 2.0**53), (0, 1.0)], [1], None)
@example([(0, 1.0), (0, HALF), (0, 2.0**-1000)], [], None)
@example([(0, 1.0), (0, HALF), (0, -(2.0**-1000))], [1, 2], None)
@example([(0, 1.0), (0, -HALF / 2), (0, -(2.0**-200)), (0, 2.0**-400)], [1, 3], None)
@example([(0, 1.0), (0, HALF), (0, HALF**2), (0, HALF**3), (0, HALF**4), (0, HALF**5)], [2], None)
@example([(0, 2.0**-1000), (0, 2.0**-1074), (0, -(2.0**-1060)), (0, 2.0**-1022)], [2], None)
@example([(0, -0.0), (1, math.inf), (1, -math.inf), (2, math.inf), (3, math.nan)], [2], None)
@example([(0, math.inf), (1, 1.0), (0, 1.0), (1, -1.0), (0, -math.inf), (0, 2.0)], [2, 4], None)
@example([(0, 1.7976931348623157e308), (0, 9.979201547673598e291)], [], None)
def test_a_sum_is_the_exact_one_rounded_once(
    rows: list[tuple[int, float]], cuts: list[int], chance: random.Random | None
) -> None:
    kept = states(rows, 4, cuts)
    found = rounded(kept)
    for group in range(4):
        assert same(found[group], exact([value for code, value in rows if code == group]))
    if chance is not None:
        chance.shuffle(rows)
        assert same_bits(states(rows, 4, []), kept)  # not only the result: the state, too


@given(ROWS, SPLIT)
def test_a_state_is_the_nearest_double_then_that_to_the_rest(rows: Rows, cuts: list[int]) -> None:
    for group, state in enumerate(states(rows, 4, cuts).to_pylist()):
        values = [value for code, value in rows if code == group]
        if not all(map(math.isfinite, values)) or not math.isfinite(exact(values)):
            continue
        left, expected = sum(map(Fraction, values), Fraction(0)), []
        while left:
            expected.append(float(left))
            left -= Fraction(expected[-1])
        assert state == expected


@given(st.lists(st.lists(NEAR, min_size=3, max_size=3), min_size=1, max_size=6))
def test_columns_and_whole_numbers_give_the_same(parts: list[list[float]]) -> None:
    given = [SumPart(np.array(each)) for each in parts]
    none, fresh = pa.array([], STATE), np.zeros(3, dtype=np.bool_)
    found = add(none, fresh, given)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_sum, "_distilled", _nothing_distilled)
        assert same_bits(add(none, fresh, given), found)


def _nothing_distilled(terms: list[np.ndarray]) -> tuple[list[np.ndarray], np.ndarray]:
    return terms[:1], np.ones(len(terms[0]), dtype=np.bool_)


@given(
    st.integers(1, 4_000),
    st.integers(1, 300),
    st.sampled_from([0, 3, 40, 300]),
    st.integers(0, 2**32 - 1),
)
def test_many_tuples_of_many_sizes_are_added_exactly(
    count: int, groups: int, spread: int, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    values = chance.normal(size=count) * 2.0 ** chance.integers(-spread, spread + 1, count)
    codes = chance.integers(0, groups, count)
    rows = list(zip(codes.tolist(), values.tolist(), strict=True))
    kept = states(rows, groups, [count // 3, count // 2])
    found = rounded(kept)
    for group in np.unique(codes)[:20]:
        assert found[group] == math.fsum(values[codes == group])
    chance.shuffle(rows)
    assert same_bits(states(rows, groups, [count // 5]), kept)


SQUARED = st.one_of(NUMBERS, NEAR, st.sampled_from([5e-324, 2.0**-450, 2.0**450, 1.5e308, 1.0]))


@given(st.lists(SQUARED, min_size=2, max_size=20), SPLIT)
@example([1e308, -1e308], [])
@example([5e-324, 0.0, 5e-324], [1])
@example([5e-324, 1.0, 1e300, 3.0], [1, 2, 3])
@example([0.1, 0.2, 0.7, 1e10], [2])
@example([1e15 + each for each in range(5)], [])
def test_a_deviation_is_exact_until_it_is_rounded(values: list[float], cuts: list[int]) -> None:
    rows = [(0, value) for value in values]
    cuts = [min(cut, len(rows)) for cut in cuts]
    sums, squares = states(rows, 1, cuts), states(rows, 1, cuts, squares=True)
    mean = sum(map(Fraction, values)) / len(values)
    spread = sum((Fraction(value) - mean) ** 2 for value in values) / (len(values) - 1)
    assert spreads([len(values)], sums, squares)[0] == nearest(Fraction(spread))
    assert same_bits(states(rows[::-1], 1, [], squares=True), squares)


def test_the_deviation_of_what_is_no_number_is_none() -> None:
    for odd in (math.nan, math.inf, -math.inf):
        rows = [(0, 1.0), (0, odd), (0, 2.0)]
        assert math.isnan(spreads([3], states(rows, 1, [1]), states(rows, 1, [1], True))[0])


def test_the_state_of_numbers_of_like_size_is_small() -> None:
    values = np.random.default_rng(1).random(100_000) * 100
    codes = np.arange(100_000, dtype=np.int64) % 100
    kept = add(pa.array([], STATE), np.zeros(100, dtype=np.bool_), sums_of(values, codes, 100))
    assert kept.nbytes / 100 <= 21
    assert rounded(kept)[7] == math.fsum(values[codes == 7])


def test_sums_of_like_numbers_take_no_step_for_each_group(monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> list[float]:
        raise AssertionError("a group was added up by itself")

    monkeypatch.setattr(exact_sum, "_slowly", never)
    chance = np.random.default_rng(2)
    for spread in (0, 10, 60):
        found, old = np.zeros(50, dtype=np.bool_), pa.array([], STATE)
        for _ in range(5):
            codes = np.concatenate([np.arange(50), chance.integers(0, 50, 2_000)])
            values = chance.normal(size=2_050) * 2.0 ** chance.integers(-spread, spread + 1, 2_050)
            old = add(old, found, sums_of(values, codes, 50))
            found = np.ones(50, dtype=np.bool_)
