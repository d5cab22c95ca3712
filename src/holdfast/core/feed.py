"""A feed as its consumer has it: one subscription to a stream at one producer."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Feed:
    """An open subscription; ``asked_from`` is the first id it asked for."""

    peer: str
    id: int
    opened_at: int
    asked_from: int
    received: int = 0
    stable_next: int = 0


class FeedIds:
    """Feed ids of one consumer: unique among its streams, and among its lives.

    They grow with time, so that an id of an earlier life of the process never returns.
    """

    def __init__(self) -> None:
        self.newest = 0

    def issue(self, now: int) -> int:
        self.newest = max(self.newest + 1, now)
        return self.newest
