"""The duplicate filter: of results that several replicas send in any order, each passes once.

Theory of operation. A result that rests on one tuple alone is known by where that tuple came from:
its *origin*, a source, and its id there. Ids are given out one after the other, so what came of an
origin is a few intervals, however much that was: a replica says of what it sends which ids it is
all the results of, though a filter may have left nothing of them. The filter passes what is new of
that, at once, whatever is missing before it, and never waits.

    a range that is new            passes
    partly new                     the new parts pass
    known, from the same replica   or another: nothing passes

Replicas send disordered ranges, ranges again, and ranges cut otherwise; all of that is one union of
intervals. Once somebody who knows says that an origin is complete below an id (``complete_below``:
the ordered stream has come that far), everything below is one number. So memory is the number of
holes above it, and a replica that is far behind costs nothing: what it brings is below.

For each arrival the rank of its sender is noted: 1 for the first to bring a tuple, 1/2 for the
second, and so on (ranks.py has the same for streams in order). What comes below a completed id
earns nothing: nobody needs it any more.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

Range = tuple[int, int]


class Intervals:
    """A set of whole numbers, as intervals that neither overlap nor touch."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[Range]:
        return iter(zip(self._starts, self._ends, strict=True))

    def missing(self, first: int, end: int) -> tuple[Range, ...]:
        """The parts of a range that are not in the set."""
        found = []
        at = first
        for index in range(bisect_right(self._ends, first), len(self._starts)):
            if self._starts[index] >= end:
                break
            if self._starts[index] > at:
                found.append((at, self._starts[index]))
            at = self._ends[index]
        if at < end:
            found.append((at, end))
        return tuple(found)

    def add(self, first: int, end: int) -> None:
        """Put a range into the set."""
        if end <= first:
            return
        # Those that it overlaps or touches become one with it.
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, end)
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
        self._starts[low:high] = [first]
        self._ends[low:high] = [end]

    def drop_below(self, floor: int) -> None:
        """Take everything below out of the set."""
        gone = bisect_right(self._ends, floor)
        del self._starts[:gone]
        del self._ends[:gone]
        if self._starts and self._starts[0] < floor:
            self._starts[0] = floor


class Origin:
    """What came of one source's tuples."""

    def __init__(self) -> None:
        # Everything below was there, and who brought it is forgotten.
        self.floor = 0
        self.passed = Intervals()
        self.brought: dict[str, Intervals] = {}

    def arrived(self, peer: str, first: int, end: int) -> tuple[tuple[Range, ...], float]:
        """What is new of a range that came from a replica, and the weight it earns."""
        mine = self.brought.setdefault(peer, Intervals())
        others = [each for name, each in self.brought.items() if name != peer]
        first = max(first, self.floor)
        weight = sum(_weight(others, begin, stop) for begin, stop in mine.missing(first, end))
        new = self.passed.missing(first, end)
        mine.add(first, end)
        self.passed.add(first, end)
        return new, weight

    def complete_below(self, floor: int) -> tuple[Range, ...]:
        """Everything below is there, from elsewhere; what of it had not passed."""
        if floor <= self.floor:
            return ()
        missing = self.passed.missing(self.floor, floor)
        self.floor = floor
        for each in (self.passed, *self.brought.values()):
            each.drop_below(floor)
        return missing


def _weight(others: list[Intervals], first: int, end: int) -> float:
    """The weight of bringing a range after these: 1 over its place, for each tuple."""
    edges = {first, end}
    for each in others:
        for begin, stop in each:
            edges |= {edge for edge in (begin, stop) if first < edge < end}
    ordered = sorted(edges)
    weight = 0.0
    for index, stop in enumerate(ordered[1:]):
        begin = ordered[index]
        earlier = sum(not each.missing(begin, stop) for each in others)
        weight += (stop - begin) / (1 + earlier)
    return weight


class Duplicates:
    """The replicas of one stream as one reader gets them, in any order."""

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self._origins: dict[str, Origin] = {}

    def arrived(self, peer: str, origin: str, first_id: int, next_id: int) -> tuple[Range, ...]:
        """All results of an origin's tuples in a range came from a replica: those to pass on."""
        found = self._origins.setdefault(origin, Origin())
        new, weight = found.arrived(peer, first_id, next_id)
        self.weights[peer] = self.weights.get(peer, 0.0) + weight
        return new

    def complete_below(self, origin: str, next_id: int) -> tuple[Range, ...]:
        """The ordered stream has come so far: what of it had not passed before."""
        return self._origins.setdefault(origin, Origin()).complete_below(next_id)

    def forget(self, peer: str) -> None:
        """A replica is none any more."""
        for origin in self._origins.values():
            origin.brought.pop(peer, None)

    @property
    def size(self) -> int:
        """How many intervals are remembered."""
        return sum(
            len(origin.passed) + sum(map(len, origin.brought.values()))
            for origin in self._origins.values()
        )
