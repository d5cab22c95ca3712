"""At most once, at least once: what is kept, what is acknowledged, where a restart goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.appender import Appender
from holdfast.core.consumer import Consumer
from holdfast.core.copy import Copy
from holdfast.core.delivery import ConfirmedKeeper, NoKeeper
from holdfast.core.effects import Append, Effect, RunJob, Send
from holdfast.core.events import JobDone, LoggedStream, MessageArrived, Started, TimerFired
from holdfast.core.frame import Kind
from holdfast.core.messages import (
    FeedFrames,
    HeartbeatReply,
    StreamReport,
    StreamState,
    Subscribe,
)
from holdfast.core.records import Found, RecoveryRecord
from holdfast.core.serving import ServedStream
from holdfast.core.settings import Continuous, Delivery, Input, Output, ReplicaSettings, Timing
from holdfast.core.stream_copy import ANYWHERE, StreamCopy
from tests.core.frames_for_tests import boundary, stable

TIMING = Timing(bucket_us=100, delay_us=1000, heartbeat_interval_us=10_000)
RECORD = RecoveryRecord(100, 100, (("x", 7),), (("o", 3),))


def settings(delivery: Delivery) -> ReplicaSettings:
    output = Output("o", frozenset({"x"}), ("c",))
    return ReplicaSettings("r", (Input("x", ("e",)),), (output,), timing=TIMING, delivery=delivery)


def begin(copy: Copy, now: int, first_id: int = 0) -> tuple[Subscribe, list[Effect]]:
    """Start a copy and let its producer be heard of; what it asks for."""
    effects = copy.handle(Started(), now)
    report = StreamReport("x", StreamState.STABLE, 100, 100, first_id)
    effects += copy.handle(MessageArrived("e", HeartbeatReply((report,), ())), now)
    (asked,) = [
        one.message
        for one in effects
        if isinstance(one, Send) and isinstance(one.message, Subscribe)
    ]
    return asked, effects


def test_at_most_once_goes_on_from_now_whatever_is_on_disk() -> None:
    logged = LoggedStream("o", 0, (stable(0, 10, 20, 30), boundary(3, 100)))
    copy = Copy(settings(Delivery.AT_MOST_ONCE), Found(RECORD, "state", (logged,)))
    # What the producer has trimmed is no loss to anybody here.
    asked, _ = begin(copy, 5_000_000, first_id=40)
    assert asked.next_id == ANYWHERE
    assert copy.replica is not None
    assert copy.served["o"].next_id == 5_000_000
    taken = FeedFrames(asked.feed, 0, (boundary(55, 300),))
    copy.handle(MessageArrived("e", taken), 5_000_010)
    # What came need not be kept for it.
    assert copy.replica.consumer.acks == {"x": 55}


def test_at_most_once_nothing_goes_to_disk() -> None:
    copy = Copy(settings(Delivery.AT_MOST_ONCE))
    asked, effects = begin(copy, 5_000_000)
    frames = (boundary(4, 100), stable(4, 110, 120), boundary(6, 200))
    effects += copy.handle(MessageArrived("e", FeedFrames(asked.feed, 0, frames)), 5_000_010)
    job = next(one for one in effects if isinstance(one, RunJob))
    effects += copy.handle(JobDone(job.job, "state", 200, ()), 5_000_020)
    assert copy.served["o"].boundary == 200
    assert not [one for one in effects if isinstance(one, Append)]


def test_exactly_and_at_least_once_go_on_from_the_record() -> None:
    for delivery in (Delivery.EXACTLY_ONCE, Delivery.AT_LEAST_ONCE):
        copy = Copy(settings(delivery), Found(RECORD, "state", (LoggedStream("o", 0, ()),)))
        asked, _ = begin(copy, 5_000_000)
        assert asked.next_id == 7
        # Results have the ids they had.
        assert (copy.served["o"].next_id, copy.served["o"].boundary) == (3, 100)


def keeper(served: ServedStream) -> ConfirmedKeeper:
    consumer = Consumer("r", (Input("x", ("e",)),), {"x": StreamCopy("x")}, TIMING)
    return ConfirmedKeeper(Appender(10, 0), {"o": served}, consumer)


def test_at_least_once_a_record_waits_until_readers_have_its_results() -> None:
    served = ServedStream("o", ("c", "d"), 0)
    keeps = keeper(served)
    served.publish((stable(0, 10, 20, 30), boundary(3, 100)))
    keeps.emitted("o", (stable(0, 10, 20, 30), boundary(3, 100)))
    keeps.describe(RECORD, "state")
    assert keeps.flush(1) == []
    served.acknowledge("c", 3, 2)
    assert keeps.flush(2) == []
    served.acknowledge("d", 3, 3)
    (append,) = keeps.flush(3)
    assert isinstance(append, Append)
    # The record alone: there is no log of results.
    assert (append.record, append.state, append.frames) == (RECORD, "state", ())


def test_at_least_once_the_next_record_to_wait_is_the_newest() -> None:
    served = ServedStream("o", ("c",), 0)
    keeps = keeper(served)
    served.publish((stable(0, 10, 20, 30, 40, 50), boundary(5, 300)))
    for number, end in enumerate((3, 4, 5)):
        keeps.describe(RecoveryRecord(100 + number, 100, (), (("o", end),)), number)
    served.acknowledge("c", 4, 1)
    (append,) = keeps.flush(1)
    assert isinstance(append, Append)
    assert append.state == 0
    served.acknowledge("c", 5, 2)
    assert keeps._waits is not None
    assert keeps._waits[1] == 2


def test_at_least_once_nobody_who_reads_has_nothing_to_confirm() -> None:
    served = ServedStream("o", (), 0)
    keeps = keeper(served)
    served.publish((stable(0, 10, 20, 30), boundary(3, 100)))
    keeps.describe(RECORD, "state")
    assert keeps.flush(1) != []


def test_what_keeps_nothing_says_so() -> None:
    consumer = Consumer("r", (Input("x", ("e",)),), {"x": StreamCopy("x", ANYWHERE)}, TIMING)
    keeps = NoKeeper(Appender(10, 0), {}, consumer)
    keeps.describe(RECORD, "state")
    keeps.emitted("o", (stable(0, 10),))
    assert keeps.flush(1) == []
    assert consumer.acks == {"x": 0}


def test_a_lossy_stream_is_taken_up_by_time_on_a_new_feed() -> None:
    copy = StreamCopy("s", lossy=True)
    copy.forget_ids()
    assert copy.take(stable(100, 10, 20), 1) is not None
    copy.take(boundary(102, 30), 1)
    copy.forget_ids()
    # Another life has other ids, lower ones even, and may be behind.
    assert copy.take(stable(50, 10, 20), 2) is None
    held = copy.take(stable(52, 25, 40), 2)
    assert held is not None
    assert (held.stime_from, held.header.kind) == (30, Kind.STABLE)
    later = copy.take(stable(54, 41), 2)
    assert later is not None
    assert copy.next_id == 55
    copy.validate()


def heard(copy: Copy, now: int, state: StreamState, first_id: int) -> None:
    report = StreamReport("x", state, 100, 100, first_id)
    copy.handle(MessageArrived("e", HeartbeatReply((report,), ())), now)


@pytest.mark.parametrize("lossy", [True, False])
def test_at_most_once_nobody_joins_whatever_is_trimmed(lossy: bool) -> None:
    one = settings(Delivery.AT_MOST_ONCE)
    copy = Copy(replace(one, inputs=(replace(one.inputs[0], lossy=lossy),)))
    asked, _ = begin(copy, 5_000_000)
    copy.handle(MessageArrived("e", FeedFrames(asked.feed, 0, (boundary(7, 100),))), 5_000_010)
    # The producer is gone, and another life of it begins far beyond.
    for at in range(5_010_000, 5_200_000, 10_000):
        copy.handle(TimerFired(), at)
    for at in (5_200_000, 5_300_000):
        heard(copy, at, StreamState.RECOVERING, 9_000_000)
    assert copy.joining is None
    assert copy.replica is not None
    heard(copy, 5_400_000, StreamState.STABLE, 9_000_000)
    feeds = copy.replica.consumer.upstreams["x"].feeds()
    assert [feed.asked_from for feed in feeds] == [ANYWHERE]


def test_whoever_asks_for_now_is_sent_nothing_that_was_before() -> None:
    served = ServedStream("o", ("c",), 0)
    served.publish((stable(0, 10, 20), boundary(2, 100)))
    (sent,) = served.subscribe("d", Subscribe("o", 1, ANYWHERE, 0))
    assert isinstance(sent, Send)
    assert isinstance(sent.message, FeedFrames)
    (mark,) = sent.message.frames
    assert (mark.header.kind, mark.header.first_id) == (Kind.BOUNDARY, 2)


def test_without_a_log_there_are_no_window_states_in_it() -> None:
    with pytest.raises(ValueError, match="with delivery = at-least-once there is none"):
        ReplicaSettings(
            "r",
            (Input("x", ("e",)),),
            (),
            continuous=Continuous(),
            delivery=Delivery.AT_LEAST_ONCE,
        )
