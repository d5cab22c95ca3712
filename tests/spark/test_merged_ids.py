"""Ids of several rows that come out of one tuple: each its own, whatever the number of shards.

Shards hand over what they computed; what merges them orders it and gives the ids. Neither needs
Spark: the rows of a tuple are made here, some of them equal, some tuples giving none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from holdfast.blocks import Block
from holdfast.core.messages import Part
from holdfast.core.soutput import SOutput, StableComputed
from holdfast.frames import SEQ, STIME, TMAX
from holdfast.nodes.jobs import output_block
from holdfast.slots import Routing, chosen, slot_range, slots_of
from holdfast.spark.groups import in_stream_order
from holdfast.spark.merging import Merge, MergeEngine
from holdfast.spark.state import EMPTY
from holdfast.testing import split

SCHEMA = pa.schema([STIME, TMAX, SEQ, pa.field("k", pa.int64()), pa.field("n", pa.int64())])
END = 40


@dataclass(frozen=True)
class Tuple:
    """A tuple of the input, and what comes out of it."""

    stime: int
    key: int
    rows: tuple[int, ...]


TUPLES = st.lists(
    st.builds(
        Tuple,
        st.integers(0, END - 1),
        st.integers(0, 5),
        st.lists(st.integers(0, 2), max_size=4).map(tuple),
    ),
    max_size=30,
)


def computed(tuples: Sequence[Tuple]) -> pa.Table:
    """All rows, as one engine gives them before they are ordered; ``seq`` is that of the tuple."""
    found = [
        (each.stime, each.stime, seq, each.key, row)
        for seq, each in enumerate(tuples)
        for row in each.rows
    ]
    columns = zip(*found, strict=True) if found else [()] * len(SCHEMA)
    arrays = [
        pa.array(column, pa.int64()).cast(field.type)
        for column, field in zip(columns, SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=SCHEMA)


def ids_of(rows: pa.Table, shards: int, cuts: Sequence[int]) -> dict[int, tuple[object, ...]]:
    """Which row every id is, as readers get them from what merges so many shards."""
    slots = slots_of([rows["k"]], rows.num_rows)
    parts = {}
    for number in range(1, shards + 1):
        own = chosen(Part(*slot_range(number, shards, Routing.KEY), ()), slots)
        parts[f"out.{number}"] = in_stream_order(rows.filter(pa.array(own)))
    engine = MergeEngine(Merge(dict.fromkeys(parts, SCHEMA), {"out": tuple(parts)}))
    output, state = SOutput("main-1", "out", 0, 0, 0), EMPTY
    found: dict[int, tuple[object, ...]] = {}
    for bucket in split(parts, [0, *cuts, END]):
        done = engine.advance(state, [bucket])
        state = done.state
        block = output_block("out", done.outputs["out"], 0)
        for emitted in output.handle(StableComputed(bucket.end, block if block.count else None), 0):
            for frame in emitted.frames:
                if isinstance(frame.block, Block):
                    given_ids = np.arange(frame.header.first_id, frame.header.next_id).tolist()
                    values = [column.to_pylist() for column in frame.block.batch().columns]
                    assert not found.keys() & set(given_ids)
                    found |= dict(zip(given_ids, zip(*values, strict=True), strict=True))
    return found


@given(
    tuples=TUPLES,
    shards=st.integers(2, 9),
    cuts=st.lists(st.integers(1, END - 1), max_size=4),
    others=st.lists(st.integers(1, END - 1), max_size=4),
)
def test_every_row_of_a_tuple_has_an_id_of_its_own_for_any_number_of_shards(
    tuples: list[Tuple], shards: int, cuts: list[int], others: list[int]
) -> None:
    rows = computed(tuples)
    one = ids_of(rows, 1, cuts)
    assert sorted(one) == list(range(rows.num_rows))
    assert ids_of(rows, shards, others) == one
    # By tuple: as many ids as it gave rows.
    given_to = Counter(row[2] for row in one.values())
    assert given_to == Counter(
        {seq: len(each.rows) for seq, each in enumerate(tuples) if each.rows}
    )
