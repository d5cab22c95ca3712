"""The reading side of a process: heartbeats to its producers and one upstream per stream.

Replicas and clients read in the same way; this is what they share. It turns the messages of
producers into frames of streams, and asks every producer for heartbeats, which also carry the
acknowledgements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from holdfast.core import detector
from holdfast.core.detector import AskPeer, FailureDetector, PeerLost
from holdfast.core.effects import Send
from holdfast.core.events import FeedLost, MembershipTold, MessageArrived, TimerFired
from holdfast.core.feed import FeedIds
from holdfast.core.machine import Machine, PeerError
from holdfast.core.messages import (
    FeedFrames,
    HeartbeatReply,
    HeartbeatRequest,
    SubscribeRefused,
)
from holdfast.core.settings import Input, Timing
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.upstream import Upstream
from holdfast.core.upstream_events import (
    FeedArrived,
    FeedBroken,
    PeerReported,
    PeerSilent,
    UpstreamEffect,
)

ConsumerEvent: TypeAlias = MessageArrived | FeedLost | TimerFired | MembershipTold
ConsumerEffect: TypeAlias = UpstreamEffect


class Consumer:
    """Everything a process does to receive its input streams."""

    def __init__(
        self,
        owner: str,
        inputs: tuple[Input, ...],
        copies: dict[str, StreamCopy],
        timing: Timing,
        full: Callable[[int], str] = lambda now: "",
    ) -> None:
        """``full`` gives the reason why it wants no more for now."""
        self._owner = owner
        self._full = full
        interval_us = timing.heartbeat_interval_us
        self._feed_ids = FeedIds()
        self.upstreams = {
            one.stream: Upstream(
                owner,
                one.producers,
                copies[one.stream],
                self._feed_ids,
                behind_us=timing.alpha_x_us,
                reply_us=2 * interval_us,
                stands=one.standing,
                part=one.part,
                early=one.early,
                collected=dict(one.collected),
            )
            for one in inputs
        }
        self.acks = {one.stream: copies[one.stream].next_id for one in inputs}
        peers = dict.fromkeys(peer for one in inputs for peer in one.producers)
        self._streams_at = {
            peer: tuple(one.stream for one in inputs if peer in one.producers) for peer in peers
        }
        self._timing = timing
        self.detectors = {peer: self._detector(peer) for peer in peers}
        # Which life of its directory this is, and the newest that a producer knows of.
        self.incarnation = 0
        self.newest_life = 0
        # When the next heartbeat request is to go out.
        self.next_due = 0

    def _detector(self, peer: str) -> FailureDetector:
        timing = self._timing
        interval_us, misses = timing.heartbeat_interval_us, timing.misses_until_down
        return FailureDetector(peer, interval_us, misses, self._owner)

    def machines(self) -> Iterator[Machine[Any, Any]]:
        yield from self.detectors.values()
        yield from self.upstreams.values()

    def handle(self, event: ConsumerEvent, now: int) -> list[ConsumerEffect]:
        match event:
            case MessageArrived(sender, FeedFrames() as message):
                if sender not in self._streams_at:
                    raise PeerError(f"{self._owner}: frames of {sender}, which is no producer here")
                # A sign of life as good as an answer: on a busy machine answers come late, and
                # to give up a producer that sends would be to begin again and again.
                self.detectors[sender].handle(detector.Replied(), now)
                arrived = FeedArrived(sender, message)
                owner = self._stream_of(message.feed) or self._streams_at[sender][0]
                return self.upstreams[owner].handle(arrived, now)
            case MessageArrived(sender, HeartbeatReply() as reply):
                return self._heard(sender, reply, now)
            case MessageArrived(_, SubscribeRefused()):
                # Trying again waits for the next heartbeat: it finds the feed missing there.
                return []
            case FeedLost(feed):
                stream = self._stream_of(feed)
                if stream is None:
                    return []
                return self.upstreams[stream].handle(FeedBroken(feed), now)
            case TimerFired():
                return self._tick(now)
            case MembershipTold(membership):
                for peer, like in membership.added:
                    self._take_in(peer, like)
                effects = [
                    effect
                    for peer, _ in membership.gone
                    if peer in self.detectors
                    for effect in self._leave(peer, now)
                ]
                for stream, one in self.upstreams.items():
                    collected = membership.collected_from(self._owner, stream)
                    effects += one.collect(collected, now)
                return effects
        return []

    def _take_in(self, peer: str, like: str) -> None:
        """A producer was added: it is asked as another one is that has the same streams."""
        if peer in self.detectors or like not in self.detectors:
            return
        self._streams_at[peer] = self._streams_at[like]
        self.detectors[peer] = self._detector(peer)
        for stream in self._streams_at[peer]:
            self.upstreams[stream].take_in(peer)

    def _leave(self, peer: str, now: int) -> list[ConsumerEffect]:
        """A producer takes part no longer: it is not asked any more."""
        del self.detectors[peer]
        effects: list[ConsumerEffect] = []
        for stream in self._streams_at.pop(peer):
            effects += self.upstreams[stream].leave(peer, now)
        return effects

    def acknowledge(self, acks: Mapping[str, int]) -> None:
        """From now on heartbeats say that these are the first ids that may be asked for again."""
        self.acks.update(acks)

    def acknowledge_as(self, acks: Mapping[str, int]) -> None:
        """Begin with what was acknowledged before; of another stream nothing was."""
        self.acks = {name: acks.get(name, 0) for name in self.acks}

    def live_as(self, incarnation: int) -> None:
        """From now on this is that life of the directory."""
        self.incarnation = incarnation

    def needs(self, feed: int) -> bool:
        """Whether what an open feed asked for is still lacking.

        If not, its being refused means nothing: a request may be so long on its way that what it
        asks for has come from another replica, and was acknowledged and trimmed meanwhile.
        """
        stream = self._stream_of(feed)
        if stream is None:
            return False
        one = self.upstreams[stream]
        return any(each.id == feed and each.asked_from == one.copy.next_id for each in one.feeds())

    def out_of_reach(self) -> tuple[str, int] | None:
        """A stream of which nobody who can be heard has what is needed, and what there is."""
        for stream, one in self.upstreams.items():
            first_id = one.out_of_reach
            if first_id is not None:
                return stream, first_id
        return None

    def _stream_of(self, feed: int) -> str | None:
        for stream, one in self.upstreams.items():
            if one.main is not None and one.main.id == feed:
                return stream
        for stream, one in self.upstreams.items():
            if any(each.id == feed for each in one.feeds()):
                return stream
        return None

    def _tick(self, now: int) -> list[ConsumerEffect]:
        effects: list[ConsumerEffect] = []
        for peer, one in self.detectors.items():
            if now < one.next_ask_at:
                continue
            for effect in one.handle(detector.TimePassed(), now):
                if isinstance(effect, AskPeer):
                    effects.append(self._request(peer, self._full(now)))
                elif isinstance(effect, PeerLost):
                    for stream in self._streams_at[peer]:
                        effects += self.upstreams[stream].handle(PeerSilent(peer), now)
        self.next_due = min(one.next_ask_at for one in self.detectors.values())
        return effects

    def _request(self, peer: str, full: str) -> Send:
        streams = self._streams_at[peer]
        feeds = tuple([feed for name in streams for feed in self.upstreams[name].feeds_at(peer)])
        acks = tuple([(name, self.acks[name]) for name in streams])
        newest, life = self._feed_ids.newest, self.incarnation
        return Send(peer, HeartbeatRequest(streams, acks, feeds, newest, life, full=full))

    def _heard(self, peer: str, reply: HeartbeatReply, now: int) -> list[ConsumerEffect]:
        if peer not in self.detectors:
            return []
        for report in reply.reports:
            if not 0 <= report.boundary <= report.live_boundary:
                raise PeerError(f"{self._owner}: {peer} cannot be where it says: {report}")
        self.newest_life = max(self.newest_life, reply.incarnation)
        self.detectors[peer].handle(detector.Replied(), now)
        effects: list[ConsumerEffect] = []
        for report in reply.reports:
            if report.stream in self._streams_at[peer]:
                event = PeerReported(peer, report, reply.feeds)
                effects += self.upstreams[report.stream].handle(event, now)
        return effects

    def validate(self) -> None:
        for one in self.detectors.values():
            one.validate()
        for each in self.upstreams.values():
            each.validate()
