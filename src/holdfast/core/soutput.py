"""SOutput: labels and numbers what a fragment produces on one output, and corrects it.

Theory of operation. Results come from two versions of the fragment. The stable version takes
only stable buckets, so its results are stable. The live version exists while an input has
failed; its results on this output are tentative if a tentative or missing input can have
reached the output (the output is *tainted*), else they are as stable as the others'.

A job's results are all tuples with start <= stime < stop, in a total order. ``stable_until``
is how far stable results have gone out, ``tentative_until`` the same for tentative ones. That
is all the duplicate elimination there is: whatever version computes a stretch again, results
older than what went out with the same or a better label are left out. The engine counts them,
and SOutput checks that redo found exactly as many as it had numbered: if not, the computation
is not deterministic, and it is better to stop than to send tuples under wrong ids. Where another
network has numbered them (UNKNOWN_ID) there is nothing to check until what it sent is passed.

Stable tuples are numbered 0, 1, 2, ... and a number is never given twice. Tentative tuples
continue the count until the next UNDO. The first stable result after tentative ones is
preceded by an UNDO that names the first id taken back, which is always the next stable id:
a stable tuple cannot be undone because no UNDO can name it. When reconciliation is over a
REC_DONE follows; when it ends early because of a new failure, the REC_DONE is forced between
the last stable and the next tentative tuple.

    STABLE ──tentative──▶ TENTATIVE ──correction──▶ CORRECTING ──reconciled──▶ STABLE
                              ▲                          │
                              └────new failure───────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.events import OutputBlock
from holdfast.core.frame import Header, Kind, Why
from holdfast.core.machine import Machine
from holdfast.core.messages import StreamFrame, StreamState
from holdfast.core.records import UNKNOWN_ID


class SOutputState(Enum):
    STABLE = "stable"
    TENTATIVE = "tentative"
    CORRECTING = "correcting"


REPORTED = {
    SOutputState.STABLE: StreamState.STABLE,
    SOutputState.TENTATIVE: StreamState.UP_FAILURE,
    SOutputState.CORRECTING: StreamState.STABILIZATION,
}


class Trigger(Enum):
    TENTATIVE_RESULT = "tentative result"
    CORRECTION = "correction"
    LIVE_BESIDE = "tentative result beside corrections"
    RECONCILED = "reconciled"
    NEW_FAILURE = "new failure"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (SOutputState.STABLE, Trigger.TENTATIVE_RESULT): SOutputState.TENTATIVE,
    (SOutputState.TENTATIVE, Trigger.TENTATIVE_RESULT): SOutputState.TENTATIVE,
    (SOutputState.TENTATIVE, Trigger.CORRECTION): SOutputState.CORRECTING,
    (SOutputState.CORRECTING, Trigger.CORRECTION): SOutputState.CORRECTING,
    (SOutputState.CORRECTING, Trigger.LIVE_BESIDE): SOutputState.CORRECTING,
    (SOutputState.CORRECTING, Trigger.RECONCILED): SOutputState.STABLE,
    (SOutputState.CORRECTING, Trigger.NEW_FAILURE): SOutputState.TENTATIVE,
}


@dataclass(frozen=True, slots=True)
class StableComputed:
    """The stable version went to ``stop``; ``block`` is None if it produced nothing here."""

    stop: int
    block: OutputBlock | None


@dataclass(frozen=True, slots=True)
class LiveComputed:
    """The live version went to ``stop``; ``why`` says what it lacked, if it is tainted."""

    stop: int
    block: OutputBlock | None
    tainted: bool
    why: Why | None = None


@dataclass(frozen=True, slots=True)
class ReconciliationEnded:
    """Redo caught up, or a new failure ended it early."""

    healed: bool


SOutputEvent: TypeAlias = StableComputed | LiveComputed | ReconciliationEnded


@dataclass(frozen=True, slots=True)
class EmitFrames:
    """Publish these frames on the output, all or none."""

    stream: str
    frames: tuple[StreamFrame, ...]


class SOutput(Machine[SOutputState, Trigger]):
    """One output stream of a fragment replica."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self, owner: str, stream: str, next_id: int, stable_until: int, base_id: int
    ) -> None:
        super().__init__(f"{owner} SOutput of {stream}", SOutputState.STABLE)
        self.stream = stream
        self.next_id = next_id
        self.stable_until = stable_until
        self.tentative_until = 0
        self.base_id = base_id
        self._why: Why | None = None
        self._tentative_count = 0

    @property
    def why(self) -> Why | None:
        """What the tentative tuples lack that are out; None if there are none."""
        return self._why if self.outstanding else None

    @property
    def outstanding(self) -> bool:
        """Whether tentative tuples are out that no stable ones have replaced."""
        return self.tentative_until > self.stable_until

    def emit_from(self, tainted: bool) -> int:
        """Results older than this have already gone out."""
        return max(self.stable_until, self.tentative_until) if tainted else self.stable_until

    def reported_state(self) -> StreamState:
        """What heartbeats say of this output, as far as SOutput knows."""
        return REPORTED[self.state]

    def handle(self, event: SOutputEvent, now: int) -> list[EmitFrames]:
        match event:
            case StableComputed(stop, block):
                known = self.base_id != UNKNOWN_ID
                if known and block is not None:
                    self.base_id += block.skipped + block.count
                frames = self._emit_stable(stop, block, now)
                if not known and stop >= self.stable_until:
                    self.base_id = self.next_id
                self.require(
                    stop < self.stable_until or self.base_id == self.next_id,
                    f"computing again up to {stop} gave {self.base_id} tuples in all, "
                    f"but {self.next_id} have ids: the fragment is not deterministic",
                )
            case LiveComputed(stop, block, tainted, why):
                if tainted:
                    self._why = why
                    frames = self._emit_tentative(stop, block, now)
                else:
                    frames = self._emit_stable(stop, block, now)
                    if self.state is SOutputState.CORRECTING and not self.outstanding:
                        frames += self._rec_done(Trigger.RECONCILED, now)
            case ReconciliationEnded(healed):
                frames = []
                if self.state is SOutputState.CORRECTING:
                    trigger = Trigger.RECONCILED if healed else Trigger.NEW_FAILURE
                    frames = self._rec_done(trigger, now)
        return [EmitFrames(self.stream, tuple(frames))] if frames else []

    def _emit_stable(self, stop: int, block: OutputBlock | None, now: int) -> list[StreamFrame]:
        if stop <= self.stable_until:
            self.require(
                block is None or block.count == 0,
                f"{stop} is below {self.stable_until}: all of it went out before",
            )
            return []
        frames = []
        if self.state is not SOutputState.STABLE:
            if self.state is SOutputState.TENTATIVE:
                frames.append(self._mark(Kind.UNDO, self.tentative_until))
            self.move(Trigger.CORRECTION, now)
        if block is not None and block.count:
            self.require(
                block.stime_min >= self.stable_until and block.stime_max < stop,
                f"results of {block.stime_min} to {block.stime_max} do not belong to "
                f"{self.stable_until} to {stop}",
            )
            frames.append(self._data(Kind.STABLE, self.next_id, block))
            self.next_id += block.count
        self.stable_until = stop
        self._tentative_count = 0
        frames.append(self._mark(Kind.BOUNDARY, stop))
        return frames

    def _emit_tentative(self, stop: int, block: OutputBlock | None, now: int) -> list[StreamFrame]:
        if stop <= self.emit_from(tainted=True):
            return []
        if self.state is SOutputState.CORRECTING:
            self.move(Trigger.LIVE_BESIDE, now)
        else:
            self.move(Trigger.TENTATIVE_RESULT, now)
        frames = []
        if block is not None and block.count:
            first_id = self.next_id + self._tentative_count
            frames.append(self._data(Kind.TENTATIVE, first_id, block))
            self._tentative_count += block.count
        self.tentative_until = stop
        frames.append(self._mark(Kind.TENTATIVE_BOUNDARY, stop))
        return [replace(frame, why=self._why) for frame in frames]

    def _rec_done(self, trigger: Trigger, now: int) -> list[StreamFrame]:
        self.move(trigger, now)
        return [self._mark(Kind.REC_DONE, self.stable_until)]

    def _mark(self, kind: Kind, stime: int) -> StreamFrame:
        return StreamFrame(Header(kind, self.next_id, 0, stime, stime, stime))

    @staticmethod
    def _data(kind: Kind, first_id: int, block: OutputBlock) -> StreamFrame:
        header = Header(kind, first_id, block.count, block.stime_min, block.stime_max, block.tmax)
        return StreamFrame(header, block.block)

    def validate(self) -> None:
        self.require(self.base_id <= self.next_id, "the stable version is ahead of its ids")
        self.require(
            self.state is not SOutputState.STABLE or not self.outstanding,
            "tentative tuples are out, so the output is not STABLE",
        )
