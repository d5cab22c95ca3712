"""The simulated network: links between servers that delay, reorder, lose and break.

Messages of one connection stay in order, as TCP keeps them; messages of different connections
overtake each other. Feeds and control messages between two processes are two connections. A
message that is sent, or on its way, while its direction is cut is lost, and nobody is told;
losing a connection loses what is on its way and no more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from holdfast.core.messages import FeedFrames, Message, Subscribe, Unsubscribe
from holdfast.simulation.clock import Clock

ON_FEED_CONNECTION = frozenset({FeedFrames, Subscribe, Unsubscribe})


@dataclass(slots=True)
class Link:
    """One direction between two servers."""

    cuts: int = 0
    slow_us: int = 0
    broken_at: int = -1
    changed_at: int = 0


@dataclass(slots=True)
class Connection:
    """What one process sends another, in order."""

    link: Link
    last_arrival: int = 0


class Network:
    """Every link of the world, by the servers at its ends."""

    def __init__(self, clock: Clock, random: Random, server_of: dict[str, str]) -> None:
        self.delivered = 0
        self.lost = 0
        self._clock = clock
        self._random = random.random
        self._server_of = server_of
        self._links: dict[tuple[str, str], Link] = {}
        self._islands: list[frozenset[str]] = []
        self._connections: dict[tuple[str, str, bool], Connection] = {}
        self.deliver: Callable[[str, str, Message], None] = lambda source, target, message: None

    def link(self, source: str, target: str) -> Link:
        """The direction from one server to another."""
        link = self._links.get((source, target))
        if link is None:
            cuts = sum((source in island) != (target in island) for island in self._islands)
            link = self._links[source, target] = Link(cuts)
        return link

    def cut(self, source: str, target: str) -> None:
        """Cut one direction between two servers; cuts add up."""
        self._change(source, target).cuts += 1

    def heal(self, source: str, target: str) -> None:
        """Take one cut back."""
        self._change(source, target).cuts -= 1

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

    def slow(self, source: str, target: str, delay_us: int) -> None:
        """Add to (or, negative, take from) a direction's delay."""
        self._change(source, target).slow_us += delay_us

    def lose_connections(self, source: str, target: str) -> None:
        """Lose what is on its way."""
        self._change(source, target).broken_at = self._clock.now

    def _change(self, source: str, target: str) -> Link:
        link = self.link(source, target)
        link.changed_at = self._clock.now
        return link

    def send(self, source: str, target: str, message: Message) -> None:
        """Send from process to process."""
        key = (source, target, type(message) in ON_FEED_CONNECTION)
        connection = self._connections.get(key)
        if connection is None:
            link = self.link(self._server_of[source], self._server_of[target])
            connection = self._connections[key] = Connection(link)
        link = connection.link
        if link.cuts:
            self.lost += 1
            return
        now = self._clock.now
        arrival = now + 1_000 + int(self._random() * 9_000) + link.slow_us
        if arrival <= connection.last_arrival:
            arrival = connection.last_arrival + 1
        connection.last_arrival = arrival
        self._clock.at(arrival, self._arrive, link, now, source, target, message)

    def _arrive(self, link: Link, sent_at: int, source: str, target: str, message: Message) -> None:
        if link.cuts or link.broken_at >= sent_at:
            self.lost += 1
            return
        self.delivered += 1
        self.deliver(source, target, message)
