"""A replica with an early lane, with the test as its runtime."""

from __future__ import annotations

from holdfast.core.beginning import EMPTY_RECORD, Beginning
from holdfast.core.effects import Effect, RunEarly, Send
from holdfast.core.events import EarlyDone, Event, MessageArrived, OutputBlock, Started, TimerFired
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.messages import (
    FeedFrames,
    HeartbeatReply,
    StreamReport,
    StreamState,
    Subscribe,
    Unsubscribe,
)
from holdfast.core.provenance import Claim, Trail
from holdfast.core.racing import RacingReplica, make_replica
from holdfast.core.replica import Replica
from holdfast.core.settings import Input, Output, ReplicaSettings, Timing
from tests.core.frames_for_tests import boundary, stable

TIMING = Timing(bucket_us=100, delay_us=1000, heartbeat_interval_us=10_000)
LEFT, RIGHT = Trail(1, 0), Trail(1, 1)


def settings(early: bool = True) -> ReplicaSettings:
    """A union of a source ``x`` and of ``e``, which has early results to hand on."""
    ways = (("x", LEFT), ("e", RIGHT)) if early else ()
    return ReplicaSettings(
        "r",
        (Input("x", ("ex",)), Input("e", ("a", "b"), True, early=early, trails=(Trail(),))),
        (Output("o", frozenset({"x", "e"}), ("c",), ways),),
        timing=TIMING,
    )


class Bench:
    def __init__(self) -> None:
        replica = make_replica(settings(), EMPTY_RECORD, Beginning(open=True))
        assert isinstance(replica, RacingReplica)
        self.replica = replica
        self.feeds: dict[str, Subscribe] = {}
        self.sent: dict[int, int] = {}
        self.handle(Started(), 1)
        for peer, stream in (("ex", "x"), ("a", "e"), ("b", "e")):
            report = StreamReport(stream, StreamState.STABLE, 0, 0)
            self.handle(MessageArrived(peer, HeartbeatReply((report,), ())), 2)
        for peer in ("ex", "a", "b"):
            self.say(peer, 3, boundary(0, 1))

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects = self.replica.handle(event, now)
        self.replica.validate()
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Subscribe):
                self.feeds[effect.to] = effect.message
        return effects

    def say(self, peer: str, now: int, *frames: StreamFrame) -> list[Effect]:
        feed = self.feeds[peer].feed
        number = self.sent.get(feed, 0)
        self.sent[feed] = number + 1
        return self.handle(MessageArrived(peer, FeedFrames(feed, number, frames)), now)


def jobs(effects: list[Effect]) -> list[RunEarly]:
    return [one for one in effects if isinstance(one, RunEarly)]


def test_one_without_such_results_is_a_replica_as_any() -> None:
    assert type(make_replica(settings(early=False), EMPTY_RECORD, Beginning())) is Replica


def test_early_results_are_asked_for_while_somebody_asks_for_them() -> None:
    bench = Bench()
    assert not any(one.early for one in bench.feeds.values())
    # What comes waits: nobody needs it before its bucket is complete.
    assert not jobs(bench.say("ex", 10, stable(0, 10, 20)))
    told = bench.handle(MessageArrived("c", Subscribe("o", 7, 0, 0, early=True)), 11)
    (order,) = jobs(told)
    assert order.pieces[0].claims == (Claim(Trail(), 0, 2, 20),)
    assert bench.feeds["a"].early
    assert bench.feeds["b"].early
    assert not bench.feeds["ex"].early
    # What comes of it goes to the one who asked.
    block = OutputBlock("o", 2, 0, 10, 20, 20, "rows")
    (sent,) = bench.handle(EarlyDone(order.job, (block,), ()), 15)[:1]
    assert isinstance(sent, Send)
    assert isinstance(sent.message, FeedFrames)
    assert sent.message.frames[0].claims == (Claim(LEFT, 0, 2, 20),)
    # It leaves, and may come back soon.
    bench.handle(MessageArrived("c", Unsubscribe(7)), 20)
    bench.handle(TimerFired(), 900)
    assert bench.feeds["a"].early
    bench.handle(TimerFired(), 20 + TIMING.delay_us)
    assert not bench.feeds["a"].early


def test_what_one_producer_brings_early_goes_on_at_once() -> None:
    bench = Bench()
    bench.handle(MessageArrived("c", Subscribe("o", 7, 0, 0, early=True)), 11)
    claim = Claim(Trail(), 4, 6, 30)
    frame = StreamFrame(Header(Kind.EARLY, 0, 2, 25, 30, 30), "rows", None, (claim,))
    (order,) = jobs(bench.say("b", 12, boundary(0, 1), frame))
    assert order.pieces[0].claims == (claim,)
    assert not jobs(bench.say("a", 13, boundary(0, 1), frame))
