"""A client that needs no order gets each result once, and nothing tentative."""

from __future__ import annotations

from holdfast.core.client import Client, ClientSettings
from holdfast.core.effects import DeliverBoundary, DeliverTuples, DeliverUndo, Effect, Send
from holdfast.core.events import MessageArrived, Started
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.messages import (
    FeedFrames,
    HeartbeatReply,
    StreamReport,
    StreamState,
    Subscribe,
)
from holdfast.core.provenance import Choice, Claim, Trail
from holdfast.core.settings import Input
from holdfast.core.unordered import UnorderedClient, make_client
from tests.core.frames_for_tests import boundary, mark, stable, tentative


class Bench:
    """A client that reads from two replicas."""

    def __init__(self, next_id: int = 0) -> None:
        read = Input("o", ("a", "b"), standing=True, early=True)
        self.client = make_client(ClientSettings("c", read, next_id))
        assert isinstance(self.client, UnorderedClient)
        self.client.handle(Started(), 1)
        self.feeds: dict[str, int] = {}
        self.sent = dict.fromkeys("ab", 0)
        report = StreamReport("o", StreamState.STABLE, 0, 0)
        for peer in "ab":
            for effect in self.client.handle(
                MessageArrived(peer, HeartbeatReply((report,), ())), 2
            ):
                if isinstance(effect, Send) and isinstance(effect.message, Subscribe):
                    assert effect.message.early
                    self.feeds[effect.to] = effect.message.feed

    def say(self, peer: str, *frames: StreamFrame) -> list[Effect]:
        message = FeedFrames(self.feeds[peer], self.sent[peer], frames)
        self.sent[peer] += 1
        effects = self.client.handle(MessageArrived(peer, message), 10)
        self.client.validate()
        told = (DeliverTuples, DeliverUndo, DeliverBoundary)
        return [one for one in effects if isinstance(one, told)]


def early(first: int, end: int, *stimes: int) -> StreamFrame:
    header = Header(Kind.EARLY, 0, len(stimes), min(stimes), max(stimes), max(stimes))
    return StreamFrame(header, stimes, None, (Claim(Trail(), first, end, max(stimes)),))


def choice(first: int, end: int, newest: int, inside: bool) -> Choice:
    return Choice((Claim(Trail(), first, end, newest),), inside)


def test_who_asks_for_an_order_gets_it() -> None:
    assert type(make_client(ClientSettings("c", Input("o", ("a",))))) is Client


def test_each_result_comes_once_from_whoever_is_first() -> None:
    bench = Bench()
    (told,) = bench.say("a", early(0, 3, 10, 20, 30))
    assert isinstance(told, DeliverTuples)
    assert (told.header.kind, told.choice) == (Kind.EARLY, None)
    assert bench.say("b", early(0, 3, 10, 20, 30)) == []
    (told,) = bench.say("b", early(1, 5, 20, 30, 40, 50))
    assert isinstance(told, DeliverTuples)
    assert told.choice == choice(3, 5, 50, inside=True)
    # In order comes what did not come early; then nothing of it is remembered.
    told, complete = bench.say("a", stable(0, 10, 20, 25, 30), boundary(4, 45))
    assert isinstance(told, DeliverTuples)
    assert told.choice == choice(0, 5, 50, inside=False)
    assert complete == DeliverBoundary("o", 45)
    assert bench.say("b", early(0, 3, 10, 20, 30)) == []
    bench.say("b", stable(0, 10, 20, 25, 30), boundary(4, 60))
    assert isinstance(bench.client, UnorderedClient)
    assert bench.client.filter.size == 0


def test_of_a_frame_what_is_older_than_the_order_does_not_come_again() -> None:
    bench = Bench()
    bench.say("a", stable(0, 10, 20), boundary(2, 30))
    (told,) = bench.say("b", early(0, 4, 10, 20, 40))
    assert isinstance(told, DeliverTuples)
    assert told.stime_from == 30


def test_nothing_tentative_comes_and_nothing_is_taken_back() -> None:
    bench = Bench()
    assert bench.say("a", tentative(0, 10, 20), mark(Kind.TENTATIVE_BOUNDARY, 0, 30)) == []
    told = bench.say("a", mark(Kind.UNDO, 0, 30), stable(0, 10, 20), boundary(2, 30))
    assert [type(one) for one in told] == [DeliverTuples, DeliverBoundary]


def test_who_goes_on_from_an_id_waits_until_the_stream_in_order_is_there() -> None:
    bench = Bench(next_id=5)
    # That replica is behind: what it has early may be what an earlier life had in order.
    bench.say("a", boundary(3, 20))
    assert bench.say("a", early(7, 8, 25)) == []
    bench.say("b", boundary(5, 40))
    assert len(bench.say("a", early(7, 9, 25, 45))) == 1
