"""Runs become one: what keeps their number small.

Runs are merged like the digits of a counter: a new run swallows its newest neighbours while
they are not much larger than itself, so every row is rewritten about log(n) times, and a
lookup searches about log(n) runs.

Closed windows need no deletion: a run's rows whose slot lies before the first open slot are
dead, and merging drops them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from holdfast.spark.open_runs import OpenRun, taken
from holdfast.spark.runs import DEAD, Bools, equal_rows, one_array

# A new run swallows a neighbour of at most this many times its own rows.
_MERGE_RATIO = 2


def how_many_to_merge(run_rows: Sequence[int], new_rows: int) -> int:
    """How many of the newest runs a new run of ``new_rows`` rows should swallow."""
    merged, total = 0, new_rows
    for rows in reversed(run_rows):
        if rows > _MERGE_RATIO * total:
            break
        total += rows
        merged += 1
    return merged


def merge(
    runs: Sequence[OpenRun],
    key_names: Sequence[str] | None,
    first_open_slot: int,
    whole: bool,
) -> pa.Table:
    """One run out of several, oldest first: newest row of each key, dead rows dropped.

    Without ``key_names`` rows do not replace each other. Rows marked dead can be forgotten
    only when nothing older remains (``whole``).
    """
    newest_first = _alike(runs)[::-1]
    slot = np.concatenate([run.slot for run in newest_first])
    hashes = np.concatenate([run.hash for run in newest_first])
    # Both ways keep what is equal in its order, and make use of what is sorted already.
    one_slot = len(slot) and (slot == slot[0]).all()
    order = np.argsort(hashes, kind="stable") if one_slot else np.lexsort((hashes, slot))
    if len(slot) and slot.min() < first_open_slot:
        order = order[slot[order] >= first_open_slot]
    schema = newest_first[0].rows.schema
    columns = [taken([(run, None) for run in newest_first], each, order) for each in schema.names]
    rows = pa.Table.from_arrays(columns, schema=schema)
    if key_names is not None and len(order) > 1:
        rows = rows.filter(pa.array(newest_rows(rows, slot[order], hashes[order], key_names)))
    if whole and DEAD in rows.column_names:
        rows = rows.filter(pc.invert(rows[DEAD]))
    return rows


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
    schemas = [run.rows.schema for run in runs]
    if all(each.equals(schemas[0]) for each in schemas[1:]):
        return list(runs)
    schema = pa.unify_schemas(schemas, promote_options="default")
    return [OpenRun(run.rows.select(schema.names).cast(schema)) for run in runs]


def newest_rows(
    rows: pa.Table,
    slot: npt.NDArray[Any],
    hashes: npt.NDArray[Any],
    key_names: Sequence[str],
) -> Bools:
    """True for the first row of every key; rows of one hash come newest first."""
    keep = np.ones(rows.num_rows, dtype=np.bool_)
    repeat = (slot[1:] == slot[:-1]) & (hashes[1:] == hashes[:-1])
    second = np.flatnonzero(repeat) + 1
    if not len(second):
        return keep
    same = np.ones(len(second), dtype=np.bool_)
    for name in key_names:
        same &= equal_rows(one_array(rows[name]), second - 1, second)
    if same.all():
        keep[second] = False
        return keep
    return _newest_of_collisions(rows, slot, hashes, key_names)


def _newest_of_collisions(
    rows: pa.Table,
    slot: npt.NDArray[Any],
    hashes: npt.NDArray[Any],
    key_names: Sequence[str],
) -> Bools:
    """The slow, exact way, for the rows whose hash two different keys share."""
    keep = np.ones(rows.num_rows, dtype=np.bool_)
    change = (slot[1:] != slot[:-1]) | (hashes[1:] != hashes[:-1])
    starts = np.flatnonzero(np.concatenate(([True], change)))
    ends = np.append(starts[1:], rows.num_rows)
    for start, end in zip(starts, ends, strict=True):
        if end - start == 1:
            continue
        seen = set()
        part = rows.slice(start, end - start).select(list(key_names)).to_pylist()
        for offset, key in enumerate(part):
            identity = repr(key)
            keep[start + offset] = identity not in seen
            seen.add(identity)
    return keep
