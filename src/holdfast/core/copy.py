"""The driver of one copy of a fragment: a replica that can be put down and taken up again.

    what was found on disk ─▶ what is held: record, state, output queues ─wake─▶ Replica

Alone, a copy wakes when its process starts and runs until it ends. One of two copies sleeps and
wakes as the other fails and returns (``core.protected``); everything else about them is the same.

Waking is a restart: a ``Replica`` is made from the held record and state and the streams as they
are served, and goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.beginning import EMPTY_RECORD, Beginning, at_record, serve, whole_frames
from holdfast.core.consistency import NodeState
from holdfast.core.effects import BeginRunning, Effect, SetTimer, TrimLog
from holdfast.core.events import Event, Started, TimerFired
from holdfast.core.frame import Why
from holdfast.core.machine import Machine
from holdfast.core.messages import CopyState
from holdfast.core.progress import Progress
from holdfast.core.records import Found, LoggedStream, RecoveryRecord
from holdfast.core.replica import Replica
from holdfast.core.settings import Keeping, ReplicaSettings
from holdfast.core.stream_copy import FAR_FUTURE

Held = tuple[RecoveryRecord, object]


@dataclass(frozen=True, slots=True)
class InputView:
    """An input as it is now: from whom it comes, and how far.

    shares  how much of it each replica brought, by how early it was, if all of them send it.
    """

    stream: str
    producer: str | None
    next_id: int
    boundary: int
    shares: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class CopyView:
    """What others may know of a copy: for status, metrics and tests.

    state     what the replica does; None while the copy sleeps.
    boundary  how far the stable state is that it runs on or holds; -1 for none.
    outputs   (stream, the id that comes next, the first id that is kept, tuples not acknowledged)
    tentative (stream, why) of the outputs on which tentative tuples stand
    alpha     the share of X that tuples wait for missing ones, now
    """

    state: NodeState | None
    boundary: int
    inputs: tuple[InputView, ...]
    outputs: tuple[tuple[str, int, int, int], ...]
    tentative: tuple[tuple[str, Why], ...] = ()
    alpha: float = 0.0


@dataclass(frozen=True, slots=True)
class Glance:
    """What is looked at after every event: cheap to make.

    state     what the replica does, or what the copy is while it sleeps.
    why       the same with the reason, for one of two copies.
    boundary  how far the stable state is; None while it sleeps.
    """

    state: str
    why: str
    boundary: int | None


class Copy:
    """A copy that runs alone."""

    # Subscribers may come before it has caught up: it is no more than a replica that is behind.
    OPEN_AT_ONCE = False

    def __init__(self, settings: ReplicaSettings, found: Found | None = None) -> None:
        found = found or Found()
        self.settings = settings
        self.replica: Replica | None = None
        self.held: Held | None = None if found.record is None else (found.record, found.state)
        self.acks: dict[str, int] = dict(found.record.inputs) if found.record else {}
        logs = {one.stream: at_record(whole_frames(one), found.record) for one in found.queues}
        self.served = {
            one.stream: serve(settings, one, logs.get(one.stream)) for one in settings.outputs
        }
        # Called with a replica that is put down, for those who count transitions.
        self.retired: Callable[[Replica], None] = lambda replica: None
        self._numbers = (1, 1)
        self._replica_timer = FAR_FUTURE
        self._timer_at = FAR_FUTURE

    @property
    def state(self) -> CopyState:
        """Which of two it is; alone, it is the primary."""
        return CopyState.PRIMARY

    def machines(self) -> Iterator[Machine[Any, Any]]:
        if self.replica is not None:
            yield from self.replica.machines()

    def view(self) -> CopyView:
        """How it is now."""
        replica = self.replica
        boundary = -1 if self.held is None else self.held[0].boundary
        upstreams = {} if replica is None else replica.consumer.upstreams
        return CopyView(
            None if replica is None else replica.state,
            boundary if replica is None else replica.versions.stable_position,
            tuple(
                InputView(
                    name,
                    None if one.main is None else one.main.peer,
                    one.copy.next_id,
                    one.copy.boundary,
                    tuple(one.ranks.shares.items()),
                )
                for name, one in upstreams.items()
            ),
            tuple(
                (name, one.next_id, one.first_id, sum(each.header.count for each in one.stable))
                for name, one in self.served.items()
            ),
            tuple(self.whys().items()),
            self.alpha,
        )

    @property
    def alpha(self) -> float:
        """The share of X that tuples wait for missing ones, now."""
        replica = self.replica
        return self.settings.timing.alpha if replica is None else replica.patience.alpha

    def whys(self) -> dict[str, Why]:
        """The outputs on which tentative tuples stand, and what these lack."""
        soutputs = {} if self.replica is None else self.replica.soutputs
        return {name: one.why for name, one in soutputs.items() if one.why is not None}

    @property
    def progress(self) -> Progress | None:
        """The work of the replica, while one runs."""
        return None if self.replica is None else self.replica.progress

    def reach(self) -> tuple[int, int] | None:
        """How far its inputs have come and how far they are processed; None while it sleeps."""
        replica = self.replica
        if replica is None:
            return None
        arrived = min(one.live_boundary for one in replica.copies.values())
        versions = replica.versions
        return arrived, max(versions.stable_position, versions.live_position or 0)

    def glance(self) -> Glance:
        replica = self.replica
        if replica is None:
            return Glance("starting", "", None)
        return Glance(replica.state.value, "", replica.versions.stable_position)

    def queues(self) -> tuple[LoggedStream, ...]:
        """The output queues as they are."""
        return tuple(stream.queue() for stream in self.served.values())

    def handle(self, event: Event, now: int) -> list[Effect]:
        """Take a fact, return orders. The only way anything here changes."""
        effects: list[Effect] = []
        if isinstance(event, TimerFired):
            self._timer_at = FAR_FUTURE
        self._take(event, now, effects)
        self._set_timer(now, effects)
        if self.settings.keeping is Keeping.WINDOWS:
            return self._keeping_windows(effects)
        return effects

    def _take(self, event: Event, now: int, effects: list[Effect]) -> None:
        if isinstance(event, Started):
            self._wake(now, effects)
        else:
            self._drive(event, now, effects)

    def _drive(self, event: Event, now: int, effects: list[Effect]) -> None:
        """Let the replica take an event, if there is one."""
        if self.replica is None:
            return
        for effect in self.replica.handle(event, now):
            if isinstance(effect, SetTimer):
                self._replica_timer = effect.at
            else:
                effects.append(effect)

    def _wake(self, now: int, effects: list[Effect]) -> None:
        record, state = self.held or (EMPTY_RECORD, None)
        effects.append(BeginRunning(record, state))
        first_job, first_append = self._numbers
        # What is held may not be on disk: only what was acknowledged before still counts.
        acks = dict(self.acks)
        begin = Beginning(state, self.served, acks, first_job, first_append, self.OPEN_AT_ONCE)
        self.replica = Replica(self.settings, record, (), begin)
        for served in self.served.values():
            effects += served.wake()
        self._drive(Started(), now, effects)

    # -- what must stay on disk -----------------------------------------------------------

    def _keeping_windows(self, effects: list[Effect]) -> list[Effect]:
        """Say with every trim which window states are needed all the same."""
        return [
            replace(effect, windows_from=self._windows_from())
            if isinstance(effect, TrimLog)
            else effect
            for effect in effects
        ]

    def _windows_from(self) -> int:
        """The time of the oldest window states that some record needs which may be used."""
        return min((record.extent for record in self._usable_records()), default=0)

    def _usable_records(self) -> Iterable[RecoveryRecord]:
        """What a restart, or another copy, may go on from."""
        if self.replica is not None:
            yield self.replica.newest[0]
        elif self.held is not None:
            yield self.held[0]

    # -- time ---------------------------------------------------------------------------

    def _deadlines(self, now: int) -> list[int]:
        """When something has to be looked at."""
        return [max(self._replica_timer, now + 1)] if self.replica is not None else []

    def _set_timer(self, now: int, effects: list[Effect]) -> None:
        at = min((time for time in self._deadlines(now) if time > now), default=FAR_FUTURE)
        if at not in (self._timer_at, FAR_FUTURE):
            self._timer_at = at
            effects.append(SetTimer(at))

    def validate(self) -> None:
        """Every invariant of every machine; the simulator and the tests call it."""
        if self.replica is not None:
            self.replica.validate()
