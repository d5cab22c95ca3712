from __future__ import annotations

from holdfast.core.client import Client, ClientSettings, ClientState
from holdfast.core.effects import (
    DeliverBoundary,
    DeliverTuples,
    DeliverUndo,
    Effect,
    Send,
)
from holdfast.core.events import Committed, FeedLost, MessageArrived, Started, TimerFired
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
)
from holdfast.core.settings import Input
from tests.core.frames_for_tests import boundary, mark, stable, tentative

SETTINGS = ClientSettings("c", Input("o", ("a",)))


def subscribed(settings: ClientSettings = SETTINGS) -> tuple[Client, int]:
    """A client that follows its only provider, and its feed."""
    client = Client(settings)
    (request, _) = client.handle(Started(), 1)
    assert isinstance(request, Send)
    assert isinstance(request.message, HeartbeatRequest)
    report = StreamReport("o", StreamState.STABLE, 0, 0)
    effects = client.handle(MessageArrived("a", HeartbeatReply((report,), ())), 2)
    feeds = [
        effect.message.feed
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Subscribe)
    ]
    return client, feeds[0]


def deliver(client: Client, feed: int, seq: int, *frames: StreamFrame) -> list[Effect]:
    effects = client.handle(MessageArrived("a", FeedFrames(feed, seq, frames)), 10 + seq)
    client.validate()
    return [
        one for one in effects if isinstance(one, DeliverTuples | DeliverUndo | DeliverBoundary)
    ]


def test_tentative_tuples_are_taken_back_when_their_corrections_come() -> None:
    client, feed = subscribed()
    deliver(client, feed, 0, stable(0, 10), boundary(1, 100))
    deliver(client, feed, 1, tentative(1, 110), mark(Kind.TENTATIVE_BOUNDARY, 1, 200))
    assert client.state is ClientState.PROVISIONAL
    effects = deliver(client, feed, 2, mark(Kind.UNDO, 1), stable(1, 105, 110), boundary(3, 200))
    assert effects[0] == DeliverUndo("o", first_id=1, below_stime=111)
    assert [type(one).__name__ for one in effects[1:]] == ["DeliverTuples", "DeliverBoundary"]
    assert client.state.name == "CORRECT"


def acknowledged(client: Client, now: int) -> int:
    """What it tells its provider with its next heartbeat."""
    sent = [one.message for one in client.handle(TimerFired(), now) if isinstance(one, Send)]
    (request,) = [one for one in sent if isinstance(one, HeartbeatRequest)]
    return dict(request.acks)["o"]


def test_only_what_is_committed_is_acknowledged() -> None:
    client, feed = subscribed()
    deliver(client, feed, 0, stable(0, 10, 20, 30), boundary(3, 100))
    assert acknowledged(client, 1_000_000) == 0, "the application may yet be lost"
    client.handle(Committed(2), 1_000_001)
    client.handle(Committed(1), 1_000_002)
    assert acknowledged(client, 2_000_000) == 2
    client.handle(Committed(3), 2_000_001)
    assert acknowledged(client, 3_000_000) == 3


def test_what_an_earlier_life_has_is_acknowledged_and_not_more_than_came() -> None:
    client = Client(ClientSettings("c", Input("o", ("a",)), next_id=7))
    client.handle(Started(), 1)
    assert acknowledged(client, 1_000_000) == 7
    client.handle(Committed(9), 1_000_001)
    assert acknowledged(client, 2_000_000) == 7


def test_who_begins_again_is_not_shown_tentatively_what_it_has_for_good() -> None:
    """Its provider may be behind the one that an earlier life followed."""
    client, feed = subscribed(ClientSettings("c", Input("o", ("a",)), next_id=3, since=200))
    later = tentative(1, 150, 210)
    effects = deliver(client, feed, 0, boundary(1, 100), tentative(1, 110, 120), later)
    assert [one.stime_from for one in effects if isinstance(one, DeliverTuples)] == [200]


def test_tuples_that_were_delivered_are_not_kept_though_they_are_tentative() -> None:
    client, feed = subscribed()
    (delivered, *_) = deliver(client, feed, 0, tentative(0, 10, 20))
    assert isinstance(delivered, DeliverTuples)
    assert delivered.block == (10, 20)
    assert [one.block for one in client.copy.tentative] == [None]


def test_a_frame_corrected_in_part_is_taken_back_in_part() -> None:
    client, feed = subscribed()
    deliver(client, feed, 0, tentative(0, 110, 190), mark(Kind.TENTATIVE_BOUNDARY, 0, 200))
    effects = deliver(client, feed, 1, stable(0, 110), boundary(1, 150))
    assert DeliverUndo("o", 0, 111) in effects
    assert DeliverUndo("o", 1, 150) in effects
    assert client.state is ClientState.CORRECTING
    deliver(client, feed, 2, tentative(1, 210), mark(Kind.TENTATIVE_BOUNDARY, 0, 300))
    assert client.state.name == "PROVISIONAL"


def test_a_gap_or_a_lost_connection_subscribes_again_from_where_the_client_is() -> None:
    client, feed = subscribed()
    deliver(client, feed, 0, stable(0, 10), boundary(1, 100))
    effects = client.handle(FeedLost(feed), 20)
    again = [one.message for one in effects if isinstance(one, Send)]
    assert any(isinstance(one, Subscribe) and one.next_id == 1 for one in again)
    feed += 1
    client.handle(MessageArrived("a", SubscribeRefused(feed, NotServed.RECOVERING)), 21)
    client.handle(TimerFired(), 10_000_000)
    client.validate()


def test_what_a_refused_feed_asked_for_may_have_come_since() -> None:
    client, feed = subscribed()
    assert client.consumer.needs(feed)
    deliver(client, feed, 0, stable(0, 10), boundary(1, 100))
    assert not client.consumer.needs(feed), "asked from 0, now at 1"
    client.handle(FeedLost(feed), 20)
    assert not client.consumer.needs(feed), "it is no longer open"
    again = client.consumer.upstreams["o"].main
    assert again is not None
    assert client.consumer.needs(again.id)
