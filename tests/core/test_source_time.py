"""A source's own time: boundaries of lanes, and what is late, idle, ahead."""

from __future__ import annotations

from itertools import pairwise
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.source_time import FAR, SourceTime, TimeSettings, TimeVerdict

SECOND = 1_000_000
BUCKET = 200_000


def source(**settings: int | None) -> SourceTime:
    return SourceTime(TimeSettings(BUCKET, **settings))  # type: ignore[arg-type]


def test_the_boundary_is_the_newest_row_less_the_lateness_down_to_a_bucket() -> None:
    time = source(lateness_us=SECOND)
    assert time.judge("p", 10 * SECOND + 50_000, 0) is TimeVerdict.IN_TIME
    assert time.boundary == 9 * SECOND
    assert time.judge("p", 9 * SECOND, 0) is TimeVerdict.IN_TIME
    assert time.judge("p", 9 * SECOND - 1, 0) is TimeVerdict.LATE
    assert time.boundary == 9 * SECOND


def test_a_row_too_far_ahead_of_the_clock_moves_nothing() -> None:
    time = source(future_limit_us=60 * SECOND)
    assert time.judge("p", 70 * SECOND, 10 * SECOND) is TimeVerdict.IN_TIME
    assert time.judge("p", 70 * SECOND + 1, 10 * SECOND) is TimeVerdict.FUTURE
    assert time.boundary == 70 * SECOND
    off = source()
    assert off.judge("p", 10**15, 0) is TimeVerdict.IN_TIME


def test_the_least_of_all_lanes_counts() -> None:
    time = source()
    time.open("a", 0)
    time.open("b", 0)
    assert time.judge("a", 10 * SECOND, 0) is TimeVerdict.IN_TIME
    assert time.boundary < 0  # b has said nothing yet
    assert time.judge("b", 4 * SECOND, 0) is TimeVerdict.IN_TIME
    assert time.boundary == 4 * SECOND
    assert time.judge("b", 6 * SECOND, 0) is TimeVerdict.IN_TIME
    assert time.judge("a", 6 * SECOND, 0) is TimeVerdict.IN_TIME
    assert time.judge("a", 6 * SECOND - 1, 0) is TimeVerdict.LATE


def test_a_promise_moves_the_boundary_without_a_row() -> None:
    time = source(lateness_us=5 * SECOND)
    time.judge("p", 10 * SECOND, 0)
    time.promise("p", 10 * SECOND + 1, 0)
    assert time.boundary == 10 * SECOND
    time.promise("p", 2 * SECOND, 0)
    assert time.boundary == 10 * SECOND


def test_who_is_quiet_while_others_speak_holds_nobody_back() -> None:
    time = source(lane_idle_us=SECOND)
    time.judge("a", 0, 0)
    time.judge("b", 0, 0)
    for now in range(0, 3 * SECOND, 100_000):
        time.judge("a", now, now)
        time.tick(now)
    assert time.idle == ["b"]
    assert time.boundary == 2_800_000
    assert time.judge("b", 1_000_000, 3 * SECOND) is TimeVerdict.LATE
    assert time.judge("b", 2_900_000, 3 * SECOND) is TimeVerdict.IN_TIME
    assert time.idle == []


def test_nobody_is_idle_while_all_are_quiet_unless_the_user_said_so() -> None:
    time = source(lane_idle_us=SECOND)
    time.judge("a", 0, 0)
    time.judge("b", 0, 0)
    time.tick(100 * SECOND)
    assert (time.idle, time.boundary) == ([], 0)
    # Who speaks first after that gives the others their time.
    time.judge("a", 50 * SECOND, 100 * SECOND)
    time.tick(100 * SECOND + 900_000)
    assert time.idle == []
    assert time.judge("b", 1 * SECOND, 100 * SECOND + 900_000) is TimeVerdict.IN_TIME


def test_a_quiet_source_goes_on_with_the_clock_without_a_jump() -> None:
    time = source(idle_after_us=2 * SECOND, lateness_us=SECOND)
    time.judge("p", 10 * SECOND, 10 * SECOND)
    time.tick(11 * SECOND)
    assert time.boundary == 9 * SECOND
    boundaries = []
    for now in range(12 * SECOND, 20 * SECOND, 100_000):
        time.tick(now)
        boundaries.append(time.boundary)
    assert boundaries[0] == 9 * SECOND
    assert all(0 <= later - b <= BUCKET for b, later in pairwise(boundaries))
    assert time.boundary == 16_800_000
    # A fresh row is in time, one older than the boundary is not.
    assert time.judge("p", 19 * SECOND, 20 * SECOND) is TimeVerdict.IN_TIME
    assert time.judge("p", 16 * SECOND, 20 * SECOND) is TimeVerdict.LATE


def test_time_in_which_nothing_could_be_heard_is_nobodys_silence() -> None:
    time = source(idle_after_us=2 * SECOND)
    time.judge("p", 0, 0)
    time.excuse(30 * SECOND)
    time.tick(31 * SECOND)
    assert time.idle == []
    time.tick(32 * SECOND)
    assert time.idle == ["p"]


def test_a_boundary_of_an_earlier_life_stands() -> None:
    time = SourceTime(TimeSettings(BUCKET, SECOND), 5 * SECOND)
    time.forbid_before(6 * SECOND)
    time.open("p", 0, newest=8 * SECOND, promised=-FAR)
    assert time.judge("p", 6 * SECOND - 1, 0) is TimeVerdict.LATE
    assert time.judge("p", 7 * SECOND, 0) is TimeVerdict.IN_TIME
    assert time.boundary == 7 * SECOND


@given(st.integers(0, 2**32), st.integers(1, 3), st.integers(0, 3 * SECOND))
def test_any_order_within_the_lateness_loses_nothing(seed: int, lanes: int, lateness: int) -> None:
    """Rows displaced by up to the lateness, on any number of lanes: the boundary is kept."""
    random = Random(seed)
    time = source(lateness_us=lateness)
    stamps = [random.randrange(20 * SECOND) for _ in range(200)]
    arriving = sorted(stamps, key=lambda stime: stime + random.randrange(lateness + 1))
    for name in range(lanes):
        time.open(str(name), 0)
    before = time.boundary
    for stime in arriving:
        assert stime >= time.boundary
        assert time.judge(str(random.randrange(lanes)), stime, 0) is TimeVerdict.IN_TIME
        assert time.boundary >= before
        before = time.boundary
    in_order = source(lateness_us=lateness)
    for stime in sorted(stamps):
        in_order.judge("p", stime, 0)
    if lanes == 1:
        assert time.boundary == in_order.boundary
    for name in range(lanes):
        time.promise(str(name), 20 * SECOND, 0)
    assert time.boundary == 20 * SECOND


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.integers(0, 3))))
def test_a_boundary_never_goes_back_and_is_never_broken(steps: list[tuple[str, int, int]]) -> None:
    """Whatever comes, and whatever the clock says: what is in time is above every boundary."""
    time = source(idle_after_us=3, lateness_us=2, future_limit_us=10)
    time.settings = TimeSettings(2, 2, 3, None, 10)
    now, highest = 0, -FAR
    for lane, stime, passed in steps:
        now += passed
        time.tick(now)
        highest = max(highest, time.boundary)
        verdict = time.judge(lane, stime, now)
        assert (verdict is TimeVerdict.FUTURE) == (stime > now + 10)
        if verdict is TimeVerdict.IN_TIME:
            assert stime >= highest
        assert time.boundary >= highest
        highest = time.boundary
