"""Of what replicas send in any order each result passes once; memory is that of the holes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.duplicates import DuplicateFilter, Intervals
from holdfast.core.provenance import TIMED, Choice, Claim, Trail

RANGES = st.tuples(st.integers(0, 30), st.integers(1, 8)).map(lambda at: (at[0], at[0] + at[1]))
TRAILS = (Trail(1, 0), Trail(2, 1), Trail(2, 3))


def claim(trail: Trail, first: int, end: int) -> Claim:
    """Of tuples whose time is their id."""
    return Claim(trail, first, end, end - 1)


@given(st.lists(RANGES, max_size=30), RANGES, st.integers(0, 40))
def test_intervals_are_a_set(
    ranges: list[tuple[int, int]], asked: tuple[int, int], at: int
) -> None:
    intervals, model = Intervals(), set[int]()
    for first, end in ranges:
        intervals.add(first, end, end - 1)
        model |= set(range(first, end))
    listed = list(intervals)
    assert {one for first, end, _ in listed for one in range(first, end)} == model
    assert all(end < first for (_, end, _), (first, _, _) in pairwise(listed))
    assert all(newest == end - 1 for _, end, newest in listed)
    missing = [one for first, end in intervals.missing(*asked) for one in range(first, end)]
    assert missing == [one for one in range(*asked) if one not in model]
    intervals.forget_before(at)
    assert list(intervals) == [one for one in listed if one[2] >= at]


STEPS = st.lists(
    st.one_of(
        # An early frame of some replica, of any cut.
        st.lists(st.tuples(st.sampled_from(TRAILS), RANGES), min_size=1, max_size=3),
        # The stream in order goes on by some times.
        st.integers(1, 6),
    ),
    max_size=40,
)


@given(STEPS)
def test_each_result_passes_once_early_or_in_order(
    steps: list[list[tuple[Trail, tuple[int, int]]] | int],
) -> None:
    """A tuple's time is its id here, and each trail has a result of every second one."""
    filters = DuplicateFilter()
    passed: set[int] = set()
    cut = 0
    for step in steps:
        if isinstance(step, int):
            choice = filters.left()
            due = {
                trail.seq(one)
                for trail in TRAILS
                for one in range(cut, cut + step)
                if one % 2 == trail.suffix % 2
            }
            fresh = {seq for seq in due if choice is None or choice.takes(seq, 0)}
            # What is not chosen has passed, and nothing else has.
            assert due - fresh == due & passed
            cut += step
        else:
            claims = filters.take(claim(trail, *ids) for trail, ids in step)
            named = [
                (one.trail, each) for one in claims for each in range(one.first_id, one.next_id)
            ]
            assert len(set(named)) == len(named)
            fresh = {
                trail.seq(one) for trail, one in named if one >= cut and one % 2 == trail.suffix % 2
            }
        assert not fresh & passed
        passed |= fresh
        filters.forget_before(cut)
        assert all(one.stime_max >= cut for one in filters.passed)
    for trail in TRAILS:
        assert {trail.seq(one) for one in range(cut) if one % 2 == trail.suffix % 2} <= passed


COUNT = 30


@given(st.permutations(range(COUNT)), STEPS)
def test_times_need_not_follow_the_ids(
    times: list[int], steps: list[list[tuple[Trail, tuple[int, int]]] | int]
) -> None:
    """Tuples of a source that brings its own time, in disorder; frames come again and overlap."""
    filters, trail = DuplicateFilter(), TRAILS[0]
    passed: list[int] = []
    cut = 0
    # Whoever sends knows the tuples it claims; the newest of them is the claim's time.
    for step in [*steps, COUNT]:
        if isinstance(step, int):
            choice = filters.left()
            due = [one for one in range(COUNT) if cut <= times[one] < cut + step]
            fresh = [
                one for one in due if choice is None or choice.takes(trail.seq(one), times[one])
            ]
            cut += step
        else:
            known = [range(first, min(end, COUNT)) for _, (first, end) in step if first < COUNT]
            claims = [
                Claim(trail, ids[0], ids[-1] + 1, max(times[one] for one in ids)) for ids in known
            ]
            # As a client does: what is older than the order as a whole is not looked at.
            new = filters.take(one for one in claims if one.stime_max >= cut)
            named = [one for each in new for one in range(each.first_id, each.next_id)]
            fresh = [one for one in named if times[one] >= cut]
        assert not set(fresh) & set(passed)
        passed += fresh
        filters.forget_before(cut)
        assert all(one.stime_max >= cut for one in filters.passed)
        assert filters.size <= COUNT // 2 + 1
    assert sorted(passed) == list(range(COUNT))


# Pairs: of every time there are two, named by it.
def pairs_of(stime: int) -> list[tuple[int, int]]:
    return [(1_000 + 7 * stime, stime), (5_000 + 3 * stime, stime)]


PAIR_STEPS = st.lists(
    st.one_of(
        # Some pairs, each alone.
        st.lists(st.tuples(st.integers(0, 30), st.integers(0, 1)), min_size=1, max_size=6),
        # All results of some times.
        RANGES,
        # The stream in order goes on by some times.
        st.integers(1, 6),
    ),
    max_size=40,
)


@given(PAIR_STEPS)
def test_pairs_pass_once_alone_or_by_their_times_or_in_order(
    steps: list[list[tuple[int, int]] | tuple[int, int] | int],
) -> None:
    filters, trail = DuplicateFilter(), TIMED.then(Trail(1, 1))
    passed: set[tuple[int, int]] = set()
    cut = 0
    for step in steps:
        if isinstance(step, int):
            rows = [row for stime in range(cut, cut + step) for row in pairs_of(stime)]
            choice = filters.left()
            cut += step
        else:
            alone = filters.alone
            claims: tuple[Claim, ...]
            if isinstance(step, tuple):
                claims = (Claim(trail, *step, step[1] - 1),)
                rows = [row for stime in range(*step) for row in pairs_of(stime) if stime >= cut]
            else:
                rows = [row for at, which in set(step) if at >= cut for row in pairs_of(at)[which:]]
                rows = list(dict.fromkeys(rows))
                claims = tuple(
                    Claim(trail.singly, name << 1 | 1, (name << 1 | 1) + 1, stime)
                    for name, stime in rows
                )
            fresh = filters.take(claims)
            choice = Choice(fresh, inside=True, but=alone)
        came = {row for row in rows if choice is None or choice.takes(row[0] << 1 | 1, row[1])}
        # Exactly what had not passed.
        assert came == set(rows) - passed
        passed |= came
        filters.forget_before(cut)
        assert all(one.stime_max >= cut for one in filters.passed)
    assert {row for stime in range(cut) for row in pairs_of(stime)} <= passed


def test_a_replica_far_behind_costs_nothing() -> None:
    filters, trail = DuplicateFilter(), Trail(1, 1)
    for at in range(0, 100_000, 10):
        # Two that are well send every other piece first; the order stands still for long.
        for first in (at, max(0, at - 10)):
            filters.take([claim(trail, first, first + 10)])
        assert filters.size == 1
    assert filters.take([claim(trail, 10, 50_000)]) == ()
    filters.forget_before(99_999)
    assert filters.size == 1
    filters.forget_before(100_000)
    assert filters.size == 0
    assert filters.left() is None


def test_holes_are_what_is_remembered() -> None:
    filters, trail = DuplicateFilter(), Trail()
    for first in range(0, 100, 2):
        new = claim(trail, first, first + 1)
        assert filters.take([new]) == (new,)
    assert filters.size == 50
    rest = filters.take([claim(trail, 0, 100)])
    assert [(one.first_id, one.next_id) for one in rest] == [
        (odd, odd + 1) for odd in range(1, 100, 2)
    ]
    assert filters.size == 1
