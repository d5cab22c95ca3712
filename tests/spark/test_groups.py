"""The order of tuples and the pairs of a join, on tables, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark import groups as groups_module
from holdfast.spark.groups import group, in_stream_order
from holdfast.spark.join_step import JoinStep
from holdfast.spark.runs import sort_rows


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


def test_a_join_finds_every_pair_within_its_distance() -> None:
    random = np.random.default_rng(2)
    before, after = 30, 70
    step = JoinStep(before, after, (False, False), ("k0",), ((), ()))

    def side(count: int) -> pa.Table:
        stime, key = random.integers(0, 1000, count), random.integers(0, 12, count)
        # Several keys share a hash.
        columns = {"slot": stime // step.grain * step.grain, "hash": key % 5 - 2}
        return sort_rows(pa.table({**columns, "stime": stime, "k0": key}))

    for sizes in ((0, 5), (5, 0), (1, 1), (200, 300)):
        left, right = side(sizes[0]), side(sizes[1])
        found = step._match(left, right)
        pairs = set(zip(found[0].tolist(), found[1].tolist(), strict=True))
        assert len(pairs) == len(found[0])
        expected = {
            (i, j)
            for i, one in enumerate(left.to_pylist())
            for j, two in enumerate(right.to_pylist())
            if one["k0"] == two["k0"] and -before <= two["stime"] - one["stime"] <= after
        }
        assert pairs == expected


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
