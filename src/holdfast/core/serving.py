"""Serving a stream: feeds to any number of subscribers, each from where it is.

Theory of operation. A served stream keeps an index of its untrimmed stable frames and of the
tentative frames that no stable ones have replaced yet. The tuples are behind opaque handles:
in memory, or places in the durable log. A new subscriber is sent what it lacks, stable tuples
by id and tentative ones by time, as one message; from then on it gets every frame as it is
published. Feed messages are counted, so that the subscriber notices a lost one, and heartbeat
replies say which feeds are served, so that it notices when its own is not.

While the stream is closed (its replica is recovering) subscribers are refused. While it is
*suspended* (its replica stands by) they are granted and sent nothing: when the replica wakes,
each is sent what it has not acknowledged, and the stream flows. Meanwhile the stream is
extended by what the other copy's checkpoints bring. Two copies cut a stream into frames
differently, so frames may then overlap; subscribers take each tuple once, by its id.

A stream that is *durable* before it is published, as that of an entry point is, can have no reader
who is ahead of it. Whoever asks for more than is here is refused: the log was lost, what lies
between is nowhere, and going on without it would be wrong unnoticed.

What is older than the first id here an entry point has trimmed, and nobody has it. A replica may
have begun there, because it joined (``core.joining``): it has the tuples *not here*, and whoever
needs them goes elsewhere. Heartbeats tell the first id, so that nobody need ask in vain.

Results whose place is not known yet (early_lane.py) go out as *early* frames, to those who asked
for such. They are neither logged nor acknowledged: they are kept until the boundary has passed
them, for whoever subscribes meanwhile, and are in the stable frames then.

When tentative or early frames exceed their limit the oldest go first; so do tentative ones beyond a
bound (bounds.py). How many tentative tuples went is counted: stable ones come in their place, but
whoever subscribes before that lacks them. Stable frames never go except by acknowledgement.

A stream may have no tuple for days, and so nothing to acknowledge, while its log goes on to get
boundaries and window states. So the log is trimmed now and then all the same, of what lies before
the newest of them, once all tuples are acknowledged.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque

from holdfast.core.acknowledgements import Acknowledged, Acknowledgements, TrimBelow
from holdfast.core.effects import Effect, Send, TrimLog
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import (
    FeedFrames,
    HeartbeatRequest,
    NotServed,
    StreamFrame,
    Subscribe,
    SubscribeRefused,
)
from holdfast.core.records import LoggedStream

KEPT_AS_TENTATIVE = (Kind.TENTATIVE, Kind.TENTATIVE_BOUNDARY)
# So many boundaries may gather in the log behind the last tuple.
BOUNDARIES_KEPT = 64


class ServedStream:
    """One stream as its provider keeps it."""

    def __init__(
        self,
        stream: str,
        consumers: tuple[str, ...],
        first_id: int = 0,
        frames: tuple[StreamFrame, ...] = (),
        tentative_frames: int = 10_000,
        durable: bool = False,
    ) -> None:
        self.stream = stream
        self._durable = durable
        self.open, self._opens = True, False
        self.suspended = False
        self.next_id = first_id
        # The greatest id that somebody has asked for: whoever does has all that comes before.
        self.asked_id = 0
        self.boundary = 0
        self.tentative_boundary = 0
        self.stable: list[StreamFrame] = []
        # What that comes to: it may be long, and is asked for often.
        self.kept_tuples = 0
        self.kept_bytes = 0
        self.tentative: deque[StreamFrame] = deque()
        # How many tentative frames there have been.
        self.tentative_come = 0
        self._tentative_frames = tentative_frames
        # Since the log was trimmed.
        self._boundaries = 0
        # Tentative tuples that went before stable ones came: of those that stand, and of all.
        self.dropped_now = 0
        self.dropped = 0
        # Of those that stand, those that went because there are more frames than may be kept.
        self.crowded_out = 0
        self.early: deque[StreamFrame] = deque(maxlen=tentative_frames)
        self.acknowledgements = Acknowledgements(stream, consumers, first_id)
        # What went out on each feed, by consumer: a heartbeat looks at its sender's only.
        self._sent: dict[str, dict[int, int]] = {}
        self._early_feeds: set[tuple[str, int]] = set()
        for frame in frames:
            self._keep(frame)

    @property
    def first_id(self) -> int:
        """The first id that can still be asked for."""
        return self.acknowledgements.trimmed_below

    def publish(self, frames: tuple[StreamFrame, ...]) -> list[Effect]:
        """Keep new frames and send them to every subscriber."""
        for frame in frames:
            self._keep(frame)
        if self._opens and self.boundary:
            self.let_in()
        effects = self._send(frames)
        if self.acknowledgements.abandoned:
            effects += self._trimmed(self.acknowledgements.forget_below(self.next_id))
        return effects + self._without_tuples()

    def _without_tuples(self) -> list[Effect]:
        """Trim the log of a stream that has nothing to acknowledge, when there is much in it."""
        if self._boundaries < BOUNDARIES_KEPT or self.first_id < self.next_id:
            return []
        self._boundaries = 0
        return [TrimLog(self.stream, self.first_id)]

    def _send(self, frames: tuple[StreamFrame, ...]) -> list[Effect]:
        effects: list[Effect] = []
        for consumer, feeds in self._sent.items():
            for feed, sent in feeds.items():
                feeds[feed] = sent + 1
                effects.append(Send(consumer, FeedFrames(feed, sent, frames)))
        return effects

    @property
    def wants_early(self) -> bool:
        """Whether somebody asked for results whose place is not known yet."""
        gone = [one for one in self._early_feeds if one[1] not in self._sent.get(one[0], ())]
        self._early_feeds.difference_update(gone)
        return bool(self._early_feeds)

    def publish_early(self, frame: StreamFrame) -> list[Effect]:
        """Send a frame to those who asked for such, and keep it for those who will."""
        if frame.header.stime_max >= self.boundary:
            self.early.append(frame)
        effects: list[Effect] = []
        for consumer, feed in sorted(self._early_feeds):
            sent = self._sent.get(consumer, {}).get(feed)
            if sent is not None:
                self._sent[consumer][feed] = sent + 1
                effects.append(Send(consumer, FeedFrames(feed, sent, (frame,))))
        return effects

    def subscribe(self, consumer: str, request: Subscribe) -> list[Effect]:
        """Send what the subscriber lacks, and everything new from now on."""
        self.asked_id = max(self.asked_id, request.next_id)
        if request.early:
            self._early_feeds.add((consumer, request.feed))
        if self.suspended:
            self._sent.setdefault(consumer, {})[request.feed] = 0
            return []
        if not self.open:
            return [Send(consumer, SubscribeRefused(request.feed, NotServed.RECOVERING))]
        if self._durable and request.next_id > self.next_id:
            detail = f"asked for {request.next_id}, but the log ends at {self.next_id}"
            return [Send(consumer, SubscribeRefused(request.feed, NotServed.LOST, detail))]
        if 0 <= request.next_id < self.first_id:
            why = NotServed.TRIMMED if self._durable else NotServed.NOT_HERE
            detail = f"below {self.first_id}, asked for {request.next_id}"
            return [Send(consumer, SubscribeRefused(request.feed, why, detail))]
        self._sent.setdefault(consumer, {})[request.feed] = 1
        return [Send(consumer, FeedFrames(request.feed, 0, self._lacking(request)))]

    def feeds(self, consumer: str, feed: int) -> bool:
        """Whether this is a feed of this stream."""
        return feed in self._sent.get(consumer, ())

    def unsubscribe(self, consumer: str, feed: int) -> None:
        self._sent.get(consumer, {}).pop(feed, None)

    def hear(self, consumer: str, request: HeartbeatRequest) -> list[int]:
        """Drop the consumer's feeds it no longer wants; the others."""
        feeds = self._sent.get(consumer)
        if not feeds:
            self._sent.pop(consumer, None)
            return []
        for feed in list(feeds):
            if feed not in request.feeds and feed <= request.newest_feed:
                del feeds[feed]
        return list(feeds)

    def acknowledge(self, consumer: str, first_needed: int, now: int) -> list[Effect]:
        """Note an acknowledgement; trim if it was the last one missing."""
        event = Acknowledged(consumer, min(first_needed, self.next_id))
        return self._trimmed(self.acknowledgements.handle(event, now))

    def leave(self, consumer: str) -> list[Effect]:
        """A consumer is gone for good: keep nothing for it, send it nothing."""
        self._sent.pop(consumer, None)
        trims = self.acknowledgements.leave(consumer)
        return self._trimmed([*trims, *self.acknowledgements.forget_below(self.next_id)])

    def lapse(self, consumer: str) -> list[Effect]:
        """A consumer is away for too long: keep nothing for it until it is heard of again."""
        trims = self.acknowledgements.lapse(consumer)
        return self._trimmed([*trims, *self.acknowledgements.forget_below(self.next_id)])

    def _trimmed(self, trims: list[TrimBelow]) -> list[Effect]:
        if not trims:
            return []
        keep = 0
        while keep < len(self.stable) and self.stable[keep].header.next_id <= self.first_id:
            keep += 1
        self._let_go(keep)
        self._boundaries = 0
        return [TrimLog(self.stream, trim.first_needed) for trim in trims]

    def wake(self) -> list[Effect]:
        """Flow again: send every subscriber what it has not acknowledged."""
        self.suspended = False
        effects: list[Effect] = []
        for consumer, feeds in self._sent.items():
            first_needed = self.acknowledgements.first_needed(consumer)
            for feed, sent in feeds.items():
                frames = self._lacking(Subscribe(self.stream, feed, first_needed, 0))
                feeds[feed] = sent + 1
                effects.append(Send(consumer, FeedFrames(feed, sent, frames)))
        return effects

    def let_in(self, open_: bool = True, opens: bool = False) -> None:
        """Whether whoever subscribes is served, or will be once there are results.

        Who is fed already is fed on.
        """
        self.open, self._opens = open_, opens

    def suspend(self) -> None:
        """Send no more; what is tentative is for the other copy to say."""
        self.suspended = True
        self.tentative.clear()
        self.dropped_now = self.crowded_out = 0
        self.tentative_boundary = 0

    def queue(self, next_id: int = 0) -> LoggedStream:
        """The output queue: what is not acknowledged, or what of it reaches beyond an id."""
        frames = [frame for frame in self.stable if frame.header.next_id > next_id]
        first_id = frames[0].header.first_id if frames else max(self.first_id, next_id)
        stime = self.boundary
        end = StreamFrame(Header(Kind.BOUNDARY, self.next_id, 0, stime, stime, stime))
        return LoggedStream(self.stream, min(first_id, self.next_id), (*frames, end))

    def extend(self, queue: LoggedStream) -> list[Effect]:
        """Take the tuples of another copy's queue that are new here, and publish them."""
        effects: list[Effect] = []
        if queue.first_id > self.next_id:
            # Everyone has acknowledged what lies between, and what was here before it.
            self._let_go(len(self.stable))
            self.next_id = queue.first_id
            self.acknowledgements.skip_to(queue.first_id)
            effects.append(TrimLog(self.stream, queue.first_id))
        fresh = []
        for frame in queue.frames:
            header = frame.header
            if header.kind is Kind.STABLE and header.next_id > self.next_id:
                self._add(frame)
                fresh.append(frame)
            elif header.kind is Kind.BOUNDARY and header.stime_min > self.boundary:
                self._keep(frame)
                fresh.append(frame)
        if fresh and not self.suspended:
            effects += self._send(tuple(fresh))
        return effects + self._without_tuples()

    def _keep(self, frame: StreamFrame) -> None:
        header = frame.header
        if header.kind is Kind.STABLE:
            if header.first_id != self.next_id:
                raise ValueError(f"{self.stream}: id {header.first_id}, next is {self.next_id}")
            self._add(frame)
        elif header.kind is Kind.BOUNDARY:
            self.boundary = header.stime_min
            self._boundaries += 1
            for kept in (self.tentative, self.early):
                while kept and kept[0].header.stime_max < self.boundary:
                    kept.popleft()
            if not self.tentative:
                self.dropped_now = self.crowded_out = 0
        elif header.kind in KEPT_AS_TENTATIVE:
            if len(self.tentative) >= self._tentative_frames:
                self.crowded_out += self._drop_oldest_tentative()
            self.tentative.append(frame)
            self.tentative_come += 1
            if header.kind is Kind.TENTATIVE_BOUNDARY:
                self.tentative_boundary = header.stime_min

    def _add(self, frame: StreamFrame) -> None:
        self.stable.append(frame)
        self.next_id = frame.header.next_id
        self.kept_tuples += frame.header.count
        self.kept_bytes += frame.nbytes

    def _let_go(self, frames: int) -> None:
        """The oldest stable frames are not needed any more."""
        for frame in self.stable[:frames]:
            self.kept_tuples -= frame.header.count
            self.kept_bytes -= frame.nbytes
        del self.stable[:frames]

    def drop_tentative(self, tuples: int, frames: int) -> None:
        """Let the oldest tentative frames go: so many at least, with so many tuples."""
        while self.tentative and (tuples > 0 or frames > 0):
            tuples -= self._drop_oldest_tentative()
            frames -= 1

    def _drop_oldest_tentative(self) -> int:
        count = self.tentative.popleft().header.count
        self.dropped_now += count
        self.dropped += count
        return count

    def _lacking(self, request: Subscribe) -> tuple[StreamFrame, ...]:
        next_id = self.next_id if request.next_id < 0 else request.next_id
        start = bisect_right(self.stable, next_id, key=lambda kept: kept.header.next_id)
        frames = self.stable[start:]
        if frames and frames[0].header.stime_min < request.tentative_boundary:
            stime = request.tentative_boundary
            frames.insert(0, StreamFrame(Header(Kind.UNDO, request.next_id, 0, stime, stime)))
        stime = self.boundary
        frames.append(StreamFrame(Header(Kind.BOUNDARY, self.next_id, 0, stime, stime, stime)))
        since = max(self.boundary, request.tentative_boundary)
        frames += [kept for kept in self.tentative if kept.header.stime_max >= since]
        if request.early:
            frames += self.early
        return tuple(frames)

    def validate(self) -> None:
        next_id = None
        for frame in self.stable:
            if next_id is not None and frame.header.first_id > next_id:
                raise ValueError(f"{self.stream}: ids jump from {next_id} in {frame.header}")
            next_id = frame.header.next_id
        kept = (
            sum(frame.header.count for frame in self.stable),
            sum(frame.nbytes for frame in self.stable),
        )
        if kept != (self.kept_tuples, self.kept_bytes):
            counted = (self.kept_tuples, self.kept_bytes)
            raise ValueError(f"{self.stream}: keeps {kept}, and takes it for {counted}")
        self.acknowledgements.validate()
