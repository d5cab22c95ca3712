"""Groups the tuples of a bucket by their state key, without a loop.

For operators that depend on order (first, last, count windows) tuples are first put into the order
of the stream, ``(stime, seq)``, whatever the partitions and tasks were. Each tuple then gets the
number of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.lookups import Keys
from holdfast.spark.runs import (
    HASH,
    SLOT,
    Bools,
    Int64s,
    equal_rows,
    numbers,
    one_array,
)

# So many rows are sorted sooner than hashed.
_FEW_ROWS = 4_000


@dataclass(frozen=True)
class Groups:
    """The group number of each tuple, and one representative tuple for each group."""

    codes: Int64s
    first_row: Int64s
    # Where the groups of each partition begin, and where the last ones end, if that was asked for.
    edges: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return len(self.first_row)


def in_stream_order(rows: pa.Table) -> pa.Table:
    """The tuples ordered by tuple time, then ``seq``, then, for equal ones, their columns."""
    stime, seq = numbers(rows["stime"]), numbers(rows["seq"])
    later = (stime[1:] > stime[:-1]) | ((stime[1:] == stime[:-1]) & (seq[1:] > seq[:-1]))
    if later.all():
        return rows
    one_time = stime[0] == stime[-1] and (stime == stime[0]).all()
    order = np.argsort(seq) if one_time else np.lexsort((seq, stime))
    rows = rows.take(pa.array(order))
    stime, seq = stime[order], seq[order]
    tied = (stime[1:] == stime[:-1]) & (seq[1:] == seq[:-1])
    return _break_ties(rows, tied) if tied.any() else rows


def _break_ties(rows: pa.Table, tied: Bools) -> pa.Table:
    """Tuples that share time and ``seq`` (one tuple exploded into many) go by their columns.

    Rows that are equal in every column may take any order.
    """
    at = np.flatnonzero(np.append(False, tied) | np.append(tied, False))
    group = np.cumsum(np.append(True, ~tied))[at]
    tuples = rows.take(pa.array(at))
    keys = [_sortable(tuples[name]) for name in rows.column_names if name not in ("stime", "seq")]
    names = [f"c{i}" for i in range(len(keys) + 1)]
    table = pa.table([pa.array(group), *keys], names=names)
    order = np.arange(rows.num_rows)
    order[at] = at[numbers(pc.sort_indices(table, [(name, "ascending") for name in names]))]
    return rows.take(pa.array(order))


def _sortable(column: pa.ChunkedArray) -> pa.Array:
    """Something Arrow can sort by that differs wherever the column does."""
    values = one_array(column)
    if pa.types.is_floating(values.type):  # -0.0 and 0.0 differ, and so do the kinds of NaN
        return values.view(pa.int64() if values.type == pa.float64() else pa.int32())
    if pa.types.is_nested(values.type):
        return pa.array([repr(value) for value in values.to_pylist()])
    return values


def with_slots(rows: pa.Table, slots: Int64s) -> pa.Table:
    """The rows with these slots, in place of those they had if they had any."""
    if SLOT not in rows.column_names:
        return rows.append_column(SLOT, pa.array(slots))
    return rows.set_column(rows.column_names.index(SLOT), SLOT, pa.array(slots))


def group(rows: pa.Table, key_names: Sequence[str], partitions: int = 1) -> Groups:
    """Group ``rows`` by slot and key columns; groups are numbered in the order of a run.

    With ``partitions``, those of a partition are numbered one after the other.
    """
    slot, hashes = numbers(rows[SLOT]), numbers(rows[HASH])
    codes, first = _groups_in_order(slot, hashes)
    for name in key_names:
        if not equal_rows(one_array(rows[name]), np.arange(len(codes)), first[codes]).all():
            codes, first = _exact_groups(rows, key_names)
            break
    if partitions == 1:
        return Groups(codes, first)
    home = hashes[first] % partitions
    order = np.argsort(home, kind="stable")
    edges = home[order].searchsorted(np.arange(partitions + 1))
    return Groups(ranks(order)[codes], first[order], tuple(edges.tolist()))


def _groups_in_order(slot: Int64s, hashes: Int64s) -> tuple[Int64s, Int64s]:
    """The group of each row, numbered by slot and hash, and the first row of each group."""
    one_slot = bool(len(slot)) and bool((slot == slot[0]).all())
    if len(slot) > _FEW_ROWS:
        return _hashed_groups(slot, hashes, one_slot)
    order = np.argsort(hashes, kind="stable") if one_slot else np.lexsort((hashes, slot))
    ordered = hashes[order]
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    if not one_slot:
        ordered = slot[order]
        is_first[1:] |= ordered[1:] != ordered[:-1]
    codes = np.empty(len(order), dtype=np.int64)
    codes[order] = np.cumsum(is_first) - 1
    return codes, order[is_first]


def _hashed_groups(slot: Int64s, hashes: Int64s, one_slot: bool) -> tuple[Int64s, Int64s]:
    """The same for many rows, of which only the first of each group are sorted."""
    codes = pd.factorize(hashes)[0].astype(np.int64)
    if not one_slot:
        slots = pd.factorize(slot)[0].astype(np.int64)
        codes = pd.factorize(slots * (codes.max() + 1) + codes)[0].astype(np.int64)
    first = _first_rows(codes)
    order = np.lexsort((hashes[first], slot[first]))
    return ranks(order)[codes], first[order]


def ranks(order: Int64s) -> Int64s:
    """For each place before a sort, the one after it."""
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank


def _exact_groups(rows: pa.Table, key_names: Sequence[str]) -> tuple[Int64s, Int64s]:
    """The slow, exact way, where two keys share a hash."""
    keys = [repr(row) for row in rows.select([SLOT, *key_names]).to_pylist()]
    codes = pd.factorize(pd.Series(keys, dtype=object))[0].astype(np.int64)
    return codes, _first_rows(codes)


def _first_rows(codes: Int64s) -> Int64s:
    count = int(codes.max()) + 1 if len(codes) else 0
    first = np.empty(count, dtype=np.int64)
    first[codes[::-1]] = np.arange(len(codes) - 1, -1, -1)
    return first


def keys_of(rows: pa.Table, groups: Groups, key_names: Sequence[str]) -> Keys:
    """The distinct keys, one for each group."""
    at = pa.array(groups.first_row)
    columns = [one_array(rows[name]).take(at) for name in key_names]
    return Keys(
        numbers(rows[SLOT])[groups.first_row].astype(np.int64),
        numbers(rows[HASH])[groups.first_row].astype(np.int64),
        tuple(columns),
    )
