"""The stand-in keeps the engine's contract."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.simulation.executor import (
    Computation,
    Distinct,
    Join,
    Operator,
    Row,
    Tagged,
    Union,
    Window,
)

OPERATORS: dict[str, Operator] = {
    "union": Union(("x", "y"), dropped_key=1),
    "window": Window(("x", "y"), 70),
    "distinct": Distinct(("x", "y"), 70),
    "join": Join(("x", "y"), 40),
}


def rows(draw: list[tuple[int, bool, int]]) -> list[Tagged]:
    return [
        (stime, "x" if left else "y", number, key, number, number)
        for number, (stime, left, key) in enumerate(draw)
    ]


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=60, deadline=None)
@given(
    drawn=st.lists(st.tuples(st.integers(0, 999), st.booleans(), st.integers(0, 2)), max_size=40),
    cuts=st.sets(st.integers(1, 999), max_size=8),
)
def test_several_buckets_at_once_give_the_same_as_one_at_a_time(
    name: str, drawn: list[tuple[int, bool, int]], cuts: set[int]
) -> None:
    plan = Computation((("o", OPERATORS[name]),))
    everything = rows(drawn)
    _, at_once, _ = plan.advance(None, list(everything), 0, 1000)
    state: object = None
    piecewise: list[Row] = []
    start = 0
    for stop in [*sorted(cuts), 1000]:
        part = [row for row in everything if start <= row[0] < stop]
        state, results, _ = plan.advance(state, part, start, stop)
        assert all(start <= row[0] < stop for row in results["o"])
        piecewise += results["o"]
        start = stop
    assert piecewise == at_once["o"]


@pytest.mark.parametrize("name", OPERATORS)
@settings(max_examples=60, deadline=None)
@given(
    drawn=st.lists(st.tuples(st.integers(0, 999), st.booleans(), st.integers(0, 2)), max_size=40),
    cut=st.integers(1, 999),
)
def test_the_state_can_be_rebuilt_from_the_input_since_the_marker(
    name: str, drawn: list[tuple[int, bool, int]], cut: int
) -> None:
    plan = Computation((("o", OPERATORS[name]),))
    everything = rows(drawn)
    state, _, marker = plan.advance(None, [row for row in everything if row[0] < cut], 0, cut)
    assert marker <= cut
    since = [row for row in everything if marker <= row[0] < cut]
    rebuilt, _, _ = plan.advance(None, since, marker, cut)
    later = [row for row in everything if row[0] >= cut]
    assert (
        plan.advance(rebuilt, list(later), cut, 1000)[1]
        == plan.advance(state, list(later), cut, 1000)[1]
    )


def test_a_partner_just_so_far_away_counts_at_the_very_end_of_a_bucket() -> None:
    join = Join(("x", "y"), 40)
    old, new = (60, "x", 0, 1, 7, 0), (100, "y", 1, 1, 8, 1)
    state, results, _ = join.advance(None, [old], 0, 100)
    assert results == []
    _, results, _ = join.advance(state, [new], 100, 200)
    _, whole, _ = join.advance(None, [old, new], 0, 200)
    assert results == whole
    assert len(whole) == 1
