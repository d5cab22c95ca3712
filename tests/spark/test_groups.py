"""The order of tuples and their groups, on tables, without Spark."""

from __future__ import annotations

from zlib import crc32

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark import compaction
from holdfast.spark import groups as groups_module
from holdfast.spark.compaction import first_of_keys
from holdfast.spark.groups import group, in_stream_order, sorting
from holdfast.spark.runs import Int64s, as_array, exact_numbers, homes


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


KEYS = {
    "numbers": (pa.int64(), st.sampled_from([None, 1, 2, 5])),
    "texts": (pa.string(), st.sampled_from([None, "", "a", "null"])),
    "doubles": (pa.float64(), st.sampled_from([None, 0.5, float("nan"), float("inf")])),
    "lists": (pa.list_(pa.int64()), st.sampled_from([None, [], [1], [None]])),
}


@st.composite
def keyed(draw: st.DrawFn) -> pa.Table:
    """Rows with two keys, whose hash takes no notice of nulls: (5, null) and (null, 5) share it."""
    kind, values = KEYS[draw(st.sampled_from(sorted(KEYS)))]
    row = st.tuples(st.integers(0, 2), values, values)
    rows = draw(st.lists(row, min_size=1, max_size=40))
    texts = [repr([key for key in row[1:] if key is not None]) for row in rows]
    hashes = [crc32(text.encode()) % 5 - 2 for text in texts]
    columns = [pa.array([row[at] for row in rows], kind) for at in (1, 2)]
    slots = np.array([row[0] for row in rows])
    return pa.table({"slot": slots, "hash": hashes, "k0": columns[0], "k1": columns[1]})


def identities(rows: pa.Table) -> list[str]:
    return [repr((row["slot"], row["k0"], row["k1"])) for row in rows.to_pylist()]


@given(table=keyed(), partitions=st.integers(1, 3), few=st.booleans())
def test_groups_are_numbered_by_partition_and_in_the_order_of_a_run(
    table: pa.Table, partitions: int, few: bool
) -> None:
    """Whichever way they are found; keys that share a hash are told apart."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(groups_module, "_FEW_ROWS", 100 if few else 0)
        groups = group(table, ["k0", "k1"], partitions)
    slots, hashes = (table[name].to_numpy() for name in ("slot", "hash"))
    first: dict[str, int] = {}
    keys = identities(table)
    for at, key in enumerate(keys):
        first.setdefault(key, at)
    assert sorted(groups.first_row.tolist()) == sorted(first.values())
    assert [keys[groups.first_row[code]] for code in groups.codes] == keys
    homes = (hashes % partitions)[groups.first_row].tolist()
    if partitions > 1:
        assert list(groups.edges) == np.searchsorted(homes, np.arange(partitions + 1)).tolist()
    # Of those that share a hash the one that came first is the first.
    places = [
        (home, slots[at], hashes[at], at) for home, at in zip(homes, groups.first_row, strict=True)
    ]
    assert places == sorted(places)


@given(table=keyed())
def test_of_rows_in_order_the_first_of_each_key_is_kept(table: pa.Table) -> None:
    slots, hashes = (table[name].to_numpy() for name in ("slot", "hash"))
    order = np.lexsort((hashes, slots))
    keys = [table[name].combine_chunks() for name in ("k0", "k1")]
    keep = first_of_keys(order, slots[order], hashes[order], keys)
    names = identities(table)
    expected = {names[at]: at for at in order[::-1]}
    assert order[keep].tolist() == [at for at in order if expected[names[at]] == at]


def test_only_what_shares_a_hash_is_told_apart_the_slow_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    count = 10_000
    numbers = np.arange(count)
    hashes = numbers * 0x1E3779B97F4A7C15
    # One pair that differs in which of its keys is null, among thousands that do not.
    first = pa.array([*range(count), None, 7])
    second = pa.array([*range(count), 7, None])
    columns = {"slot": np.zeros(count + 2, np.int64), "hash": np.append(hashes, [3, 3])}
    table = pa.table({**columns, "k0": first, "k1": second})
    twice = pa.concat_tables([table, table]).combine_chunks()
    looked: list[int] = []

    def counted(keys: list[pa.Array], rows: Int64s) -> object:
        looked.append(len(rows))
        return exact_numbers(keys, rows)

    monkeypatch.setattr(groups_module, "exact_numbers", counted)
    monkeypatch.setattr(compaction, "exact_numbers", counted)
    groups = group(twice, ["k0", "k1"])
    assert groups.count == count + 2
    order = np.argsort(twice["hash"].to_numpy(), kind="stable")
    keys = [twice[name].combine_chunks() for name in ("k0", "k1")]
    slots, ordered = np.zeros(len(order), np.int64), twice["hash"].to_numpy()[order]
    assert first_of_keys(order, slots, ordered, keys).sum() == count + 2
    assert looked == [4, 4]


@given(st.lists(st.integers(-4, 4), max_size=60), st.integers(0, 60))
def test_hashes_are_sorted_as_numpy_sorts_them(near: list[int], shift: int) -> None:
    """Also those that differ in their lowest bits only, and equal ones stay as they were."""
    with np.errstate(over="ignore"):
        hashes = np.array(near, np.int64) << shift
    assert sorting(hashes).tolist() == hashes.argsort(kind="stable").tolist()


@given(st.lists(st.integers(-(2**63), 2**63 - 1), max_size=20), st.integers(1, 20))
def test_a_hash_has_one_partition(hashes: list[int], partitions: int) -> None:
    found = homes(np.array(hashes, np.int64), partitions)
    assert found.tolist() == [each % partitions for each in hashes]


def test_arrow_has_what_numpy_has() -> None:
    for kind in (np.int64, np.int32, np.uint8, np.float32, np.float64, np.bool_):
        values = np.array([0, 1, 0, 1, 1], kind)
        for each in (values, values[1:4], values[::2], values[:0]):
            made = as_array(each)
            assert made.equals(pa.array(each))
            assert made.type == pa.array(each).type
            assert made.null_count == 0
    assert as_array(np.array([0.0, np.nan])).null_count == 0
