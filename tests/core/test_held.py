"""Frames held through a failure are found by time, at the price of what is found."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.held import Held, TentativeFrames
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.sunion import LiveTaken, StableTaken, SUnion
from tests.core.frames_for_tests import boundary, stable, tentative
from tests.core.test_sunion import TIMING
from tests.work_counter import Work


def after_a_failure_of(buckets: int) -> SUnion:
    """One input has been stable all the time, the other gone: every bucket is held."""
    sunion = SUnion("a", {name: StreamCopy(name) for name in "xy"}, TIMING, 0, eager=True)
    copy = sunion.copies["x"]
    for bucket in range(buckets):
        start = bucket * 100
        copy.take(stable(2 * bucket, start + 10, start + 50), start)
        copy.take(boundary(2 * bucket + 2, start + 100), start)
    sunion.handle(LiveTaken((buckets - 1) * 100), buckets * 100)
    return sunion


def test_a_live_job_costs_the_same_however_long_the_failure_lasts() -> None:
    costs = []
    for buckets in (100, 10_000):
        sunion, work = after_a_failure_of(buckets), Work()
        with work.counted():
            slices = sunion.slices((buckets - 1) * 100, buckets * 100, stable_only=False)
        assert len(slices) == 1
        costs.append(work.steps)
    assert costs[1] < 2 * costs[0], "a hundred times as much is held"


def client_through_a_failure_of(buckets: int) -> StreamCopy:
    copy = StreamCopy("x")
    for bucket in range(buckets):
        copy.take(tentative(0, bucket * 100 + 10, bucket * 100 + 50), bucket)
    return copy


def test_the_oldest_tentative_tuple_costs_the_same_however_many_are_held() -> None:
    costs = []
    for buckets in (100, 10_000):
        copy, work = client_through_a_failure_of(buckets), Work()
        with work.counted():
            for bucket in range(50):
                assert copy.tentative.oldest == bucket * 100 + 10
                copy.take(stable(2 * bucket, bucket * 100 + 10, bucket * 100 + 50), buckets)
        costs.append(work.steps)
    assert costs[1] < 2 * costs[0], "a hundred times as much is held"


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.integers(0, 30), st.integers(0, 30)),
            st.integers(0, 60),
        )
    )
)
def test_the_oldest_tentative_tuple_is_that_of_looking_at_all(
    steps: list[tuple[int, int] | int],
) -> None:
    held = TentativeFrames()
    for step in steps:
        if isinstance(step, int):
            held.drop_below(step)
        else:
            frame = tentative(0, step[0], sum(step))
            held.append(Held(frame.header, None, 0, 0, 0))
        assert held.oldest == min((one.header.stime_min for one in held), default=None)


def test_a_redo_job_costs_the_same_however_much_is_left_to_redo() -> None:
    costs = []
    for buckets in (100, 10_000):
        sunion, work = after_a_failure_of(buckets), Work()
        sunion.handle(StableTaken(500, 500), buckets * 100)
        with work.counted():
            stop = sunion.redo_stop(buckets * 100)
            slices = sunion.slices(500, 1_000, stable_only=True)
        assert len(slices) == 5
        assert stop > 500
        costs.append(work.steps)
    assert costs[1] < 2 * costs[0], "a hundred times as much is left"


@given(
    frames=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 30), st.integers(0, 15))),
    stretch=st.tuples(st.integers(0, 300), st.integers(1, 100)),
    dropped=st.integers(0, 200),
)
def test_what_is_found_is_what_looking_at_all_frames_finds(
    frames: list[tuple[int, int, int]], stretch: tuple[int, int], dropped: int
) -> None:
    copy = StreamCopy("x")
    held = []
    floor = 0
    for first_id, (late, spread, advance) in enumerate(frames):
        # A frame may be older than the one before, but not than the boundary.
        oldest = floor + late
        frame = stable(2 * first_id, oldest, oldest + spread)
        copy.take(frame, 1)
        held.append(frame.header)
        floor += advance
        copy.take(boundary(2 * first_id + 2, floor), 1)
    start, stop = stretch[0], stretch[0] + stretch[1]
    expected = [one for one in held if one.stime_min < stop and one.stime_max >= start]
    assert [one.header for one in copy.stable.between(start, stop)] == expected
    reaching = [one.stime_min for one in held if one.stime_max >= start]
    assert copy.stable.oldest_from(start) == min(reaching, default=None)
    copy.drop_stable_below(dropped)
    while held and held[0].stime_max < dropped:
        held.pop(0)
    assert [one.header for one in copy.stable] == held
    copy.validate()
