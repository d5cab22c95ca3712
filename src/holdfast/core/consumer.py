"""The reading side of a process: heartbeats to its producers and one upstream per stream.

Replicas and clients read in the same way; this is what they share. It turns the messages of
producers into frames of streams, and asks every producer for heartbeats, which also carry the
acknowledgements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypeAlias

from holdfast.core import detector, upstream
from holdfast.core.detector import AskPeer, FailureDetector, PeerLost
from holdfast.core.effects import Send
from holdfast.core.events import FeedLost, MessageArrived, TimerFired
from holdfast.core.machine import Machine
from holdfast.core.messages import (
    FeedFrames,
    HeartbeatReply,
    HeartbeatRequest,
    StreamFrame,
    SubscribeRefused,
)
from holdfast.core.settings import Input, Timing
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.upstream import FeedIds, JudgeSource, TakeFrame, Tell, Upstream


@dataclass(frozen=True, slots=True)
class FrameTaken:
    """A frame of a stream, in its feed's order; a gap in it is answered with FeedLost."""

    stream: str
    frame: StreamFrame
    feed: int


@dataclass(frozen=True, slots=True)
class SourceChanged:
    """Whether a stable replica of a stream is known has changed."""

    stream: str
    hopeless: bool


ConsumerEvent: TypeAlias = MessageArrived | FeedLost | TimerFired
ConsumerEffect: TypeAlias = Send | FrameTaken | SourceChanged


class Consumer:
    """Everything a process does to receive its input streams."""

    def __init__(
        self, owner: str, inputs: tuple[Input, ...], copies: dict[str, StreamCopy], timing: Timing
    ) -> None:
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
            )
            for one in inputs
        }
        self.acks = {one.stream: copies[one.stream].next_id for one in inputs}
        peers = dict.fromkeys(peer for one in inputs for peer in one.producers)
        self._streams_at = {
            peer: tuple(one.stream for one in inputs if peer in one.producers) for peer in peers
        }
        self.detectors = {
            peer: FailureDetector(peer, interval_us, timing.misses_until_down, owner)
            for peer in peers
        }

    def machines(self) -> Iterator[Machine[Any, Any]]:
        yield from self.detectors.values()
        yield from self.upstreams.values()

    @property
    def next_due(self) -> int:
        """When the next heartbeat request is to go out."""
        return min(one.next_ask_at for one in self.detectors.values())

    def handle(self, event: ConsumerEvent, now: int) -> list[ConsumerEffect]:
        match event:
            case MessageArrived(sender, FeedFrames() as message):
                arrived = upstream.FeedArrived(sender, message)
                owner = self._stream_of(message.feed) or self._streams_at[sender][0]
                return self._on(owner, arrived, now)
            case MessageArrived(sender, HeartbeatReply() as reply):
                return self._heard(sender, reply, now)
            case MessageArrived(_, SubscribeRefused(feed, _)):
                # Trying again waits for the next heartbeat: it finds the feed missing there.
                return []
            case FeedLost(feed):
                stream = self._stream_of(feed)
                return [] if stream is None else self._on(stream, upstream.FeedBroken(feed), now)
            case TimerFired():
                return self._tick(now)
        return []

    def _stream_of(self, feed: int) -> str | None:
        for stream, one in self.upstreams.items():
            if any(open_feed.id == feed for open_feed in (one.main, one.corrections) if open_feed):
                return stream
        return None

    def _tick(self, now: int) -> list[ConsumerEffect]:
        effects: list[ConsumerEffect] = []
        for peer, one in self.detectors.items():
            if now < one.next_ask_at:
                continue
            for effect in one.handle(detector.TimePassed(), now):
                if isinstance(effect, AskPeer):
                    effects.append(self._request(peer))
                elif isinstance(effect, PeerLost):
                    for stream in self._streams_at[peer]:
                        effects += self._on(stream, upstream.PeerSilent(peer), now)
        return effects

    def _request(self, peer: str) -> Send:
        streams = self._streams_at[peer]
        feeds = tuple(feed for name in streams for feed in self.upstreams[name].feeds_at(peer))
        acks = tuple((name, self.acks[name]) for name in streams)
        return Send(peer, HeartbeatRequest(streams, acks, feeds, self._feed_ids.newest))

    def _heard(self, peer: str, reply: HeartbeatReply, now: int) -> list[ConsumerEffect]:
        if peer not in self.detectors:
            return []
        self.detectors[peer].handle(detector.Replied(), now)
        effects: list[ConsumerEffect] = []
        sent = dict(reply.feeds)
        for report in reply.reports:
            if report.stream in self.upstreams:
                event = upstream.PeerReported(peer, report, sent)
                effects += self._on(report.stream, event, now)
        return effects

    def _on(self, stream: str, event: upstream.UpstreamEvent, now: int) -> list[ConsumerEffect]:
        effects: list[ConsumerEffect] = []
        for effect in self.upstreams[stream].handle(event, now):
            match effect:
                case Tell(peer, message):
                    effects.append(Send(peer, message))
                case TakeFrame(frame, feed):
                    effects.append(FrameTaken(stream, frame, feed))
                case JudgeSource(hopeless):
                    effects.append(SourceChanged(stream, hopeless))
        return effects

    def validate(self) -> None:
        for one in self.detectors.values():
            one.validate()
        for each in self.upstreams.values():
            each.validate()
