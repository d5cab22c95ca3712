"""The versions of a fragment: the stable one, the live one beside it, and the job that runs.

Theory of operation. A fragment's state comes in immutable versions, so a version costs what a
reference costs. The stable version has taken only stable buckets. The live version is forked
from it when an input fails and takes tentative ones; to reconcile, the stable version goes on
from where it is. Keeping the stable version's state through the failure is checkpoint/redo
(WHOLE, FORKED). With undo/redo it is given up operator by operator: with its first job that
takes tentative input the live version's operators below that input are wrong, and those of the
stable version are given up; what the input does not reach stays (CLEARED_FORKED). When it is
needed, those operators rebuild their state from the empty one and the input since their stream
marker: the oldest input that contributed to it. While it runs beside the redo the live version
gives nothing up again. A replica that restarts after a crash begins CLEARED too, with nothing
left, and rebuilds all of it in the same way.

One job runs at a time. A job that is no longer wanted is cancelled; if its result comes all
the same it is dropped.

    WHOLE ──fork──▶ FORKED ──drop live──▶ WHOLE
    FORKED ──give up──▶ CLEARED_FORKED ──drop live──▶ CLEARED ──rebuilt──▶ WHOLE
                        CLEARED_FORKED ──rebuilt──▶ FORKED
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.effects import CancelJob, GiveUp, InputSlice, RunJob
from holdfast.core.effects import Line as Line
from holdfast.core.events import JobDone, JobFailed, Left, OutputBlock, WindowBlock
from holdfast.core.machine import Machine
from holdfast.core.patience import Patience
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.core.why import Basis


class VersionsState(Enum):
    WHOLE = "whole"
    FORKED = "forked"
    CLEARED = "cleared"
    CLEARED_FORKED = "cleared and forked"


class Trigger(Enum):
    FORK = "fork"
    GIVE_UP = "give up"
    DROP_LIVE = "drop live"
    REBUILT = "rebuilt"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (VersionsState.WHOLE, Trigger.FORK): VersionsState.FORKED,
    (VersionsState.FORKED, Trigger.GIVE_UP): VersionsState.CLEARED_FORKED,
    (VersionsState.FORKED, Trigger.DROP_LIVE): VersionsState.WHOLE,
    (VersionsState.CLEARED_FORKED, Trigger.DROP_LIVE): VersionsState.CLEARED,
    (VersionsState.CLEARED, Trigger.REBUILT): VersionsState.WHOLE,
    (VersionsState.CLEARED_FORKED, Trigger.REBUILT): VersionsState.FORKED,
}


@dataclass(frozen=True, slots=True)
class Fork:
    """Start the live version; ``undo``: what it takes tentatively is given up of the stable
    version's state, and made again."""

    undo: bool


@dataclass(frozen=True, slots=True)
class ForgetLive:
    """End the live version and whatever it computes."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Advance a version to ``stop``. ``tainted`` are the outputs that tentative input can reach,
    ``tentative`` these inputs."""

    line: Line
    stop: int
    slices: tuple[InputSlice, ...]
    emit_from: tuple[tuple[str, int], ...]
    tainted: frozenset[str] = frozenset()
    tentative: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Running:
    """The job under way."""

    job: int
    line: Line
    start: int
    stop: int


VersionsEvent: TypeAlias = Fork | ForgetLive | Begin | JobDone | JobFailed


@dataclass(frozen=True, slots=True)
class Advanced:
    """A version reached ``stop``; a rebuilt one is where the stable version was."""

    line: Line
    stop: int
    outputs: tuple[OutputBlock, ...]
    tainted: frozenset[str]
    windows: tuple[WindowBlock, ...] = ()


VersionsEffect: TypeAlias = RunJob | CancelJob | Advanced


class Versions(Machine[VersionsState, Trigger]):
    """The versions of one fragment replica."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self,
        owner: str,
        position: int,
        marker: int,
        state: object = None,
        first_job: int = 1,
        basis: Basis | None = None,
        patience: Patience | None = None,
    ) -> None:
        """``state`` is the stable version's, or what it can be rebuilt from with the input
        since ``marker``; None is the empty one. ``basis`` is told what jobs take of the input,
        ``patience`` how long they take."""
        fresh = marker >= position
        initial = VersionsState.WHOLE if fresh else VersionsState.CLEARED
        super().__init__(f"{owner} versions", initial)
        self.stable_position = position
        self.marker = marker
        # From where on the input is needed to rebuild what the stable version's state lacks.
        self.rebuild_from = marker
        self._undoes = False
        self.live_position: int | None = None
        self.tainted: frozenset[str] = frozenset()
        self.job: tuple[int, Begin] | None = None
        self._stable_state: object = state
        self._live_state: object = None
        # Of a state that was kept nobody knows when it has its next result: perhaps at once.
        self._stable_due = self._live_due = FAR_FUTURE if fresh and state is None else 0
        self._basis = basis or Basis({})
        self._patience = patience
        self.next_job = first_job

    @property
    def rebuilt(self) -> bool:
        """Whether the stable version has its state."""
        return self.state in (VersionsState.WHOLE, VersionsState.FORKED)

    @property
    def newest_state(self) -> object:
        """That of the version that goes on with new buckets."""
        return self._stable_state if self.live_position is None else self._live_state

    @property
    def due(self) -> int:
        """When the version that goes on with new buckets has a result though no tuple comes."""
        return self._stable_due if self.live_position is None else self._live_due

    @property
    def running(self) -> Running | None:
        """The job under way, and from where to where it goes."""
        if self.job is None:
            return None
        job, begin = self.job
        starts = {
            Line.STABLE: self.stable_position,
            Line.REBUILD: self.rebuild_from,
            Line.LIVE: self.live_position or 0,
        }
        return Running(job, begin.line, starts[begin.line], begin.stop)

    @property
    def reached(self) -> int:
        """How far the stable version is, or will be after the job that runs."""
        runs = self.job is not None and self.job[1].line is Line.STABLE
        return self.job[1].stop if self.job is not None and runs else self.stable_position

    @property
    def stable_state(self) -> object:
        """The state at ``stable_position``, if ``rebuilt``."""
        return self._stable_state

    def handle(self, event: VersionsEvent, now: int) -> list[VersionsEffect]:
        match event:
            case Fork(undo):
                self._fork(undo, now)
                return []
            case ForgetLive():
                return self._forget_live(now)
            case Begin():
                return [self._begin(event, now)]
            case JobDone():
                return self._done(event, now)
            case JobFailed(job, _):
                if self.job is not None and self.job[0] == job:
                    self.job = None
                return []

    def _fork(self, undo: bool, now: int) -> None:
        self.move(Trigger.FORK, now)
        self.live_position = self.stable_position
        self._live_state, self._live_due = self._stable_state, self._stable_due
        # A state that depends on no input is the empty one: nothing to rebuild.
        self._undoes = undo and self.marker < self.stable_position

    def _give_up(self, left: Left, now: int) -> None:
        """The live version has taken tentative input: what that reaches is not kept."""
        same = left.state is self._stable_state
        if not self._undoes or same or left.marker >= self.stable_position:
            return
        self._stable_state = left.state
        if self.state is VersionsState.FORKED:
            self.rebuild_from = left.marker
            self.move(Trigger.GIVE_UP, now, f"to be made again from {left.marker} on")
        else:
            self.rebuild_from = min(self.rebuild_from, left.marker)

    def _forget_live(self, now: int) -> list[VersionsEffect]:
        effects: list[VersionsEffect] = []
        if self.job is not None and self.job[1].line is Line.LIVE:
            effects.append(CancelJob(self.job[0]))
            self.job = None
        self.move(Trigger.DROP_LIVE, now)
        self.live_position = None
        self._live_state = None
        self.tainted = frozenset()
        self._basis.live_ended()
        return effects

    def _begin(self, begin: Begin, now: int) -> RunJob:
        self.require(self.job is None, "one job at a time")
        match begin.line:
            case Line.STABLE:
                self.require(self.rebuilt, "the stable version has no state to go on from")
                state, start = self._stable_state, self.stable_position
                self._basis.stable_begins(start, begin.stop, begin.slices)
            case Line.REBUILD:
                state, start = self._stable_state, self.rebuild_from
            case Line.LIVE:
                self.require(self.live_position is not None, "there is no live version")
                state, start = self._live_state, self.live_position or 0
                self._basis.live_begins(start, begin.stop, begin.slices)
        self.require(begin.stop > start, f"a job from {start} to {begin.stop}")
        if self._patience is not None:
            is_redo = begin.line is not Line.LIVE and self.live_position is not None
            self._patience.job_begins(begin.stop - start, is_redo, now)
        job = self.next_job
        self.next_job += 1
        self.job = (job, begin)
        gives_up = None
        if begin.line is Line.LIVE and self._undoes and begin.tentative:
            gives_up = GiveUp(self._stable_state, self.stable_position, begin.tentative)
        run = RunJob(job, begin.line, state, start, begin.stop, begin.slices, begin.emit_from)
        return run if gives_up is None else replace(run, gives_up=gives_up)

    def _done(self, done: JobDone, now: int) -> list[VersionsEffect]:
        if self.job is None or self.job[0] != done.job:
            return []
        begin = self.job[1]
        self.job = None
        if self._patience is not None:
            self._patience.job_done(now)
        if begin.line is Line.LIVE:
            self._live_state, self.live_position = done.state, begin.stop
            self._live_due = done.due
            self.tainted |= begin.tainted
            self._basis.live_done()
            if done.left is not None:
                self._give_up(done.left, now)
        else:
            self._stable_state, self.marker = done.state, min(done.marker, begin.stop)
            self.stable_position, self.rebuild_from = begin.stop, self.marker
            self._stable_due = done.due
            # Whatever the live version takes beside the redo would have to be made again.
            self._undoes = False
            if begin.line is Line.REBUILD:
                self.move(Trigger.REBUILT, now, f"from {self.marker} to {begin.stop}")
        return [Advanced(begin.line, begin.stop, done.outputs, self.tainted, done.windows)]

    def validate(self) -> None:
        forked = self.state in (VersionsState.FORKED, VersionsState.CLEARED_FORKED)
        self.require(forked == (self.live_position is not None), "live version and state differ")
        self.require(self.marker <= self.stable_position, "the marker is past the position")
