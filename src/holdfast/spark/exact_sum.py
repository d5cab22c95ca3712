"""Sums of doubles that are exact until the end, so that no order and no split changes a bit.

A double is a whole number of 2**-1074. A sum is kept as such a number: its sign and its digits to
the base 2**32 (*limbs*), without zeros at either end, however many that are. It is rounded once,
to the nearest double, when its window closes. So a sum is what adding in real numbers and rounding
at last would give: the same for every order of the tuples, every split into buckets, every way of
putting parts together. NaN and the infinities are noted beside it.

A state is a list of 32-bit words: none for zero; else a head (what was noted, the sign, the place
of the lowest limb), then the limbs, lowest first. Sums of numbers that are about equally large have
three or four limbs. All arithmetic is on columns.

Most of the work is done in doubles, without rounding (``_condensed``): of all values the bits in
one stretch are taken at once, on one common grid, on which so many of them add up exactly: the
fewer values, the more bits. What is left of the values is below that grid. Few steps leave nothing,
and only their sums, a few for each group, become limbs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Int64s = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

STATE = pa.list_(pa.uint32())
# The weight of position 0 is 2**LOWEST, the smallest double; that of squares the square of it.
LOWEST = -1074
_BITS = 32
_MASK = np.uint64(0xFFFFFFFF)
_NAN, _PLUS, _MINUS = 1, 2, 4
# The head of a state: the place of the lowest limb, the sign, what was noted.
_SIGN, _NOTED = 12, 13
# A double has room for so many bits of the values on a grid and for the number of values; that is
# done so often, and of the rest each becomes limbs.
_GRID_BITS, _GRIDS = 52, 4
_MOST_VALUES = 1 << 26
# Within these the square of a double and its rounding error are doubles.
_SMALL, _LARGE = 2.0**-450, 2.0**450
# Additions of so many terms at once are exact in doubles: each is below 2**34.
_AT_ONCE = 1 << 18
# So many limbs are worked on at once; more groups than that are taken in parts.
_CELLS = 1 << 22


@dataclass(frozen=True)
class Terms:
    """What is to be added to groups: sign, a whole number below 2**63, and its position.

    Values that are no numbers are only noted.
    """

    codes: Int64s
    magnitude: Words
    position: Int64s
    negative: Bools
    odd_codes: Int64s
    odd: Int64s

    def part(self, begin: int, end: int) -> Terms:
        """Those for the groups from ``begin`` to ``end``."""
        these = (self.codes >= begin) & (self.codes < end)
        odd = (self.odd_codes >= begin) & (self.odd_codes < end)
        return Terms(
            self.codes[these] - begin,
            self.magnitude[these],
            self.position[these],
            self.negative[these],
            self.odd_codes[odd] - begin,
            self.odd[odd],
        )


def terms_of(values: Floats, codes: Int64s, groups: int) -> Terms:
    """The values of groups, as whole numbers of the smallest double: their sum, in few terms."""
    finite = np.isfinite(values)
    if finite.all():
        return _terms(*_condensed(values, codes, groups))
    odd = values[~finite]
    noted = np.where(np.isnan(odd), _NAN, np.where(odd > 0, _PLUS, _MINUS)).astype(np.int64)
    terms = _terms(*_condensed(values[finite], codes[finite], groups))
    return replace(terms, odd_codes=codes[~finite], odd=noted)


def squares_of(values: Floats, codes: Int64s, groups: int) -> Terms:
    """The sum of their squares, as whole numbers of the smallest double's square.

    What is no number is left out.
    """
    used = np.isfinite(values) & (values != 0)
    values, codes = values[used], codes[used]
    size = np.abs(values)
    if len(size) and (size.min() < _SMALL or size.max() > _LARGE):
        return _wide_squares(values, codes)
    square = values * values
    high = _upper_half(values)
    low = values - high
    error = low * low - ((square - high * high) - 2.0 * high * low)
    parts = [_condensed(each, codes, groups) for each in (square, error)]
    terms = _terms(*(np.concatenate(each) for each in zip(*parts, strict=True)))
    return replace(terms, position=terms.position - LOWEST)


def _upper_half(values: Floats) -> Floats:
    """The upper half of the bits of each, so that products of halves are exact."""
    spread = values * (2.0**27 + 1)
    found: Floats = spread - (spread - values)
    return found


def _condensed(values: Floats, codes: Int64s, groups: int) -> tuple[Floats, Int64s]:
    """Fewer doubles with the same exact sums: one or none for each grid and group, and the rest."""
    found: list[tuple[Floats, Int64s]] = []
    for _ in range(_GRIDS):
        if len(values) <= groups:
            break  # sums would be as many
        largest = max(float(values.max()), -float(values.min()))
        exponent = math.frexp(largest)[1]
        if not largest or len(values) > _MOST_VALUES or abs(exponent) > 900:
            break
        # Added to this, a value keeps the bits of the grid and no others. Each is below 2**bits of
        # the grid's units, so that all of them together are below 2**_GRID_BITS.
        bits = _GRID_BITS - len(values).bit_length()
        grid = math.ldexp(1.5, exponent + 52 - bits)
        upper = values + grid
        upper -= grid
        sums: Floats = np.bincount(codes, upper, groups).astype(np.float64, copy=False)
        found.append((sums, np.arange(groups, dtype=np.int64)))
        values = np.subtract(values, upper, out=upper)
        left = np.count_nonzero(values)
        if left * 2 < len(values):
            some = np.flatnonzero(values)
            values, codes = values[some], codes[some]
    found.append((values, codes))
    return np.concatenate([each for each, _ in found]), np.concatenate([each for _, each in found])


def _terms(values: Floats, codes: Int64s) -> Terms:
    """Every value as a whole number of the smallest double."""
    bits = np.ascontiguousarray(values, dtype=np.float64).view(np.uint64)
    exponent = ((bits >> np.uint64(52)) & np.uint64(0x7FF)).astype(np.int64)
    fraction = bits & np.uint64((1 << 52) - 1)
    magnitude = np.where(exponent > 0, fraction | np.uint64(1 << 52), fraction)
    taken = magnitude != 0
    none = np.zeros(0, dtype=np.int64)
    return Terms(
        codes[taken],
        magnitude[taken],
        np.maximum(exponent[taken], 1) - 1,
        (bits[taken] >> np.uint64(63)).astype(np.bool_),
        none,
        none,
    )


def _wide_squares(values: Floats, codes: Int64s) -> Terms:
    """The squares of numbers of any size, each in three terms."""
    terms = _terms(values, codes)
    half = np.uint64(26)
    high, low = terms.magnitude >> half, terms.magnitude & np.uint64((1 << 26) - 1)
    parts = ((high * high, 52), (high * low, 27), (low * low, 0))
    return replace(
        terms,
        codes=np.tile(terms.codes, 3),
        magnitude=np.concatenate([magnitude for magnitude, _ in parts]),
        position=np.concatenate([2 * terms.position + more for _, more in parts]),
        negative=np.zeros(3 * len(terms.codes), dtype=np.bool_),
    )


def add(old: pa.Array, found: Bools, terms: Terms) -> pa.Array:
    """The states of all groups, after these terms; ``old`` has those of the ``found`` groups."""
    before = _Lists.of(old)
    lowest, width = _range(before, terms)
    count = len(found)
    per_part = max(1, _CELLS // width)
    if count <= per_part:
        return _add(before, found, terms, lowest, width)
    taken = np.concatenate(([0], np.cumsum(found)))
    parts = []
    for begin in range(0, count, per_part):
        end = min(begin + per_part, count)
        some = old.slice(taken[begin], taken[end] - taken[begin])
        parts.append(_add(_Lists.of(some), found[begin:end], terms.part(begin, end), lowest, width))
    return pa.concat_arrays(parts)


@dataclass(frozen=True)
class _Lists:
    """States, taken apart."""

    starts: Int64s
    lengths: Int64s
    flat: Words

    @staticmethod
    def of(states: pa.Array) -> _Lists:
        offsets = states.offsets.to_numpy().astype(np.int64)
        flat = states.flatten().to_numpy().astype(np.uint64)
        return _Lists(offsets[:-1] - offsets[0], np.diff(offsets), flat)

    @cached_property
    def heads(self) -> Int64s:
        """The heads of those that are not zero, 0 for the others."""
        found = np.zeros(len(self.lengths), dtype=np.int64)
        some = self.lengths > 0
        found[some] = self.flat[self.starts[some]].astype(np.int64)
        return found

    @cached_property
    def places(self) -> Int64s:
        """Where the lowest limb of each is."""
        return self.heads & ((1 << _SIGN) - 1)

    @cached_property
    def limbs(self) -> Int64s:
        """How many limbs each has."""
        return np.maximum(self.lengths - 1, 0)


def _range(before: _Lists, terms: Terms) -> tuple[int, int]:
    """The lowest place that is needed, and how many: with room for carries."""
    some = before.limbs > 0
    lows = [before.places[some], terms.position >> 5]
    highs = [before.places[some] + before.limbs[some], (terms.position >> 5) + 3]
    low = min((int(each.min()) for each in lows if len(each)), default=0)
    high = max((int(each.max()) for each in highs if len(each)), default=0)
    return low, high - low + 2


def _add(before: _Lists, found: Bools, terms: Terms, lowest: int, width: int) -> pa.Array:
    count = len(found)
    cells = np.zeros(count * width, dtype=np.int64)
    noted = np.zeros(count, dtype=np.int64)
    groups = np.flatnonzero(found)
    heads, limbs = before.heads, before.limbs
    noted[groups] = heads >> _NOTED
    sources = _counted(before.starts + 1, limbs)
    targets = _counted(groups * width + before.places - lowest, limbs)
    signs = np.repeat(np.where((heads >> _SIGN) & 1, -1, 1), limbs)
    cells[targets] = before.flat[sources].astype(np.int64) * signs
    np.bitwise_or.at(noted, terms.odd_codes, terms.odd)
    for begin in range(0, len(terms.codes), _AT_ONCE):
        _put_in(cells, terms, slice(begin, begin + _AT_ONCE), lowest, width)
    negative = _carried(cells.reshape(count, width))
    return _packed(cells.reshape(count, width), negative, noted, lowest)


def _counted(starts: Int64s, lengths: Int64s) -> Int64s:
    """start, start + 1, ... for each, so many."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if len(ends) else 0
    found: Int64s = np.arange(total) + np.repeat(starts - (ends - lengths), lengths)
    return found


def _put_in(cells: Int64s, terms: Terms, rows: slice, lowest: int, width: int) -> None:
    """Add terms to the limbs they touch; carries come later."""
    magnitude, position = terms.magnitude[rows], terms.position[rows]
    shift = (position & 31).astype(np.uint64)
    low, high = (magnitude & _MASK) << shift, (magnitude >> np.uint64(_BITS)) << shift
    at = terms.codes[rows] * width + (position >> 5) - lowest
    sign = np.where(terms.negative[rows], -1.0, 1.0)
    middle = (low >> np.uint64(_BITS)) + (high & _MASK)
    for more, limb in enumerate((low & _MASK, middle, high >> np.uint64(_BITS))):
        added = np.bincount(at + more, weights=limb.astype(np.float64) * sign, minlength=len(cells))
        cells += added.astype(np.int64)


def _carried(cells: Int64s) -> Bools:
    """Limbs become digits, in place; which numbers are negative."""
    _carry(cells)
    negative = cells[:, -1] < 0
    if negative.any():
        turned = -cells[negative]
        _carry(turned)
        cells[negative] = turned
    found: Bools = negative
    return found


def _carry(cells: Int64s) -> None:
    for place in range(cells.shape[1] - 1):
        column = cells[:, place]
        cells[:, place + 1] += column >> _BITS
        column &= np.int64(0xFFFFFFFF)


def _packed(cells: Int64s, negative: Bools, noted: Int64s, lowest: int) -> pa.Array:
    """The states of digits: without zeros at either end."""
    used = cells != 0
    some = used.any(axis=1)
    first = used.argmax(axis=1)
    last = cells.shape[1] - 1 - used[:, ::-1].argmax(axis=1)
    place = np.where(some, first + lowest, 0)
    heads = place | (negative.astype(np.int64) << _SIGN) | (noted << _NOTED)
    columns = np.arange(cells.shape[1])
    kept = some[:, None] & (columns >= first[:, None]) & (columns <= last[:, None])
    headed = some | (noted != 0)
    words = np.concatenate([heads[:, None], cells], axis=1)
    wanted = np.concatenate([headed[:, None], kept], axis=1)
    offsets = np.concatenate(([0], np.cumsum(wanted.sum(axis=1)))).astype(np.int32)
    flat = words[wanted].astype(np.uint32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(flat))


def rounded(states: pa.Array) -> Floats:
    """Each sum as the nearest double; of two that are equally near the even one."""
    lists = _Lists.of(states)
    heads, limbs = lists.heads, lists.limbs
    ends = lists.starts + lists.lengths
    top, middle, low = (_limb(lists, ends - back, limbs >= back) for back in (1, 2, 3))
    # The highest 64 bits, and whether anything is below them: the lowest limb is never zero.
    bits = np.frexp(top.astype(np.float64))[1].astype(np.int64)
    shift = np.clip(_BITS - bits, 0, _BITS - 1).astype(np.uint64)
    highest = (((top << np.uint64(_BITS)) | middle) << shift) | (low >> (np.uint64(_BITS) - shift))
    below = ((low << shift) & _MASK).astype(np.bool_) | (limbs > 3)
    mantissa, rest = highest >> np.uint64(11), highest & np.uint64(0x7FF)
    odd = (mantissa & np.uint64(1)).astype(np.bool_)
    up = (rest > 0x400) | ((rest == 0x400) & (below | odd))
    whole = (mantissa + up.astype(np.uint64)).astype(np.float64)
    exponent = _BITS * (lists.places + limbs - 1) + bits - 53 + LOWEST
    with np.errstate(over="ignore"):  # a sum can be larger than the largest double
        value = np.ldexp(whole, exponent)
    value = np.where((heads >> _SIGN) & 1, -value, value)
    return _with_noted(np.where(limbs > 0, value, 0.0), heads >> _NOTED)


def _limb(lists: _Lists, at: Int64s, there: Bools) -> Words:
    found = np.zeros(len(at), dtype=np.uint64)
    found[there] = lists.flat[at[there]]
    return found


def _with_noted(values: Floats, noted: Int64s) -> Floats:
    values = np.where(noted == _PLUS, np.inf, values)
    values = np.where(noted == _MINUS, -np.inf, values)
    neither = (noted & _NAN != 0) | (noted == _PLUS | _MINUS)
    found: Floats = np.where(neither, np.nan, values)
    return found


def spreads(counts: Sequence[int], sums: pa.Array, squares: pa.Array) -> Floats:
    """The variance of each sample, (n Σx² - (Σx)²) / n(n - 1), exact and rounded once.

    One window that closes is one step of a loop here: the numbers are as long as they are.
    """
    found = np.full(len(sums), np.nan)
    listed = zip(counts, sums.to_pylist(), squares.to_pylist(), strict=True)
    for index, (count, total, square) in enumerate(listed):
        if count < 2 or (total and total[0] >> _NOTED):
            continue
        above = count * _whole(square) - _whole(total) ** 2
        below = count * (count - 1) << (-2 * LOWEST)
        try:
            found[index] = above / below
        except OverflowError:
            found[index] = np.inf
    return found


def _whole(words: list[int]) -> int:
    """A sum as a whole number of the unit of position 0."""
    if len(words) < 2:
        return 0
    digits = np.array(words[1:], dtype="<u4").tobytes()
    place = words[0] & ((1 << _SIGN) - 1)
    number = int.from_bytes(digits, "little") << (_BITS * place)
    return -number if (words[0] >> _SIGN) & 1 else number
