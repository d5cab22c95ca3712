"""Results of operators that remember tuples go out when the boundaries of their own inputs pass.

Theory of operation. A bucket waits for the boundaries of all inputs of its fragment. A window, a
join or any other operator with a memory waits for its own inputs only: once *their* boundaries have
passed a time, nothing is missing before it, and what the operator says of it is final, whatever
else the fragment reads. The boundary of an input is the furthest that any of its replicas has sent
(stream_copy.py), so that a slow replica holds nobody up either.

Outputs are put together by the inputs on which they rest, a *line* each. A line begins with the
state of the stable version and takes buckets of its own inputs, beside the ordered jobs; what it
finds of its own results is what the stable version will find. They go out as early frames, which
claim all results from one time up to another (provenance.py), and are appended to the log under
their ids when the order has come so far. A line keeps its own state while it is ahead, so that each
tuple is taken once, however long another input is missing. Once the stable version has caught up
the line is given up, and begins again when it can be ahead. Nothing here is logged or kept in a
record.

One job runs at a time, and none begins until as much time has passed as the last one took, and a
tenth of a bucket; one that fails is tried again, after pauses that grow up to X. Without a reader
who asks for early results there are no jobs, and no lines.

    IDLE ──begun──▶ COMPUTING ──done, failed──▶ IDLE
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.early_lane import (
    MOST_UNSENT,
    PAUSES,
    LaneState,
    PublishEarly,
    Trigger,
    early_frame,
    together,
)
from holdfast.core.early_lane import TABLE as TABLE
from holdfast.core.effects import RunAhead
from holdfast.core.events import AheadDone, AheadFailed
from holdfast.core.machine import Machine
from holdfast.core.pauses import pause_after
from holdfast.core.provenance import Claim, Trail
from holdfast.core.records import InLog
from holdfast.core.settings import ReplicaSettings
from holdfast.core.stream_copy import FAR_FUTURE, StreamCopy


@dataclass(frozen=True, slots=True)
class LookAhead:
    """Can something go out that does not wait for all inputs?

    complete  buckets below are complete, and about to be taken in order.
    position  how far the stable version is, with ``state``; not if it ``lacks`` one.
    """

    complete: int
    position: int
    state: object
    lacks: bool
    wanted: bool


AheadEvent: TypeAlias = LookAhead | AheadDone | AheadFailed
AheadEffect: TypeAlias = RunAhead | PublishEarly


@dataclass(slots=True)
class AheadLine:
    """Outputs that rest on the same inputs, and how far they are."""

    inputs: frozenset[str]
    branches: tuple[tuple[str, Trail], ...]
    position: int = -1
    state: object = None


class AheadLanes(Machine[LaneState, Trigger]):
    """The lines of one replica."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(self, settings: ReplicaSettings, copies: Mapping[str, StreamCopy]) -> None:
        super().__init__(f"{settings.address} ahead", LaneState.IDLE)
        everything = frozenset(one.stream for one in settings.inputs)
        branches: dict[frozenset[str], list[tuple[str, Trail]]] = {}
        for output in settings.outputs:
            for trail, inputs in output.memory:
                # What rests on all inputs is never ahead of the order.
                if inputs != everything:
                    branches.setdefault(inputs, []).append((output.stream, trail))
        self.lines = [AheadLine(inputs, tuple(found)) for inputs, found in branches.items()]
        self._copies = copies
        self._bucket_us = settings.timing.bucket_us
        self._retry_us, self._longest_us = settings.timing.retry_us, settings.timing.delay_us
        self._pause_us = settings.timing.bucket_us // PAUSES
        self._unsent: dict[str, tuple[Claim, ...]] = dict.fromkeys(self.outputs, ())
        self._job, self._began, self._failures, self._not_before = 0, 0, 0, 0
        self._computing: tuple[AheadLine, RunAhead] | None = None

    @property
    def outputs(self) -> tuple[str, ...]:
        """The outputs that may be ahead of the order."""
        return tuple(dict.fromkeys(name for one in self.lines for name, _ in one.branches))

    def due(self, look: LookAhead) -> int:
        """When the next job may begin; FAR_FUTURE if there is none to begin."""
        waits = self.state is LaneState.IDLE and look.wanted
        can = waits and any(self._may_begin(line, look) for line in self.lines)
        return self._not_before if can else FAR_FUTURE

    def _may_begin(self, line: AheadLine, look: LookAhead) -> bool:
        if self._reach(line) <= max(line.position, look.complete):
            return False
        is_ahead = line.position >= look.position
        return is_ahead or not (look.lacks or isinstance(look.state, InLog))

    def handle(self, event: AheadEvent, now: int) -> list[AheadEffect]:
        match event:
            case LookAhead(wanted=True):
                return self._begin(event, now)
            case LookAhead():
                for line in self.lines:
                    line.position, line.state = -1, None
            case AheadDone(job) if self._is_under_way(job):
                return self._done(event, now)
            case AheadFailed(job, reason) if self._is_under_way(job):
                self.move(Trigger.FAILED, now, reason)
                self._computing = None
                self._failures += 1
                pause_us = pause_after(self._failures, self._retry_us, self._longest_us)
                self._not_before = now + pause_us
        return []

    def _is_under_way(self, job: int) -> bool:
        """Not one of an earlier life of the replica in the same process."""
        return self.state is LaneState.COMPUTING and job == self._job

    def _reach(self, line: AheadLine) -> int:
        """Up to where its own inputs are complete."""
        lowest = min(self._copies[name].boundary for name in line.inputs)
        return lowest - lowest % self._bucket_us

    def _begin(self, look: LookAhead, now: int) -> list[AheadEffect]:
        if now < self.due(look):
            return []
        for line in self.lines:
            if line.position < look.position:
                line.position, line.state = -1, None
        waiting = [line for line in self.lines if self._may_begin(line, look)]
        # The one that is furthest behind what it could say.
        line = max(waiting, key=lambda one: self._reach(one) - max(one.position, look.position))
        if line.position < 0:
            line.position, line.state = look.position, look.state
        return [self._order(line, self._reach(line), now)]

    def _order(self, line: AheadLine, stop: int, now: int) -> RunAhead:
        start = line.position
        slices = tuple(
            piece
            for name in sorted(line.inputs)
            for piece in self._copies[name].slices(start, stop)
        )
        claims: dict[str, list[Claim]] = {}
        for stream, trail in line.branches:
            claims.setdefault(stream, []).append(Claim(trail, start, stop, stop - 1))
        listed = tuple((stream, tuple(each)) for stream, each in claims.items())
        self._job, self._began = max(self._job + 1, now), now
        order = RunAhead(self._job, line.state, start, stop, slices, listed)
        self._computing = (line, order)
        self.move(Trigger.BEGUN, now, f"{sorted(line.inputs)} from {start} to {stop}")
        return order

    def _done(self, done: AheadDone, now: int) -> list[AheadEffect]:
        assert self._computing is not None
        line, order = self._computing
        self._computing, self._failures = None, 0
        self.move(Trigger.DONE, now)
        self._not_before = now + max(now - self._began, self._pause_us)
        if line.position == order.start:
            line.position, line.state = order.stop, done.state
        blocks = {block.stream: block for block in done.outputs if block.count}
        effects: list[AheadEffect] = []
        for stream, fresh in order.claims:
            claims = together((*self._unsent[stream], *fresh))
            self._unsent[stream] = ()
            if stream in blocks:
                effects.append(PublishEarly(stream, early_frame(blocks[stream], claims)))
            else:
                self._unsent[stream] = claims[-MOST_UNSENT:]
        return effects

    def validate(self) -> None:
        computes = self.state is LaneState.COMPUTING
        self.require(computes == (self._computing is not None), "it computes what it ordered")
        for line in self.lines:
            self.require(line.position >= 0 or line.state is None, "a state without a place")
