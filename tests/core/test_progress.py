"""A replica that answers and gets nothing done counts as missing, and gives up in the end."""

from __future__ import annotations

from holdfast.core.detector import PeerState
from holdfast.core.effects import EndProcess, RunJob
from holdfast.core.events import JobDone, JobFailed, MessageArrived, TimerFired
from holdfast.core.messages import (
    CopyReply,
    CopyReport,
    CopyRequest,
    CopyState,
    FeedFrames,
    HeartbeatReply,
    StreamReport,
    StreamState,
    Subscribe,
)
from holdfast.core.progress import LONGEST_PAUSE_US, PATIENCE, Progress
from holdfast.core.settings import Timing
from holdfast.core.versions import Line, Running
from tests.core.frames_for_tests import boundary, stable
from tests.core.test_protected import Copy
from tests.core.test_replica import Bench

TIMING = Timing(bucket_us=100_000, delay_us=3_000_000)
BOUND = TIMING.stall_after_us
JOB = Running(7, Line.STABLE, 0, 200_000)


def worked() -> Progress:
    """Of a replica whose first job is over."""
    progress = Progress("r", TIMING)
    progress.look(1, Running(1, Line.STABLE, 0, 100), None)
    progress.done(Line.STABLE)
    return progress


def pass_time(progress: Progress, start: int, us: int, job: Running | None) -> list[str]:
    """Look twice a second; the reasons it gives for ending."""
    reasons = []
    for now in range(start, start + us + 1, 500_000):
        for effect in progress.look(now, job, None):
            assert isinstance(effect, EndProcess)
            reasons.append(effect.reason)
    return reasons


def test_a_job_that_does_not_end_stalls_and_then_ends_the_process() -> None:
    progress = worked()
    assert pass_time(progress, 10, BOUND, JOB) == []
    assert not progress.stalled
    assert pass_time(progress, BOUND + 11, 1_000_000, JOB) == []
    assert progress.stalled
    (reason,) = pass_time(progress, BOUND + 1_000_000, PATIENCE * BOUND, JOB)
    assert "r: the stable job over 0.2 s of the stream has not ended for 3" in reason


def test_a_job_that_ends_after_all_is_forgotten() -> None:
    progress = worked()
    pass_time(progress, 10, 2 * BOUND, JOB)
    assert progress.stalled
    progress.look(2 * BOUND + 20, Running(8, Line.STABLE, 200_000, 400_000), None)
    assert not progress.stalled


def test_a_job_over_much_stream_may_take_as_long_as_the_stream() -> None:
    progress = worked()
    pass_time(progress, 10, 4 * BOUND, Running(7, Line.STABLE, 0, 10 * BOUND))
    assert not progress.stalled


def test_the_first_job_has_time_for_an_engine_to_start() -> None:
    progress = Progress("r", TIMING)
    assert pass_time(progress, 10, 4 * BOUND, JOB) == []
    assert not progress.stalled


def test_an_append_that_does_not_end_stalls() -> None:
    progress = worked()
    for now in range(10, 2 * BOUND, 500_000):
        progress.look(now, None, 3)
    assert progress.stalled
    progress.look(2 * BOUND, None, None)
    assert not progress.stalled


def test_time_during_which_the_process_did_not_run_does_not_count() -> None:
    progress = worked()
    pass_time(progress, 10, 1_000_000, JOB)
    assert progress.look(1_000_000 + 100 * BOUND, JOB, None) == []
    assert not progress.stalled


def test_failures_of_the_engine_end_the_process_after_some_attempts() -> None:
    bench = Bench()
    bench.feed("x", stable(0, 30), boundary(1, 100))
    bench.feed("y", boundary(0, 100))
    pauses = []
    for attempt in range(5):
        job = bench.the(RunJob)
        bench.give(JobFailed(job.job, "the executor is lost"))
        ended = [effect for effect in bench.effects if isinstance(effect, EndProcess)]
        assert bool(ended) == (attempt == 4)
        failed_at = bench.now
        while attempt < 4 and not any(isinstance(one, RunJob) for one in bench.effects):
            bench.now += 10_000
            bench.give(TimerFired())
        pauses.append(bench.now - failed_at)
    assert pauses == [100_000, 200_000, 400_000, 800_000, 0]
    assert "failed 5 times: the executor is lost" in ended[0].reason


def test_a_full_disk_ends_nobody_and_room_is_noticed_soon() -> None:
    progress = worked()
    for attempt in range(1, 60):
        at = progress.failed(JobFailed(JOB.job, "no space left", no_room=True), JOB, 1_000)
        assert progress.look(1_000, None, None) == []
        assert progress.stalled == (attempt >= TIMING.job_attempts)
        assert at <= 1_000 + 1_000_000
    progress.done(Line.STABLE)
    assert not progress.stalled


def test_what_the_query_s_own_code_raises_is_named_and_tried_now_and_then() -> None:
    progress = worked()
    for attempt in range(1, 8):
        at = progress.failed(JobFailed(JOB.job, "ValueError: no", user_code=True), JOB, 1_000)
        assert progress.look(1_000, None, None) == []
        assert progress.stalled == (attempt >= TIMING.job_attempts)
    assert at == 1_000 + LONGEST_PAUSE_US
    (trouble,) = progress.view().troubles
    assert (trouble.start, trouble.stop, trouble.attempts) == (0, 200_000, 7)
    progress.done(Line.STABLE)
    assert not progress.view().troubles
    assert not progress.stalled


def test_the_other_copy_wakes_when_the_primary_gets_nothing_done() -> None:
    """It answers every heartbeat."""
    copy = Copy("b")
    primary = CopyReport(0, CopyState.PRIMARY, 500, 500, True)
    copy.hear("a", CopyRequest(primary))
    assert copy.driver.replica is None
    stalled = CopyReport(0, CopyState.PRIMARY, 500, 500, True, stalled=True)
    for _ in range(6):
        copy.give(TimerFired(), 100_000)
        copy.hear("a", CopyReply(stalled), 1_000)
    assert copy.driver.report().state is CopyState.AWAKE
    assert copy.driver.others["a"].detector.state is PeerState.DOWN
    # Answers that say so do not keep it from taking over for good, either.
    for _ in range(60):
        copy.give(TimerFired(), 100_000)
        copy.hear("a", CopyReply(stalled), 1_000)
    assert copy.driver.report().state is CopyState.PRIMARY


def test_a_primary_says_that_it_is_stalled_and_when_it_is_no_more() -> None:
    copy = Copy("a")
    copy.hear("b", CopyReply(CopyReport(0, CopyState.SUSPENDED, -1, -1, False)))
    replica = copy.driver.replica
    assert replica is not None
    replica.progress.done(Line.STABLE)
    report = StreamReport("in", StreamState.STABLE, 0, 0)
    (subscribe,) = copy.hear("entry", HeartbeatReply((report,), ()))
    assert isinstance(subscribe, Subscribe)
    frames = FeedFrames(subscribe.feed, 0, (stable(0, 30), boundary(1, 100)))
    effects = copy.give(MessageArrived("entry", frames))
    (job,) = [one for one in effects if isinstance(one, RunJob)]
    for _ in range(40):
        copy.give(TimerFired(), 100_000)
    assert copy.driver.report().stalled
    copy.give(JobDone(job.job, "S1", 0, ()))
    assert not copy.driver.report().stalled
