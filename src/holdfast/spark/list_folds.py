"""Folds that keep several values of a group: all, the different ones, the largest.

Their state is a list for each group. As for every fold, it must not depend on how the stream was
split into buckets: lists are in stream order, and of equal values the earlier one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.runs import Bools, numbers

if TYPE_CHECKING:
    from holdfast.spark.folds import Fold
    from holdfast.spark.groups import Groups

Int64s = npt.NDArray[np.int64]


def collect(
    fold: Fold, values: pa.Array, groups: Groups, found: Bools, old: list[pa.Array]
) -> list[pa.Array]:
    """All values that are not null, in stream order."""
    both, codes = _old_and_new(values, pc.is_valid(values), groups, found, old[0])
    order = np.argsort(codes, kind="stable")
    return [_lists(fold, both, codes, order, groups.count)]


def collect_distinct(
    fold: Fold, values: pa.Array, groups: Groups, found: Bools, old: list[pa.Array]
) -> list[pa.Array]:
    """The first of each value that is not null, in stream order."""
    both, codes = _old_and_new(values, pc.is_valid(values), groups, found, old[0])
    same = numbers(pc.dictionary_encode(both).indices).astype(np.int64)
    _, first = np.unique(np.stack([codes, same]), axis=1, return_index=True)
    first = np.sort(first)
    order = first[np.argsort(codes[first], kind="stable")]
    return [_lists(fold, both, codes, order, groups.count)]


def top(
    fold: Fold, values: pa.Array, groups: Groups, found: Bools, old: list[pa.Array]
) -> list[pa.Array]:
    """The rows with the largest first field, largest first; of equals the earlier ones."""
    present = pc.is_valid(pc.struct_field(values, 0))
    both, codes = _old_and_new(values, present, groups, found, old[0])
    ranked = pc.struct_field(both, 0)
    ranks = numbers(pc.rank(ranked, "descending", tiebreaker="dense")).astype(np.int64)
    if pa.types.is_floating(ranked.type):  # NaN is larger than any number, as Spark has it
        ranks = np.where(numbers(pc.is_nan(ranked)).astype(np.bool_), 0, ranks)
    order = np.lexsort((np.arange(len(codes)), ranks, codes))
    starts = np.searchsorted(codes[order], np.arange(groups.count))
    place = np.arange(len(codes)) - starts[codes[order]]
    return [_lists(fold, both, codes, order[place < fold.user], groups.count)]


def _old_and_new(
    values: pa.Array, present: pa.Array, groups: Groups, found: Bools, old: pa.Array
) -> tuple[pa.Array, Int64s]:
    """What the groups had, then what is new and present; and the group of each."""
    lengths = numbers(pc.list_value_length(old)).astype(np.int64)
    had = old.flatten().cast(values.type)
    both = pa.concat_arrays([had, values.filter(present)])
    new = groups.codes[numbers(present).astype(np.bool_)]
    return both, np.concatenate([np.repeat(np.flatnonzero(found), lengths), new])


def _lists(fold: Fold, values: pa.Array, codes: Int64s, order: Int64s, count: int) -> pa.Array:
    """A list for each group: the values at ``order``, which goes group by group."""
    sizes = np.bincount(codes[order], minlength=count)
    offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
    kept = values.take(pa.array(order)).cast(fold.types[0].value_type)
    return pa.ListArray.from_arrays(pa.array(offsets), kept, type=fold.types[0])
