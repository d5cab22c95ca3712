"""Pairs of a join go out when their second half is there.

Theory of operation. A join waits for the boundaries of its sides, because its results have an
order. But that two tuples are a pair depends on nobody else: once both are there, so is the pair,
and no tuple that comes later takes it back. So tuples that have come are also joined at once,
beside the ordered jobs, with the state as far as the order is (the stable version's, or that of a
line ahead of it): a *look*. It changes no state. What it finds, and what no look before has found,
goes out as an early frame in which every pair is claimed alone (provenance.py). When the
boundaries have passed, all of it comes again, in order or by its times, under the same ``seq``;
whoever reads takes each pair once (duplicates.py).

It holds for joins with nothing but operators before and behind them that look at one tuple at a
time: of anything else a look at half of the tuples says something else than the whole. That a tuple
has no partner is such a thing, too: of outer joins a look says nothing but the pairs.

What is looked at is, of each side, the stable tuples from the state on and those that came early
and not in order yet. The latter are kept here, so many at most; without the oldest some pairs
come in order only. So they do where a look would be at more tuples than a job should have, or
where more pairs wait for the order than anybody should remember.

One job runs at a time, and none begins until as much time has passed as the last one took, and a
tenth of a bucket; one that fails is tried again, after pauses that grow up to X. Without a reader
who asks for early results there are no looks. Nothing here is logged or kept in a record.

    IDLE ──begun──▶ COMPUTING ──done, failed──▶ IDLE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.duplicates import DuplicateFilter
from holdfast.core.early_lane import (
    MOST_TUPLES,
    PAUSES,
    FramesTaken,
    LaneState,
    PublishEarly,
    Trigger,
    early_frame,
)
from holdfast.core.early_lane import TABLE as TABLE
from holdfast.core.effects import EarlyPiece, InputSlice, RunPairs
from holdfast.core.events import PairsDone, PairsFailed
from holdfast.core.frame import Kind, StreamFrame
from holdfast.core.machine import Machine
from holdfast.core.pauses import pause_after
from holdfast.core.provenance import Choice, Claim, Trail
from holdfast.core.settings import ReplicaSettings
from holdfast.core.stream_copy import FAR_FUTURE, StreamCopy

# So many pairs that wait for the order are remembered, and frames that came early kept, at most.
MOST_PAIRS = 10_000
MOST_PIECES = 5_000


@dataclass(frozen=True, slots=True)
class Base:
    """From where a look begins: a state, and how far it is."""

    position: int
    state: object


@dataclass(frozen=True, slots=True)
class LookForPairs:
    """Can pairs go out?

    complete  buckets below are complete, and about to be taken in order.
    bases     from where the joins of some inputs can be looked at; not those that lack a state.
    """

    complete: int
    bases: Mapping[frozenset[str], Base]
    wanted: bool


PairEvent: TypeAlias = FramesTaken | LookForPairs | PairsDone | PairsFailed
PairEffect: TypeAlias = RunPairs | PublishEarly


@dataclass(slots=True)
class Sides:
    """Joins of the same inputs.

    branches  (output, trail): where their pairs come out.
    newest    the newest tuple that no look has seen; -1 if there is none.
    told      the pairs that went out, but for those before ``position``.
    """

    inputs: frozenset[str]
    branches: tuple[tuple[str, Trail], ...]
    newest: int = -1
    told: dict[str, set[Claim]] = field(default_factory=dict)
    position: int = 0
    looked_at: int = 0

    @property
    def many(self) -> int:
        """How many pairs are remembered."""
        return sum(map(len, self.told.values()))

    def forget_before(self, position: int) -> None:
        """No look finds what is older again."""
        self.position = position
        self.told = {
            name: {one for one in told if one.stime_max >= position}
            for name, told in self.told.items()
        }


class PairLane(Machine[LaneState, Trigger]):
    """The looks at the joins of one replica."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(self, settings: ReplicaSettings, copies: Mapping[str, StreamCopy]) -> None:
        super().__init__(f"{settings.address} pairs", LaneState.IDLE)
        branches: dict[frozenset[str], list[tuple[str, Trail]]] = {}
        for output in settings.outputs:
            for trail, inputs in output.memory:
                if trail in output.pairs:
                    branches.setdefault(inputs, []).append((output.stream, trail))
        self.sides = [Sides(inputs, tuple(found)) for inputs, found in branches.items()]
        used = {name for one in self.sides for name in one.inputs}
        self._copies = {name: copies[name] for name in used}
        self._next_ids = {name: copies[name].next_id for name in used}
        early = [one.stream for one in settings.inputs if one.early and one.stream in used]
        self.filters = {name: DuplicateFilter() for name in early}
        self._held: dict[str, list[EarlyPiece]] = {name: [] for name in early}
        self._cuts = dict.fromkeys(early, 0)
        self._retry_us, self._longest_us = settings.timing.retry_us, settings.timing.delay_us
        self._pause_us = settings.timing.bucket_us // PAUSES
        self._job, self._began, self._failures, self._not_before = 0, 0, 0, 0
        self._looking: tuple[Sides, int] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs with pairs that go out early."""
        return tuple(dict.fromkeys(name for one in self.sides for name, _ in one.branches))

    @property
    def waits(self) -> bool:
        """Whether tuples have come that no look has seen, and none is under way."""
        return self.state is LaneState.IDLE and any(one.newest >= 0 for one in self.sides)

    def due(self, look: LookForPairs) -> int:
        """When the next look may begin; FAR_FUTURE if there is none to begin."""
        can = self.waits and look.wanted and any(self._may_begin(one, look) for one in self.sides)
        return self._not_before if can else FAR_FUTURE

    def _may_begin(self, sides: Sides, look: LookForPairs) -> bool:
        base = look.bases.get(sides.inputs)
        if base is None or sides.newest < max(look.complete, base.position):
            return False
        return sides.many < MOST_PAIRS

    def handle(self, event: PairEvent, now: int) -> list[PairEffect]:
        match event:
            case FramesTaken(stream, frames):
                if stream in self._copies:
                    for frame in frames:
                        self._take(stream, frame)
            case LookForPairs(wanted=True):
                return self._begin(event, now)
            case LookForPairs():
                for sides in self.sides:
                    sides.told = {}
            case PairsDone(job) if self._is_under_way(job):
                return self._done(event, now)
            case PairsFailed(job, reason) if self._is_under_way(job):
                self._failed(reason, now)
        return []

    def _is_under_way(self, job: int) -> bool:
        """Not one of an earlier life of the replica in the same process."""
        return self.state is LaneState.COMPUTING and job == self._job

    # -- what comes in ------------------------------------------------------------------

    def _take(self, stream: str, frame: StreamFrame) -> None:
        header, copy = frame.header, self._copies[stream]
        if header.kind is Kind.STABLE:
            if self._next_ids[stream] < header.next_id <= copy.next_id:
                self._next_ids[stream] = header.next_id
                self._note(stream, header.stime_max)
        elif header.kind is Kind.EARLY and stream in self.filters and header.stime_max >= copy.cut:
            self._hold(stream, frame)
        if stream in self.filters:
            self.filters[stream].forget_before(copy.cut)
        if stream in self._cuts and copy.cut > self._cuts[stream]:
            self._cuts[stream] = copy.cut
            self._held[stream] = [one for one in self._held[stream] if one.newest >= copy.cut]

    def _note(self, stream: str, stime: int) -> None:
        """A tuple came that no look has seen."""
        for sides in self.sides:
            if stream in sides.inputs:
                sides.newest = max(sides.newest, stime)

    def _hold(self, stream: str, frame: StreamFrame) -> None:
        fresh = self.filters[stream].take(frame.claims)
        if not fresh:
            return
        choice = None if fresh == frame.claims else Choice(fresh, inside=True)
        piece = InputSlice(stream, frame.header, frame.block, 0, 0, FAR_FUTURE)
        held = self._held[stream]
        held.append(EarlyPiece((piece,), choice, fresh))
        if len(held) > MOST_PIECES:
            del held[0]
        self._note(stream, frame.header.stime_max)

    # -- jobs ---------------------------------------------------------------------------

    def _begin(self, look: LookForPairs, now: int) -> list[PairEffect]:
        for sides in self.sides:
            base = look.bases.get(sides.inputs)
            if base is not None and base.position > sides.position:
                sides.forget_before(base.position)
        if now < self.due(look):
            return []
        waiting = [one for one in self.sides if self._may_begin(one, look)]
        sides = min(waiting, key=lambda one: one.looked_at)
        order = self._order(sides, look.bases[sides.inputs], now)
        sides.looked_at, newest, sides.newest = now, sides.newest, -1
        tuples = sum(one.header.count for one in order.slices)
        tuples += sum(one.count for one in order.pieces)
        if tuples > MOST_TUPLES:
            # They come in order; to count them again and again is work, too.
            self._not_before = now + PAUSES * self._pause_us
            return []
        self._looking, self._job, self._began = (sides, newest), order.job, now
        self.move(Trigger.BEGUN, now, f"{sorted(sides.inputs)} from {order.start}, {tuples} tuples")
        return [order]

    def _order(self, sides: Sides, base: Base, now: int) -> RunPairs:
        slices: list[InputSlice] = []
        pieces: list[EarlyPiece] = []
        for name in sorted(sides.inputs):
            copy = self._copies[name]
            slices += copy.slices(base.position, FAR_FUTURE)
            # What is older came in order, too.
            since = max(base.position, copy.cut)
            for piece in self._held.get(name, ()):
                cut = tuple(replace(one, stime_from=since) for one in piece.slices)
                pieces.append(replace(piece, slices=cut))
        wanted = []
        for stream in dict.fromkeys(name for name, _ in sides.branches):
            trails = tuple(trail.singly for name, trail in sides.branches if name == stream)
            wanted.append((stream, trails, tuple(sides.told.get(stream, ()))))
        most = MOST_PAIRS - sides.many
        job = max(self._job + 1, now)
        start, state = base.position, base.state
        return RunPairs(job, state, start, tuple(slices), tuple(pieces), tuple(wanted), most)

    def _done(self, done: PairsDone, now: int) -> list[PairEffect]:
        assert self._looking is not None
        sides, _ = self._looking
        self._looking, self._failures = None, 0
        self.move(Trigger.DONE, now)
        self._not_before = now + max(now - self._began, self._pause_us)
        found = dict(done.found)
        effects: list[PairEffect] = []
        for block in done.outputs:
            if block.count:
                claims = found[block.stream]
                sides.told.setdefault(block.stream, set()).update(claims)
                effects.append(PublishEarly(block.stream, early_frame(block, claims)))
        return effects

    def _failed(self, reason: str, now: int) -> None:
        assert self._looking is not None
        sides, newest = self._looking
        self._looking, sides.newest = None, max(sides.newest, newest)
        self.move(Trigger.FAILED, now, reason)
        self._failures += 1
        self._not_before = now + pause_after(self._failures, self._retry_us, self._longest_us)

    def validate(self) -> None:
        computes = self.state is LaneState.COMPUTING
        self.require(computes == (self._looking is not None), "it computes what it ordered")
