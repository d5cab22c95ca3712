"""Heirs: at which shards of a ring the work of a lost one goes on.

A shard's state is held where its work is to go on, so that it can go on at once: at the next shard
of the ring, or at the next few (``copies``), so that as many may be lost together. Where several
shards are on one server, that is the next one of another server: the next one would be lost with
it. With ``next``
the first of them that is there does its work: one neighbour then does two shards'. With
``least-loaded`` the one of them that has the least to do does it, by what they tell each other with
their heartbeats (``core/standby.py``). With ``spread`` a shard's
slots are in several parts, each a fragment of its own with its own copies, and each part's second
copy is at another shard: the survivors share what the lost one did. A part costs jobs of its own,
so there are a few of them, however many shards there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

# Over so many survivors a shard's work is spread at most.
SPREAD_OVER = 3


class Heirs(Enum):
    """Who does a lost shard's work."""

    NEXT = "next"
    LEAST_LOADED = "least-loaded"
    SPREAD = "spread"


def parts_of(heirs: Heirs, shards: int) -> int:
    """In how many parts a shard's slots are, each with an heir of its own."""
    return max(1, min(shards - 1, SPREAD_OVER)) if heirs is Heirs.SPREAD else 1


def places_of(
    shard: int, part: int, shards: int, copies: int, servers: Sequence[str | None] = ()
) -> tuple[int, ...]:
    """The shards at which the copies of a part are, its own first; shards and parts from 1.

    The first part's second copy is at the next shard of the ring, the second part's at the one
    after that, and so on; a third copy follows the second, around the others. Shards on the own
    server, or on that of another copy, come last: they are lost together.

    servers  where each shard is, where several may be at one place; without it each has its own.
    """
    at = tuple(range(1, shards + 1)) if not servers else tuple(servers)
    around = [(shard - 1 + step) % shards + 1 for step in range(1, max(2, shards))]
    elsewhere = [one for one in around if at[one - 1] != at[shard - 1]]
    beside = [one for one in around if one not in elsewhere]
    turn = (part - 1) % max(1, len(elsewhere or beside))
    order = _turned(elsewhere, turn) + _turned(beside, 0 if elsewhere else turn)
    found = [shard]
    for _ in range(copies - 1):
        taken = [at[one - 1] for one in found]
        found.append(min(order, key=lambda one: (found[1:].count(one), taken.count(at[one - 1]))))
    return tuple(found)


def _turned(ring: list[int], by: int) -> list[int]:
    return ring[by:] + ring[:by]
