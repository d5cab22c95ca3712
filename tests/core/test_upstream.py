from __future__ import annotations

import itertools

import pytest

from holdfast.core.effects import Send
from holdfast.core.feed import FeedIds
from holdfast.core.frame import Header, Kind
from holdfast.core.machine import PeerError
from holdfast.core.messages import (
    FeedFrames,
    StreamFrame,
    StreamReport,
    StreamState,
    Subscribe,
    Unsubscribe,
)
from holdfast.core.provenance import Claim, Trail
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.upstream import Following, Upstream
from holdfast.core.upstream_events import (
    FeedArrived,
    FeedBroken,
    JudgeSource,
    PeerReported,
    PeerSilent,
    TakeFrames,
    UpstreamEffect,
)
from tests.core.frames_for_tests import boundary, mark, stable, tentative

STABLE, FAILED = StreamState.STABLE, StreamState.UP_FAILURE
STABILIZING, RECOVERING = StreamState.STABILIZATION, StreamState.RECOVERING
SUSPENDED = StreamState.SUSPENDED


def make(stands: bool = False) -> Upstream:
    return Upstream(
        "c", ("a", "b"), StreamCopy("s"), FeedIds(), behind_us=900, reply_us=200, stands=stands
    )


def report(
    upstream: Upstream,
    peer: str,
    state: StreamState,
    boundary: int,
    live: int = 0,
    now: int = 1,
    served: tuple[int, ...] | None = None,
) -> list[UpstreamEffect]:
    heard = StreamReport("s", state, boundary, max(boundary, live))
    feeds = upstream.feeds_at(peer) if served is None else served
    effects = upstream.handle(PeerReported(peer, heard, feeds), now)
    upstream.validate()
    return effects


def sources(upstream: Upstream) -> tuple[str | None, str | None]:
    main, corrections = upstream.main, upstream.corrections
    return (main.peer if main else None, corrections.peer if corrections else None)


def send(upstream: Upstream, seq: int, *frames: StreamFrame, now: int = 5) -> list[UpstreamEffect]:
    assert upstream.main is not None
    message = FeedFrames(upstream.main.id, seq, frames)
    return upstream.handle(FeedArrived(upstream.main.peer, message), now)


def test_follows_a_stable_replica_and_stays_with_it() -> None:
    upstream = make()
    report(upstream, "b", STABLE, 1000)
    report(upstream, "a", STABLE, 1100)
    assert sources(upstream) == ("b", None)


def test_leaves_a_stable_replica_that_falls_behind() -> None:
    upstream = make()
    report(upstream, "b", STABLE, 1000)
    report(upstream, "a", STABLE, 1400)
    assert sources(upstream) == ("a", None)


def test_prefers_stable_to_live_to_nothing() -> None:
    upstream = make()
    report(upstream, "a", FAILED, 1000, 2000)
    assert upstream.state is Following.LIVE
    report(upstream, "b", STABLE, 2000)
    assert sources(upstream) == ("b", None)
    effects = upstream.handle(PeerSilent("b"), 9)
    assert sources(upstream) == ("a", None)
    assert JudgeSource("s", hopeless=True) in effects
    upstream.handle(PeerSilent("a"), 10)
    assert upstream.state.name == "NOTHING"


def test_leaves_a_live_replica_that_corrects_for_one_that_only_answers() -> None:
    upstream = make()
    report(upstream, "a", FAILED, 1000, 2000)
    report(upstream, "b", FAILED, 1000, 1900)
    report(upstream, "a", STABILIZING, 1000, 2000)
    assert sources(upstream) == ("a", None)
    report(upstream, "b", FAILED, 1000, 2000)
    assert sources(upstream) == ("b", None)
    report(upstream, "a", STABILIZING, 1500, 2000)
    assert sources(upstream) == ("b", "a")


def test_a_recovering_replica_is_no_source() -> None:
    upstream = make()
    report(upstream, "a", RECOVERING, 1000)
    assert sources(upstream) == (None, None)


def test_how_far_a_recovering_replica_is_does_not_count() -> None:
    upstream = make()
    report(upstream, "a", RECOVERING, 9000)
    report(upstream, "b", FAILED, 1000, 2000)
    assert upstream.state is Following.LIVE
    report(upstream, "b", STABLE, 2000)
    assert upstream.state.name == "STABLE"
    assert not upstream.hopeless


def test_follows_corrections_and_news_from_different_replicas() -> None:
    upstream = make()
    report(upstream, "a", FAILED, 1000, 5000)
    report(upstream, "b", FAILED, 1000, 5000)
    report(upstream, "a", STABILIZING, 2000, 3000)
    assert sources(upstream) == ("b", "a")
    assert upstream.state is Following.LIVE_AND_CORRECTIONS
    report(upstream, "a", STABLE, 5100)
    assert sources(upstream) == ("a", None), "the same feed goes on"


def test_a_stable_replica_far_behind_only_corrects() -> None:
    upstream = make()
    report(upstream, "a", FAILED, 1000, 5000)
    report(upstream, "b", STABLE, 2000)
    assert sources(upstream) == ("a", "b")


def test_subscribes_where_it_is() -> None:
    upstream = make()
    upstream.copy.take(stable(0, 10, 20), 1)
    upstream.copy.take(mark(Kind.TENTATIVE_BOUNDARY, 2, 700), 1)
    effects = report(upstream, "a", STABLE, 1000)
    assert upstream.main is not None
    assert Send("a", Subscribe("s", upstream.main.id, 2, 700)) in effects


def test_a_lost_message_opens_the_feed_anew() -> None:
    upstream = make()
    report(upstream, "a", STABLE, 1000)
    old = upstream.main
    assert old is not None
    assert send(upstream, 0, boundary(0, 5))[0] == TakeFrames("s", (boundary(0, 5),), old.id)
    effects = send(upstream, 2, boundary(0, 7))
    assert upstream.main is not None
    assert upstream.main.id > old.id
    assert Send("a", Unsubscribe(old.id)) in effects
    stale = FeedFrames(old.id, 3, (boundary(0, 8),))
    assert upstream.handle(FeedArrived("a", stale), 6) == [Send("a", Unsubscribe(old.id))]


def test_a_feed_the_peer_does_not_know_is_opened_anew() -> None:
    upstream = make()
    report(upstream, "a", STABLE, 1000, now=1)
    feed = upstream.main
    report(upstream, "a", STABLE, 1000, now=100, served=())
    assert upstream.main is feed, "the subscription may still be on its way"
    report(upstream, "a", STABLE, 1000, now=300, served=())
    assert upstream.main is not feed


def test_a_feed_that_is_slow_to_be_opened_is_given_more_time_each_time() -> None:
    """On a busy machine no subscription is served at once; asking again and again adds to it."""
    upstream = make()
    opened = []
    for now in range(0, 20_000, 100):
        effects = report(upstream, "a", STABLE, 1000, now=now, served=())
        opened += [now for one in effects if isinstance(one, Send) and _subscribes(one)]
    gaps = [after - before for before, after in itertools.pairwise(opened)]
    assert gaps[:4] == [200, 400, 800, 1600]
    assert set(gaps[4:]) == {1600}
    send(upstream, 0, stable(0, 10), now=20_000)
    effects = report(upstream, "a", STABLE, 1000, now=20_000, served=())
    assert any(isinstance(one, Send) and _subscribes(one) for one in effects), "it was served"


def _subscribes(send: Send) -> bool:
    return isinstance(send.message, Subscribe)


def test_what_comes_tells_the_state_before_heartbeats_do() -> None:
    upstream = make()
    report(upstream, "a", STABLE, 1000)
    report(upstream, "b", STABLE, 900)
    send(upstream, 0, tentative(0, 1100), mark(Kind.TENTATIVE_BOUNDARY, 0, 1200))
    assert sources(upstream) == ("b", None)


def test_undo_of_a_stable_tuple_is_the_peers_error() -> None:
    upstream = make()
    report(upstream, "a", STABLE, 1000)
    send(upstream, 0, stable(0, 10, 20))
    with pytest.raises(PeerError, match="undoes from 1"):
        send(upstream, 1, mark(Kind.UNDO, 1))


def test_a_broken_feed_is_opened_anew_and_others_are_left_alone() -> None:
    upstream = make()
    report(upstream, "a", STABLE, 1000)
    feed = upstream.main
    assert feed is not None
    assert upstream.handle(FeedBroken(feed.id + 99), 5) == []
    upstream.handle(FeedBroken(feed.id), 5)
    assert upstream.main is not feed


def test_a_broken_feed_goes_on_at_another_current_replica() -> None:
    upstream = make()
    report(upstream, "a", STABLE, 1000)
    report(upstream, "b", STABLE, 1000)
    assert upstream.main is not None
    broken = upstream.main.id
    effects = upstream.handle(FeedBroken(broken), 5)
    upstream.validate()
    assert Send("a", Unsubscribe(broken)) in effects
    assert sources(upstream) == ("b", None)
    # The other one lives after all: nothing is gained by going back.
    report(upstream, "a", STABLE, 1100)
    assert sources(upstream) == ("b", None)


def test_a_broken_feed_stays_where_only_tentative_news_is_elsewhere() -> None:
    upstream = make()
    report(upstream, "a", STABLE, 1000)
    report(upstream, "b", FAILED, 500, 1000)
    assert upstream.main is not None
    upstream.handle(FeedBroken(upstream.main.id), 5)
    assert sources(upstream) == ("a", None)
    assert not upstream.hopeless


def early(count: int, *claims: Claim) -> StreamFrame:
    return StreamFrame(Header(Kind.EARLY, 0, count, 10, 20, 20), "rows", None, claims)


def test_who_brings_early_results_first_is_noted() -> None:
    upstream = make(stands=True)
    report(upstream, "a", STABLE, 1000)
    report(upstream, "b", STABLE, 1000)
    for peer in ("a", "b"):
        (feed,) = upstream.feeds_at(peer)
        message = FeedFrames(feed, 0, (early(4, Claim(Trail(), 0, 4, 20)),))
        upstream.handle(FeedArrived(peer, message), 5)
    assert upstream.ranks.weights == {"a": 4, "b": 2}


def test_a_producer_that_claims_what_cannot_be_is_told_of() -> None:
    upstream = make()
    report(upstream, "a", STABLE, 1000)
    with pytest.raises(PeerError, match="a cannot have the results"):
        send(upstream, 0, early(1, Claim(Trail(1, 5), 0, 1, 20)))


def test_a_feed_of_one_that_sleeps_and_begins_later_by_now_brings_nothing() -> None:
    """Who has lost everything was fed by one that had nothing either, and was sent a state."""
    upstream = make(stands=True)
    report(upstream, "a", STABLE, 0)
    send(upstream, 0, boundary(0, 0))
    assert upstream.out_of_reach is None
    later = [StreamReport("s", state, 5_000, 5_000, 98) for state in (SUSPENDED, STABLE)]
    for peer, heard in zip("ab", later, strict=True):
        upstream.handle(PeerReported(peer, heard, upstream.feeds_at(peer)), 3)
    assert [feed.received for feed in upstream.feeds() if feed.peer == "a"] == [1]
    assert upstream.out_of_reach == 98
