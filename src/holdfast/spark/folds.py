"""Folds: how an aggregate's state takes in the tuples of a bucket.

A fold turns the old state of each touched group and the bucket's values, in stream order,
into the new state. The result must not depend on how the stream was split into buckets, bit
for bit. Nor does it depend on the order of the tuples, except for those of ``IN_ORDER``: sums of
doubles are exact (exact_sum.py), of equal minima and maxima the bits decide.

Each fold keeps one or more columns. All arrays are aligned: ``values`` with the bucket's
tuples, old and new states with the groups.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark import exact_sum
from holdfast.spark.groups import Groups
from holdfast.spark.list_folds import collect, collect_distinct, top
from holdfast.spark.runs import Bools, Column, as_array, numbers

Columns = list[Column]
Floats = npt.NDArray[np.float64]

# Distinct values a sketch tells apart exactly; beyond, the error is about 1/sqrt(1024), 3 %.
_SKETCH_SIZE = 1024
# Sums up to here are within BIGINT, rounded or not.
_SURELY_FITS = 2.0**63 * (1 - 2.0**-20)
# Half of a number of 64 bits.
_HALF, _LOWER = 32, (1 << 32) - 1
# Folds that take columns as numpy has them.
_ON_NUMBERS = frozenset({"count", "add_long", "add_wide", "within_bigint", "as_double"})
# What is made of the total of an ``add_wide``, and its type: a sum must fit, a mean always does.
_OF_WIDE = {"within_bigint": pa.int64(), "as_double": pa.float64()}
# What a sum of decimals may have, and what it is added up in: so whether it fits is asked of the
# total alone, as with ``add_wide``.
_DECIMAL_DIGITS, STATE_DIGITS = 38, 76
# Folds of which the same tuples in another order give something else.
IN_ORDER = frozenset({"first", "last", "collect", "collect_distinct", "top"})


@dataclass(frozen=True)
class Fold:
    """One fold of an aggregate operator: its kind, the column it reads, those it keeps.

    One that keeps none only finishes what others keep.

    beside  columns of other folds that it needs to finish a group.
    """

    kind: str
    value: str | None
    columns: tuple[str, ...]
    types: tuple[pa.DataType, ...]
    user: Any = None
    beside: tuple[str, ...] | None = None

    def run(self, values: Column | None, groups: Groups, found: Bools, old: Columns) -> Columns:
        """The new state columns of every group."""
        if self.kind not in _ON_NUMBERS:
            values = None if values is None else as_array(values)
            old = [as_array(each) for each in old]
        return _KINDS[self.kind](self, values, groups, found, old)

    @property
    def depends_on_order(self) -> bool:
        """Whether the same tuples in another order give another state."""
        return self.kind in IN_ORDER or (self.kind == "user" and not self.user.any_order)

    @property
    def results(self) -> tuple[pa.Field, ...]:
        """Its columns once a group is finished."""
        if self.kind == "add_wide":
            return ()
        if self.kind in _OF_WIDE and self.beside is not None:
            return (pa.field(f"{self.beside[0]}_{self.kind}", _OF_WIDE[self.kind]),)
        kind = self.types[0]
        match self.kind:
            case "sketch":
                kind = pa.int64()
            case "user":
                kind = self.user.arrow_result_type
            case "add_exactly" | "add_squares":
                kind = pa.float64()
            case "add_decimal":
                kind = pa.decimal128(_DECIMAL_DIGITS, kind.scale)
        return (pa.field(self.columns[0], kind),)

    def finish(self, columns: Columns) -> Columns:
        """What the state of finished groups stands for; those ``beside`` come last."""
        match self.kind:
            case "sketch":
                return [sketch_estimate(columns[0])]
            case "user":
                finished = [self.user.finish(each) for each in as_array(columns[0]).to_pylist()]
                return [pa.array(finished, self.user.arrow_result_type)]
            case "add_exactly":
                return [pa.array(exact_sum.rounded(columns[0]))]
            case "add_squares":
                squares, sums, counts = columns
                return [pa.array(exact_sum.spreads(as_array(counts).to_pylist(), sums, squares))]
            case "add_wide":
                return []
            case "within_bigint":
                return [self._within_bigint(*columns)]
            case "as_double":
                return [_as_double(*columns)]
            case "add_decimal":
                return [self._within_decimal(as_array(columns[0]))]
        return columns

    def _within_bigint(self, low: Column, high: Column) -> Column:
        """A total whose upper part is nothing but its sign."""
        if numbers(high).any():
            raise OverflowError(
                f"the sum in {self.results[0].name} is beyond the range of BIGINT; cast the summed "
                f"column to DOUBLE or DECIMAL(38, 0)"
            )
        return low

    def _within_decimal(self, total: pa.Array) -> pa.Array:
        kind = self.results[0].type
        try:
            return total.cast(kind)
        except pa.ArrowInvalid as error:
            raise OverflowError(
                f"the sum in {self.columns[0]} has more than {_DECIMAL_DIGITS} digits; cast the "
                f"summed column to DOUBLE"
            ) from error


def _as_double(low: Column, high: Column) -> pa.Array:
    """A total as the nearest double, also beyond the range of BIGINT."""
    lower, upper = numbers(low), numbers(high)
    rounded = lower.astype(np.float64)
    wide = np.flatnonzero(upper)
    # Python's whole numbers round once; doubles would round the parts.
    totals = upper[wide].astype(object) * 2**64 + lower[wide].astype(object)
    rounded[wide] = totals.astype(np.float64)
    return pa.array(rounded)


def _nothing(_: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    return []


def _count(_: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    total = np.bincount(groups.codes, minlength=groups.count).astype(np.int64, copy=False)
    total[found] += numbers(old[0])
    return [total]


def _add_long(_: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    """Of values of 32 bits: 4 billion of the largest must meet in a group to leave 64."""
    total = np.zeros(groups.count, dtype=np.int64)
    total[found] = numbers(old[0])
    np.add.at(total, groups.codes, numbers(values).astype(np.int64, copy=False))
    return [total]


def _add_wide(_: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    """Of values of 64 bits, exactly: the total is ``high * 2**64 + low``, both with a sign.

    On the way to a total that fits, some order of the tuples, or some split of them, may leave 64
    bits and come back. So whether it fits is asked of the total alone, when the group is finished.
    """
    added = numbers(values).astype(np.int64, copy=False)
    low, high = np.zeros(groups.count, dtype=np.int64), np.zeros(groups.count, dtype=np.int32)
    low[found], high[found] = numbers(old[0]), numbers(old[1])
    if _surely_fit(added, low):
        np.add.at(low, groups.codes, added)
        return [low, high]
    upper, lower = low >> _HALF, low & _LOWER
    np.add.at(upper, groups.codes, added >> _HALF)
    np.add.at(lower, groups.codes, added & _LOWER)
    upper += lower >> _HALF
    kept = upper.astype(np.int32).astype(np.int64)  # its lower half, with a sign
    high += ((upper - kept) >> _HALF).astype(np.int32)
    return [(kept << _HALF) | (lower & _LOWER), high]


def _surely_fit(added: npt.NDArray[np.int64], low: npt.NDArray[np.int64]) -> bool:
    """Whether no group can leave 64 bits, even if all the values were its own."""
    if not len(added):
        return True
    largest = float(max(added.max(), -float(added.min()))) * len(added)
    return largest + float(max(low.max(), -float(low.min()))) < _SURELY_FITS


def _add_exactly(_: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    parts = exact_sum.sums_of(numbers(values), groups.codes, groups.count)
    return [exact_sum.add(old[0], found, parts)]


def _add_squares(_: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    """The exact sum of squares: with sum and count beside it, it stands for the variance."""
    parts = exact_sum.squares_of(numbers(values), groups.codes, groups.count)
    return [exact_sum.add(old[0], found, parts, exact_sum.UNIT_OF_SQUARES)]


def _add_decimal(
    fold: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns
) -> Columns:
    total = np.full(groups.count, 0, dtype=object)
    total[found] = _objects(old[0])
    # Python rounds to 28 digits otherwise.
    with decimal.localcontext(decimal.Context(prec=STATE_DIGITS)):
        np.add.at(total, groups.codes, _objects(values))
    return [pa.array(total.tolist(), fold.types[0])]


def _objects(column: pa.Array) -> npt.NDArray[np.object_]:
    values = np.empty(len(column), dtype=object)
    values[:] = column.to_pylist()
    return values


def _extreme(fold: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    """Minimum or maximum of any ordered type, by the ranks of old and new values together."""
    both = pa.concat_arrays([as_array(old[0]).cast(values.type), values])
    codes = np.concatenate([np.flatnonzero(found), groups.codes])
    present = numbers(pc.is_valid(both)).astype(np.bool_)
    order = "ascending" if fold.kind == "min" else "descending"
    ranks = numbers(pc.rank(both, order, tiebreaker="dense"))
    ranks = _nan_is_largest(both, ranks.astype(np.int64), fold.kind)
    best = np.full(groups.count, np.iinfo(np.int64).max)
    np.minimum.at(best, codes[present], ranks[present])
    winners = np.flatnonzero(present & (ranks == best[codes]))
    if pa.types.is_floating(both.type):
        winners = _by_bits(both, winners, fold.kind)
    rows = np.full(groups.count, -1, dtype=np.int64)
    rows[codes[winners][::-1]] = winners[::-1]
    return [both.take(pa.array(rows, mask=rows < 0))]


def _by_bits(values: pa.Array, rows: npt.NDArray[np.int64], kind: str) -> npt.NDArray[np.int64]:
    """Which of equals comes first: -0.0 and 0.0 rank alike, and the choice must not depend on
    who was earlier. -0.0 is the smaller."""
    whole = pa.int64() if values.type == pa.float64() else pa.int32()
    bits = numbers(values.take(pa.array(rows)).view(whole)).astype(np.int64)
    return rows[np.argsort(bits if kind == "min" else ~bits, kind="stable")]


def _nan_is_largest(
    values: pa.Array, ranks: npt.NDArray[np.int64], kind: str
) -> npt.NDArray[np.int64]:
    if not pa.types.is_floating(values.type):
        return ranks
    nan = numbers(pc.fill_null(pc.is_nan(values), False)).astype(np.bool_)
    extreme = np.iinfo(np.int64).max - 1 if kind == "min" else 0
    return np.where(nan, extreme, ranks)


def _first(_: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    return [_old_else(values.take(pa.array(groups.first_row)), found, old[0])]


def _last(_: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    last = np.empty(groups.count, dtype=np.int64)
    last[groups.codes] = np.arange(len(groups.codes))
    return [values.take(pa.array(last))]


def _old_else(new: pa.Array, found: Bools, old: pa.Array) -> pa.Array:
    """The old value of each group that has one, else the new value."""
    both = pa.concat_arrays([old.cast(new.type), new])
    at = np.where(found, np.cumsum(found) - 1, len(old) + np.arange(len(new)))
    return both.take(pa.array(at))


def _sketch(_: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    """The smallest hashes of the distinct values of each group.

    Kept here rather than taken from a sketch library because those update one Python object
    per group, and their estimates depend on the order of merges; this one is a function of
    the set of values alone.
    """
    lengths = numbers(pc.list_value_length(old[0])).astype(np.int64)
    old_codes = np.repeat(np.flatnonzero(found), lengths)
    valid = numbers(pc.is_valid(values)).astype(np.bool_)
    codes = np.concatenate([old_codes, groups.codes[valid]])
    hashes = np.concatenate([numbers(old[0].flatten()), numbers(values.filter(pa.array(valid)))])
    order = np.lexsort((hashes, codes))
    codes, hashes = codes[order], hashes[order].astype(np.int64)
    new = np.ones(len(codes), dtype=np.bool_)
    new[1:] = (codes[1:] != codes[:-1]) | (hashes[1:] != hashes[:-1])
    codes, hashes = codes[new], hashes[new]
    starts = np.searchsorted(codes, np.arange(groups.count + 1))
    rank = np.arange(len(codes)) - starts[codes]
    kept = rank < _SKETCH_SIZE
    sizes = np.minimum(np.diff(starts), _SKETCH_SIZE)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    return [pa.ListArray.from_arrays(pa.array(offsets), pa.array(hashes[kept]))]


def sketch_estimate(sketches: pa.Array) -> pa.Array:
    """How many distinct values each sketch has seen."""
    sizes = numbers(pc.list_value_length(sketches)).astype(np.int64)
    flat = numbers(sketches.flatten()).astype(np.int64)
    ends = np.cumsum(sizes)
    estimate = sizes.astype(np.float64)
    full = np.flatnonzero(sizes == _SKETCH_SIZE)
    largest = flat[ends[full] - 1].astype(np.float64) + 2.0**63
    estimate[full] = (_SKETCH_SIZE - 1) * 2.0**64 / largest
    return pa.array(np.rint(estimate).astype(np.int64))


def _user(fold: Fold, values: pa.Array, groups: Groups, found: Bools, old: Columns) -> Columns:
    """A user's mergeable aggregate: one call for each group, never one for each tuple."""
    order = np.argsort(groups.codes, kind="stable")
    ends = np.cumsum(np.bincount(groups.codes, minlength=groups.count))
    sorted_values = values.take(pa.array(order))
    before: Sequence[Any] = as_array(old[0]).to_pylist()
    states, start, used = [], 0, 0
    for code, end in enumerate(ends):
        state = fold.user.reduce(sorted_values.slice(start, end - start))
        if found[code]:
            state = fold.user.merge(before[used], state)
            used += 1
        states.append(state)
        start = end
    return [pa.array(states, fold.types[0])]


_KINDS: dict[str, Callable[[Fold, pa.Array, Groups, Bools, Columns], Columns]] = {
    "count": _count,
    "add_long": _add_long,
    "add_wide": _add_wide,
    "within_bigint": _nothing,
    "as_double": _nothing,
    "add_exactly": _add_exactly,
    "add_decimal": _add_decimal,
    "min": _extreme,
    "max": _extreme,
    "first": _first,
    "last": _last,
    "add_squares": _add_squares,
    "sketch": _sketch,
    "collect": collect,
    "collect_distinct": collect_distinct,
    "top": top,
    "user": _user,
}
