"""The simulated network: links between servers that delay, hold up, lose and break.

It keeps the product's rules (``flight``). Every feed is a connection of its own, opened by
Subscribe: it loses nothing unless it breaks, and then its reader is told (FeedLost), sooner or
later. While a direction is cut, what it carries waits; a connection that has waited for longer
than its patience breaks. A message that is large is handed on in pieces (``core.pieces``), and a
connection may break between two of them. A feed that cannot be opened is lost after a pause,
which grows while the peer keeps failing.

Everything else is a call with a deadline: over a link that is cut it is lost, or late if the link
is whole again in time. Messages of one process to another stay in order; those of feeds and those
of other processes overtake them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

from holdfast.core.messages import (
    FeedFrames,
    Message,
    StreamFrame,
    Subscribe,
    SubscribeRefused,
    Unsubscribe,
)
from holdfast.core.pauses import pause_after
from holdfast.core.pieces import ends_piece
from holdfast.core.settings import SECOND_US
from holdfast.simulation.clock import Clock

# How long a connection waits for a link before it breaks: a reset, or keepalive at the latest.
PATIENCE_US = (100_000, SECOND_US, 4 * SECOND_US, 15 * SECOND_US)
CALL_US = 2 * SECOND_US
_LASTED_US = SECOND_US
_LONGEST_PAUSE_US = 2 * SECOND_US


@dataclass(frozen=True, slots=True)
class Quality:
    """How the connections of a world behave.

    piece_rows   a message with more rows is handed on in pieces.
    breaks       how often a connection breaks between two pieces.
    distance_us  how much longer than within one place messages take from a server to another.
    """

    piece_rows: int = 1 << 30
    breaks: float = 0.0
    distance_us: Mapping[tuple[str, str], int] = field(default_factory=dict)


@dataclass(slots=True)
class Link:
    """One direction between two servers."""

    cuts: int = 0
    distance_us: int = 0
    slow_us: int = 0
    broken_at: int = -1
    changed_at: int = 0
    # Calls that were made while it was cut, and may still be in time.
    late: list[tuple[int, str, str, Message]] = field(default_factory=list)


@dataclass(slots=True)
class Feed:
    """The connection of one feed.

    handed_on  how many pieces have come: their numbers, as the reading end counts them.
    middle     whether the last one was not the last of its message.
    held       what waits for the link to be whole again.
    """

    reader: str
    provider: str
    id: int
    opened_at: int
    patience_us: int
    link: Link
    back: Link
    handed_on: int = 0
    middle: bool = False
    last_arrival: int = 0
    cut_at: int | None = None
    closed_at: int | None = None
    held: list[tuple[Message, int]] = field(default_factory=list)


class Network:
    """Every link of the world, by the servers at its ends, and the feeds that run over them."""

    def __init__(
        self,
        clock: Clock,
        random: Random,
        server_of: dict[str, str],
        quality: Quality | None = None,
    ) -> None:
        # What happened that no schedule says.
        self.counts: Counter[str] = Counter()
        self._clock = clock
        self._random = random.random
        self._choice = random.choice
        self._server_of = server_of
        self._quality = quality or Quality()
        self._links: dict[tuple[str, str], Link] = {}
        self._islands: list[frozenset[str]] = []
        self._calls: dict[tuple[str, str], tuple[Link, int]] = {}
        self._feeds: dict[tuple[str, int], Feed] = {}
        self._failures: Counter[tuple[str, str]] = Counter()
        self.deliver: Callable[[str, str, Message], None] = lambda source, target, message: None
        self.lose_feed: Callable[[str, int], None] = lambda reader, feed: None
        self.fail_call: Callable[[str, Message], None] = lambda source, message: None

    # -- links --------------------------------------------------------------------------

    def link(self, source: str, target: str) -> Link:
        """The direction from one server to another."""
        link = self._links.get((source, target))
        if link is None:
            cuts = sum((source in island) != (target in island) for island in self._islands)
            distance_us = self._quality.distance_us.get((source, target), 0)
            link = self._links[source, target] = Link(cuts, distance_us)
        return link

    def _travel_us(self, link: Link) -> int:
        """How long the next message takes."""
        return 1_000 + int(self._random() * 9_000) + link.distance_us + link.slow_us

    def cut(self, source: str, target: str) -> None:
        """Cut one direction between two servers; cuts add up."""
        self._change(source, target).cuts += 1
        self._look_at_feeds()

    def heal(self, source: str, target: str) -> None:
        """Take one cut back."""
        link = self._change(source, target)
        link.cuts -= 1
        self._send_late(link)
        self._look_at_feeds()

    def part(self, island: frozenset[str]) -> None:
        """Cut some servers off from all others, both ways."""
        self._islands.append(island)
        self._change_around(island, 1)

    def rejoin(self, island: frozenset[str]) -> None:
        """Take that back."""
        self._islands.remove(island)
        self._change_around(island, -1)

    def _change_around(self, island: frozenset[str], cuts: int) -> None:
        # A link that nobody has used yet finds out when it is made.
        for (source, target), link in self._links.items():
            if (source in island) != (target in island):
                link.cuts += cuts
                link.changed_at = self._clock.now
                self._send_late(link)
        self._look_at_feeds()

    def slow(self, source: str, target: str, delay_us: int) -> None:
        """Add to (or, negative, take from) a direction's delay."""
        self._change(source, target).slow_us += delay_us

    def lose_connections(self, source: str, target: str) -> None:
        """Break the connections of one direction; what is on its way is lost."""
        link = self._change(source, target)
        link.broken_at = self._clock.now
        for feed in [one for one in self._feeds.values() if one.link is link]:
            self._break(feed)

    def _change(self, source: str, target: str) -> Link:
        link = self.link(source, target)
        link.changed_at = self._clock.now
        return link

    def in_use(self, source: str, target: str) -> bool:
        """Whether a feed runs over the link, one way or the other."""
        links = (self._links.get((source, target)), self._links.get((target, source)))
        return any(feed.link in links for feed in self._feeds.values())

    # -- calls --------------------------------------------------------------------------

    def send(self, source: str, target: str, message: Message) -> None:
        """Send from process to process."""
        kind = type(message)
        if kind is FeedFrames or kind is SubscribeRefused:
            self._send_on_feed(source, target, message)  # type: ignore[arg-type]
            return
        if kind is Subscribe:
            self._open(source, target, message)  # type: ignore[arg-type]
            return
        if kind is Unsubscribe:
            feed = self._feeds.pop((source, message.feed), None)  # type: ignore[union-attr]
            if feed is not None:
                feed.closed_at = self._clock.now
        self._call(source, target, message)

    def _call(self, source: str, target: str, message: Message) -> None:
        found = self._calls.get((source, target))
        if found is None:
            found = (self.link(self._server_of[source], self._server_of[target]), 0)
        link, last_arrival = found
        now = self._clock.now
        if link.cuts:
            self._wait_for(link, now, source, target, message)
            return
        arrival = now + self._travel_us(link)
        if arrival <= last_arrival:
            arrival = last_arrival + 1
        self._calls[source, target] = (link, arrival)
        self._clock.at(arrival, self._arrive, link, now, source, target, message)

    def _wait_for(
        self, link: Link, sent_at: int, source: str, target: str, message: Message
    ) -> None:
        if self._random() < 0.5:
            link.late.append((sent_at, source, target, message))
        else:
            self._fail(sent_at, source, message)

    def _fail(self, sent_at: int, source: str, message: Message) -> None:
        """Nobody took it; the caller knows when its deadline is over."""
        self._clock.at(sent_at + CALL_US, self.fail_call, source, message)

    def _send_late(self, link: Link) -> None:
        if link.cuts or not link.late:
            return
        late, link.late = link.late, []
        for sent_at, source, target, message in late:
            if self._clock.now - sent_at < CALL_US:
                self._call(source, target, message)
            else:
                self._fail(sent_at, source, message)

    def _arrive(self, link: Link, sent_at: int, source: str, target: str, message: Message) -> None:
        if link.broken_at >= sent_at:
            self._fail(sent_at - CALL_US, source, message)
        elif link.cuts:
            self._wait_for(link, sent_at, source, target, message)
        else:
            self.deliver(source, target, message)

    # -- feeds --------------------------------------------------------------------------

    def _open(self, reader: str, provider: str, request: Subscribe) -> None:
        there, here = self._server_of[provider], self._server_of[reader]
        feed = Feed(
            reader,
            provider,
            request.feed,
            self._clock.now,
            self._choice(PATIENCE_US),
            self.link(there, here),
            self.link(here, there),
        )
        self._feeds[reader, request.feed] = feed
        self._look_at(feed)
        self._clock.after(self._travel_us(feed.back), self._opened, feed, request)

    def _opened(self, feed: Feed, request: Subscribe) -> None:
        """The request is there, if the link is whole; else it waits, or breaks."""
        if self._feeds.get((feed.reader, feed.id)) is not feed:
            return
        if feed.back.cuts:
            self._clock.after(50_000, self._opened, feed, request)
            return
        self.deliver(feed.reader, feed.provider, request)

    def _send_on_feed(
        self, provider: str, reader: str, message: FeedFrames | SubscribeRefused
    ) -> None:
        feed = self._feeds.get((reader, message.feed))
        if feed is None or feed.provider != provider:
            # Its connection is gone; the provider's server says so.
            self._clock.after(1_000, self.deliver, reader, provider, Unsubscribe(message.feed))
            return
        arrival = self._clock.now + self._travel_us(feed.link)
        if arrival <= feed.last_arrival:
            arrival = feed.last_arrival + 1
        pieces = self._pieces(message)
        left = len(pieces)
        breaks = left > 1 and self._random() < self._quality.breaks
        breaks_after = int(self._random() * (left - 1)) + 1 if breaks else left
        for number, piece in enumerate(pieces, 1):
            left -= 1
            if number > breaks_after:
                self._clock.at(arrival, self._break, feed)
                break
            self._clock.at(arrival, self._hand_on, feed, piece, left)
            feed.last_arrival = arrival
            arrival += 1 + int(self._random() * 20_000)

    def _pieces(self, message: FeedFrames | SubscribeRefused) -> list[Message]:
        """The message as the reading end hands it on."""
        if isinstance(message, SubscribeRefused) or len(message.frames) < 2:
            return [message]
        pieces: list[Message] = []
        frames: list[StreamFrame] = []
        left, rows = len(message.frames), 0
        for frame in message.frames:
            left -= 1
            frames.append(frame)
            if frame.header.kind.is_data:
                rows += frame.header.count
            if ends_piece(frame.header, left, rows, self._quality.piece_rows):
                pieces.append(FeedFrames(message.feed, message.seq, tuple(frames)))
                frames, rows = [], 0
        if len(pieces) > 1:
            self.counts["split message"] += 1
        return pieces

    def _hand_on(self, feed: Feed, message: Message, left: int) -> None:
        if self._feeds.get((feed.reader, feed.id)) is not feed:
            # A reader that has just left may be handed what was on its way.
            just = feed.closed_at is not None and self._clock.now - feed.closed_at < 10_000
            if not just:
                return
        elif feed.link.cuts or feed.held:
            feed.held.append((message, left))
            return
        feed.middle = left > 0
        self._failures.pop((feed.reader, feed.provider), None)
        if isinstance(message, FeedFrames):
            message = FeedFrames(feed.id, feed.handed_on, message.frames)
            feed.handed_on += 1
        else:
            self._feeds.pop((feed.reader, feed.id), None)
        self.deliver(feed.provider, feed.reader, message)

    def _look_at_feeds(self) -> None:
        for feed in list(self._feeds.values()):
            self._look_at(feed)

    def _look_at(self, feed: Feed) -> None:
        """Whether its link is cut now: its patience begins, or ends."""
        if feed.link.cuts or feed.back.cuts:
            if feed.cut_at is None:
                feed.cut_at = self._clock.now
                self._clock.after(feed.patience_us, self._give_up, feed, feed.cut_at)
            return
        feed.cut_at = None
        if feed.held:
            # What was sent meanwhile is sent again, in its order.
            held, feed.held = feed.held, []
            link_us = feed.link.distance_us + feed.link.slow_us
            arrival = max(
                self._clock.now + int(self._random() * 200_000) + link_us, feed.last_arrival + 1
            )
            for message, left in held:
                self._clock.at(arrival, self._hand_on, feed, message, left)
                feed.last_arrival = arrival
                arrival += 1

    def _give_up(self, feed: Feed, cut_at: int) -> None:
        if feed.cut_at == cut_at:
            self._break(feed)

    def _break(self, feed: Feed) -> None:
        """The connection is no more; both ends are told, each in its time."""
        if self._feeds.get((feed.reader, feed.id)) is not feed:
            return
        del self._feeds[feed.reader, feed.id]
        if feed.middle:
            self.counts["broken connection mid-message"] += 1
        self._clock.after(
            int(self._random() * 100_000), self.deliver, feed.reader, feed.provider,
            Unsubscribe(feed.id),
        )  # fmt: skip
        pause_us = 0
        if self._clock.now - feed.opened_at < _LASTED_US:
            pair = (feed.reader, feed.provider)
            self._failures[pair] += 1
            pause_us = pause_after(self._failures[pair] + 1, 50_000, _LONGEST_PAUSE_US)
        self._clock.after(pause_us, self.lose_feed, feed.reader, feed.id)

    def refuse(self, reader: str, feed: int) -> None:
        """Nobody listens where the feed was to be opened."""
        found = self._feeds.get((reader, feed))
        if found is not None:
            self._break(found)

    def crash(self, process: str, machine: bool) -> None:
        """A process is gone, and its connections with it: at once, or unnoticed for a while."""
        for feed in list(self._feeds.values()):
            if feed.reader == process:
                del self._feeds[process, feed.id]
                away = Unsubscribe(feed.id)
                after = feed.patience_us if machine else 1_000
                self._clock.after(after, self.deliver, process, feed.provider, away)
            elif feed.provider == process:
                if machine:
                    feed.cut_at = self._clock.now
                    self._clock.after(feed.patience_us, self._give_up, feed, feed.cut_at)
                else:
                    self._clock.after(1_000, self._reset, feed)

    def restart(self, process: str) -> None:
        """Whoever comes back knows nothing of earlier connections, and says so when asked.

        What an earlier life has sent may still be on its way, and is overtaken.
        """
        for pair in [pair for pair in self._calls if pair[0] == process]:
            del self._calls[pair]
        for feed in list(self._feeds.values()):
            if feed.provider == process:
                self._clock.after(int(self._random() * 200_000), self._reset, feed)

    def _reset(self, feed: Feed) -> None:
        """The other end says that there is no such connection, if it can be heard.

        If not, the connection is half open: its reader has it, and nothing will come.
        """
        if not feed.link.cuts:
            self._break(feed)
