"""Pairs of a join go out once both halves are there, each claimed alone."""

from __future__ import annotations

import pytest

from holdfast.core import pairs
from holdfast.core.early_lane import FramesTaken, PublishEarly
from holdfast.core.effects import RunPairs
from holdfast.core.events import OutputBlock, PairsDone, PairsFailed
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.pairs import Base, LookForPairs, PairLane
from holdfast.core.provenance import TIMED, Choice, Claim, Trail
from holdfast.core.settings import Input, Output, ReplicaSettings, Timing
from holdfast.core.stream_copy import FAR_FUTURE, StreamCopy
from tests.core.frames_for_tests import boundary, stable

TIMING = Timing(bucket_us=100, delay_us=1000, retry_us=50)
SIDES = frozenset("xy")
ALONE = TIMED.singly


def pair(name: int, stime: int) -> Claim:
    return Claim(ALONE, name, name + 1, stime)


def early(first_id: int, *stimes: int) -> StreamFrame:
    """Tuples of one source that came early, one for each time."""
    header = Header(Kind.EARLY, 0, len(stimes), min(stimes), max(stimes), max(stimes))
    claim = Claim(Trail(), first_id, first_id + len(stimes), max(stimes))
    return StreamFrame(header, stimes, None, (claim,))


class Bench:
    """A join of ``x``, of which tuples come early, and ``y``; windows of both beside it."""

    def __init__(self) -> None:
        settings = ReplicaSettings(
            "r",
            (Input("x", ("f",), early=True), Input("y", ("e",)), Input("z", ("g",))),
            (
                Output("pairs", SIDES, ("c",), (), ((TIMED, SIDES),), frozenset([TIMED])),
                Output("windows", SIDES, ("c",), (), ((TIMED, SIDES),)),
            ),
            timing=TIMING,
        )
        self.copies = {name: StreamCopy(name) for name in "xyz"}
        self.lane = PairLane(settings, self.copies)

    def take(self, stream: str, *frames: StreamFrame) -> None:
        for frame in frames:
            if frame.header.kind is not Kind.EARLY:
                self.copies[stream].take(frame, 0)
        self.lane.handle(FramesTaken(stream, frames), 0)

    def look(
        self, now: int, position: int = 0, complete: int = 0, wanted: bool = True
    ) -> RunPairs | None:
        bases = {SIDES: Base(position, f"state at {position}")}
        effects = self.lane.handle(LookForPairs(complete, bases, wanted), now)
        self.lane.validate()
        (order,) = effects or (None,)
        assert order is None or isinstance(order, RunPairs)
        return order

    def done(self, order: RunPairs, now: int, *claims: Claim) -> list[PublishEarly]:
        times = [claim.stime_max for claim in claims] or [0]
        block = OutputBlock("pairs", len(claims), 0, min(times), max(times), max(times), "rows")
        effects = self.lane.handle(PairsDone(order.job, (block,), (("pairs", claims),)), now)
        self.lane.validate()
        return [one for one in effects if isinstance(one, PublishEarly)]


def test_what_has_come_is_joined_at_once() -> None:
    bench = Bench()
    assert bench.lane.outputs == ("pairs",)
    assert bench.look(1) is None, "nothing has come"
    bench.take("z", stable(0, 10))
    assert bench.look(1) is None, "nothing has come of the join's inputs"
    bench.take("y", stable(0, 10, 130))
    order = bench.look(5)
    assert order is not None
    assert (order.state, order.start) == ("state at 0", 0)
    assert [(one.stream, one.stime_to) for one in order.slices] == [("y", FAR_FUTURE)]
    assert order.wanted == (("pairs", (ALONE,), ()),)
    bench.take("x", stable(0, 20))
    assert bench.look(6) is None, "one is under way"
    assert bench.done(order, 7) == [], "there are no pairs"
    assert bench.look(8) is None, "others have their turn"
    order = bench.look(20)
    assert order is not None
    assert [one.stream for one in order.slices] == ["x", "y"]
    (published,) = bench.done(order, 22, pair(7, 20), pair(3, 130))
    assert published.frame.header.kind is Kind.EARLY
    assert published.frame.claims == (pair(7, 20), pair(3, 130))
    assert bench.look(90) is None, "there is nothing new"


def test_pairs_are_told_once_and_forgotten_when_the_order_has_passed_them() -> None:
    bench = Bench()
    bench.take("y", stable(0, 10, 130))
    order = bench.look(5)
    assert order is not None
    bench.done(order, 6, pair(7, 20), pair(3, 130))
    bench.take("y", stable(2, 140))
    order = bench.look(50, position=100)
    assert order is not None
    assert order.start == 100
    assert order.wanted == (("pairs", (ALONE,), (pair(3, 130),)),)
    bench.done(order, 51)
    # In complete buckets they are about to come in order.
    bench.take("x", stable(0, 150))
    assert bench.look(90, position=100, complete=200) is None
    assert bench.look(90, position=200) is None
    assert bench.look(90, position=100, wanted=False) is None
    order = bench.look(91, position=100)
    assert order is not None
    assert order.wanted == (("pairs", (ALONE,), ()),), "who comes back is told again"


def test_tuples_that_came_early_are_joined_until_they_are_in_order() -> None:
    bench = Bench()
    bench.take("x", early(0, 110, 120), early(0, 110, 120), early(1, 120, 140))
    order = bench.look(5)
    assert order is not None
    first, second = order.pieces
    assert first.choice is None
    assert second.choice == Choice((Claim(Trail(), 2, 3, 140),), inside=True)
    bench.done(order, 6)
    bench.take("x", stable(0, 110, 120), boundary(2, 130))
    bench.take("y", early(0, 200))
    order = bench.look(50)
    assert order is not None
    assert [(one.stream, one.slices[0].stime_from) for one in order.pieces] == [("x", 130)]
    assert bench.lane.filters["x"].size == 1
    bench.done(order, 51)
    bench.take("x", stable(2, 140), boundary(3, 150))
    order = bench.look(90)
    assert order is not None
    assert order.pieces == ()
    assert bench.lane.filters["x"].size == 0


def test_what_fails_is_tried_again_after_a_while() -> None:
    bench = Bench()
    bench.take("y", stable(0, 10))
    order = bench.look(5)
    assert order is not None
    assert bench.lane.handle(PairsFailed(order.job - 1, "of another life"), 6) == []
    assert bench.look(7) is None
    bench.lane.handle(PairsFailed(order.job, "executor lost"), 8)
    assert bench.look(20) is None
    assert bench.look(60) is not None


def test_what_is_too_much_comes_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    monkeypatch.setattr(pairs, "MOST_TUPLES", 1)
    bench.take("y", stable(0, 10, 20))
    assert bench.look(5) is None
    monkeypatch.setattr(pairs, "MOST_TUPLES", 10)
    monkeypatch.setattr(pairs, "MOST_PAIRS", 2)
    monkeypatch.setattr(pairs, "MOST_PIECES", 2)
    bench.take("x", early(0, 30), early(1, 40), early(2, 50))
    assert bench.look(6) is None, "they are not counted again so soon"
    order = bench.look(106)
    assert order is not None
    assert order.most == 2
    assert [one.slices[0].header.stime_max for one in order.pieces] == [40, 50]
    bench.done(order, 107, pair(1, 30), pair(2, 130))
    bench.take("y", stable(2, 150))
    assert bench.look(190) is None, "it remembers as many as it may"
    assert bench.look(190, position=100) is not None


def test_without_a_state_nothing_is_looked_at() -> None:
    bench = Bench()
    bench.take("y", stable(0, 10))
    assert bench.lane.handle(LookForPairs(0, {}, True), 5) == []
    assert bench.lane.due(LookForPairs(0, {}, True)) == FAR_FUTURE
    assert bench.lane.due(LookForPairs(0, {SIDES: Base(0, None)}, True)) == 0
