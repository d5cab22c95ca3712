"""The duplicate filter: of results that several replicas send in any order, each passes once.

Theory of operation. Results come in two ways. *Early* ones come in frames of any order and any cut,
some of them again, and claim of which tuples of a source they are all the results (provenance.py).
The others come in the order of the stream, each id once. The filter keeps, for each trail, the
intervals of source ids whose results have passed early:

    claimed early, new             passes, at once, whatever is missing before it
    claimed early, partly new      the new parts pass
    claimed early, known           does not pass
    in order                       passes unless it did early

It never waits. The order catches up: once it stands for everything older than some time (the *cut*
of stream_copy.py), nothing older passes early any more, and intervals that are older as a whole are
forgotten. So what is remembered is the holes among the results that are newer than the order: one
interval for each trail, however long the order stands still, if nothing is missing between. A
replica that is far behind costs nothing: what it brings is older than the cut.

Results that are claimed alone (pairs of a join) are remembered one by one, until those of their
times have passed, or the order has passed them. A claim of times passes as a whole without what
had passed alone.

A frame of the order holds all results of its times. So an interval of which only a part is older
than the cut may stay as a whole: its older results never come again.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace

from holdfast.core.provenance import Choice, Claim, Trail

Range = tuple[int, int]


class Intervals:
    """A set of whole numbers, as intervals that neither overlap nor touch; each with a time."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._newest: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def __iter__(self) -> Iterator[tuple[int, int, int]]:
        return iter(zip(self._starts, self._ends, self._newest, strict=True))

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

    def add(self, first: int, end: int, newest: int) -> None:
        """Put a range into the set; what it becomes one with has the newest time of both."""
        low, high = bisect_left(self._ends, first), bisect_right(self._starts, end)
        if low < high:
            first, end = min(first, self._starts[low]), max(end, self._ends[high - 1])
            newest = max(newest, *self._newest[low:high])
        self._starts[low:high] = [first]
        self._ends[low:high] = [end]
        self._newest[low:high] = [newest]

    def forget_before(self, stime: int) -> None:
        """Take the intervals out of the set all of whose times are older."""
        if any(newest < stime for newest in self._newest):
            kept = [one for one in self if one[2] >= stime]
            self._starts = [one[0] for one in kept]
            self._ends = [one[1] for one in kept]
            self._newest = [one[2] for one in kept]


class DuplicateFilter:
    """The early results of one stream, as one reader takes them."""

    def __init__(self) -> None:
        self._passed: dict[Trail, Intervals] = {}
        # Results that passed alone, none of a time of which all have passed.
        self._alone: set[Claim] = set()
        self._cut = 0

    def take(self, claims: Iterable[Claim]) -> tuple[Claim, ...]:
        """An early frame came: what of it passes. It has passed then."""
        fresh: list[Claim] = []
        for claim in claims:
            if claim.trail.alone:
                fresh += self._take_alone(claim)
                continue
            passed = self._passed.setdefault(claim.trail, Intervals())
            for first_id, next_id in passed.missing(claim.first_id, claim.next_id):
                fresh.append(Claim(claim.trail, first_id, next_id, claim.stime_max))
            passed.add(claim.first_id, claim.next_id, claim.stime_max)
            if claim.trail.timed and self._alone:
                self._alone.difference_update([one for one in self._alone if self._has_times(one)])
        return tuple(fresh)

    def _take_alone(self, claim: Claim) -> tuple[Claim, ...]:
        known = claim.stime_max < self._cut or claim in self._alone or self._has_times(claim)
        if known:
            return ()
        self._alone.add(claim)
        return (claim,)

    def _has_times(self, claim: Claim) -> bool:
        """Whether all results of its time have passed."""
        passed = self._passed.get(replace(claim.trail, timed=True, alone=False))
        return passed is not None and not passed.missing(claim.stime_max, claim.stime_max + 1)

    def left(self) -> Choice | None:
        """Of a frame in order: what has not passed; None for all of it."""
        claims = self.passed
        return Choice(claims, inside=False) if claims else None

    @property
    def alone(self) -> tuple[Claim, ...]:
        """What has passed alone, and may come again."""
        return tuple(self._alone)

    @property
    def passed(self) -> tuple[Claim, ...]:
        """What has passed early, and may come again."""
        times = (
            Claim(trail, first, end, newest)
            for trail, passed in self._passed.items()
            for first, end, newest in passed
        )
        return (*times, *self._alone)

    def forget_before(self, cut: int) -> None:
        """The order stands for everything older."""
        for passed in self._passed.values():
            passed.forget_before(cut)
        if cut > self._cut:
            self._cut = cut
            self._alone = {one for one in self._alone if one.stime_max >= cut}

    @property
    def size(self) -> int:
        """How many intervals are remembered, and results that passed alone."""
        return sum(map(len, self._passed.values())) + len(self._alone)
