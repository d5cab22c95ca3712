"""Of what replicas send in any order each result passes once; memory is that of the holes."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.duplicates import Duplicates, Intervals

PEERS = st.sampled_from(["a", "b", "c"])
RANGES = st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda at: (at[0], at[0] + at[1]))


@given(st.lists(RANGES, max_size=30), RANGES, st.integers(0, 40))
def test_intervals_are_a_set(
    ranges: list[tuple[int, int]], asked: tuple[int, int], at: int
) -> None:
    intervals, model = Intervals(), set[int]()
    for first, end in ranges:
        intervals.add(first, end)
        model |= set(range(first, end))
    listed = list(intervals)
    assert {one for first, end in listed for one in range(first, end)} == model
    assert all(end < first for (_, end), (first, _) in pairwise(listed))
    missing = [one for first, end in intervals.missing(*asked) for one in range(first, end)]
    assert missing == [one for one in range(*asked) if one not in model]
    intervals.drop_below(at)
    assert {one for first, end in intervals for one in range(first, end)} == {
        one for one in model if one >= at
    }


@st.composite
def arrivals(draw: st.DrawFn) -> list[tuple[str, str, tuple[int, int]]]:
    """Ranges from replicas, in any order, some again; and how far the ordered stream is."""
    steps = st.one_of(
        st.tuples(PEERS, st.sampled_from(["x", "y"]), RANGES),
        st.tuples(st.just(""), st.sampled_from(["x", "y"]), RANGES),
    )
    return draw(st.lists(steps, max_size=40))


@given(arrivals())
def test_each_tuple_passes_once_and_at_once(
    steps: list[tuple[str, str, tuple[int, int]]],
) -> None:
    filters = Duplicates()
    passed: set[tuple[str, int]] = set()
    floors = {"x": 0, "y": 0}
    for peer, origin, (first, end) in steps:
        if peer:
            new = filters.arrived(peer, origin, first, end)
            expected = set(range(max(first, floors[origin]), end))
        else:
            new = filters.complete_below(origin, end)
            expected = set(range(floors[origin], end))
            floors[origin] = max(floors[origin], end)
        fresh = {(origin, one) for begin, stop in new for one in range(begin, stop)}
        assert len(fresh) == sum(stop - begin for begin, stop in new)
        # Never twice, and whatever had not passed does so now.
        assert fresh == {(origin, one) for one in expected} - passed
        passed |= fresh
    for origin, floor in floors.items():
        assert all(one in passed for one in ((origin, each) for each in range(floor)))


@given(st.permutations(range(12)), st.permutations(range(12)), st.integers(1, 5))
def test_ranks_are_those_of_single_tuples(one: list[int], other: list[int], size: int) -> None:
    filters = Duplicates()
    brought: dict[int, set[str]] = {}
    expected = {"a": Fraction(0), "b": Fraction(0)}
    for turn in range(12):
        for peer, order in (("a", one), ("b", other)):
            first, end = order[turn], order[turn] + size
            filters.arrived(peer, "x", first, end)
            for each in range(first, end):
                before = brought.setdefault(each, set())
                if peer not in before:
                    before.add(peer)
                    expected[peer] += Fraction(1, len(before))
    for peer, weight in expected.items():
        assert abs(filters.weights[peer] - weight) < 1e-9


def test_a_replica_far_behind_costs_nothing() -> None:
    filters = Duplicates()
    filters.arrived("slow", "x", 0, 10)
    for at in range(10, 100_000, 10):
        # Two that are well send every other piece first; the ordered stream follows.
        for peer, back in (("a", 0), ("b", 10)):
            filters.arrived(peer, "x", at - back, at - back + 10)
        filters.complete_below("x", at - 100)
        assert filters.size <= 5
    assert filters.arrived("slow", "x", 10, 50_000) == ()
    assert filters.weights["slow"] == 10
    filters.forget("slow")
    assert filters.arrived("a", "x", 99_990, 100_010) == ((100_000, 100_010),)


def test_holes_are_what_is_remembered() -> None:
    filters = Duplicates()
    for first in range(0, 100, 2):
        assert filters.arrived("a", "x", first, first + 1) == ((first, first + 1),)
    assert filters.size == 100
    assert filters.arrived("b", "x", 0, 100) == tuple((odd, odd + 1) for odd in range(1, 100, 2))
    assert filters.size == 1 + 50 + 1
