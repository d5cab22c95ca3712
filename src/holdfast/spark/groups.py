"""Groups the tuples of a bucket by their state key, without a loop.

For operators that depend on order (first, last, count windows) tuples are first put into the order
of the stream, ``(stime, seq)``, whatever the partitions and tasks were. Each tuple then gets the
number of its group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.lookups import Keys
from holdfast.spark.runs import (
    HASH,
    SLOT,
    Bools,
    Column,
    Int64s,
    equal_rows,
    exact_numbers,
    homes,
    numbers,
    one_array,
)

# So many rows are sorted sooner than hashed.
_FEW_ROWS = 4_000
# Of queries that are grouped together, so many partitions at most.
_MOST_LOTS = 1 << 14


@dataclass(frozen=True)
class Groups:
    """The group number of each tuple, and the first tuple of each group.

    Those of each partition are in the order of a run.
    """

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


@dataclass(frozen=True)
class Keyed:
    """What tuples are grouped by, and over how many partitions the groups are spread."""

    slot: Int64s
    hash: Int64s
    keys: tuple[Column, ...]
    partitions: int = 1

    @cached_property
    def has_one_slot(self) -> bool:
        slot = self.slot
        return bool(len(slot)) and bool(slot[0] == slot[-1]) and bool((slot == slot[0]).all())


def group(rows: pa.Table, key_names: Sequence[str], partitions: int = 1) -> Groups:
    """Group ``rows`` by slot and key columns; groups are numbered in the order of a run.

    With ``partitions``, those of a partition are numbered one after the other.
    """
    keys = tuple(one_array(rows[name]) for name in key_names)
    return _group_one(Keyed(numbers(rows[SLOT]), numbers(rows[HASH]), keys, partitions))


def group_together(several: Sequence[Keyed]) -> Groups:
    """The groups of several queries at once: tuples and groups of each behind those before.

    The edges are those of the first one's partitions, of the second one's, and so on.
    """
    rows = sum(len(each.hash) for each in several)
    lots = sum(each.partitions for each in several)
    if rows <= _FEW_ROWS * len(several) and lots <= _MOST_LOTS:
        found = _sorted_together(several, lots)
        if found is not None:
            return found
    return _behind_each_other(several, [_group_one(each) for each in several])


def _sorted_together(several: Sequence[Keyed], lots: int) -> Groups | None:
    """The same for few tuples, by one sort; None if keys share a hash."""
    hashes = np.concatenate([each.hash for each in several])
    lots_of_each, before = [], 0
    for each in several:
        # As numbers of 16 bits, which numpy sorts in no time.
        lots_of_each.append(homes(each.hash, each.partitions).astype(np.int16) + np.int16(before))
        before += each.partitions
    lot = np.concatenate(lots_of_each)
    slot = None
    if not all(each.has_one_slot or not len(each.slot) for each in several):
        slot = np.concatenate([each.slot for each in several])
    order = sorting(hashes)
    for column in (lot,) if slot is None else (slot, lot):
        order = order.take(column.take(order).argsort(kind="stable"))
    is_first = np.ones(len(order), dtype=np.bool_)
    is_first[1:] = False
    for column in (hashes, lot) if slot is None else (hashes, lot, slot):
        ordered = column.take(order)
        is_first[1:] |= ordered[1:] != ordered[:-1]
    codes = np.empty(len(order), dtype=np.int64)
    codes[order] = is_first.cumsum() - 1
    first = order[is_first]
    if not _have_equal_keys(several, codes, first):
        return None
    edges = lot.take(first).searchsorted(np.arange(lots + 1))
    return Groups(codes, first, tuple(edges.tolist()))


def sorting(hashes: Int64s) -> Int64s:
    """The order in which hashes ascend; equal ones stay as they are.

    To sort numbers takes a tenth of what it takes to find their order. So where each hash was is
    put in place of its lowest bits; where these decide, which is hardly ever, it is sorted again.
    """
    below = np.int64((1 << len(hashes).bit_length()) - 1)
    packed = hashes & ~below
    packed |= np.arange(len(hashes))
    packed.sort()
    packed &= below
    ordered = hashes.take(packed)
    if (ordered[1:] < ordered[:-1]).any():
        packed = packed.take(ordered.argsort(kind="stable"))
    return packed


def _have_equal_keys(several: Sequence[Keyed], codes: Int64s, first: Int64s) -> bool:
    """Whether every tuple has the key of the first one of its group."""
    before = 0
    for each in several:
        count = len(each.hash)
        if _unlike_first(each, codes[before : before + count], first - before) is not None:
            return False
        before += count
    return True


def _unlike_first(each: Keyed, codes: Int64s, first: Int64s) -> Bools | None:
    """Which tuples have another key than the first one of their group; None if none has."""
    unlike: Bools | None = None
    if each.keys:
        at, here = first.take(codes), np.arange(len(codes))
        for key in each.keys:
            same = equal_rows(key, here, at)
            if not same.all():
                unlike = ~same if unlike is None else unlike | ~same
    return unlike


def _behind_each_other(several: Sequence[Keyed], found: Sequence[Groups]) -> Groups:
    if len(found) == 1 and found[0].edges:
        return found[0]
    codes, first, edges, rows, before = [], [], [], 0, 0
    for each, groups in zip(several, found, strict=True):
        codes.append(groups.codes + before)
        first.append(groups.first_row + rows)
        edges += [before + edge for edge in (groups.edges or (0, groups.count))[:-1]]
        rows, before = rows + len(each.hash), before + groups.count
    edges.append(before)
    return Groups(np.concatenate(codes), np.concatenate(first), tuple(edges))


def _group_one(each: Keyed) -> Groups:
    codes, first = _groups_in_order(each)
    unlike = _unlike_first(each, codes, first)
    if unlike is not None:
        codes, first = _told_apart(each, codes, first, unlike)
    if each.partitions == 1:
        return Groups(codes, first)
    home = homes(each.hash[first], each.partitions)
    order = np.argsort(home, kind="stable")
    edges = home[order].searchsorted(np.arange(each.partitions + 1))
    return Groups(ranks(order)[codes], first[order], tuple(edges.tolist()))


def _groups_in_order(each: Keyed) -> tuple[Int64s, Int64s]:
    """The group of each row, numbered by slot and hash, and the first row of each group."""
    slot, hashes, one_slot = each.slot, each.hash, each.has_one_slot
    if len(slot) > _FEW_ROWS:
        return _hashed_groups(slot, hashes, one_slot)
    order = sorting(hashes) if one_slot else np.lexsort((hashes, slot))
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


def _told_apart(each: Keyed, codes: Int64s, first: Int64s, unlike: Bools) -> tuple[Int64s, Int64s]:
    """The groups again, with one for each key where several share a hash."""
    is_shared = np.zeros(len(first), np.bool_)
    is_shared[codes[unlike]] = True
    at = np.flatnonzero(is_shared[codes])
    exact = exact_numbers(each.keys, at)
    parts = pd.factorize(codes[at] * len(at) + exact)[0].astype(np.int64)
    begins = at[_first_rows(parts)]
    whole = np.flatnonzero(~is_shared)
    # What shares a hash stays together, those that came first before the others.
    first_rows = np.concatenate([first[whole], begins])
    order = np.lexsort((first_rows, np.concatenate([whole, codes[begins]])))
    found = np.empty(len(first), np.int64)
    found[whole] = np.arange(len(whole))
    numbered = found[codes]
    numbered[at] = len(whole) + parts
    return ranks(order)[numbered], first_rows[order]


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
