"""Feeds of an input that were collected, and when one of them is needed all the same.

Theory of operation. Who reads racing replicas keeps a feed at each of them, but for those of which
the membership says that they are *collected*: they cost more than they are worth to this reader
(``core.collection``). Nothing else changes. Collected producers are asked for heartbeats like all
others, keep tuples until they are acknowledged, and say how far they are; so a feed there can be
opened at any time and goes on where the reader is.

The reader revives one by itself, without asking anybody, when it sees that it needs it:

    what a collected producer has published is not here for longer than usual: its boundary was
    heard of, and is not reached. What is usual is learned as a detector learns how long answers
    take: the mean of such delays and their mean deviation. A delay is unusual beyond the mean and
    four deviations, and beyond the time of two heartbeats, which is how exactly it is known; and
    always beyond a third of what a tuple may wait, where a producer counts as being behind;

    a producer at which a feed was kept is lost, or begins anew: another one takes its place;

    nobody else has what is to be followed (``core.upstream`` picks one then, collected or not).

It revives one at a time, the furthest, and looks again. A revived feed stays until the membership
says in a later epoch that it is collected: whoever decides has seen by then what it is worth.
"""

from __future__ import annotations

from collections.abc import Mapping


class Revival:
    """What was collected of one input, and what of that is used all the same."""

    def __init__(self, exact_us: int, longest_us: int) -> None:
        # How exactly delays are known, and what is too long, whatever is usual.
        self._exact_us = exact_us
        self._longest_us = max(exact_us, longest_us)
        # The epoch in which each producer's feed was collected, and those that were revived since.
        self._collected: dict[str, int] = {}
        self._revived: dict[str, int] = {}
        self.spared: frozenset[str] = frozenset()
        # Kept producers that were of use, so that they can be missed.
        self._seen: set[str] = set()
        # A boundary that a collected producer has published, and since when it is lacking.
        self._awaited: tuple[int, int] | None = None
        self._mean_us = 0.0
        self._deviation_us = 0.0

    @property
    def revived(self) -> tuple[str, ...]:
        """The producers whose feeds are used though they were collected."""
        return tuple(sorted(self._revived))

    @property
    def patience_us(self) -> int:
        """The delay beyond which one is unusual."""
        usual = int(self._mean_us + 4 * self._deviation_us)
        return min(max(usual, self._exact_us), self._longest_us)

    def told(self, collected: Mapping[str, int]) -> bool:
        """The feeds that are collected, and in which epoch each was; whether that is news."""
        changes = dict(collected) != self._collected
        self._collected = dict(collected)
        self._revived = {
            peer: epoch for peer, epoch in self._revived.items() if collected.get(peer) == epoch
        }
        self._spare()
        return changes

    def revive(self, peer: str) -> None:
        """Use the feed of a producer again, if it was collected."""
        if peer in self.spared:
            self._revived[peer] = self._collected[peer]
            self._awaited = None
            self._spare()

    def left(self, peer: str) -> None:
        """A producer takes part no longer: who decided that has seen to it that others do."""
        self._seen.discard(peer)

    def _spare(self) -> None:
        self.spared = frozenset(self._collected.keys() - self._revived.keys())
        if not self.spared:
            self._awaited = None

    def look(self, boundaries: Mapping[str, int], reached: int, now: int) -> None:
        """Revive what is needed. ``boundaries``: how far those are that are of use."""
        if not self._collected:
            return
        lost = self._seen - boundaries.keys()
        self._seen = {peer for peer in boundaries if peer not in self.spared}
        there = [peer for peer in boundaries if peer in self.spared]
        if not there:
            return
        furthest = max(there, key=lambda peer: (boundaries[peer], peer))
        if lost or self._is_late(boundaries[furthest], reached, now):
            self.revive(furthest)

    def _is_late(self, published: int, reached: int, now: int) -> bool:
        awaited, self._awaited = self._awaited, None
        if awaited is not None and reached < awaited[0]:
            self._awaited = awaited
            return now - awaited[1] > self.patience_us
        self._learn(0 if awaited is None else now - awaited[1])
        if published > reached:
            self._awaited = (published, now)
        return False

    def _learn(self, took_us: int) -> None:
        off = took_us - self._mean_us
        self._mean_us += off / 8
        self._deviation_us += (abs(off) - self._deviation_us) / 4
