"""A simulated source: it makes tuples and offers them until they are accepted."""

from __future__ import annotations

from collections import deque
from random import Random

from holdfast.core.events import (
    SourceBatch,
)


class Source:
    """Makes tuples, counts them, and offers them until they are accepted.

    Tuples get their time when they are taken, or bring the time they were made at, which may be
    up to ``LATENESS_US`` before that of a tuple made earlier.
    """

    LATENESS_US = 150_000
    KEYS = 4

    def __init__(self, random: Random, quiet: bool = False) -> None:
        self._random = random
        # Some sources are quiet for seconds: only their boundaries say that they are there.
        some, few = [0, 1, 1, 2, 3], [0] * 20 + [1, 2]
        self._counts: list[int] = few if quiet else random.choice([some, some, few])
        self._batches: deque[tuple[int, tuple[tuple[int, int], ...]]] = deque()
        self.made: list[tuple[int, int]] = []
        # When each batch was made, and the time of its tuples, by the batch's first id.
        self._times: dict[int, tuple[int, tuple[int, ...]]] = {}
        self._made_at = 0
        self._offered = 0

    @property
    def reached(self) -> int:
        """No tuple to come is older."""
        return max(0, self._made_at - self.LATENESS_US)

    @property
    def all_taken(self) -> bool:
        return not self._batches

    @property
    def waiting_since(self) -> int | None:
        """When the oldest tuple was made that its entry point has not accepted."""
        return self._times[self._batches[0][0]][0] if self._batches else None

    def produce(self, now: int) -> None:
        self._made_at = now
        count = self._random.choice(self._counts)
        draw = self._random.randrange
        values = tuple((draw(self.KEYS), draw(1 << 30)) for _ in range(count))
        if values:
            late = [int(self._random.random() * self.LATENESS_US) for _ in values]
            stimes = tuple(max(0, now - each) for each in late)
            self._times[len(self.made)] = (now, stimes)
            self._batches.append((len(self.made), values))
            self.made += values

    def offers(self, now: int | None) -> list[SourceBatch]:
        """Batches not yet offered; their tuples carry the present time, or else their own."""
        found = []
        for first_id, values in self._batches:
            if first_id >= self._offered:
                made_at, stimes = self._times[first_id]
                reached = max(0, made_at - self.LATENESS_US)
                if now is not None:
                    stimes, reached = tuple(now + index for index in range(len(values))), 0
                block = tuple((at, *value) for at, value in zip(stimes, values, strict=True))
                times = (min(stimes), max(stimes))
                found.append(SourceBatch(first_id, len(values), *times, block, reached))
                self._offered = first_id + len(values)
        return found

    def offer_from(self, next_id: int) -> None:
        self._offered = min(self._offered, next_id)

    def accepted(self, next_id: int) -> None:
        while self._batches and self._batches[0][0] + len(self._batches[0][1]) <= next_id:
            self._times.pop(self._batches.popleft()[0])
        self._offered = max(self._offered, next_id)
