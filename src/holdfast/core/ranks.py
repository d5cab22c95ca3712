"""How early each replica brings the tuples of a stream: what makes one replica more useful.

Theory of operation. Where replicas race, everyone who reads a stream gets each of its tuples from
every replica and keeps the first. Of a tuple, the replica that brings it first gets the weight 1,
the second 1/2, the third 1/3, and so on; weights add up. They tell how much of what a reader got it
owes to whom: a replica that is always last is worth little, however healthy it is.

A replica's stable tuples come in the order of their ids, so how far each has come says all there is
to know about the tuples before, and nothing grows with time.
"""

from __future__ import annotations

from collections.abc import Mapping


class Ranks:
    """The replicas of one stream as one reader gets them."""

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self._reached: dict[str, int] = {}

    def arrived(self, peer: str, first_id: int, next_id: int) -> None:
        """Stable tuples from ``first_id`` up to ``next_id`` came from a replica."""
        at = max(first_id, self._reached.get(peer, first_id))
        if next_id <= at:
            return
        earlier = sorted(
            reached for one, reached in self._reached.items() if one != peer and reached > at
        )
        weight = 0.0
        for place, reached in enumerate(earlier):
            end = min(reached, next_id)
            weight += (end - at) / (1 + len(earlier) - place)
            at = end
        self.weights[peer] = self.weights.get(peer, 0.0) + weight + (next_id - at)
        self._reached[peer] = next_id


def shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights as parts of their sum."""
    whole = sum(weights.values())
    return {peer: weight / whole for peer, weight in weights.items()} if whole else {}
