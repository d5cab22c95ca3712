"""The order of tuples and their groups, on tables, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark import groups as groups_module
from holdfast.spark.groups import group, in_stream_order


def test_tuples_of_one_time_and_seq_have_one_order() -> None:
    nan, other_nan = np.array([0x7FF8000000000000, 0x7FF8000000000001]).view(np.float64)
    rows = pa.table(
        {
            "stime": [1, 1, 1, 1, 1, 1, 2, 2],
            "tmax": [1] * 8,
            "seq": [1, 1, 1, 1, 1, 2, 7, 7],
            "value": [0.0, -0.0, None, nan, other_nan, 1.0, 2.0, 2.0],
            "words": [["a"], ["a"], ["b"], None, ["a"], ["a"], ["y"], ["x"]],
        }
    )
    random = np.random.default_rng(1)
    texts = set()
    for _ in range(20):
        shuffled = rows.take(pa.array(random.permutation(8)))
        ordered = in_stream_order(shuffled)
        assert ordered["seq"].to_pylist() == [1, 1, 1, 1, 1, 2, 7, 7]
        bits = ordered["value"].combine_chunks().view(pa.int64()).to_pylist()
        texts.add(repr((bits, ordered["words"].to_pylist())))
    assert len(texts) == 1


@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), min_size=1, max_size=40),
    partitions=st.integers(1, 3),
    few=st.booleans(),
)
def test_groups_are_numbered_by_partition_and_in_the_order_of_a_run(
    rows: list[tuple[int, int]], partitions: int, few: bool
) -> None:
    """Whichever way they are found; keys that share a hash are told apart."""
    slots, keys = (np.array([row[at] for row in rows]) for at in (0, 1))
    hashes = (keys * 7 % 11) % 6 - 3
    table = pa.table({"slot": slots, "hash": hashes, "k0": keys})
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(groups_module, "_FEW_ROWS", 100 if few else 0)
        groups = group(table, ["k0"], partitions)
    first: dict[tuple[int, int], int] = {}
    for at, row in enumerate(rows):
        first.setdefault(row, at)
    assert sorted(groups.first_row.tolist()) == sorted(first.values())
    assert [rows[groups.first_row[code]] for code in groups.codes] == rows
    homes = (hashes % partitions)[groups.first_row].tolist()
    assert homes == sorted(homes)
    if partitions > 1:
        assert list(groups.edges) == np.searchsorted(homes, np.arange(partitions + 1)).tolist()
    if len(set(keys.tolist())) == len(set(hashes.tolist())):
        places = [
            (home, slots[at], hashes[at]) for home, at in zip(homes, groups.first_row, strict=True)
        ]
        assert places == sorted(places)
