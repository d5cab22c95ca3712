from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.frame import Kind
from holdfast.core.messages import StreamFrame
from holdfast.core.patience import REDO_AT_FIRST
from holdfast.core.settings import Timing
from holdfast.core.stream_copy import FAR_FUTURE, StreamCopy
from holdfast.core.sunion import (
    ALONE,
    FramesArrived,
    LiveGone,
    LiveTaken,
    LookAtBuckets,
    Reconciled,
    Release,
    ReleaseChosen,
    ReportFailure,
    RequestReconciliation,
    ResultDue,
    SourceJudged,
    StableTaken,
    SUnion,
    SUnionState,
    WithdrawRequest,
)
from tests.core.frames_for_tests import boundary, mark, stable, tentative

# Buckets of 100, αX = 900.
TIMING = Timing(bucket_us=100, delay_us=1000, alpha=0.9, partial_redo_buckets=30)


def make(eager: bool = True) -> SUnion:
    copies = {name: StreamCopy(name) for name in ("x", "y")}
    return SUnion("a", copies, TIMING, position=0, eager=eager)


def feed(sunion: SUnion, stream: str, now: int, *frames: StreamFrame) -> None:
    for frame in frames:
        sunion.handle(FramesArrived(stream, (frame,)), now)


def fail(sunion: SUnion, release: Release, now: int) -> None:
    assert sunion.handle(LookAtBuckets(), now) == [ReportFailure()]
    sunion.handle(LiveTaken(sunion.stable_position), now)
    sunion.handle(ReleaseChosen(release), now)


def test_a_bucket_is_stable_when_every_boundary_has_passed_it() -> None:
    sunion = make()
    feed(sunion, "x", 10, stable(0, 30), boundary(1, 250))
    assert sunion.stable_target() == 0
    feed(sunion, "y", 20, boundary(0, 199))
    assert sunion.stable_target() == 100
    assert sunion.unstable_inputs(200) == {"y"}


def test_alpha_x_counts_from_the_first_tuple_in_a_bucket() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 100))
    feed(sunion, "x", 500, stable(1, 120))
    assert sunion.next_deadline() == 940
    assert sunion.handle(LookAtBuckets(), 939) == []
    assert sunion.handle(LookAtBuckets(), 940) == [ReportFailure()]
    assert sunion.missing == {"y"}


def test_boundaries_alone_are_never_overdue() -> None:
    sunion = make()
    feed(sunion, "x", 40, boundary(0, 500))
    assert sunion.next_deadline() == FAR_FUTURE
    assert sunion.handle(LookAtBuckets(), 10_000) == []


def test_what_is_overdue_does_not_wait_for_an_input_that_catches_up() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 900))
    fail(sunion, Release.PROCESS, 940)
    assert sunion.live_target(940) == 100
    sunion.handle(LiveTaken(100), 945)
    feed(sunion, "x", 950, stable(1, 930), boundary(2, 1800))
    feed(sunion, "y", 1840, boundary(0, 300))
    assert sunion.live_target(1849) == 300, "y is worth waiting for, bucket by bucket"
    assert sunion.live_target(1850) == 1000, "but it has failed, too"
    sunion.handle(LiveGone(), 1850)
    sunion.handle(LiveTaken(0), 1850)
    assert sunion.live_target(1850) == 300, "what is stable goes first"


def test_a_window_whose_end_was_heard_of_is_overdue_like_a_tuple() -> None:
    sunion = make(eager=False)
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 100))
    feed(sunion, "y", 40, boundary(0, 100))
    sunion.handle(StableTaken(100, keep_from=100), 45)
    sunion.handle(ResultDue(250), 45)
    feed(sunion, "x", 140, boundary(1, 200))
    assert sunion.next_deadline() == FAR_FUTURE, "nobody says that the window is over"
    feed(sunion, "x", 240, boundary(1, 300))
    feed(sunion, "x", 340, boundary(1, 400))
    assert sunion.next_deadline() == 1140
    assert sunion.handle(LookAtBuckets(), 1139) == []
    fail(sunion, Release.DELAY, 1140)
    assert sunion.missing == {"y"}
    assert sunion.live_target(1140) == 300, "the bucket in which it ends, and no further"
    sunion.handle(LiveTaken(300), 1150)
    sunion.handle(ResultDue(FAR_FUTURE), 1150)
    assert sunion.next_deadline() == FAR_FUTURE


def test_a_window_that_is_stable_in_time_is_no_failure() -> None:
    sunion = make()
    sunion.handle(ResultDue(250), 40)
    feed(sunion, "x", 240, boundary(0, 300))
    feed(sunion, "y", 1000, boundary(0, 300))
    assert sunion.handle(LookAtBuckets(), 1140) == []


def test_a_state_that_was_kept_may_have_a_result_at_once() -> None:
    sunion = make()
    sunion.handle(StableTaken(500, keep_from=500), 40)
    sunion.handle(ResultDue(0), 40)
    assert sunion.next_deadline() == FAR_FUTURE
    feed(sunion, "x", 50, boundary(0, 501))
    assert sunion.next_deadline() == 950
    fail(sunion, Release.DELAY, 950)
    assert sunion.live_target(950) == 600


def test_delay_waits_alpha_x_for_every_bucket() -> None:
    sunion = make(eager=False)
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 100))
    feed(sunion, "x", 140, stable(1, 130), boundary(2, 200))
    fail(sunion, Release.DELAY, 940)
    assert sunion.live_target(940) == 100
    sunion.handle(LiveTaken(100), 950)
    assert sunion.live_target(1039) == 100
    assert sunion.live_target(1040) == 200


def test_process_does_not_wait_for_missing_inputs() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 100))
    fail(sunion, Release.PROCESS, 940)
    feed(sunion, "x", 945, boundary(1, 900))
    assert sunion.live_target(945) == 100, "what is overdue goes first"
    sunion.handle(LiveTaken(100), 950)
    assert sunion.live_target(950) == 900


def test_process_waits_for_an_input_that_progresses_again() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 900))
    fail(sunion, Release.PROCESS, 940)
    sunion.handle(LiveTaken(100), 940)
    feed(sunion, "y", 950, boundary(0, 20))
    assert sunion.live_target(950) == 100, "y catches up; give it its αX"


def test_process_waits_for_an_input_that_can_be_had_again() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 900))
    sunion.handle(SourceJudged("y", hopeless=True), 100)
    fail(sunion, Release.PROCESS, 940)
    sunion.handle(LiveTaken(100), 940)
    assert sunion.live_target(945) == 900, "y can be had from nobody"
    sunion.handle(SourceJudged("y", hopeless=False), 950)
    assert sunion.live_target(950) == 100, "y is being fetched; give it its αX"


def test_suspend_takes_nothing() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 900))
    fail(sunion, Release.SUSPEND, 940)
    assert sunion.live_target(5000) == 0


def test_hopeless_tentative_input_is_processed_at_once_when_eager() -> None:
    for eager, expected in ((True, [ReportFailure()]), (False, [])):
        sunion = make(eager)
        feed(sunion, "x", 40, boundary(0, 300))
        feed(sunion, "y", 40, tentative(0, 50), mark(Kind.TENTATIVE_BOUNDARY, 0, 200))
        assert sunion.handle(LookAtBuckets(), 41) == [], "a stable replica may be found"
        sunion.handle(SourceJudged("y", hopeless=True), 42)
        assert sunion.handle(LookAtBuckets(), 42) == expected


def test_a_job_is_stable_or_tentative_as_a_whole() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 800))
    feed(sunion, "y", 40, boundary(0, 20))
    fail(sunion, Release.PROCESS, 940)
    sunion.handle(LiveTaken(100), 941)
    feed(sunion, "y", 941, boundary(0, 350))
    sunion.missing.add("y")
    assert sunion.live_target(941) == 300, "up to there y is stable"


def test_corrected_inputs_ask_for_reconciliation_and_may_take_it_back() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 200))
    fail(sunion, Release.PROCESS, 940)
    sunion.handle(LiveTaken(200), 950)
    feed(sunion, "y", 960, stable(0, 10), boundary(1, 150))
    assert sunion.handle(LookAtBuckets(), 960) == []
    feed(sunion, "y", 970, boundary(1, 260))
    assert sunion.handle(LookAtBuckets(), 970) == [RequestReconciliation()]
    sunion.handle(LiveTaken(500), 980)
    assert sunion.handle(LookAtBuckets(), 980) == [WithdrawRequest()]


def test_a_long_corrected_stretch_is_reconciled_though_newer_buckets_are_not() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 5000))
    fail(sunion, Release.PROCESS, 940)
    sunion.handle(LiveTaken(5000), 950)
    feed(sunion, "y", 960, boundary(0, 3000))
    assert sunion.handle(LookAtBuckets(), 960) == [RequestReconciliation()]
    sunion.handle(StableTaken(3000, 3000), 970)
    sunion.handle(Reconciled(healed=False), 970)
    assert sunion.state is SUnionState.TENTATIVE


def test_slices_lay_tentative_tuples_over_stable_ones() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), boundary(1, 100))
    feed(sunion, "x", 40, tentative(1, 130, 150), mark(Kind.TENTATIVE_BOUNDARY, 1, 200))
    everything = sunion.slices(0, 200, stable_only=False)
    assert [(one.stime_from, one.stime_to) for one in everything] == [(0, 200), (100, 200)]
    assert len(sunion.slices(0, 200, stable_only=True)) == 1


def test_input_is_kept_until_it_will_not_be_read_again() -> None:
    sunion = make()
    feed(sunion, "x", 40, stable(0, 30), stable(1, 130), boundary(2, 200))
    sunion.handle(StableTaken(200, keep_from=100), 50)
    assert len(sunion.copies["x"].stable) == 1
    sunion.handle(StableTaken(200, keep_from=200), 50)
    assert not sunion.copies["x"].stable
    sunion.validate()


class Sized:
    """What has tuples, and says of how many bytes."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


def test_redo_jobs_end_where_they_would_have_too_many_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("holdfast.core.sunion.JOB_BYTES", 100)
    sunion = make()
    for number in range(10):
        for name in ("x", "y"):
            frame = stable(number, 100 * number + 30, 100 * number + 90)
            feed(sunion, name, 40, replace(frame, block=Sized(20 if number < 6 else 200)))
    for name in ("x", "y"):
        feed(sunion, name, 40, boundary(10, 1_000))
    stops = [0]
    while stops[-1] < 1_000:
        stops.append(sunion.redo_stop(sunion.stable_target()))
        found = sunion.slices(stops[-2], stops[-1], stable_only=True)
        size = sum(each.block.nbytes for each in found if isinstance(each.block, Sized))
        assert size <= 100 or stops[-1] - stops[-2] == 100, "a bucket is taken whole"
        sunion.handle(StableTaken(stops[-1], keep_from=stops[-1]), 50)
    assert stops == [0, 200, 400, 600, 700, 800, 900, 1_000]
    assert make().redo_stop(500) == 500


def test_redo_jobs_are_cut_into_pieces_but_skip_empty_time() -> None:
    sunion = make()
    long_ago = 1_000_000
    feed(sunion, "x", 40, stable(0, long_ago), boundary(1, 2 * long_ago))
    feed(sunion, "y", 40, boundary(0, 2 * long_ago))
    stop = sunion.redo_stop(sunion.stable_target())
    assert stop == long_ago + ALONE * TIMING.redo_buckets * TIMING.bucket_us
    sunion.handle(LiveTaken(0), 50)
    stop = sunion.redo_stop(sunion.stable_target())
    assert stop == long_ago + REDO_AT_FIRST * TIMING.bucket_us
