"""Sums of doubles that are exact until the end, so that no order and no split changes a bit.

A sum is kept as doubles that add up to it: the one nearest to it, the one nearest to what is left
of it, and so on until nothing is left. The first is the result when the window closes: what adding
in real numbers and rounding once would give. A state is a function of the sum alone, the same for
every order of the tuples, every split into buckets, every way of putting parts together. Sums of
numbers that are about equally large are two doubles. All arithmetic on tuples is on columns.

``sums_of`` finds a few doubles for each group that add up to its tuples, without rounding: of all
values the bits in one stretch are taken at once, on one common grid, on which so many of them add
up exactly. What is left of the values is below that grid. Few steps leave nothing.

``add`` puts these and the doubles of the state together (``_distilled``). That takes additions
whose rounding errors are doubles again; a group whose sum would be more than four doubles, or has
no such form, is added up as a whole number of a unit (``_slowly``), one such group at a time.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

# None for zero; an infinity or NaN alone; or doubles, largest first. A sum that is none of doubles
# (too large, or with bits below the smallest one) is NaN, its sign, and the digits to the base
# 2**32 of the number of units it is, lowest first.
STATE = pa.list_(pa.float64())
# The units of sums and of sums of squares: the smallest double, and its square.
UNIT, UNIT_OF_SQUARES = -1074, -2148
# A double has room for so many bits of the values on a grid and for the number of values.
_GRID_BITS = 52
# Larger numbers leave grids no room, and are made smaller first.
_LARGEST, _SMALLER = 2.0**900, 200
# Within these the square of a double and its rounding error are doubles; others are moved there.
_SMALL, _LARGE, _MOVED = 2.0**-450, 2.0**450, 600
# So many doubles of a state are added as columns, in so many rounds.
_MOST, _ROUNDS = 4, 8
# What is closer than this to the middle between two doubles is left to whole numbers.
_NUDGE = 1.0 + 2.0**-50


@dataclass(frozen=True)
class SumPart:
    """A double for each group, to be added to its sum, times 2**shift."""

    values: Floats
    shift: int = 0


def sums_of(values: Floats, codes: Int64s, groups: int) -> list[SumPart]:
    """The values of each group, as few doubles with the same exact sum."""
    largest = _largest(values)
    if largest <= _LARGEST:
        return _condensed(values, codes, groups, largest)
    finite = np.isfinite(values)
    huge = finite & (np.abs(values) > _LARGEST)
    rest = finite & ~huge
    odd = _added_up(values[~finite], codes[~finite], groups)  # infinities or NaN
    smaller = np.ldexp(values[huge], -_SMALLER)
    return [
        SumPart(odd),
        *(SumPart(each.values, _SMALLER) for each in _condensed(smaller, codes[huge], groups)),
        *_condensed(values[rest], codes[rest], groups),
    ]


def squares_of(values: Floats, codes: Int64s, groups: int) -> list[SumPart]:
    """The same of their squares; what is no number is left out."""
    size = np.abs(values)
    used = (size >= _SMALL) & (size <= _LARGE)
    if used.all():
        return _squares(values, codes, groups, 0)
    tiny, huge = (size < _SMALL) & (size > 0), (size > _LARGE) & np.isfinite(size)
    found = _squares(values[used], codes[used], groups, 0)
    for these, moved in ((tiny, _MOVED), (huge, -_MOVED)):
        if these.any():
            found += _squares(np.ldexp(values[these], moved), codes[these], groups, -2 * moved)
    return found


def _squares(values: Floats, codes: Int64s, groups: int, shift: int) -> list[SumPart]:
    """Squares as doubles, and their rounding errors."""
    square = values * values
    spread = values * (2.0**27 + 1)
    high = spread - (spread - values)  # the upper half of the bits: products of halves are exact
    low = values - high
    error = low * low - ((square - high * high) - 2.0 * high * low)
    parts = (*_condensed(square, codes, groups), *_condensed(error, codes, groups))
    return [SumPart(each.values, shift) for each in parts]


def _largest(values: Floats) -> float:
    """The largest size of a value; NaN or infinite if one is that."""
    return max(float(values.max()), -float(values.min())) if len(values) else 0.0


def _added_up(values: Floats, codes: Int64s, groups: int) -> Floats:
    return np.bincount(codes, values, groups).astype(np.float64, copy=False)


def _condensed(
    values: Floats, codes: Int64s, groups: int, largest: float | None = None
) -> list[SumPart]:
    """Doubles for each group with the same exact sums: one for each grid."""
    found: list[SumPart] = []
    largest = _largest(values) if largest is None else largest
    while largest:
        if len(values) <= groups and np.bincount(codes).max() == 1:
            alone = np.zeros(groups)
            alone[codes] = values
            return [*found, SumPart(alone)]
        # Each value is at most 2**bits of the grid's units, all of them together 2**_GRID_BITS.
        bits = _GRID_BITS - len(values).bit_length()
        unit = max(math.frexp(largest)[1] - bits, UNIT)
        # Added to this, a value keeps the bits of the grid and no others.
        grid = math.ldexp(1.5, unit + 52)
        upper = values + grid
        upper -= grid
        found.append(SumPart(_added_up(upper, codes, groups)))
        values = np.subtract(values, upper, out=upper)
        largest = _largest(values)
        if largest and len(found) > 1:  # after the first grid something is left of most
            some = np.flatnonzero(values != 0)
            values, codes = values[some], codes[some]
    return found


def add(old: pa.Array, found: Bools, parts: Sequence[SumPart], unit: int = UNIT) -> pa.Array:
    """The states of all groups, after these parts; ``old`` has those of the ``found`` groups."""
    lists = _Lists.of(old)
    slow = np.zeros(len(found), dtype=np.bool_)
    slow[found] = lists.are_long
    terms = lists.columns(found) or [np.zeros(len(found))]
    for each in parts:
        if each.shift:
            slow |= each.values != 0
        else:
            terms.append(each.values)
    with np.errstate(invalid="ignore", over="ignore"):
        columns, failed = _distilled(terms)
    slow |= failed
    if not slow.any():
        return _packed(columns)
    at = np.cumsum(found) - 1
    rows = np.flatnonzero(slow).tolist()
    states = [lists.one(at[row]) if found[row] else [] for row in rows]
    slowly = [_slowly(state, parts, row, unit) for row, state in zip(rows, states, strict=True)]
    return _spliced(columns, dict(zip(rows, slowly, strict=True)))


@dataclass(frozen=True)
class _Lists:
    """States, taken apart."""

    starts: Int64s
    lengths: Int64s
    flat: Floats

    @staticmethod
    def of(states: pa.Array) -> _Lists:
        offsets = states.offsets.to_numpy().astype(np.int64)
        flat: Floats = states.flatten().to_numpy()
        return _Lists(offsets[:-1] - offsets[0], np.diff(offsets), flat)

    @property
    def are_long(self) -> Bools:
        """Which are none that can be added as columns."""
        found: Bools = self.lengths > _MOST
        return found

    def one(self, index: int) -> list[float]:
        start = self.starts[index]
        listed: list[float] = self.flat[start : start + self.lengths[index]].tolist()
        return listed

    def columns(self, found: Bools) -> list[Floats]:
        """The first doubles of all groups, the second ones, and so on; 0 where there is none."""
        if not len(self.flat):
            return []
        width = min(int(self.lengths.max()), _MOST)
        taken = np.zeros((len(found), width))
        if len(self.flat) == len(self.lengths) * width and self.lengths.min() == width:
            taken[found] = self.flat.reshape(-1, width)
        else:
            rows = np.flatnonzero(found)
            for place in range(width):
                there = (self.lengths > place) & ~self.are_long
                taken[rows[there], place] = self.flat[self.starts[there] + place]
        return [np.ascontiguousarray(each) for each in taken.T]

    def firsts(self) -> Floats:
        """The first double of each, 0 of none."""
        some = self.lengths > 0
        found = np.zeros(len(self.lengths))
        found[some] = self.flat[self.starts[some]]
        return found


def _two_sum(left: Floats, right: Floats) -> tuple[Floats, Floats]:
    """The rounded sum and its rounding error, which is a double."""
    total = left + right
    back = total - left
    error = left - (total - back)
    error += right - back
    return total, error


def _distilled(terms: list[Floats]) -> tuple[list[Floats], Bools]:
    """Their sums as states have them, a column for each place; and which could not be found."""
    terms = list(terms)
    if len(terms) == 1:
        return terms, ~np.isfinite(terms[0])
    for _ in range(2):
        _round(terms)
    left = np.zeros(len(terms[0]), dtype=np.bool_)
    for each in terms[2:]:
        left |= each != 0  # also where it is no number
    left |= ~np.isfinite(terms[0])
    if not left.any():
        return terms[:2], left
    rows = np.flatnonzero(left)
    some = [each[rows] for each in terms]
    for _ in range(_ROUNDS):
        _round(some)
        if _are_done(some).all():
            break
    done = _are_done(some)
    for column, more in zip(terms, some, strict=True):
        column[rows] = np.where(done, more, 0.0)
    left[rows] = ~done
    return terms[:_MOST], left


def _round(terms: list[Floats]) -> None:
    """Move what can be moved from each to the one before it, from the last on."""
    for at in range(len(terms) - 2, -1, -1):
        terms[at], terms[at + 1] = _two_sum(terms[at], terms[at + 1])


def _are_done(terms: list[Floats]) -> Bools:
    """Whether each term is the double nearest to itself and all after it, and there are few.

    With nothing behind the next one, that is so if adding the next one changes nothing. With
    something behind it, the next one must not be in the middle between two doubles.
    """
    zero = np.zeros(len(terms[0]))
    found = np.isfinite(terms[0])
    for each in terms[_MOST:]:
        found &= each == 0
    few = [*terms[:_MOST], zero, zero]
    for this, following, behind in zip(few, few[1:], few[2:], strict=False):
        found &= this + following == this
        found &= (behind == 0) | (this + following * _NUDGE == this)
    done: Bools = found
    return done


def _packed(columns: list[Floats]) -> pa.Array:
    """States of columns: what is not zero comes first in each row."""
    flat = np.stack(columns, axis=1).ravel()
    used = flat != 0
    if used.all():
        offsets = np.arange(0, len(flat) + 1, len(columns), dtype=np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))
    lengths = used.reshape(-1, len(columns)).sum(axis=1)
    offsets = np.concatenate(([0], np.cumsum(lengths))).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat[used]))


def _spliced(columns: list[Floats], slowly: dict[int, list[float]]) -> pa.Array:
    """The same, with some of the rows given."""
    matrix = np.stack(columns, axis=1)
    rows = list(slowly)
    matrix[rows] = 0.0
    used = matrix != 0
    lengths = used.sum(axis=1)
    lengths[rows] = [len(slowly[row]) for row in rows]
    ends = np.cumsum(lengths)
    flat = np.empty(int(ends[-1]))
    given = np.zeros(len(flat), dtype=np.bool_)
    for row in rows:
        begin, end = ends[row] - lengths[row], ends[row]
        flat[begin:end] = slowly[row]
        given[begin:end] = True
    flat[~given] = matrix[used]
    offsets = np.concatenate(([0], ends)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))


def _slowly(state: list[float], parts: Iterable[SumPart], row: int, unit: int) -> list[float]:
    """One group's state after these parts, by whole numbers."""
    given = [(float(each.values[row]), each.shift) for each in parts]
    if len(state) == 1:
        given.append((state[0], 0))
    odd = [value for value, _ in given if not math.isfinite(value)]
    if odd:
        noted = sum(odd)
        return [math.nan if math.isnan(noted) else noted]
    total = _whole(state, unit) if len(state) > 1 else 0
    return _as_state(total + sum(_units(value, unit, shift) for value, shift in given), unit)


def _units(value: float, unit: int, shift: int = 0) -> int:
    """How many units a double is, times 2**shift."""
    above, below = value.as_integer_ratio()
    return (above << (shift - unit)) // below


def _whole(state: list[float], unit: int) -> int:
    """How many units a sum is that is a number."""
    if state and math.isnan(state[0]):
        digits = np.array(state[2:]).astype("<u4").tobytes()
        return int(state[1]) * int.from_bytes(digits, "little")
    return sum(_units(each, unit) for each in state)


def _as_state(total: int, unit: int) -> list[float]:
    found: list[float] = []
    one, rest = 1 << -unit, total
    try:
        while rest:
            found.append(rest / one)  # Python rounds it to the nearest
            if not found[-1]:
                return _as_digits(total)
            rest -= _units(found[-1], unit)
    except OverflowError:
        return _as_digits(total)
    return found


def _as_digits(total: int) -> list[float]:
    size = -(-abs(total).bit_length() // 32) * 4
    digits = np.frombuffer(abs(total).to_bytes(size, "little"), dtype="<u4")
    return [math.nan, 1.0 if total > 0 else -1.0, *digits.astype(np.float64).tolist()]


def rounded(states: pa.Array) -> Floats:
    """Each sum as the nearest double; of two that are equally near the even one."""
    lists = _Lists.of(states)
    found = lists.firsts()
    beyond = np.flatnonzero(np.isnan(found) & (lists.lengths > 1))
    found[beyond] = np.copysign(np.inf, lists.flat[lists.starts[beyond] + 1])
    return found


def spreads(counts: Sequence[int], sums: pa.Array, squares: pa.Array) -> Floats:
    """The variance of each sample, (n Σx² - (Σx)²) / n(n - 1), exact and rounded once.

    One window that closes is one step of a loop here: the numbers are as long as they are.
    """
    found = np.full(len(sums), np.nan)
    listed = zip(counts, sums.to_pylist(), squares.to_pylist(), strict=True)
    for index, (count, total, square) in enumerate(listed):
        if count < 2 or (len(total) == 1 and not math.isfinite(total[0])):
            continue
        above = count * _whole(square, UNIT_OF_SQUARES) - _whole(total, UNIT) ** 2
        below = count * (count - 1) << -UNIT_OF_SQUARES
        try:
            found[index] = above / below
        except OverflowError:
            found[index] = np.inf
    return found
