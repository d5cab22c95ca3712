"""Puts the states of several shards together, and takes one shard's slots out of them.

A shard's state has the keys of its slots and no others, so the states of all shards are one state
in pieces. A row of state has its key, and so its slot: the rows of a new shard's slots, out of all
the old ones' states, are the state it would have, had it been there from the beginning.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from holdfast.core.messages import Part
from holdfast.errors import StateError
from holdfast.packed import PackedPart, PackedState
from holdfast.slots import chosen, is_whole, slots_of
from holdfast.spark.runs import sort_rows

# (operator, family, partition)
_Place = tuple[str, str, int]


def united(
    states: Sequence[PackedState], keys: Mapping[str, tuple[int, ...]], slots: tuple[int, int]
) -> PackedState:
    """The state of one shard, out of those that had its slots before.

    keys   of each operator, which of its keys the fragment is divided by.
    slots  the first slot of the shard, and the first one that is not its own.
    """
    if any(state.since is not None for state in states):
        raise StateError("the states of shards are put together whole; one came as changes")
    tables: dict[_Place, list[pa.Table]] = {}
    for state in states:
        for part in state.parts:
            rows = _own(part, keys, Part(*slots, ()))
            if rows.num_rows:
                place = (part.operator, part.family, part.partition)
                tables.setdefault(place, []).append(rows)
    parts = [
        PackedPart(*place, sort_rows(pa.concat_tables(found).combine_chunks()))
        for place, found in tables.items()
    ]
    counts = {state.partitions for state in states if state.partitions is not None}
    if len(counts) > 1:
        raise StateError(f"shards of one fragment have {sorted(counts)} partitions, not one number")
    return PackedState(
        max(state.version for state in states),
        max(state.boundary for state in states),
        None,
        parts,
        counts.pop() if counts else None,
    )


def _own(part: PackedPart, keys: Mapping[str, tuple[int, ...]], own: Part) -> pa.Table:
    """The rows of a part whose keys are of the shard's slots."""
    if is_whole(own):
        return part.rows
    if own.first == own.end:
        return part.rows.slice(0, 0)
    names = [f"k{place}" for place in keys.get(part.operator, ())]
    if not names or not set(names) <= set(part.rows.column_names):
        raise StateError(
            f"the state of {part.operator!r} has no columns by which it could be divided"
        )
    slots = slots_of([part.rows[name] for name in names], part.rows.num_rows)
    return part.rows.filter(pa.array(chosen(own, slots)))
