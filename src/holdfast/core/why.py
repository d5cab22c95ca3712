"""Why a result is tentative: what it lacks, since when, and how much it rests on.

Theory of operation. Whoever looks at a tentative result asks three things. *Which inputs were
missing*: a stream that had not come as far as the result, or, if it had come tentatively, what
its own tentative frames say was missing; so the answer is always where the trouble is, however
many fragments lie between. *Since when*: the tuple time up to which that stream was complete.
*On how much it rests*: of the tuples that usually come, the share that was there.

What usually comes is learned from the stable jobs, older ones counting less, from the first tuple
of a stream on: the first job of a replica begins at the beginning of time. What lacks of a
missing stream is what usually comes in such a stretch, less what came; of a tentative stream it
follows from the share that stream has itself. Streams that are complete lack nothing, whatever
they bring. Blocks cannot be looked into here, so of a block that a stretch cuts through the tuples
are counted by its share of the block's time: the share is an estimate, the names are not.

The state that tentative results are computed from remembers what it lacked, so all this is summed
over the life of the live version, and is over with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import log

from holdfast.core.effects import InputSlice
from holdfast.core.frame import Missing as Missing
from holdfast.core.frame import Why as Why
from holdfast.core.settings import SECOND_US
from holdfast.core.stream_copy import StreamCopy

# After so much stream time what was usual counts half.
HALF_LIFE_US = 60 * SECOND_US


@dataclass(slots=True)
class _Usual:
    """What usually comes of one stream."""

    tuples: float = 0.0
    time_us: float = 0.0

    def add(self, tuples: float, start: int, stop: int, first: int) -> None:
        """So many tuples came from ``start`` to ``stop``, the first of them at ``first``."""
        if tuples and not self.tuples:
            self.time_us, start = 0.0, max(start, first)
        half_lives = (stop - start) / HALF_LIFE_US
        kept = 0.5**half_lives
        # A long stretch is old at its beginning: what counts of it is the mean of the weights.
        weight = (1 - kept) / (half_lives * log(2)) if half_lives > 0.01 else 1.0
        self.tuples = self.tuples * kept + tuples * weight
        self.time_us = self.time_us * kept + (stop - start) * weight

    def expected(self, time_us: int) -> float | None:
        return self.tuples / self.time_us * time_us if self.time_us else None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """One input in one stretch of time, as a live job takes it.

    lacking  how many tuples are not there that usually are; None if nobody knows.
    """

    missing: tuple[Missing, ...]
    received: float
    lacking: float | None


class Basis:
    """What the tentative results of one replica rest on."""

    def __init__(self, copies: Mapping[str, StreamCopy]) -> None:
        self._copies = copies
        self._usual = {name: _Usual() for name in copies}
        self._job: dict[str, _Stretch] = {}
        self._since: dict[str, dict[str, int]] = {}
        self._received: dict[str, float] = {}
        self._lacking: dict[str, float | None] = {}
        self.live_ended()

    def stable_begins(self, start: int, stop: int, slices: Iterable[InputSlice]) -> None:
        """A job of the stable version takes all there is: that is usual."""
        taken = list(slices)
        came = _counted(taken)
        first = dict.fromkeys(self._usual, stop - 1)
        for piece in taken:
            begins = max(piece.header.stime_min, piece.stime_from)
            first[piece.stream] = min(first[piece.stream], begins)
        for name, usual in self._usual.items():
            usual.add(came.get(name, 0.0), start, stop, first[name])

    def live_begins(self, start: int, stop: int, slices: Iterable[InputSlice]) -> None:
        """A job of the live version takes what there is."""
        came = _counted(slices)
        self._job = {
            name: self._look(name, copy, came.get(name, 0.0), start, stop)
            for name, copy in self._copies.items()
        }

    def live_done(self) -> None:
        """That job is done, and its results are out next."""
        for name, stretch in self._job.items():
            for one in stretch.missing:
                since = self._since[name]
                since[one.stream] = min(since.get(one.stream, one.since), one.since)
            self._received[name] += stretch.received
            lacking = self._lacking[name]
            known = stretch.lacking is not None and lacking is not None
            self._lacking[name] = lacking + stretch.lacking if known else None  # type: ignore[operator]
        self._job = {}

    def live_ended(self) -> None:
        """There is no live version any more."""
        self._job = {}
        self._since = {name: {} for name in self._copies}
        self._received = dict.fromkeys(self._copies, 0.0)
        self._lacking = dict.fromkeys(self._copies, 0.0)

    def why(self, inputs: Iterable[str]) -> Why:
        """Why an output that these inputs reach is tentative."""
        names = list(inputs)
        since: dict[str, int] = {}
        for name in names:
            for stream, stime in self._since[name].items():
                since[stream] = min(since.get(stream, stime), stime)
        missing = tuple(Missing(stream, since[stream]) for stream in sorted(since))
        lacking = [self._lacking[name] for name in names]
        if any(each is None for each in lacking):
            return Why(missing, None)
        received = sum(self._received[name] for name in names)
        usual = received + sum(each for each in lacking if each is not None)
        return Why(missing, round(received / usual, 3) if usual else None)

    def _look(self, name: str, copy: StreamCopy, came: float, start: int, stop: int) -> _Stretch:
        if copy.boundary >= stop:
            return _Stretch((), came, 0.0)
        heard_of = copy.live_boundary
        missing: list[Missing] = []
        inherited = copy.why if copy.tentative_boundary > max(copy.boundary, start) else None
        if inherited is not None:
            missing += inherited.missing
        if heard_of < stop or not missing:
            missing.append(Missing(name, heard_of if heard_of < stop else copy.boundary))
        if heard_of >= stop and inherited is not None and inherited.share:
            return _Stretch(tuple(missing), came, came / inherited.share - came)
        expected = self._usual[name].expected(stop - start)
        lacking = None if expected is None else max(0.0, expected - came)
        return _Stretch(tuple(missing), came, lacking)


def together(whys: Iterable[Why | None]) -> Why:
    """Several as one: everything that is missing, since the earliest, and the least share."""
    given = [each for each in whys if each is not None]
    since: dict[str, int] = {}
    for each in given:
        for one in each.missing:
            since[one.stream] = min(since.get(one.stream, one.since), one.since)
    missing = tuple(Missing(stream, since[stream]) for stream in sorted(since))
    return Why(missing, min((each.share for each in given if each.share is not None), default=None))


def _counted(slices: Iterable[InputSlice]) -> dict[str, float]:
    """About how many tuples the slices of each stream have."""
    found: dict[str, float] = {}
    for piece in slices:
        header = piece.header
        count: float = header.count - piece.skip
        if header.stime_min < piece.stime_from or header.stime_max >= piece.stime_to:
            end = header.stime_max + 1
            inside = min(end, piece.stime_to) - max(header.stime_min, piece.stime_from)
            count *= max(0, inside) / (end - header.stime_min)
        found[piece.stream] = found.get(piece.stream, 0.0) + count
    return found
