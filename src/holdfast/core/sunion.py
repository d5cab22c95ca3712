"""SUnion: puts the tuples of all inputs of a fragment into buckets, alike on every replica.

Theory of operation. Bucket k holds the tuples of all inputs with k*d <= stime < (k+1)*d. A
bucket is *stable* when every input's stable boundary has reached its end: then nothing is
missing and all replicas see the same bucket. SUnion offers stable buckets in order; two
positions say how far they were taken: ``stable_position`` by the stable version of the
fragment, ``live_position`` by the live version, which exists only while an input has failed.

A tuple may be held for αX from its arrival (patience.py says how long that is). If its bucket is
not stable by then, the bucket is *overdue*: SUnion reports an upstream failure, once, and from then
on offers buckets to the live version with what there is. How eagerly depends on the policy it is
told:

- HOLD, SUSPEND: not at all.
- DELAY: every bucket waits the full αX for its correction.
- PROCESS: a bucket is offered as soon as no input is worth waiting for. An input is worth
  waiting for if it may still bring something: it is not stable up to the bucket's end, and
  either it still progresses, or a stable replica of it is known. An input that lacked an
  overdue bucket is *missing* until it progresses again or a stable replica of it is found, so
  that what it brings is in the next buckets and not only in the corrections; one for which no
  stable replica is known is *hopeless* and waited for only as far as its tentative tuples go.
  The first job of a live version takes only what is overdue: that has no time left to wait for
  the rest.

A window whose end was heard of waits like a tuple: its result is held up by a missing input though
no tuple is (heard.py).

With PROCESS, a bucket whose only flaw is tentative input from a hopeless stream is a failure
at once: upstream has already waited its αX, and waiting again in every fragment would add up.

Stable tuples keep arriving, or are replaced after an UNDO (StreamCopy does that). When every
input is stable up to the live position, the failure has healed: SUnion asks for
reconciliation (the paper's REC_REQUEST). It asks too when a long stretch is corrected while
newer buckets are still tentative, so that rolling failures do not put it off for ever. Stable
tuples stay here until the stable version has taken them (undo/redo: until the stream marker
has passed them); tentative ones until the live version has.

    ORDERED ──overdue──▶ TENTATIVE ──corrected──▶ CORRECTED ──reconciled──▶ ORDERED
                              ▲                       │
                              └──corrected no more────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.effects import InputSlice
from holdfast.core.heard import Heard
from holdfast.core.machine import Machine
from holdfast.core.messages import StreamFrame
from holdfast.core.patience import Patience
from holdfast.core.settings import Timing
from holdfast.core.stream_copy import FAR_FUTURE, StreamCopy

# How many times larger redo jobs are that keep nobody waiting.
ALONE = 10
# What a job of several buckets takes at most: a column of texts has room for twice as much.
JOB_BYTES = 1 << 30


class SUnionState(Enum):
    ORDERED = "ordered"
    TENTATIVE = "tentative"
    CORRECTED = "corrected"


class Trigger(Enum):
    OVERDUE = "overdue"
    HOPELESS = "only tentative input to be had"
    CORRECTED = "corrected"
    CORRECTED_IN_PART = "corrected in part"
    CORRECTED_NO_MORE = "corrected no more"
    RECONCILED = "reconciled"
    RECONCILED_IN_PART = "reconciled in part"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (SUnionState.ORDERED, Trigger.OVERDUE): SUnionState.TENTATIVE,
    (SUnionState.ORDERED, Trigger.HOPELESS): SUnionState.TENTATIVE,
    (SUnionState.TENTATIVE, Trigger.CORRECTED): SUnionState.CORRECTED,
    (SUnionState.TENTATIVE, Trigger.CORRECTED_IN_PART): SUnionState.CORRECTED,
    (SUnionState.CORRECTED, Trigger.CORRECTED_NO_MORE): SUnionState.TENTATIVE,
    (SUnionState.CORRECTED, Trigger.RECONCILED): SUnionState.ORDERED,
    (SUnionState.CORRECTED, Trigger.RECONCILED_IN_PART): SUnionState.TENTATIVE,
}


class Release(Enum):
    """How buckets that are not stable are offered."""

    HOLD = "hold"
    SUSPEND = "suspend"
    DELAY = "delay"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class FramesArrived:
    """Frames of one message of a feed; a gap raises, and what came before it is taken."""

    stream: str
    frames: tuple[StreamFrame, ...]


@dataclass(frozen=True, slots=True)
class SourceJudged:
    """The upstream monitor's word: is a stable replica of this input known?"""

    stream: str
    hopeless: bool


@dataclass(frozen=True, slots=True)
class ReleaseChosen:
    """The consistency manager's word on tentative buckets."""

    release: Release


@dataclass(frozen=True, slots=True)
class StableTaken:
    """The stable version has taken every bucket below ``position``.

    Stable input below ``keep_from`` will not be read again.
    """

    position: int
    keep_from: int


@dataclass(frozen=True, slots=True)
class LiveTaken:
    """The live version has taken every bucket below ``position``."""

    position: int


@dataclass(frozen=True, slots=True)
class ResultDue:
    """When the version that goes on with new buckets has a result though no tuple comes."""

    due: int


@dataclass(frozen=True, slots=True)
class LiveGone:
    """There is no live version any more; ``due`` is the stable one's."""

    due: int = FAR_FUTURE


@dataclass(frozen=True, slots=True)
class Reconciled:
    """Redo has taken all there was; ``healed`` if no tentative bucket is left over."""

    healed: bool


@dataclass(frozen=True, slots=True)
class LookAtBuckets:
    """The fragment is between two jobs: is anything overdue, or corrected?

    While it is reconciling, that question is settled; only who is missing is noted.
    """

    reconciling: bool = False


SUnionEvent: TypeAlias = (
    FramesArrived
    | SourceJudged
    | ReleaseChosen
    | StableTaken
    | LiveTaken
    | ResultDue
    | LiveGone
    | Reconciled
    | LookAtBuckets
)


@dataclass(frozen=True, slots=True)
class ReportFailure:
    """A bucket is overdue: the paper's UP_FAILURE tuple."""


@dataclass(frozen=True, slots=True)
class RequestReconciliation:
    """The inputs are corrected: the paper's REC_REQUEST tuple."""


@dataclass(frozen=True, slots=True)
class WithdrawRequest:
    """A newer bucket had to be taken tentatively before reconciliation began."""


SUnionEffect: TypeAlias = ReportFailure | RequestReconciliation | WithdrawRequest


class SUnion(Machine[SUnionState, Trigger]):
    """The buckets of one fragment replica."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self,
        owner: str,
        copies: dict[str, StreamCopy],
        timing: Timing,
        position: int,
        eager: bool,
        patience: Patience | None = None,
        suspends: bool = False,
    ) -> None:
        super().__init__(f"{owner} SUnion", SUnionState.ORDERED)
        self.copies = copies
        self.release = Release.HOLD
        self.stable_position = position
        self.live_position: int | None = None
        self.missing: set[str] = set()
        self.hopeless: set[str] = set()
        # Where somebody waits for the state as it is then: a stable job ends there.
        self._stops: tuple[int, ...] = ()
        # New tuples wait for the end of a reconciliation by choice, not because a partner has them.
        self.suspends = suspends
        self._timing = timing
        self._bucket_us = timing.bucket_us
        self._heard = Heard(timing.alpha_x_us)
        self._due = FAR_FUTURE
        self._patience = patience or Patience(timing)
        self._eager = eager

    def handle(self, event: SUnionEvent, now: int) -> list[SUnionEffect]:
        match event:
            case FramesArrived(stream, frames):
                copy = self.copies[stream]
                for frame in frames:
                    copy.take(frame, now)
                    if copy.progressed_at == now:
                        self.missing.discard(stream)
                self._heard.hear(copy.live_boundary, now)
            case LookAtBuckets(reconciling):
                return self._look(now, reconciling)
            case SourceJudged(stream, hopeless):
                (self.hopeless.add if hopeless else self.hopeless.discard)(stream)
                if not hopeless:
                    self.missing.discard(stream)
            case ReleaseChosen(release):
                self.release = release
            case StableTaken(position, keep_from):
                self.stable_position = position
                for copy in self.copies.values():
                    copy.drop_stable_below(keep_from)
                    copy.forget_ages_below(position)
            case LiveTaken(position):
                self.live_position = position
                for copy in self.copies.values():
                    copy.drop_tentative_below(position)
                    copy.forget_ages_below(position)
            case ResultDue(due):
                self._due = due
            case LiveGone(due):
                self.live_position, self._due = None, due
            case Reconciled(healed):
                trigger = Trigger.RECONCILED if healed else Trigger.RECONCILED_IN_PART
                self.move(trigger, now)
                self.missing.clear()
        return []

    # -- what is on offer ---------------------------------------------------------------

    def stable_target(self) -> int:
        """The end of the last stable bucket; at most ``stable_position`` if there is none."""
        lowest = FAR_FUTURE
        for copy in self.copies.values():
            if copy.boundary < lowest:
                lowest = copy.boundary
        return self._floor(lowest)

    def live_target(self, now: int) -> int:
        """How far the live version may go now; its own position if nowhere."""
        position = self._live_or_stable()
        if self.release in (Release.HOLD, Release.SUSPEND):
            return position
        target = overdue = self._overdue_target(now)
        first = position == self.stable_position and target > position
        if self.release is Release.PROCESS and not first:
            target = max(target, self._eager_target())
        elif target > position and not first:
            # What falls due before this job is done would wait for its end.
            target = self._overdue_target(now + self._patience.ahead_us)
        # No further than the next place where an input stops being stable, so that a job is
        # stable or tentative as a whole. But after the first job what is overdue does not wait for
        # an input that catches up bucket by bucket.
        for copy in self.copies.values():
            stable_until = self._floor(copy.boundary)
            if position < stable_until < target and (first or stable_until >= overdue):
                target = stable_until
        return max(target, position)

    @property
    def position(self) -> int:
        """How far buckets were taken, stable or not."""
        return self._live_or_stable()

    def reach(self, now: int) -> int:
        """How far a live version that holds nothing back could go now."""
        return max(self._overdue_target(now), self._eager_target(), self.position)

    def unstable_inputs(self, stop: int) -> frozenset[str]:
        """The inputs that may still change before ``stop``."""
        return frozenset(name for name, copy in self.copies.items() if copy.boundary < stop)

    def redo_stop(self, target: int) -> int:
        """Where the next stable job ends: some buckets after the first held tuple.

        More of them when new tuples wait behind all of it anyway: by choice, or because who was cut
        off in a quiet moment has missed much without a failure. Not more when a partner takes them
        instead: it may be on the same machine, and wait for the same processors.
        """
        reached = [copy.stable.oldest_from(self.stable_position) for copy in self.copies.values()]
        oldest = min((stime for stime in reached if stime is not None), default=target)
        start = max(self._floor(oldest), self.stable_position)
        buckets = self._patience.redo_buckets
        alone = self.suspends and self.release is Release.SUSPEND
        if self.live_position is None or alone:
            buckets = self._timing.redo_buckets * ALONE
        ahead = (stop for stop in self._stops if stop > self.stable_position)
        stop = min(target, start + buckets * self._bucket_us, *ahead)
        return self._within_bytes(start, stop)

    def _within_bytes(self, start: int, stop: int) -> int:
        """How far a job goes from ``start``: a bucket, and more while it can hold it."""
        frames = [
            (one.header.stime_min, int(getattr(one.block, "nbytes", 0)))
            for copy in self.copies.values()
            for one in copy.stable.between(self.stable_position, stop)
        ]
        if sum(size for _, size in frames) <= JOB_BYTES:
            return stop
        taken = 0
        for stime, size in sorted(frames):
            taken += size
            if taken > JOB_BYTES:
                return min(stop, max(self._floor(stime), start + self._bucket_us))
        return stop

    def stop_at(self, boundaries: tuple[int, ...]) -> None:
        """Somebody waits for the state as it is at these boundaries."""
        self._stops = boundaries

    def next_deadline(self) -> int:
        """When the oldest held tuple or window will be overdue; FAR_FUTURE if none is held."""
        position = self._live_or_stable()
        oldest = self._heard.since(max(self._due, position + 1))
        for copy in self.copies.values():
            for arrived, stime_max in copy.ages:
                if stime_max >= position:
                    if arrived < oldest:
                        oldest = arrived
                    break
        return oldest if oldest == FAR_FUTURE else oldest + self._patience.alpha_x_us

    def slices(self, start: int, stop: int, stable_only: bool) -> tuple[InputSlice, ...]:
        """The held input of [start, stop)."""
        found: list[InputSlice] = []
        for name, copy in self.copies.items():
            found += copy.slices(start, stop)
            if stable_only:
                continue
            for held in copy.tentative:
                stime_from = max(start, held.stime_from, copy.cut)
                if held.header.stime_min < stop and held.header.stime_max >= stime_from:
                    found.append(InputSlice(name, held.header, held.block, 0, stime_from, stop))
        return tuple(found)

    # -- what is wrong, what is healed --------------------------------------------------

    def _look(self, now: int, reconciling: bool) -> list[SUnionEffect]:
        stable_target = self.stable_target()
        if self.state is SUnionState.ORDERED:
            return self._look_for_failure(stable_target, now)
        position = self._live_or_stable()
        if self.release is not Release.SUSPEND:
            overdue = self._overdue_target(now)
            if overdue > position:
                self._note_missing(overdue)
        if reconciling:
            return []
        whole = stable_target > self.stable_position and stable_target >= position
        enough = self._timing.partial_redo_buckets * self._bucket_us
        part = stable_target - self.stable_position >= enough
        if self.state is SUnionState.TENTATIVE and (whole or part):
            trigger = Trigger.CORRECTED if whole else Trigger.CORRECTED_IN_PART
            self.move(trigger, now, f"up to {stable_target}")
            return [RequestReconciliation()]
        if self.state is SUnionState.CORRECTED and not (whole or part):
            self.move(Trigger.CORRECTED_NO_MORE, now, f"at {position}, stable to {stable_target}")
            return [WithdrawRequest()]
        return []

    def _look_for_failure(self, stable_target: int, now: int) -> list[SUnionEffect]:
        overdue = self._overdue_target(now)
        if overdue > max(stable_target, self.stable_position):
            self._note_missing(overdue)
            self.move(Trigger.OVERDUE, now, f"missing {sorted(self.missing)}")
            return [ReportFailure()]
        if self._eager and self.hopeless and self._eager_target() > stable_target:
            self.move(Trigger.HOPELESS, now, f"hopeless {sorted(self.hopeless)}")
            return [ReportFailure()]
        return []

    def _note_missing(self, overdue: int) -> None:
        for name, copy in self.copies.items():
            if copy.live_boundary < overdue:
                self.missing.add(name)

    def _overdue_target(self, now: int) -> int:
        """The end of the newest bucket with a tuple, or the end of a window, that has waited αX."""
        position = self._live_or_stable()
        arrived_by = now - self._patience.alpha_x_us
        due = max(self._due, position + 1)
        newest = due - 1 if self._heard.since(due) <= arrived_by else -1
        for copy in self.copies.values():
            for arrived, stime_max in copy.ages:
                if arrived > arrived_by:
                    break
                newest = max(newest, stime_max)
        return self._floor(newest) + self._bucket_us if newest >= position else position

    def _eager_target(self) -> int:
        """How far no input is worth waiting for."""
        limit = FAR_FUTURE
        for name, copy in self.copies.items():
            if name in self.missing:
                continue
            limit = min(limit, copy.live_boundary if name in self.hopeless else copy.boundary)
        return self._floor(limit) if limit != FAR_FUTURE else self._live_or_stable()

    def _live_or_stable(self) -> int:
        return self.stable_position if self.live_position is None else self.live_position

    def _floor(self, stime: int) -> int:
        return stime - stime % self._bucket_us

    def validate(self) -> None:
        for copy in self.copies.values():
            copy.validate()
        self.require(
            self.live_position is None or self.live_position >= self.stable_position,
            f"live version at {self.live_position} behind stable at {self.stable_position}",
        )
        self.require(
            self.state is not SUnionState.ORDERED or self.live_position is None,
            "a live version exists only after a failure",
        )
