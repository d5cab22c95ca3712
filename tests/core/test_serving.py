from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from holdfast.core.acknowledgements import Acknowledged, Acknowledgements, TrimBelow
from holdfast.core.copy_view import OutputView
from holdfast.core.effects import Effect, Send, TrimLog
from holdfast.core.frame import Kind
from holdfast.core.messages import (
    FeedFrames,
    HeartbeatReply,
    HeartbeatRequest,
    NotServed,
    StreamFrame,
    StreamReport,
    StreamState,
    Subscribe,
    SubscribeRefused,
    Unsubscribe,
)
from holdfast.core.provider import Provider
from holdfast.core.records import LoggedStream
from holdfast.core.serving import BOUNDARIES_KEPT, ServedStream
from tests.core.frames_for_tests import boundary, data, kinds, mark, stable, tentative


def make() -> ServedStream:
    return ServedStream("s", ("c", "d"))


def frames(effects: list[Effect]) -> tuple[StreamFrame, ...]:
    (send,) = effects
    assert isinstance(send, Send)
    assert isinstance(send.message, FeedFrames)
    return send.message.frames


def test_a_subscriber_gets_what_it_lacks_and_then_everything_new() -> None:
    stream = make()
    stream.publish((stable(0, 10, 20), boundary(2, 30)))
    stream.publish((stable(2, 40), boundary(3, 50)))
    first = frames(stream.subscribe("c", Subscribe("s", 7, next_id=2, tentative_boundary=0)))
    assert [frame.header.first_id for frame in first] == [2, 3]
    (send,) = stream.publish((boundary(3, 60),))
    assert send == Send("c", FeedFrames(7, 1, (boundary(3, 60),)))


class Sized:
    """A block that says how large it is."""

    nbytes = 100


class NotToBeWalked(list[StreamFrame]):
    """What may be as long as somebody is away."""

    def __iter__(self) -> Iterator[StreamFrame]:
        raise AssertionError("walked through")


def test_how_much_is_kept_is_known_without_a_look_at_all_of_it() -> None:
    stream = make()
    for first_id in (0, 2, 4):
        frame = stable(first_id, 10 * first_id, 10 * first_id + 5)
        stream.publish((replace(frame, block=Sized()), boundary(first_id + 2, 10 * first_id + 9)))
    kept, stream.stable = stream.stable, NotToBeWalked(stream.stable)
    assert OutputView.of("s", stream).kept == stream.kept_tuples == 6
    assert stream.kept_bytes == 300
    stream.stable = kept
    for name in ("c", "d"):
        stream.acknowledge(name, 3, 0)
    assert (stream.kept_tuples, stream.kept_bytes) == (4, 200), "frames go whole"
    stream.validate()
    # Of another copy's queue the new tuples count, and all that were here if it begins later.
    stream.extend(LoggedStream("s", 4, (stable(4, 40, 45), stable(6, 60), boundary(7, 70))))
    assert (stream.kept_tuples, stream.kept_bytes) == (5, 200)
    stream.validate()
    stream.extend(LoggedStream("s", 9, (stable(9, 90), boundary(10, 100))))
    assert (stream.kept_tuples, stream.kept_bytes) == (1, 0)
    stream.validate()
    stream.kept_tuples = 2
    with pytest.raises(ValueError, match="takes it for"):
        stream.validate()


def test_a_frame_that_holds_some_of_what_is_lacking_is_sent_whole() -> None:
    stream = make()
    stream.publish((stable(0, 10, 20), boundary(2, 30)))
    sent = frames(stream.subscribe("c", Subscribe("s", 7, next_id=1, tentative_boundary=0)))
    assert kinds(sent) == ["STABLE", "BOUNDARY"]


def test_tentative_frames_go_only_for_times_the_subscriber_has_nothing_about() -> None:
    stream = make()
    stream.publish((tentative(0, 10), mark(Kind.TENTATIVE_BOUNDARY, 0, 100)))
    stream.publish((tentative(1, 110), mark(Kind.TENTATIVE_BOUNDARY, 0, 200)))
    sent = frames(stream.subscribe("c", Subscribe("s", 7, next_id=0, tentative_boundary=100)))
    assert kinds(sent) == ["BOUNDARY", "TENTATIVE_BOUNDARY", "TENTATIVE", "TENTATIVE_BOUNDARY"]


def test_an_undo_goes_before_stable_tuples_that_replace_tentative_ones() -> None:
    stream = make()
    stream.publish((stable(0, 10, 20), boundary(2, 30)))
    sent = frames(stream.subscribe("c", Subscribe("s", 7, next_id=0, tentative_boundary=25)))
    assert kinds(sent) == ["UNDO", "STABLE", "BOUNDARY"]


def test_stable_tuples_push_tentative_ones_out() -> None:
    stream = make()
    stream.publish((tentative(0, 10), mark(Kind.TENTATIVE_BOUNDARY, 0, 100)))
    stream.publish((stable(0, 10), boundary(1, 101)))
    assert not stream.tentative


def test_refuses_while_closed_and_what_is_trimmed() -> None:
    stream = make()
    stream.open = False
    request = Subscribe("s", 7, next_id=0, tentative_boundary=0)
    assert stream.subscribe("c", request) == [Send("c", SubscribeRefused(7, NotServed.RECOVERING))]
    stream.open = True
    stream.publish((stable(0, 10, 20), boundary(2, 30)))
    stream.acknowledge("c", 2, 1)
    assert stream.acknowledge("d", 1, 1) == [TrimLog("s", 1)]
    (refused,) = stream.subscribe("c", request)
    assert isinstance(refused, Send)
    assert refused.message == SubscribeRefused(7, NotServed.NOT_HERE, "below 1, asked for 0")


def test_ids_must_continue() -> None:
    with pytest.raises(ValueError, match="next is 0"):
        make().publish((stable(3, 10),))


def test_trims_what_every_consumer_acknowledged_and_no_more() -> None:
    acknowledgements = Acknowledgements("s", ("c", "d"))
    assert acknowledgements.handle(Acknowledged("c", 5), 0) == []
    assert acknowledgements.handle(Acknowledged("d", 3), 0) == [TrimBelow(3)]
    assert acknowledgements.handle(Acknowledged("d", 2), 0) == [], "an old message"
    assert acknowledgements.handle(Acknowledged("d", 9), 0) == [TrimBelow(5)]
    assert acknowledgements.handle(Acknowledged("stranger", 1), 0) == []
    acknowledgements.validate()


def test_what_another_copy_has_trimmed_is_trimmed_here_too() -> None:
    """Readers acknowledge to both copies, but the one that sleeps may hear it too late."""
    awake, asleep = make(), make()
    asleep.suspend()
    awake.publish((stable(0, 10),))
    asleep.extend(awake.queue())
    awake.publish((stable(1, 20),))
    for consumer in ("c", "d"):
        awake.acknowledge(consumer, 2, 0)
    assert asleep.extend(awake.queue()) == [TrimLog("s", 2)]
    assert asleep.next_id == 2
    assert not asleep.stable


def test_heartbeats_report_acknowledge_and_clean_up() -> None:
    stream = make()
    provider = Provider({"s": stream}, lambda name: StreamState.STABLE)
    stream.publish((stable(0, 10), boundary(1, 30)))
    provider.handle("c", Subscribe("s", 7, 0, 0), 1)
    provider.handle("c", Subscribe("s", 8, 0, 0), 1)
    request = HeartbeatRequest(("s", "unknown"), (("s", 1),), feeds=(8,), newest_feed=8)
    (reply,) = provider.handle("c", request, 2)
    expected = HeartbeatReply((StreamReport("s", StreamState.STABLE, 30, 30),), (8,))
    assert reply == Send("c", expected)
    assert len(stream.publish((boundary(1, 40),))) == 1, "feed 7 is gone"
    provider.handle("c", Unsubscribe(8), 3)
    assert stream.publish((boundary(1, 50),)) == []
    (refused,) = provider.handle("c", Subscribe("other", 9, 0, 0), 4)
    assert refused == Send("c", SubscribeRefused(9, NotServed.UNKNOWN, "other"))
    provider.validate()


def early(*stimes: int) -> StreamFrame:
    return data(Kind.EARLY, 0, *stimes)


def test_early_frames_go_to_those_who_asked_and_are_kept_until_the_order_is_there() -> None:
    stream = make()
    stream.subscribe("c", Subscribe("s", 1, 0, 0))
    assert not stream.wants_early
    stream.subscribe("d", Subscribe("s", 2, 0, 0, early=True))
    assert stream.wants_early
    (send,) = stream.publish_early(early(10, 40))
    assert send == Send("d", FeedFrames(2, 1, (early(10, 40),)))
    stream.publish_early(early(50))
    # Whoever comes later gets what is not in order yet; only if it asks.
    again = frames(stream.subscribe("d", Subscribe("s", 3, 0, 0, early=True)))
    assert kinds(again) == ["BOUNDARY", "EARLY", "EARLY"]
    assert kinds(frames(stream.subscribe("c", Subscribe("s", 4, 0, 0)))) == ["BOUNDARY"]
    stream.publish((stable(0, 10, 40), boundary(2, 45)))
    assert [one.header.stime_max for one in stream.early] == [50]
    # What comes out when the order has passed it is sent, and not kept.
    assert len(stream.publish_early(early(20))) == 2
    assert len(stream.early) == 1
    stream.unsubscribe("d", 2)
    stream.unsubscribe("d", 3)
    assert not stream.wants_early
    stream.publish((boundary(2, 60),))
    assert not stream.early


def test_the_log_of_a_stream_without_tuples_is_trimmed_now_and_then() -> None:
    stream = make()

    def published(first: int) -> list[Effect]:
        times = range(first, first + 3 * BOUNDARIES_KEPT)
        return [one for time in times for one in stream.publish((boundary(stream.next_id, time),))]

    assert published(1) == [TrimLog("s", 0)] * 3
    # One that somebody lacks, and what comes after it, stays.
    stream.publish((stable(0, 1000),))
    assert published(2000) == []
    for consumer in ("c", "d"):
        stream.acknowledge(consumer, 1, now=0)
    assert published(3000) == [TrimLog("s", 1)] * 3


def test_a_copy_that_sleeps_trims_its_log_of_a_stream_without_tuples() -> None:
    stream = make()
    stream.suspend()
    effects = []
    for time in range(1, 3 * BOUNDARIES_KEPT + 1):
        effects += stream.extend(LoggedStream("s", 0, (boundary(0, time),)))
    assert effects == [TrimLog("s", 0)] * 3
