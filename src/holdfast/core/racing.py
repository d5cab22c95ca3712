"""The driver of a replica whose results also go out before their order is known.

It is a replica (replica.py) with an early lane (early_lane.py) beside it, lines of operators with a
memory that need not wait for all inputs (ahead.py), and looks at joins (pairs.py):

    frames ─▶ Replica ─▶ buckets, jobs, logs, in order ─▶ Provider
         ├──▶ EarlyLane ─▶ jobs of single tuples ─▶ early frames ─▶ Provider
         ├──▶ AheadLanes ─▶ buckets of some of the inputs ─▶ early frames ─▶ Provider
         └──▶ PairLane ─▶ what has come so far ─▶ early frames ─▶ Provider

The lanes take what the replica takes, and change nothing there. Of its producers a replica asks
for early results while somebody asks it for such, and for X after that: readers come back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.core.ahead import AheadEffect, AheadEvent, AheadLanes, LookAhead
from holdfast.core.beginning import Beginning
from holdfast.core.consistency import NodeState
from holdfast.core.early_lane import (
    EarlyLane,
    FramesTaken,
    LaneEffect,
    LaneEvent,
    LookAtPieces,
    PublishEarly,
)
from holdfast.core.effects import Effect, Send
from holdfast.core.events import (
    AheadDone,
    AheadFailed,
    Beside,
    Event,
    PairsDone,
    PairsFailed,
    RecoveryRecord,
)
from holdfast.core.machine import Machine
from holdfast.core.messages import StreamFrame
from holdfast.core.pairs import Base, LookForPairs, PairEffect, PairEvent, PairLane
from holdfast.core.records import InLog
from holdfast.core.replica import Replica
from holdfast.core.settings import ReplicaSettings
from holdfast.core.stream_copy import FAR_FUTURE


class RacingReplica(Replica):
    """One running copy of a fragment some of whose outputs have early results."""

    def __init__(
        self,
        settings: ReplicaSettings,
        record: RecoveryRecord | None = None,
        begin: Beginning | None = None,
    ) -> None:
        super().__init__(settings, record, begin)
        self.lane = EarlyLane(settings, self.copies, self.versions.stable_position)
        self.ahead = AheadLanes(settings, self.copies)
        self.pairs = PairLane(settings, self.copies)
        self._asked = tuple(one.stream for one in settings.inputs if one.early)
        self._wanted_until = 0
        self._ask(False, 0)

    def machines(self) -> Iterator[Machine[Any, Any]]:
        yield from super().machines()
        yield self.lane
        yield self.ahead
        yield self.pairs

    def handle(self, event: Event, now: int) -> list[Effect]:
        effects: list[Effect] = []
        if isinstance(event, Beside):
            self._hear(event, now, effects)
        else:
            effects = super().handle(event, now)
        if self.state is not NodeState.RECOVERING:
            if self.lane.due != FAR_FUTURE:
                self._hear(LookAtPieces(self._complete(), self._is_wanted), now, effects)
            if self.ahead.lines:
                self._hear(self._look_ahead(), now, effects)
            if self.pairs.waits:
                self._hear(self._look_for_pairs(), now, effects)
        if self._is_wanted or self._wants_pairs:
            self._wanted_until = now + self.timing.delay_us
        effects += self._ask(now < self._wanted_until, now)
        self._set_timer(now, effects)
        return effects

    def _ask(self, wanted: bool, now: int) -> list[Send]:
        """Of those who have early results to hand on."""
        return [
            effect
            for name in self._asked
            for effect in self.consumer.upstreams[name].ask_early(wanted, now)
            if isinstance(effect, Send)
        ]

    def _complete(self) -> int:
        """Up to where tuples are about to come out in order, or have come out."""
        if self.state is not NodeState.STABLE:
            return self.versions.stable_position
        return self.sunion.redo_stop(self.sunion.stable_target())

    def _look_ahead(self) -> LookAhead:
        wanted = any(self.provider.streams[name].wants_early for name in self.ahead.outputs)
        complete = self._complete() if wanted else 0
        state, lacks = self.versions.stable_state, not self.versions.rebuilt
        return LookAhead(complete, self.versions.stable_position, state, lacks, wanted)

    def _look_for_pairs(self) -> LookForPairs:
        if not self._wants_pairs:
            return LookForPairs(0, {}, False)
        found = {one.inputs: self._base_of(one.inputs) for one in self.pairs.sides}
        bases = {inputs: base for inputs, base in found.items() if base is not None}
        return LookForPairs(self._complete(), bases, True)

    def _base_of(self, inputs: frozenset[str]) -> Base | None:
        """The furthest state from which joins of some inputs can be looked at."""
        for line in self.ahead.lines:
            if line.inputs == inputs and line.position >= self.versions.stable_position:
                return Base(line.position, line.state)
        state = self.versions.stable_state
        if not self.versions.rebuilt or isinstance(state, InLog):
            return None
        return Base(self.versions.stable_position, state)

    def _hear(
        self, event: LaneEvent | AheadEvent | PairEvent, now: int, effects: list[Effect]
    ) -> None:
        found: list[LaneEffect | AheadEffect | PairEffect]
        if isinstance(event, LookAhead | AheadDone | AheadFailed):
            found = list(self.ahead.handle(event, now))
        elif isinstance(event, LookForPairs | PairsDone | PairsFailed):
            found = list(self.pairs.handle(event, now))
        else:
            found = list(self.lane.handle(event, now))
        for effect in found:
            if isinstance(effect, PublishEarly):
                effects += self.provider.streams[effect.stream].publish_early(effect.frame)
            else:
                effects.append(effect)

    @property
    def _is_wanted(self) -> bool:
        """Whether somebody asks for results that tuples may have a part in by themselves."""
        return any(self.provider.streams[name].wants_early for name in self.lane.outputs)

    @property
    def _wants_pairs(self) -> bool:
        return any(self.provider.streams[name].wants_early for name in self.pairs.outputs)

    def _take(self, stream: str, frames: tuple[StreamFrame, ...], now: int) -> None:
        try:
            super()._take(stream, frames, now)
        finally:
            # What came before a gap was taken.
            self.lane.handle(FramesTaken(stream, frames), now)
            self.pairs.handle(FramesTaken(stream, frames), now)

    def _deadlines(self) -> tuple[int, ...]:
        begins = self.lane.due if self._is_wanted else FAR_FUTURE
        ahead = self.ahead.due(self._look_ahead()) if self.ahead.lines else FAR_FUTURE
        pairs = self.pairs.due(self._look_for_pairs()) if self.pairs.waits else FAR_FUTURE
        return (*super()._deadlines(), begins, ahead, pairs)

    def validate(self) -> None:
        super().validate()
        self.lane.validate()
        self.ahead.validate()
        self.pairs.validate()


def make_replica(settings: ReplicaSettings, record: RecoveryRecord, begin: Beginning) -> Replica:
    """A replica, with an early lane if it has results for one."""
    races = any(one.ways or one.memory for one in settings.outputs)
    return (RacingReplica if races else Replica)(settings, record, begin)
