"""Why a result is tentative: what it lacks, since when, and on how much it rests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.effects import RunJob, Send
from holdfast.core.events import JobFailed, TimerFired
from holdfast.core.frame import Kind, Missing, Why
from holdfast.core.messages import FeedFrames, StreamFrame
from holdfast.core.settings import SECOND_US
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.why import Basis
from tests.core.frames_for_tests import boundary, mark, stable, tentative
from tests.core.test_replica import Bench, block


def usual(bench: Bench, *, x: int, y: int) -> None:
    """One stable bucket with so many tuples of each input."""
    bench.subscribe()
    bench.feed("x", stable(0, *range(x)), boundary(x, 100))
    bench.feed("y", stable(0, *range(y)), boundary(y, 100))
    bench.finish(bench.the(RunJob), "S1", 0, block("o", 10))


def sent(bench: Bench, stream: int) -> list[StreamFrame]:
    """The frames that went out on ``o`` (0) or ``p`` (1)."""
    return [
        frame
        for effect in bench.effects
        if isinstance(effect, Send) and isinstance(effect.message, FeedFrames)
        if effect.message.feed == stream
        for frame in effect.message.frames
    ]


def fail(bench: Bench, *stimes: int) -> RunJob:
    first_id = bench.replica.copies["x"].next_id
    bench.feed("x", stable(first_id, *stimes), boundary(first_id + len(stimes), 200))
    bench.now += 900
    bench.give(TimerFired())
    return bench.the(RunJob)


def test_tentative_frames_name_what_is_missing_since_when_and_the_share() -> None:
    bench = Bench()
    usual(bench, x=30, y=10)
    job = fail(bench, *range(100, 130))
    bench.finish(job, "L1", 0, block("o", 130), block("p", 130))
    found = sent(bench, 0)
    assert [frame.header.kind for frame in found] == [Kind.TENTATIVE, Kind.TENTATIVE_BOUNDARY]
    assert {frame.why for frame in found} == {Why((Missing("y", 100),), 0.75)}
    assert all(frame.why is None for frame in sent(bench, 1)), "p does not hang on y"
    assert bench.replica.soutputs["o"].why == Why((Missing("y", 100),), 0.75)
    assert bench.replica.soutputs["p"].why is None


def test_a_job_that_is_tried_again_counts_once() -> None:
    bench = Bench()
    usual(bench, x=30, y=30)
    job = fail(bench, *range(100, 130))
    bench.give(JobFailed(job.job, "no reason"))
    bench.now += 1_000_000
    bench.give(TimerFired())
    bench.finish(bench.the(RunJob), "L1", 0, block("o", 130))
    assert sent(bench, 0)[0].why == Why((Missing("y", 100),), 0.5)


def test_what_was_missing_stays_named_while_the_live_state_lacks_it() -> None:
    copies = {"x": StreamCopy("x"), "y": StreamCopy("y")}
    basis = Basis(copies)
    copies["x"].take(boundary(0, 300), 1)
    copies["y"].take(boundary(0, 100), 1)
    basis.live_begins(100, 200, ())
    basis.live_done()
    copies["y"].take(boundary(0, 300), 2)
    basis.live_begins(200, 300, ())
    basis.live_done()
    assert basis.why(("x", "y")).missing == (Missing("y", 100),)
    basis.live_ended()
    assert basis.why(("x", "y")).missing == ()


def test_tentative_input_passes_on_what_it_lacks_itself() -> None:
    copies = {"x": StreamCopy("x"), "y": StreamCopy("y")}
    basis = Basis(copies)
    said = Why((Missing("deep", 40),), 0.5)
    copies["x"].take(boundary(0, 200), 1)
    for frame in (tentative(0, 110, 120), mark(Kind.TENTATIVE_BOUNDARY, 2, 200)):
        copies["y"].take(replace(frame, why=said), 1)
    basis.live_begins(100, 200, ())
    basis.live_done()
    assert basis.why(("x", "y")) == Why((Missing("deep", 40),), None)


def test_a_stream_that_is_tentative_and_then_gone_is_named_with_what_it_lacked() -> None:
    copies = {"y": StreamCopy("y")}
    basis = Basis(copies)
    mark_ = mark(Kind.TENTATIVE_BOUNDARY, 0, 200)
    copies["y"].take(replace(mark_, why=Why((Missing("deep", 40),), 0.5)), 1)
    basis.live_begins(100, 300, ())
    basis.live_done()
    assert basis.why(("y",)).missing == (Missing("deep", 40), Missing("y", 200))


def test_nobody_knows_the_share_before_anything_was_usual() -> None:
    bench = Bench()
    bench.subscribe()
    bench.feed("x", stable(0, 30), boundary(1, 100))
    bench.now += 900
    bench.give(TimerFired())
    bench.finish(bench.the(RunJob), "L1", 0, block("o", 30))
    assert sent(bench, 0)[0].why == Why((Missing("y", 0),), None)


YEARS_US = 50 * 365 * 24 * 3600 * SECOND_US


@pytest.mark.parametrize("pause_us", [0, 10 * SECOND_US, 6 * 3600 * SECOND_US])
def test_the_time_before_the_first_tuple_is_not_usual(pause_us: int) -> None:
    """A replica's first job begins in 1970, and a stream may be quiet for a night."""
    bench = Bench()
    bench.subscribe()
    start = YEARS_US
    if pause_us:
        bench.feed("x", boundary(0, start))
        bench.feed("y", boundary(0, start))
        bench.finish(bench.the(RunJob), "S0", 0)
    start += pause_us
    for name in ("x", "y"):
        times = range(start, start + 1000, 100)
        bench.feed(name, stable(0, *times), boundary(10, start + 1000))
    bench.finish(bench.the(RunJob), "S1", 0, block("o", start))
    bench.feed("x", stable(10, *range(start + 1000, start + 2000, 100)), boundary(20, start + 2000))
    bench.now += 9000
    bench.give(TimerFired())
    bench.finish(bench.the(RunJob), "L1", 0, block("o", start + 1000))
    assert sent(bench, 0)[-1].why == Why((Missing("y", start + 1000),), 0.5)


def test_a_share_is_a_share() -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        Why((), 1.5)
