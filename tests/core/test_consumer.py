"""A producer that sends is there, however late it answers."""

from __future__ import annotations

from holdfast.core.consumer import Consumer
from holdfast.core.detector import PeerState
from holdfast.core.events import MessageArrived, TimerFired
from holdfast.core.messages import FeedFrames, HeartbeatReply, StreamReport, StreamState
from holdfast.core.settings import Input, Timing
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.upstream import Following
from tests.core.frames_for_tests import boundary

TIMING = Timing()
INTERVAL_US = TIMING.heartbeat_interval_us


def _following() -> Consumer:
    consumer = Consumer("c", (Input("s", ("a",)),), {"s": StreamCopy("s")}, TIMING)
    consumer.handle(TimerFired(), 0)
    report = StreamReport("s", StreamState.STABLE, 0, 0)
    consumer.handle(MessageArrived("a", HeartbeatReply((report,), ())), 1)
    assert consumer.upstreams["s"].state is Following.STABLE
    return consumer


def test_a_producer_that_sends_is_not_given_up_though_its_answers_are_late() -> None:
    consumer = _following()
    feed = consumer.upstreams["s"].feeds_at("a")[0]
    for turn in range(1, 20):
        now = turn * INTERVAL_US
        consumer.handle(TimerFired(), now)
        frames = FeedFrames(feed, turn - 1, (boundary(0, now),))
        consumer.handle(MessageArrived("a", frames), now + 1)
    assert consumer.upstreams["s"].feeds_at("a") == (feed,)


def test_a_producer_that_neither_sends_nor_answers_is_given_up() -> None:
    consumer = _following()
    for turn in range(1, TIMING.misses_until_down + 2):
        consumer.handle(TimerFired(), turn * INTERVAL_US)
    assert consumer.detectors["a"].state is PeerState.DOWN
    assert consumer.upstreams["s"].state is Following.NOTHING
