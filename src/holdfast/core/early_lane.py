"""The early lane: results that need no order go out before their bucket is complete.

Theory of operation. A bucket waits for all inputs of its fragment, because its results have one
order. A result of an operator that looks at one tuple at a time does not depend on it. So where
only such operators lie between the sources and an output, every tuple that comes is also computed
at once by itself, beside the ordered jobs, and the results go out as an early frame, which claims
what they are all the results of (provenance.py). They are stable: the same rows are appended to the
log, under their ids, when their bucket is complete. Nothing here is logged, kept in a record or
acknowledged, and after a crash it is computed again: whoever reads takes each result once
(duplicates.py).

What comes in is

- frames of a source, in order: their ids are what is claimed;
- early frames of a fragment before this one, from all its replicas: what is new in them;
- frames in order of that fragment: tuples that did not come early, each claimed for itself;
- tuples in order that are known by their times, because an operator before has a memory (ahead.py)
  or nobody sends them early: when the boundary passes them, all up to there.

A claim must be true: a reader that believes it leaves out what it names when it comes in order. So
a piece is computed as a whole or not at all, also where parts of it have gone out in order
meanwhile. One whose bucket is complete when its turn comes is not: the ordered job is about to take
it.

One early job runs at a time, with all that has come since the last, and none begins until as much
time has passed as the last one took, and a tenth of a bucket: the lane has at most half of an
engine. One that fails is tried again, after pauses that grow up to X. Without a reader who asks for
early results no job runs. What waits here goes when its bucket is complete.

    IDLE ──begun──▶ COMPUTING ──done, failed──▶ IDLE
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.duplicates import DuplicateFilter
from holdfast.core.effects import EarlyPiece, InputSlice, RunEarly
from holdfast.core.events import EarlyDone, EarlyFailed, OutputBlock
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.machine import Machine
from holdfast.core.pauses import pause_after
from holdfast.core.provenance import Choice, Claim, Trail
from holdfast.core.settings import ReplicaSettings
from holdfast.core.stream_copy import FAR_FUTURE, StreamCopy

# Between two jobs passes such a part of a bucket at least.
PAUSES = 10
# A job takes no more tuples than this, if it has several pieces: the oldest first.
MOST_TUPLES = 50_000
# Claims without results wait for a frame to go with; beyond so many they are given up.
MOST_UNSENT = 1_000


class LaneState(Enum):
    IDLE = "idle"
    COMPUTING = "computing"


class Trigger(Enum):
    BEGUN = "begun"
    DONE = "done"
    FAILED = "failed"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (LaneState.IDLE, Trigger.BEGUN): LaneState.COMPUTING,
    (LaneState.COMPUTING, Trigger.DONE): LaneState.IDLE,
    (LaneState.COMPUTING, Trigger.FAILED): LaneState.IDLE,
}


@dataclass(frozen=True, slots=True)
class FramesTaken:
    """Frames of an input were taken; those after a gap were not, as its copy tells."""

    stream: str
    frames: tuple[StreamFrame, ...]


@dataclass(frozen=True, slots=True)
class LookAtPieces:
    """Is there something to compute early? Buckets below ``complete`` are complete."""

    complete: int
    wanted: bool


LaneEvent: TypeAlias = FramesTaken | LookAtPieces | EarlyDone | EarlyFailed


@dataclass(frozen=True, slots=True)
class PublishEarly:
    """Send this frame to whoever takes early results of the output."""

    stream: str
    frame: StreamFrame


LaneEffect: TypeAlias = RunEarly | PublishEarly


class EarlyLane(Machine[LaneState, Trigger]):
    """The early lane of one replica."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self, settings: ReplicaSettings, copies: Mapping[str, StreamCopy], position: int = 0
    ) -> None:
        """``position``: from which time on the input comes."""
        super().__init__(f"{settings.address} early lane", LaneState.IDLE)
        self._ways = {one.stream: one.ways for one in settings.outputs if one.ways}
        used = {name for ways in self._ways.values() for name, _ in ways}
        self._trails = {one.stream: one.trails for one in settings.inputs if one.stream in used}
        self._copies = copies
        self._next_ids = {name: copies[name].next_id for name in used}
        self.filters = {name: DuplicateFilter() for name, trails in self._trails.items() if trails}
        # Of streams with trails that are timed: up to where their tuples were taken in order.
        self._taken = {
            name: position
            for name, trails in self._trails.items()
            if any(trail.timed for trail in trails)
        }
        self._pending: list[EarlyPiece] = []
        # Up to where nothing is pending any more.
        self._complete = 0
        self._unsent: dict[str, tuple[Claim, ...]] = dict.fromkeys(self._ways, ())
        # The job under way, since when, and what it computes.
        self._job, self._began, self._computing = 0, 0, tuple[EarlyPiece, ...]()
        self._retry_us, self._longest_us = settings.timing.retry_us, settings.timing.delay_us
        self._failures = 0
        self._pause_us = settings.timing.bucket_us // PAUSES
        self._not_before = 0

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs whose results go out early."""
        return tuple(self._ways)

    @property
    def due(self) -> int:
        """When the next job may begin; FAR_FUTURE if there is none to begin."""
        waits = self._pending and self.state is LaneState.IDLE
        return self._not_before if waits else FAR_FUTURE

    @property
    def waiting(self) -> tuple[EarlyPiece, ...]:
        """What has come and was not computed."""
        return tuple(self._pending)

    def handle(self, event: LaneEvent, now: int) -> list[LaneEffect]:
        match event:
            case FramesTaken(stream, frames):
                if stream in self._next_ids:
                    for frame in frames:
                        self._take(stream, frame)
            case LookAtPieces(complete, wanted):
                return self._begin(complete, now) if wanted else self._drop_below(complete)
            case EarlyDone(job) if self._is_under_way(job):
                return self._done(event, now)
            case EarlyFailed(job, reason) if self._is_under_way(job):
                self._failed(reason, now)
        return []

    def _is_under_way(self, job: int) -> bool:
        """Not one of an earlier life of the replica in the same process."""
        return self.state is LaneState.COMPUTING and job == self._job

    # -- what comes in ------------------------------------------------------------------

    def _take(self, stream: str, frame: StreamFrame) -> None:
        copy = self._copies[stream]
        if frame.header.kind is Kind.STABLE and frame.header.next_id <= copy.next_id:
            self._take_in_order(stream, frame)
        elif frame.header.kind is Kind.EARLY and stream in self.filters:
            self._take_early(stream, frame, copy.cut)
        if stream in self._taken and copy.boundary > self._taken[stream]:
            self._take_timed(stream, copy)
        if stream in self.filters:
            # By times nothing is taken in order before the boundary has passed it.
            known = min(copy.cut, self._taken.get(stream, FAR_FUTURE))
            self.filters[stream].forget_before(known)

    def _take_in_order(self, stream: str, frame: StreamFrame) -> None:
        header, first_id = frame.header, self._next_ids[stream]
        if header.next_id <= first_id:
            return
        self._next_ids[stream] = header.next_id
        skip = max(0, first_id - header.first_id)
        piece = InputSlice(stream, header, frame.block, skip, 0, FAR_FUTURE)
        if not self._trails[stream]:
            claim = Claim(Trail(), header.first_id + skip, header.next_id, header.stime_max)
            self._pending.append(EarlyPiece((piece,), None, (claim,)))
            return
        trails = tuple(trail for trail in self._trails[stream] if not trail.timed)
        if trails:
            left = self.filters[stream].left()
            self._pending.append(EarlyPiece((piece,), left, (), trails))

    def _take_timed(self, stream: str, copy: StreamCopy) -> None:
        """The order has come to a boundary: nothing is missing before it."""
        start, stop = self._taken[stream], copy.boundary
        self._taken[stream] = stop
        timed = [trail for trail in self._trails[stream] if trail.timed]
        fresh = self.filters[stream].take(Claim(trail, start, stop, stop - 1) for trail in timed)
        slices = copy.slices(start, stop)
        if fresh and slices:
            self._pending.append(EarlyPiece(slices, Choice(fresh, inside=True), fresh))
            return
        for output, ways in self._ways.items():
            # There is nothing to compute: it goes with the next results.
            claims = [one.then(way) for name, way in ways if name == stream for one in fresh]
            self._unsent[output] = together((*self._unsent[output], *claims))[-MOST_UNSENT:]

    def _take_early(self, stream: str, frame: StreamFrame, cut: int) -> None:
        if frame.header.stime_max < cut:
            return  # all of it has come in order
        taken = self._taken.get(stream, 0)
        claims = tuple(
            replace(one, first_id=max(one.first_id, taken)) if one.trail.timed else one
            for one in frame.claims
            if not one.trail.timed or one.next_id > taken
        )
        fresh = self.filters[stream].take(claims)
        if fresh:
            choice = None if fresh == frame.claims else Choice(fresh, inside=True)
            piece = InputSlice(stream, frame.header, frame.block, 0, 0, FAR_FUTURE)
            self._pending.append(EarlyPiece((piece,), choice, fresh))

    # -- jobs ---------------------------------------------------------------------------

    def _drop_below(self, complete: int) -> list[LaneEffect]:
        """The ordered job is about to take what is in complete buckets."""
        if complete > self._complete:
            self._complete = complete
            kept = [one for one in self._pending if one.newest >= complete]
            self._pending = kept
        return []

    def _begin(self, complete: int, now: int) -> list[LaneEffect]:
        self._drop_below(complete)
        if now < self.due:
            return []
        kind = _kind(self._pending[0])
        tuples, many = 0, 0
        for piece in self._pending:
            if kind != _kind(piece) or tuples >= MOST_TUPLES:
                break
            tuples += piece.count
            many += 1
        self._computing, self._pending = tuple(self._pending[:many]), self._pending[many:]
        self._job, self._began = max(self._job + 1, now), now
        self.move(Trigger.BEGUN, now, f"{tuples} tuples in {many} pieces")
        return [RunEarly(self._job, self._computing)]

    def _done(self, done: EarlyDone, now: int) -> list[LaneEffect]:
        self.move(Trigger.DONE, now)
        found = iter(done.found)
        pieces = [
            one if one.claims else replace(one, claims=next(found)) for one in self._computing
        ]
        self._computing, self._failures = (), 0
        self._not_before = now + max(now - self._began, self._pause_us)
        blocks = {block.stream: block for block in done.outputs if block.count}
        effects: list[LaneEffect] = []
        for stream, ways in self._ways.items():
            fresh = [
                claim.then(trail)
                for piece in pieces
                for name, trail in ways
                if name == piece.stream
                for claim in piece.claims
            ]
            claims = together((*self._unsent[stream], *fresh))
            self._unsent[stream] = ()
            if stream in blocks:
                effects.append(PublishEarly(stream, early_frame(blocks[stream], claims)))
            else:
                self._unsent[stream] = without_those_alone(claims)[-MOST_UNSENT:]
        return effects

    def _failed(self, reason: str, now: int) -> None:
        self.move(Trigger.FAILED, now, reason)
        self._failures += 1
        self._not_before = now + pause_after(self._failures, self._retry_us, self._longest_us)
        self._pending = [*self._computing, *self._pending]
        self._computing = ()

    def validate(self) -> None:
        computes = self.state is LaneState.COMPUTING
        self.require(computes == bool(self._computing), "it computes what it was given")


def _kind(piece: EarlyPiece) -> tuple[bool, bool]:
    """A frame claims nothing twice: what came in order may also be in a frame that came early,
    older than the rest of it, and what is claimed alone is in claims of times, too."""
    return not piece.claims, any(one.trail.alone for one in piece.claims)


def early_frame(block: OutputBlock, claims: tuple[Claim, ...]) -> StreamFrame:
    header = Header(Kind.EARLY, 0, block.count, block.stime_min, block.stime_max, block.tmax)
    return StreamFrame(header, block.block, None, claims)


def without_those_alone(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """Of a pair that was left out nobody needs to hear."""
    return tuple(one for one in claims if not one.trail.alone)


def together(claims: Iterable[Claim]) -> tuple[Claim, ...]:
    """The same claims, those as one that follow on each other."""
    found: list[Claim] = []
    last: dict[Trail, int] = {}
    for claim in claims:
        at = last.get(claim.trail)
        follows = at is not None and found[at].next_id == claim.first_id
        if follows and at is not None and not claim.trail.alone:
            newest = max(found[at].stime_max, claim.stime_max)
            found[at] = replace(found[at], next_id=claim.next_id, stime_max=newest)
        else:
            last[claim.trail] = len(found)
            found.append(claim)
    return tuple(found)
