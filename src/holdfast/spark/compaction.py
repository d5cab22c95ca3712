"""Runs become one: what keeps their number small.

Runs are merged like the digits of a counter: a new run swallows its newest neighbours while
they are not much larger than itself, so every row is rewritten about log(n) times, and a
lookup searches about log(n) runs.

Closed windows need no deletion: a run's rows whose slot lies before the first open slot are
dead, and merging drops them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import pyarrow as pa

from holdfast.spark.open_runs import OpenRun, taken
from holdfast.spark.runs import (
    DEAD,
    HASH,
    SLOT,
    Bools,
    Column,
    Int64s,
    as_array,
    equal_rows,
    exact_numbers,
    numbers,
)

# A new run swallows a neighbour of at most this many times its own rows.
_MERGE_RATIO = 2
# A long one takes a while to swallow, and partitions are alike: so that they do not all come to it
# in one bucket, odd ones wait a little longer. Where runs are short it is best to merge together.
_LONG_ROWS, _ODD_RATIO = 20_000, 1.6


def how_many_to_merge(
    run_rows: Sequence[int], new_rows: int, partition: int = 0, long_rows: int | None = None
) -> int:
    """How many of the newest runs a new run of ``new_rows`` rows should swallow.

    None that has more than ``long_rows``: those are merged aside (``aside``).
    """
    merged, total = 0, new_rows
    for rows in reversed(run_rows):
        if long_rows is not None and rows > long_rows:
            break
        is_odd_turn = partition % 2 and rows > _LONG_ROWS
        if rows > (_ODD_RATIO if is_odd_turn else _MERGE_RATIO) * total:
            break
        total += rows
        merged += 1
    return merged


def merge(
    runs: Sequence[OpenRun], key_names: Sequence[str] | None, first_open_slot: int, whole: bool
) -> OpenRun:
    """One run out of several, oldest first: newest row of each key, dead rows dropped.

    Without ``key_names`` rows do not replace each other. Rows marked dead can be forgotten
    only when nothing older remains (``whole``).
    """
    return merge_all([(runs, whole, first_open_slot)], key_names)[0]


def merge_all(
    parts: Sequence[tuple[Sequence[OpenRun], bool, int]], key_names: Sequence[str] | None
) -> list[OpenRun]:
    """The same for the runs of several partitions, also of several queries with such keys.

    Each comes with whether nothing older remains, and its first open slot. Most of what it takes
    to merge small runs is the calls, and they are made once for all of them.
    """
    runs = _alike([run for each, *_ in parts for run in each[::-1]])
    at, before, orders, forgetful = 0, 0, [], []
    for each, whole, first_open_slot in parts:
        newest_first, at = runs[at : at + len(each)], at + len(each)
        order = _in_order(newest_first, first_open_slot)
        orders.append(order + before if before else order)
        before += sum(map(len, newest_first))
        forgetful.append(whole)
    lengths = [len(each) for each in orders]
    starts = [0, *itertools.accumulate(lengths)]
    order = np.concatenate(orders) if len(orders) > 1 else orders[0]
    sources = [(run, None) for run in runs]
    layout = runs[0].layout
    keep = np.ones(len(order), dtype=np.bool_)
    if key_names is not None:
        keep = _newest(order, sources, key_names, starts)
    if any(forgetful) and DEAD in layout.names:
        dead = numbers(as_array(taken(sources, DEAD, None))).astype(np.bool_)
        keep &= ~(dead.take(order) & np.repeat(forgetful, lengths))
    counts = [int(np.count_nonzero(keep[a:b])) for a, b in itertools.pairwise(starts)]
    if sum(counts) < len(order):
        order = order[keep]
    columns = {name: taken(sources, name, order) for name in layout.names}
    return OpenRun.of(columns, layout).split(counts)


def _in_order(newest_first: Sequence[OpenRun], first_open_slot: int) -> Int64s:
    """The rows of runs that lie one behind the other, in the order of one; not what is closed."""
    slot = np.concatenate([run.slot for run in newest_first])
    hashes = np.concatenate([run.hash for run in newest_first])
    # Both ways keep what is equal in its order, and make use of what is sorted already.
    one_slot = len(slot) and slot[0] == slot[-1] and (slot == slot[0]).all()
    order = np.argsort(hashes, kind="stable") if one_slot else np.lexsort((hashes, slot))
    if len(slot) and (slot[0] if one_slot else slot.min()) < first_open_slot:
        order = order[slot[order] >= first_open_slot]
    return order


def divided(runs: Sequence[OpenRun], piece_rows: int) -> Iterator[list[OpenRun]]:
    """The same runs in pieces of about so many rows: merged one by one they give the same rows.

    Runs are in the order of slots and hashes; what is equal in both is in one piece.
    """
    largest = max(runs, key=len)
    pieces = -(-sum(map(len, runs)) // piece_rows)
    cuts = [len(largest) * number // pieces for number in range(1, pieces)]
    begins = [0] * len(runs)
    schemas = _alike(runs)
    for at in cuts:
        ends = [run.place(int(largest.slot[at]), int(largest.hash[at])) for run in runs]
        yield _rows(schemas, begins, ends)
        begins = ends
    yield _rows(schemas, begins, [len(run) for run in runs])


def _rows(runs: Sequence[OpenRun], begins: list[int], ends: list[int]) -> list[OpenRun]:
    return [
        OpenRun(run.rows.slice(begin, end - begin))
        for run, begin, end in zip(runs, begins, ends, strict=True)
    ]


def _alike(runs: Sequence[OpenRun]) -> list[OpenRun]:
    """With one schema: the one-task and the sharded plan disagree on what can be null."""
    if all(run.layout is runs[0].layout for run in runs):
        return list(runs)
    schemas = [run.layout.schema for run in runs]
    if all(each.equals(schemas[0]) for each in schemas[1:]):
        return list(runs)
    schema = pa.unify_schemas(schemas, promote_options="default")
    return [OpenRun(run.rows.select(schema.names).cast(schema)) for run in runs]


def _newest(
    order: Int64s,
    sources: Sequence[tuple[OpenRun, None]],
    key_names: Sequence[str],
    starts: Sequence[int],
) -> Bools:
    """Of rows in this order, in which those of one hash come newest first, the first of each key.

    ``sources`` are the runs of which the order is, one behind the other; ``starts`` where in it
    something else begins, in which the same keys are others.
    """
    keys = [taken(sources, name, None) for name in key_names]
    slot, hashes = (numbers(taken(sources, name, order)) for name in (SLOT, HASH))
    return first_of_keys(order, slot, hashes, keys, starts)


def first_of_keys(
    order: Int64s,
    slot: Int64s,
    hashes: Int64s,
    keys: Sequence[Column],
    starts: Sequence[int] = (),
) -> Bools:
    """Which rows are the first of their keys; slots and hashes are in this order, keys not yet."""
    keep = np.ones(len(order), dtype=np.bool_)
    repeat = hashes[1:] == hashes[:-1]
    repeat &= slot[1:] == slot[:-1]
    for start in starts:
        if 0 < start < len(order):
            repeat[start - 1] = False
    second = np.flatnonzero(repeat)
    if not len(second):
        return keep
    np.logical_not(repeat, out=keep[1:])
    left, right = order.take(second), order.take(second + 1)
    unlike: Bools | None = None
    for key in keys:
        same = equal_rows(key, left, right)
        if not same.all():
            unlike = ~same if unlike is None else unlike | ~same
    if unlike is not None:
        _tell_apart(keep, order, second[unlike], keys)
    return keep


def _tell_apart(keep: Bools, order: Int64s, unlike: Int64s, keys: Sequence[Column]) -> None:
    """Keep the first of each key where several share a hash; ``unlike``: rows before another key.

    ``keep`` has the first row of each hash.
    """
    lot = keep.cumsum() - 1  # which hash it is
    is_shared = np.zeros(lot[-1] + 1, np.bool_)
    is_shared[lot[unlike]] = True
    at = np.flatnonzero(is_shared[lot])
    numbered = exact_numbers(keys, order[at])
    keep[at] = ~pd.Series(lot[at] * len(at) + numbered).duplicated().to_numpy()
