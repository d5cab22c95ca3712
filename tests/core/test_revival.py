"""Feeds that were collected: none is kept there, until one is needed."""

from __future__ import annotations

import pytest

from holdfast.core.effects import Send
from holdfast.core.feed import FeedIds
from holdfast.core.messages import (
    FeedFrames,
    StreamReport,
    StreamState,
    Subscribe,
    Unsubscribe,
)
from holdfast.core.records import Membership
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.upstream import Upstream
from holdfast.core.upstream_events import (
    FeedArrived,
    FeedBroken,
    PeerReported,
    PeerSilent,
    UpstreamEffect,
)
from tests.core.frames_for_tests import boundary


class Reader:
    """Reads three racing replicas; heartbeats take 100, so delays are known to 200."""

    def __init__(self) -> None:
        self.upstream = Upstream(
            "r", ("a", "b", "c"), StreamCopy("s"), FeedIds(), 9_000, 200, stands=True
        )
        self.now = 1

    def hears(
        self, peer: str, reached: int, state: StreamState = StreamState.STABLE
    ) -> list[UpstreamEffect]:
        self.now += 10
        report = StreamReport("s", state, reached, reached)
        feeds = self.upstream.feeds_at(peer)
        effects = self.upstream.handle(PeerReported(peer, report, feeds), self.now)
        self.upstream.validate()
        return effects

    def takes(self, peer: str, reached: int) -> None:
        feed = next(one for one in self.upstream.feeds() if one.peer == peer)
        message = FeedFrames(feed.id, feed.received, (boundary(0, reached),))
        for effect in self.upstream.handle(FeedArrived(peer, message), self.now):
            for frame in getattr(effect, "frames", ()):
                self.upstream.copy.take(frame, self.now)

    def collect(self, *peers: str, epoch: int = 1) -> list[UpstreamEffect]:
        return self.upstream.collect(dict.fromkeys(peers, epoch), self.now)

    @property
    def feeds(self) -> set[str]:
        return {one.peer for one in self.upstream.feeds()}


@pytest.fixture
def reader() -> Reader:
    found = Reader()
    for peer in ("a", "b", "c"):
        found.hears(peer, 1_000)
    assert found.feeds == {"a", "b", "c"}
    found.takes("a", 1_000)
    return found


def sent(effects: list[UpstreamEffect], kind: type) -> list[str]:
    return [one.to for one in effects if isinstance(one, Send) and isinstance(one.message, kind)]


def test_no_feed_is_kept_where_one_was_collected(reader: Reader) -> None:
    assert sent(reader.collect("b", "c"), Unsubscribe) == ["b", "c"]
    assert reader.feeds == {"a"}
    for reached in range(1_100, 5_000, 100):
        for peer in ("a", "b", "c"):
            reader.takes("a", reached)
            assert not sent(reader.hears(peer, reached), Subscribe)
    assert reader.feeds == {"a"}


def test_the_one_that_was_followed_is_left_for_another(reader: Reader) -> None:
    assert reader.upstream.main is not None
    followed = reader.upstream.main.peer
    reader.collect(followed)
    assert reader.feeds == {"a", "b", "c"} - {followed}
    assert reader.upstream.main.peer != followed


def test_unusual_delay_revives_the_furthest_one_at_a_time(reader: Reader) -> None:
    reader.collect("b", "c")
    reader.hears("b", 1_200)
    reader.hears("c", 1_300)
    # It was heard of, and is not here; but that is not long yet.
    assert reader.feeds == {"a"}
    reader.now += 200
    assert sent(reader.hears("b", 1_400), Subscribe) == ["b"]
    assert reader.upstream.revival.revived == ("b",)
    # What it brings is looked at before another one is revived.
    reader.hears("c", 1_500)
    assert reader.feeds == {"a", "b"}
    reader.now += 250
    reader.hears("c", 1_600)
    assert reader.feeds == {"a", "b", "c"}


def test_a_delay_that_is_usual_revives_nothing(reader: Reader) -> None:
    reader.collect("b", "c")
    # Every boundary is heard of a little before it comes, sooner or later, and now and then late.
    for step in range(60):
        reached = 1_000 + 100 * (step + 1)
        reader.hears("b", reached)
        reader.now += 60 + 110 * (step % 2)
        reader.takes("a", reached)
        reader.hears("a", reached)
    assert reader.feeds == {"a"}
    reader.hears("b", 9_000)
    reader.now += 3_100
    reader.hears("b", 9_100)
    assert reader.feeds == {"a", "b"}, "beyond a third of what a tuple may wait, always"


def test_another_takes_the_place_of_one_that_is_lost(reader: Reader) -> None:
    reader.collect("c")
    for peer in ("a", "b", "c"):
        reader.hears(peer, 1_000)
    kept = "b" if reader.upstream.main is not None and reader.upstream.main.peer == "a" else "a"
    effects = reader.upstream.handle(PeerSilent(kept), reader.now)
    assert sent(effects, Subscribe) == ["c"]


def test_when_the_only_one_kept_breaks_another_is_followed_at_once(reader: Reader) -> None:
    reader.collect("b", "c")
    assert reader.upstream.main is not None
    effects = reader.upstream.handle(FeedBroken(reader.upstream.main.id), reader.now)
    (followed,) = sent(effects, Subscribe)
    assert followed in ("b", "c")
    assert reader.upstream.revival.revived == (followed,)


def test_what_was_revived_stays_until_it_is_collected_again(reader: Reader) -> None:
    reader.collect("b", "c")
    reader.hears("b", 2_000)
    reader.now += 300
    reader.hears("b", 2_100)
    assert reader.feeds == {"a", "b"}
    reader.collect("b", "c")
    assert reader.feeds == {"a", "b"}, "that was said before"
    reader.takes("b", 2_100)
    reader.collect("b", "c", epoch=2)
    assert reader.feeds == {"a"}
    reader.collect("c", epoch=2)
    reader.hears("b", 2_100)
    assert reader.feeds == {"a", "b"}, "it is not collected any more"


def test_one_that_takes_part_no_longer_is_not_missed(reader: Reader) -> None:
    reader.collect("c")
    reader.upstream.leave("b", reader.now)
    assert reader.feeds == {"a"}


def test_memberships_say_what_is_collected_and_since_when() -> None:
    first = Membership().collecting([("r", "s", "b"), ("r", "s", "c"), ("q", "s", "c")])
    assert first.collected_from("r", "s") == {"b": 1, "c": 1}
    again = first.collecting([("r", "s", "c")], used=[("r", "s", "b")])
    assert again.collected_from("r", "s") == {"c": 2}
    assert again.collected_from("q", "s") == {"c": 1}
    assert again.with_another("d", "c").collected == again.collected
    assert again.without("c").collected == ()
    assert again.without("r").collected_from("q", "s") == {"c": 1}
