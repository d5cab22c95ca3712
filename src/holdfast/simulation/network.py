"""The simulated network: links between servers that delay, reorder, lose and break.

Messages of one connection stay in order, as TCP keeps them; messages of different connections
overtake each other. Feeds and control messages between two processes are two connections. A
message that is sent, or on its way, while its direction is cut is lost, and nobody is told;
losing a connection loses what is on its way and no more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from holdfast.core.messages import FeedFrames, Message, Subscribe, Unsubscribe
from holdfast.simulation.clock import Clock

OnFeedConnection = (FeedFrames, Subscribe, Unsubscribe)


class Network:
    """Every link of the world, by the servers at its ends."""

    def __init__(self, clock: Clock, random: Random, server_of: dict[str, str]) -> None:
        self.delivered = 0
        self.lost = 0
        self._clock = clock
        self._random = random
        self._server_of = server_of
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._slow_us: Counter[tuple[str, str]] = Counter()
        self._broken_at: dict[tuple[str, str], int] = {}
        self._last: dict[tuple[str, str, bool], int] = {}
        self.changed_at: dict[tuple[str, str], int] = {}
        self.deliver: Callable[[str, str, Message], None] = lambda source, target, message: None

    def cut(self, source: str, target: str) -> None:
        """Cut one direction between two servers; cuts add up."""
        self._cuts[source, target] += 1
        self.changed_at[source, target] = self._clock.now

    def heal(self, source: str, target: str) -> None:
        """Take one cut back."""
        self._cuts[source, target] -= 1
        self.changed_at[source, target] = self._clock.now

    def slow(self, source: str, target: str, delay_us: int) -> None:
        """Add to (or, negative, take from) a direction's delay."""
        self._slow_us[source, target] += delay_us
        self.changed_at[source, target] = self._clock.now

    def lose_connections(self, source: str, target: str) -> None:
        """Lose what is on its way."""
        self._broken_at[source, target] = self._clock.now
        self.changed_at[source, target] = self._clock.now

    def is_open(self, source: str, target: str) -> bool:
        """Whether messages from one server reach another."""
        return source == target or not self._cuts[source, target]

    def is_slow(self, source: str, target: str) -> bool:
        return self._slow_us[source, target] > 0

    def send(self, source: str, target: str, message: Message) -> None:
        """Send from process to process."""
        link = (self._server_of[source], self._server_of[target])
        if not self.is_open(*link):
            self.lost += 1
            return
        now = self._clock.now
        delay = 1_000 + int(self._random.random() * 9_000) + self._slow_us[link]
        connection = (source, target, isinstance(message, OnFeedConnection))
        arrival = max(now + delay, self._last.get(connection, 0) + 1)
        self._last[connection] = arrival
        self._clock.at(arrival, self._arrive, link, now, source, target, message)

    def _arrive(
        self, link: tuple[str, str], sent_at: int, source: str, target: str, message: Message
    ) -> None:
        broken = self._broken_at.get(link, -1) >= sent_at
        if broken or not self.is_open(*link):
            self.lost += 1
            return
        self.delivered += 1
        self.deliver(source, target, message)
