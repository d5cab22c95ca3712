"""Results go out before their bucket is complete, and claim what they are all the results of."""

from __future__ import annotations

from holdfast.core.early_lane import (
    MOST_TUPLES,
    EarlyLane,
    FramesTaken,
    LaneState,
    LookAtPieces,
    PublishEarly,
)
from holdfast.core.effects import EarlyPiece, RunEarly
from holdfast.core.events import EarlyDone, EarlyFailed, OutputBlock
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.provenance import TIMED, Choice, Claim, Trail
from holdfast.core.settings import Input, Output, ReplicaSettings, Timing
from holdfast.core.stream_copy import FAR_FUTURE, StreamCopy
from tests.core.frames_for_tests import boundary, stable

TIMING = Timing(bucket_us=100, delay_us=1000, retry_us=50)
LEFT, RIGHT = Trail(1, 0), Trail(1, 1)


class Bench:
    """The lane of a union of a source ``x`` and a stream ``e``, which has early results itself."""

    def __init__(self) -> None:
        ways = (("x", LEFT), ("e", RIGHT))
        settings = ReplicaSettings(
            "r",
            (
                Input("x", ("ex",)),
                Input("e", ("a", "b"), True, early=True, trails=(LEFT, RIGHT)),
                Input("w", ("ew",)),
            ),
            (
                Output("o", frozenset({"x", "e"}), ("c",), ways),
                Output("p", frozenset({"w"}), ("c",)),
            ),
            timing=TIMING,
        )
        self.copies = {name: StreamCopy(name) for name in ("x", "e", "w")}
        self.lane = EarlyLane(settings, self.copies)

    def take(self, stream: str, *frames: StreamFrame) -> None:
        for frame in frames:
            self.copies[stream].take(frame, 0)
        self.lane.handle(FramesTaken(stream, frames), 0)

    def run(self, now: int, complete: int = 0) -> tuple[EarlyPiece, ...]:
        effects = self.lane.handle(LookAtPieces(complete, wanted=True), now)
        self.lane.validate()
        if not effects:
            return ()
        (order,) = effects
        assert isinstance(order, RunEarly)
        self.job = order.job
        return order.pieces

    def done(self, now: int, count: int = 1, *found: tuple[Claim, ...]) -> list[StreamFrame]:
        block = OutputBlock("o", count, 0, 10, 20, 20, "rows")
        outputs = (block,) if count else ()
        effects = self.lane.handle(EarlyDone(self.job, outputs, found), now)
        self.lane.validate()
        return [one.frame for one in effects if isinstance(one, PublishEarly)]


def early(*claims: Claim, stimes: tuple[int, int] = (10, 20)) -> StreamFrame:
    header = Header(Kind.EARLY, 0, 2, *stimes, stimes[1])
    return StreamFrame(header, "early", None, claims)


def test_what_comes_of_a_source_goes_out_at_once() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10, 20))
    (piece,) = bench.run(5)
    assert piece.claims == (Claim(Trail(), 0, 2, 20),)
    assert piece.choice is None
    (frame,) = bench.done(9)
    assert frame.header == Header(Kind.EARLY, 0, 1, 10, 20, 20)
    assert frame.claims == (Claim(LEFT, 0, 2, 20),)
    # As much time passes as the job took, and a tenth of a bucket at least.
    bench.take("x", stable(0, 10, 20), stable(2, 30))
    assert bench.run(18) == ()
    assert bench.lane.due == 19
    (piece,) = bench.run(19)
    assert piece.claims == (Claim(Trail(), 2, 3, 30),)


def test_frames_behind_a_gap_and_other_streams_are_not_taken() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10))
    bench.lane.handle(FramesTaken("x", (stable(5, 60),)), 0)
    bench.take("w", stable(0, 10))
    bench.take("x", early(Claim(Trail(), 7, 9, 20)))
    assert [one.claims[0].next_id for one in bench.run(0)] == [1]


def test_of_early_frames_the_new_part_is_taken() -> None:
    bench = Bench()
    bench.take("e", early(Claim(LEFT, 0, 4, 20)), early(Claim(LEFT, 0, 4, 20)))
    bench.take("e", early(Claim(LEFT, 2, 6, 20), Claim(RIGHT, 0, 1, 20)))
    first, second = bench.run(0)
    assert (first.choice, first.claims) == (None, (Claim(LEFT, 0, 4, 20),))
    fresh = (Claim(LEFT, 4, 6, 20), Claim(RIGHT, 0, 1, 20))
    assert (second.choice, second.claims) == (Choice(fresh, inside=True), fresh)
    (frame,) = bench.done(1)
    left, right = LEFT.then(RIGHT), RIGHT.then(RIGHT)
    assert frame.claims == (Claim(left, 0, 6, 20), Claim(right, 0, 1, 20))


def test_what_comes_in_order_and_did_not_come_early_is_claimed_tuple_by_tuple() -> None:
    bench = Bench()
    bench.take("e", early(Claim(LEFT, 0, 2, 20)))
    bench.take("e", stable(0, 10, 15, 20, 25))
    (piece,) = bench.run(0)
    assert piece.claims
    bench.done(0)
    # What is looked at is in a frame of its own: nothing is claimed twice there.
    (piece,) = bench.run(50)
    assert piece.claims == ()
    assert piece.choice == Choice((Claim(LEFT, 0, 2, 20),), inside=False)
    assert piece.trails == (LEFT, RIGHT)
    (frame,) = bench.done(50, 1, (Claim(RIGHT, 8, 9, 25),))
    assert frame.claims == (Claim(RIGHT.then(RIGHT), 8, 9, 25),)
    # The order stands for all of that now.
    bench.take("e", boundary(4, 100), early(Claim(LEFT, 0, 2, 20)))
    assert bench.lane.filters["e"].size == 0
    assert bench.run(100) == ()


def test_what_is_about_to_come_in_order_is_not_computed_early() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10, 20), stable(2, 110))
    (piece,) = bench.run(0, complete=100)
    assert piece.claims == (Claim(Trail(), 2, 3, 110),)


def test_nobody_asks_and_nothing_is_computed() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10), stable(1, 110))
    assert bench.lane.handle(LookAtPieces(100, wanted=False), 0) == []
    # Somebody asks: what waits goes out.
    assert [one.claims[0].first_id for one in bench.run(1)] == [1]


def test_claims_without_results_go_with_the_next_frame() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10, 20))
    bench.run(0)
    assert bench.done(0, 0) == []
    bench.take("x", stable(2, 30))
    bench.run(50)
    (frame,) = bench.done(50)
    assert frame.claims == (Claim(LEFT, 0, 3, 30),)


def test_a_job_that_fails_is_tried_again_until_its_bucket_is_complete() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10))
    now = 0
    for pause in (50, 100, 200, 400, 800, 1000, 1000):
        assert len(bench.run(now)) == 1
        bench.lane.handle(EarlyFailed(bench.job, "executor lost"), now)
        bench.lane.validate()
        assert bench.lane.due == now + pause
        now += pause
    assert bench.run(now, complete=100) == ()
    assert bench.lane.due == FAR_FUTURE


def test_what_an_earlier_life_has_ordered_is_not_taken() -> None:
    bench = Bench()
    bench.take("x", stable(0, 10))
    bench.run(1_000)
    block = OutputBlock("o", 1, 0, 10, 20, 20, "rows")
    assert bench.lane.handle(EarlyDone(3, (block,), ()), 1_001) == []
    assert bench.lane.state is LaneState.COMPUTING
    assert len(bench.done(1_002)) == 1


def test_large_jobs_are_cut() -> None:
    bench = Bench()
    many = Header(Kind.STABLE, 0, MOST_TUPLES, 10, 20, 20)
    bench.take("x", StreamFrame(many), stable(MOST_TUPLES, 30))
    assert len(bench.run(0)) == 1
    bench.done(0)
    assert len(bench.run(50)) == 1


class Timed(Bench):
    """A union of a source ``x`` and of ``e``, whose tuples are known by their times."""

    def __init__(self) -> None:
        settings = ReplicaSettings(
            "r",
            (Input("x", ("ex",)), Input("e", ("a", "b"), True, early=True, trails=(TIMED,))),
            (Output("o", frozenset({"x", "e"}), ("c",), (("x", LEFT), ("e", RIGHT))),),
            timing=TIMING,
        )
        self.copies = {name: StreamCopy(name) for name in ("x", "e")}
        self.lane = EarlyLane(settings, self.copies, 0)


def test_tuples_known_by_their_times_go_out_when_the_boundary_passes_them() -> None:
    bench = Timed()
    bench.take("e", stable(0, 10, 20))
    assert bench.run(0) == ()
    bench.take("e", stable(2, 30), boundary(3, 40))
    (piece,) = bench.run(0)
    assert [one.header.first_id for one in piece.slices] == [0, 2]
    assert (piece.claims, piece.count, piece.newest) == ((Claim(TIMED, 0, 40, 39),), 3, 30)
    (frame,) = bench.done(1)
    assert frame.claims == (Claim(TIMED.then(RIGHT), 0, 40, 39),)
    # What has no tuples is claimed with the next that has.
    bench.take("e", boundary(3, 60))
    assert bench.run(100) == ()
    bench.take("e", stable(3, 70), boundary(4, 80))
    assert len(bench.run(100)) == 1
    (frame,) = bench.done(101)
    assert frame.claims == (Claim(TIMED.then(RIGHT), 40, 80, 79),)


def test_times_that_came_early_are_not_claimed_again() -> None:
    bench = Timed()
    bench.take("e", early(Claim(TIMED, 0, 30, 29)))
    bench.take("e", stable(0, 10, 20, 35))
    bench.take("e", early(Claim(TIMED, 0, 60, 59), stimes=(10, 59)))
    bench.take("e", boundary(3, 80))
    claims = [one.claims for one in bench.run(0)]
    assert claims == [
        (Claim(TIMED, 0, 30, 29),),
        (Claim(TIMED, 30, 60, 59),),
        (Claim(TIMED, 60, 80, 79),),
    ]
    # What was taken in order is not taken early any more, and is not remembered.
    assert bench.lane.filters["e"].size == 0
    bench.done(1)
    bench.take("e", early(Claim(TIMED, 30, 90, 89), stimes=(85, 89)))
    (piece,) = bench.run(100)
    assert piece.choice == Choice((Claim(TIMED, 80, 90, 89),), inside=True)
