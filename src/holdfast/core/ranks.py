"""How early each replica brings the tuples of a stream: what makes one replica more useful.

Theory of operation. Where replicas race, everyone who reads a stream gets each of its tuples from
every replica and keeps the first. Of a tuple, the replica that brings it first gets the weight 1,
the second 1/2, the third 1/3, and so on; weights add up. They tell how much of what a reader got it
owes to whom: a replica that is always last is worth little, however healthy it is.

A replica's stable tuples come in the order of their ids, so how far each has come says all there is
to know about the tuples before, and nothing grows with time.

Early results (early_lane.py) have no ids yet. Of them each replica's claims are remembered as the
duplicate filter remembers what has passed (duplicates.py), until the order stands for them. A frame
weighs as many tuples as it holds, spread over what it claims: most of that may have been filtered
away. What comes early when the order has passed it already weighs nothing, and is counted in order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from holdfast.core.duplicates import Intervals
from holdfast.core.provenance import Claim, Trail


class Ranks:
    """The replicas of one stream as one reader gets them."""

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self._reached: dict[str, int] = {}
        self._early: dict[Trail, dict[str, Intervals]] = {}

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

    def arrived_early(self, peer: str, claims: Iterable[Claim], count: int, cut: int) -> None:
        """So many results came early from a replica; the order stands for all before ``cut``."""
        self._forget_before(cut)
        claims = [claim for claim in claims if claim.stime_max >= cut]
        whole = sum(claim.next_id - claim.first_id for claim in claims)
        for claim in claims:
            known = self._early.setdefault(claim.trail, {})
            mine = known.setdefault(peer, Intervals())
            others = [each for one, each in known.items() if one != peer]
            weight = sum(
                _rank_weight(others, first, end)
                for first, end in mine.missing(claim.first_id, claim.next_id)
            )
            mine.add(claim.first_id, claim.next_id, claim.stime_max)
            self.weights[peer] = self.weights.get(peer, 0.0) + weight * count / whole

    def _forget_before(self, cut: int) -> None:
        for known in self._early.values():
            for each in known.values():
                each.forget_before(cut)

    @property
    def size(self) -> int:
        """How many intervals are remembered of early results."""
        return sum(len(each) for known in self._early.values() for each in known.values())


def _rank_weight(others: list[Intervals], first: int, end: int) -> float:
    """What a range weighs for who brings it now, beside others who may have brought parts."""
    lacking = [each.missing(first, end) for each in others]
    edges = sorted({first, end, *(edge for gaps in lacking for gap in gaps for edge in gap)})
    weight, start = 0.0, first
    for stop in edges[1:]:
        earlier = sum(not any(gap[0] <= start < gap[1] for gap in gaps) for gaps in lacking)
        weight += (stop - start) / (1 + earlier)
        start = stop
    return weight


def shares(weights: Mapping[str, float]) -> dict[str, float]:
    """Weights as parts of their sum."""
    whole = sum(weights.values())
    return {peer: weight / whole for peer, weight in weights.items()} if whole else {}
