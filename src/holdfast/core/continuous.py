"""Continuous eventual checkpointing: which window states to write, and when.

Theory of operation. The state of a fragment is never saved as a whole. When a window opens its
state goes into the output log; from then on its state is written again now and then, one window
at a time, the one with the oldest written state first. So at any moment the log holds a state
of every open window, each of another age, and from them and the input since the oldest of them
the fragment's state can be computed. Two sizes say what that would cost:

- the *extent* q: how many window states and results the log has since the oldest state that is
  still needed. Recovery must read them.
- the *replay size* u: how many input tuples came since then. Recovery must compute them again.

Windows whose states were written at the same time are a *generation*. This machine knows how
many windows each generation still has, at most: it is told when windows opened, and looks at
the oldest generation now and then, because windows that have closed need no state any more.
Some operators write every state that changes (``exact``): these count for the extent, and need
no replay. A join needs its recent input, however new the states of others are (``reach``).

Checkpointing must not hold up the work. Every period CP there is a round of at most CI; where
states are further apart than CP, a round may take as much as those that were left out. In a
round the oldest windows are looked at and, while a target is exceeded, written. A target is a
bound on q, on u, or on the time a recovery would take. That time is estimated from measured
costs (``costs``): so much for a window state read, so much for a tuple computed again. A round
looks ahead: both sizes shrink only when the whole oldest generation has been written, which adds
as many states and takes as many rounds as it needs, and in each of them about as much comes as
came since the last one. So targets hold though generations differ in size.

A generation is written only if that makes a recovery cheaper. With the time as the target the
states to be written will have to be read, too, and a join's reach does not get shorter. What is
left of a generation may also be of a kind that cannot be written again (rows that only ever
accumulate): then it stays until its windows close, and what comes after it is written if that
shortens the replay. So one generation that cannot move does not hold up the others.

The windows of a generation are handles of the runtime's (``members``): this machine keeps them
and hands them out with its orders, and nobody else keeps a second book of generations. What is said
of events and generations leaves them out: each stands for thousands of windows.

    IDLE ──round due──▶ LOOKING ──write──▶ CHECKING ──written──▶ LOOKING
    LOOKING ──closed──▶ LOOKING            LOOKING, CHECKING ──enough──▶ IDLE
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.costs import Costs, JobLine
from holdfast.core.machine import Machine
from holdfast.core.settings import Continuous

# How many windows to look at in one go: to learn whether any is open; to write them, at least
# and at most. A look has a price of its own, so that small ones are dear.
_FEW, _MANY, _LARGEST_LOOK = 64, 2_000, 20_000
_MOST_PERIODS = 10
# Without a target nothing will be written; to know what a recovery would take, so many periods do.
_PERIODS_WITHOUT_TARGET = 10
_FORGET = 0.8  # how fast estimates of growth forget a busy time


class CecState(Enum):
    IDLE = "idle"
    LOOKING = "looking"
    CHECKING = "checking"


class Trigger(Enum):
    ROUND_DUE = "round due"
    CLOSED = "closed"
    WRITE = "write"
    WRITTEN = "written"
    ENOUGH = "enough"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (CecState.IDLE, Trigger.ROUND_DUE): CecState.LOOKING,
    (CecState.LOOKING, Trigger.CLOSED): CecState.LOOKING,
    (CecState.LOOKING, Trigger.WRITE): CecState.CHECKING,
    (CecState.LOOKING, Trigger.ENOUGH): CecState.IDLE,
    (CecState.CHECKING, Trigger.WRITTEN): CecState.LOOKING,
    (CecState.CHECKING, Trigger.ENOUGH): CecState.IDLE,
}


@dataclass(frozen=True, slots=True)
class StateReached:
    """The stable state is at ``time``.

    inputs, results   tuples taken and emitted on the way there.
    replayed, exact   windows whose states were written for it: because they opened, and
                      because they changed.
    written           how many states that were, with those of windows that ended.
    open_windows      how many are open now.
    reach             the oldest input that is needed besides, at most ``time``.
    members           handles of the windows whose states were written.
    """

    time: int
    inputs: int
    results: int
    replayed: int
    exact: int
    written: int
    open_windows: int
    reach: int
    members: tuple[object, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Looked:
    """Some windows of a generation were looked at.

    alive            how many of them are open and can be written.
    replayed, exact  what is left of the generation.
    unseen           how many of these were not looked at.
    looked           handles of those that are open and can be written.
    rest             handles of what is left besides.
    """

    alive: int
    replayed: int
    exact: int
    unseen: int
    looked: tuple[object, ...] = field(default=(), repr=False)
    rest: tuple[object, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Checked:
    """The windows that were looked at last have been written; ``members`` are their handles."""

    replayed: int
    exact: int
    members: tuple[object, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class RoundFailed:
    """The windows could not be read; what was written before is written."""

    reason: str


@dataclass(frozen=True, slots=True)
class Measured:
    """What something really took: loading a window state, or a job of so many tuples."""

    load_us: float | None = None
    job_us: float | None = None
    tuples: int = 0


CecEvent: TypeAlias = StateReached | Looked | Checked | RoundFailed | Measured


@dataclass(frozen=True, slots=True)
class LookAtWindows:
    """Look at the first ``most`` windows of the generation of ``time``."""

    time: int
    most: int
    members: tuple[object, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class CheckWindows:
    """Write the states of the windows just looked at, as they are now."""

    time: int
    looked: tuple[object, ...] = field(default=(), repr=False)


CecEffect: TypeAlias = LookAtWindows | CheckWindows


@dataclass(slots=True)
class Generation:
    """Windows whose states were written at ``time``: how many are left, at most, and which."""

    time: int
    replayed: int = 0
    exact: int = 0
    members: tuple[object, ...] = field(default=(), repr=False)

    @property
    def windows(self) -> int:
        return self.replayed + self.exact


@dataclass(frozen=True, slots=True)
class Mark:
    """How many frames and input tuples there had been when the state was at ``time``."""

    time: int
    frames: int
    inputs: int


@dataclass(frozen=True, slots=True)
class Restored:
    """What a recovery has found in the log and replayed."""

    generations: tuple[Generation, ...]
    marks: tuple[Mark, ...]
    reached: StateReached


class Checkpointer(Machine[CecState, Trigger]):
    """Decides for one replica."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(self, owner: str, settings: Continuous, start: int) -> None:
        super().__init__(f"{owner} checkpoints", CecState.IDLE)
        self.settings = settings
        self.costs = Costs()
        self._jobs = JobLine()
        self.time = start
        self.open_windows = 0
        self.checked = 0
        self._reach = start
        self._frames = 0
        self._inputs = 0
        self._generations: deque[Generation] = deque()
        self._marks: list[Mark] = [Mark(start, 0, 0)]
        self._round_began = 0
        self._round_us = 0
        self._next_round_at = 0
        self._window_us = 1.0
        self._ordered_at = 0
        self._ordered = 0
        self._grown = (0, 0)
        self._growth = (0.0, 0.0)
        # The generation that the round is at, and what is left of it once those looked at are
        # written: if that fails, they are of it still.
        self._at = 0
        self._rest: tuple[object, ...] = ()

    # -- what a recovery would cost now -------------------------------------------------

    @property
    def extent_from(self) -> int:
        """The time of the oldest window state that is needed."""
        return self._generations[0].time if self._generations else self.time

    @property
    def replay_from(self) -> int:
        """The oldest input that is needed."""
        for generation in self._generations:
            if generation.replayed:
                return min(generation.time, self._reach)
        return min(self.time, self._reach)

    @property
    def extent(self) -> int:
        """q: window states and results that a recovery would read."""
        return self._frames - self._mark(self.extent_from).frames

    @property
    def replay(self) -> int:
        """u: input tuples that a recovery would compute again."""
        return self._inputs - self._mark(self.replay_from).inputs

    @property
    def recovery_us(self) -> int:
        """How long a recovery would take now, as far as is known."""
        return int(self.costs.expected_us(self.extent, self.replay))

    # -- what happens -------------------------------------------------------------------

    def restore(self, restored: Restored) -> None:
        """Go on after a recovery: what was found in the log, and what was replayed."""
        reached = restored.reached
        self._generations = deque(replace(each) for each in restored.generations)
        self._marks = list(restored.marks)
        self._frames, self._inputs = reached.results, reached.inputs
        self.time, self._reach, self.open_windows = (
            reached.time,
            reached.reach,
            reached.open_windows,
        )

    def handle(self, event: CecEvent, now: int) -> list[CecEffect]:
        match event:
            case StateReached():
                self._reached(event)
                return self._begin_round(now)
            case Looked():
                return self._looked(event, now)
            case Checked():
                return self._checked(event, now)
            case RoundFailed():
                return self._end(now)
            case Measured():
                self._measured(event)
                return []

    def _measured(self, event: Measured) -> None:
        if event.load_us is not None:
            self.costs = replace(self.costs, load_us=event.load_us)
        if event.job_us is not None and event.tuples:
            self._jobs.add(event.tuples, event.job_us)
            fixed_us, replay_us = self._jobs.fixed_and_each_us()
            self.costs = replace(self.costs, fixed_us=fixed_us, replay_us=replay_us)

    def _reached(self, event: StateReached) -> None:
        self.require(event.time >= self.time, f"{event.time} is before {self.time}")
        self._inputs += event.inputs
        self._frames += event.results
        self.time, self._reach = event.time, event.reach
        self.open_windows = event.open_windows
        self._marks.append(Mark(event.time, self._frames, self._inputs))
        self._frames += event.written
        frames = self._grown[0] + event.results + event.written
        self._grown = (frames, self._grown[1] + event.inputs)
        if event.replayed or event.exact:
            fresh = Generation(event.time, event.replayed, event.exact, event.members)
            self._generations.append(fresh)
        self._forget_marks()

    def _begin_round(self, now: int) -> list[CecEffect]:
        if self.state is not CecState.IDLE or now < self._next_round_at:
            return []
        self._growth = (
            max(self._grown[0], _FORGET * self._growth[0]),
            max(self._grown[1], _FORGET * self._growth[1]),
        )
        self._grown = (0, 0)
        periods = (now - self._round_began) // self.settings.period_us
        self._round_us = self.settings.interval_us * max(1, min(_MOST_PERIODS, periods))
        self._round_began = now
        periods = 1 if self._has_target else _PERIODS_WITHOUT_TARGET
        self._next_round_at = now + periods * self.settings.period_us
        if not self._generations or self._generations[0].time >= self.time:
            return []
        self._at = 0
        self.move(Trigger.ROUND_DUE, now)
        return self._look(now)

    def _look(self, now: int) -> list[CecEffect]:
        left_us = self._round_us - (now - self._round_began)
        most = _FEW
        if self._is_above():
            most = max(_MANY, min(_LARGEST_LOOK, int(left_us / self._window_us)))
        at = self._generations[self._at]
        self._ordered = min(most, at.windows)
        self._ordered_at = now
        return [LookAtWindows(at.time, self._ordered, at.members)]

    def _looked(self, event: Looked, now: int) -> list[CecEffect]:
        at = self._generations[self._at]
        self.require(
            event.replayed <= at.replayed and event.exact <= at.exact,
            f"a generation does not grow: {event} of {at}",
        )
        at.replayed, at.exact = event.replayed, event.exact
        at.members = (*event.looked, *event.rest)
        above = self._is_above()
        if event.alive and above and self._helps():
            self._rest = event.rest
            self.move(Trigger.WRITE, now)
            return [CheckWindows(at.time, event.looked)]
        self._learn(now)
        if not at.windows:
            del self._generations[self._at]
        elif event.alive or not event.unseen:
            # Nothing has to be written here, or what is left cannot be written again.
            if not above:
                return self._end(now)
            self._at += 1
        return self._go_on(Trigger.CLOSED, now)

    def _checked(self, event: Checked, now: int) -> list[CecEffect]:
        at = self._generations[self._at]
        at.replayed -= event.replayed
        at.exact -= event.exact
        at.members = self._rest
        written = event.replayed + event.exact
        self.require(at.replayed >= 0 and at.exact >= 0, f"{event} of {at}")
        if not at.windows:
            del self._generations[self._at]
        if not self._generations or self._generations[-1].time < self.time:
            self._generations.append(Generation(self.time))
        newest = self._generations[-1]
        newest.replayed += event.replayed
        newest.exact += event.exact
        newest.members = (*newest.members, *event.members)
        self._frames += written
        self.checked += written
        self._learn(now)
        return self._go_on(Trigger.WRITTEN, now)

    def _go_on(self, trigger: Trigger, now: int) -> list[CecEffect]:
        none_left = len(self._generations) <= self._at
        fresh = none_left or self._generations[self._at].time >= self.time
        if fresh or now - self._round_began >= self._round_us:
            return self._end(now)
        if trigger is Trigger.WRITTEN and not self._is_above():
            return self._end(now)
        self.move(trigger, now)
        return self._look(now)

    def _end(self, now: int) -> list[CecEffect]:
        self.move(Trigger.ENOUGH, now)
        self._forget_marks()
        return []

    def _learn(self, now: int) -> None:
        """Estimate from the last orders what a window takes."""
        spent = max(0.05, (now - self._ordered_at) / self._ordered)
        self._window_us += 0.3 * (spent - self._window_us)

    # -- targets ------------------------------------------------------------------------

    @property
    def _has_target(self) -> bool:
        bounds = (self.settings.extent, self.settings.replay, self.settings.recover_within_us)
        return any(bound is not None for bound in bounds)

    def _is_above(self) -> bool:
        """Whether a target would be exceeded before the next round."""
        settings = self.settings
        oldest = self._generations[0].windows if self._generations else 0
        rounds = self._rounds_ahead(oldest)
        extent = self.extent + oldest + rounds * self._growth[0]
        if settings.recover_within_us is not None:
            replay = self.replay + rounds * self._growth[1]
            return self.costs.expected_us(extent, replay) > settings.recover_within_us
        above = settings.extent is not None and extent > settings.extent
        return above or self._replay_is_above()

    def _replay_is_above(self) -> bool:
        """Whether the bound on the replay would be exceeded before the next round."""
        bound = self.settings.replay
        oldest = self._generations[0].windows if self._generations else 0
        replay = self.replay + self._rounds_ahead(oldest) * self._growth[1]
        return bound is not None and replay > bound

    def _rounds_ahead(self, windows: int) -> int:
        """How many rounds to think of.

        A state that comes just before the period is over leaves a round out, and what a round
        writes counts from the next one on: two more.
        """
        return 3 + int(windows * self._window_us / self.settings.interval_us)

    def _helps(self) -> bool:
        """Whether a recovery gets cheaper once the generation that the round is at is written."""
        at = self._generations[self._at]
        computed = self._computed_less()
        if self._at:
            # What is older stays to be read: only the replay can get shorter.
            if self.settings.recover_within_us is None:
                return computed > 0 and self._replay_is_above()
            return self.costs.replay_us * computed > self.costs.load_us * at.windows
        if self.settings.recover_within_us is None:
            return True
        following = self._generations[1] if len(self._generations) > 1 else Generation(self.time)
        read = self._mark(following.time).frames - self._mark(at.time).frames - at.windows
        return self.costs.load_us * read + self.costs.replay_us * computed > 0

    def _computed_less(self) -> int:
        """How many tuples fewer a recovery would compute again without the generation that the
        round is at, and without those that need the same input.

        Each of these alone makes no difference; one after the other they do.
        """
        start = self._mark(self.replay_from).inputs
        at = self._generations[self._at]
        if not at.replayed or self._mark(min(at.time, self._reach)).inputs > start:
            return 0  # something older needs more
        for generation in self._generations:
            inputs = self._mark(min(generation.time, self._reach)).inputs
            if generation.replayed and inputs > start:
                return inputs - start
        return self._mark(min(self.time, self._reach)).inputs - start

    def _mark(self, time: int) -> Mark:
        """The newest mark that is not younger than ``time``."""
        at = bisect_right(self._marks, time, key=lambda mark: mark.time) - 1
        return self._marks[max(at, 0)]

    def _forget_marks(self) -> None:
        oldest = min(self.extent_from, self.replay_from)
        at = bisect_right(self._marks, oldest, key=lambda mark: mark.time) - 1
        if at > 64:
            del self._marks[:at]

    def validate(self) -> None:
        times = [generation.time for generation in self._generations]
        self.require(times == sorted(set(times)), f"generations out of order: {times}")
        self.require(all(one.windows for one in self._generations), "an empty generation is kept")
        self.require(self.extent_from <= self.time, "the extent begins in the future")
