"""Which tuples of a run lie near others, on tables, without Spark."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.spark import join_search, open_runs
from holdfast.spark.join_search import Probe
from holdfast.spark.join_step import JoinStep
from holdfast.spark.open_runs import OpenRun
from holdfast.spark.runs import Int64s, sort_rows

LEAST, MOST = -(2**63), 2**63 - 1
HASHES = (LEAST, LEAST + 1, -5, -1, 0, 1, 2**40, MOST - 1, MOST)
# Each is a way that larger or smaller runs go.
WAYS = {"slot by slot": (100, 0, 1 << 14), "by directory": (100, 0, 1), "all at once": (0, 99, 1)}


def table(slots: list[int], hashes: list[int], keys: list[int | None]) -> OpenRun:
    columns = {"slot": np.array(slots, np.int64), "hash": np.array(hashes, np.int64)}
    return OpenRun(sort_rows(pa.table({**columns, "k0": pa.array(keys, pa.int64())})))


@st.composite
def runs(draw: st.DrawFn) -> OpenRun:
    rows = draw(
        st.lists(
            st.tuples(
                st.integers(-3, 3).map(lambda slot: slot * 10),
                st.sampled_from(HASHES),
                st.sampled_from([None, 1, 2]),
            ),
            max_size=60,
        )
    )
    return table(*([row[at] for row in rows] for at in range(3)))  # type: ignore[arg-type]


@given(mine=runs(), other=runs(), way=st.sampled_from(sorted(WAYS)))
def test_near_is_what_has_the_hash_in_a_slot_beside_it(
    mine: OpenRun, other: OpenRun, way: str
) -> None:
    few, many, rows = WAYS[way]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(join_search, "_FEW_SLOTS", few)
        patched.setattr(join_search, "_MANY_IN_SLOT", many)
        patched.setattr(open_runs, "_VERY_MANY_ROWS", rows)
        found = Probe(mine, ("k0",)).near(other, 10)
    pairs = list(zip(found[0].tolist(), found[1].tolist(), strict=True))
    expected = {
        (i, j)
        for i, one in enumerate(mine.rows.to_pylist())
        for j, two in enumerate(other.rows.to_pylist())
        if one["hash"] == two["hash"] and abs(one["slot"] - two["slot"]) <= 10
        if one["k0"] is not None  # which matches nothing
    }
    assert len(pairs) == len(expected)
    assert set(pairs) == expected


@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize(("before", "after"), [(30, 70), (0, 0), (0, 3)])
def test_a_join_finds_every_pair_within_its_distance(before: int, after: int, side: int) -> None:
    random = np.random.default_rng(2)
    step = JoinStep(before, after, (False, False), ("k0", "k1"), ((), ()))

    def some(count: int) -> OpenRun:
        stime, key = random.integers(0, 1000, count), random.integers(0, 12, count)
        # Several keys share a hash.
        columns = {"slot": stime // step.grain * step.grain, "hash": key % 5 - 2, "stime": stime}
        texts = [None if one > 9 else f"k{one}" for one in key]
        return OpenRun(sort_rows(pa.table({**columns, "k0": key // 3, "k1": texts})))

    found_any = 0
    for sizes in ((0, 5), (5, 0), (1, 1), (200, 300)):
        sides = some(sizes[0]), some(sizes[1])
        found = step._match(Probe(sides[side], step.key_names), side, sides[1 - side])
        if side == 1:
            found = found[::-1]
        pairs = set(zip(found[0].tolist(), found[1].tolist(), strict=True))
        assert len(pairs) == len(found[0])
        expected = {
            (i, j)
            for i, one in enumerate(sides[0].rows.to_pylist())
            for j, two in enumerate(sides[1].rows.to_pylist())
            if one["k0"] == two["k0"] and one["k1"] == two["k1"] is not None
            if -before <= two["stime"] - one["stime"] <= after
        }
        assert pairs == expected
        found_any += len(pairs)
    assert found_any


def test_tuples_are_looked_up_in_what_is_kept_and_never_the_other_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """How much is looked at does not grow with what is kept."""
    random = np.random.default_rng(3)
    step = JoinStep(100, 100, (True, True), ("k0",), (("l0",), ("r0",)))

    def some(count: int) -> OpenRun:
        stime = np.sort(random.integers(0, 100, count))
        key = random.integers(MOST, size=count)
        columns = {"slot": stime // 100 * 100, "hash": key, "stime": stime, "k0": key}
        return OpenRun(sort_rows(pa.table(columns)))

    looked = []
    honest = OpenRun.equal_hashes

    def counted(run: OpenRun, low: int, high: int, wanted: Int64s) -> object:
        looked.append(len(wanted))
        return honest(run, low, high, wanted)

    monkeypatch.setattr(OpenRun, "equal_hashes", counted)
    for kept in (1_000, 100_000):
        step._match(Probe(some(50), ("k0",)), 1, some(kept))
    assert looked == [50, 50]
