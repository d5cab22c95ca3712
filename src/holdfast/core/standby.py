"""The standby switch: which of a fragment's two copies runs.

Theory of operation. Copies are deterministic: whatever two of them compute from the same
position is the same, ids and all, and consumers take each tuple once. So it never matters for
correctness how many copies run; the switch decides only how soon one does, and at what price.

A *term* says who is the primary: the copy of the term's parity. Each copy asks the other at a
fixed interval and tells its own term and position; the greater term counts. There is thus
exactly one primary for each term, and whoever was away learns its place from the first word.

- *Hybrid*: at the first missed heartbeat the secondary wakes and runs from the checkpoint it
  holds (AWAKE). When the primary answers and has caught up with it, it goes back to sleep. A
  primary that finds itself far behind takes the other's newer state first. If the primary's
  silence lasts too long, the secondary begins the next term as its primary.
- *Passive*: after some missed heartbeats the secondary begins the next term at once.

A primary that says that it is *stalled*, with work that does not get done (progress.py), counts as
missing: its answers are none.

A primary that learns of a later term is the secondary of that term, and goes on running until
the new primary has caught up with it. A secondary that has never heard of its primary waits as
long as it would before it replaces it.

Where checkpoints are only in memory, a copy that starts has nothing, and must not begin with
an empty state while the other has a real one: it is JOINING until the other has told what it
has. If that is the primary's, the copy reads its state; if neither has any, they begin empty.
Where checkpoints are persisted, what is on disk (nothing, at the very beginning) is always a
position the producers still serve.

    JOINING ──▶ SUSPENDED ──missed──▶ AWAKE ──silent too long──▶ PRIMARY
                    ▲                  │ ▲                           │
                    └──primary's back──┘ └────────later term─────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.machine import Machine
from holdfast.core.messages import CopyReport, CopyState
from holdfast.core.settings import Protection, StandbySettings
from holdfast.core.stream_copy import FAR_FUTURE


class Trigger(Enum):
    IS_PRIMARY = "is the primary"
    IS_SECONDARY = "is the secondary"
    MISSED = "primary missed a heartbeat"
    OVERLOADED = "primary is overloaded"
    PRIMARY_BACK = "primary has caught up"
    SILENT_TOO_LONG = "primary silent for too long"
    LATER_TERM = "other copy has a later term"
    NOTHING_HELD = "is the primary and holds nothing"


_J, _S, _A, _P = CopyState.JOINING, CopyState.SUSPENDED, CopyState.AWAKE, CopyState.PRIMARY

TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (_J, Trigger.IS_PRIMARY): _P,
    (_J, Trigger.IS_SECONDARY): _S,
    (_S, Trigger.MISSED): _A,
    (_S, Trigger.OVERLOADED): _A,
    (_S, Trigger.SILENT_TOO_LONG): _P,
    (_S, Trigger.IS_PRIMARY): _P,
    (_S, Trigger.NOTHING_HELD): _J,
    (_A, Trigger.PRIMARY_BACK): _S,
    (_A, Trigger.SILENT_TOO_LONG): _P,
    (_A, Trigger.IS_PRIMARY): _P,
    (_P, Trigger.LATER_TERM): _A,  # until the new primary has caught up
}


@dataclass(frozen=True, slots=True)
class Begun:
    """The process is up; ``mine`` says what was found on its disk."""

    mine: CopyReport


@dataclass(frozen=True, slots=True)
class PartnerSaid:
    """The other copy's word, and this copy's own position."""

    report: CopyReport
    mine: CopyReport


@dataclass(frozen=True, slots=True)
class PartnerMissed:
    """The failure detector gave the other copy up."""

    mine: CopyReport


@dataclass(frozen=True, slots=True)
class StateHeld:
    """The other copy's state has come."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    mine: CopyReport


SwitchEvent: TypeAlias = Begun | PartnerSaid | PartnerMissed | StateHeld | TimePassed


@dataclass(frozen=True, slots=True)
class Wake:
    """Run from what is held."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Stop running; hold what there is."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """Ask the other copy for its state."""


SwitchEffect: TypeAlias = Wake | Sleep | ReadState


class StandbySwitch(Machine[CopyState, Trigger]):
    """The switch of one copy."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(self, address: str, settings: StandbySettings, slack_us: int) -> None:
        """``slack_us`` is how far behind a primary counts as caught up."""
        super().__init__(f"{address} standby switch", CopyState.JOINING)
        self.term = 0
        self.reason = "starting"
        self.heard_at: int | None = None
        self._address = address
        self._settings = settings
        self._slack_us = slack_us
        self._begun_at = 0

    @property
    def is_primary(self) -> bool:
        """Whether this copy is the primary of its term."""
        return self._settings.primary_of(self.term) == self._address

    @property
    def running(self) -> bool:
        return self.state in (CopyState.AWAKE, CopyState.PRIMARY)

    @property
    def deadline(self) -> int:
        """When silence will have lasted too long."""
        waiting = self.state in (CopyState.SUSPENDED, CopyState.AWAKE)
        if not waiting or (self.state is CopyState.SUSPENDED and self.heard_at is not None):
            return FAR_FUTURE
        return self._heard_or_begun() + self._settings.promote_after_us

    def handle(self, event: SwitchEvent, now: int) -> list[SwitchEffect]:
        match event:
            case Begun(mine):
                self._begun_at = now
                return self._take_place(now) if self._usable(mine) else []
            case PartnerSaid(report, mine):
                if not report.stalled or self.heard_at is None:
                    self.heard_at = now
                return self._later_term(report, mine, now) + self._said(report, mine, now)
            case PartnerMissed(mine):
                return self._missed(mine, now)
            case StateHeld():
                if self.state is CopyState.JOINING and self.is_primary:
                    self._go(Trigger.IS_PRIMARY, now, "has read the other copy's state")
                    return [Wake()]
                return []
            case TimePassed(mine):
                return self._time_passed(mine, now)

    def _usable(self, mine: CopyReport) -> bool:
        return mine.boundary >= 0 or self._settings.persist

    def _go(self, trigger: Trigger, now: int, reason: str) -> None:
        self.move(trigger, now, f"term {self.term}")
        self.reason = reason

    def _take_place(self, now: int) -> list[SwitchEffect]:
        if self.is_primary:
            self._go(Trigger.IS_PRIMARY, now, f"primary of term {self.term}")
            return [Wake()]
        self._go(Trigger.IS_SECONDARY, now, "the other copy is the primary")
        return []

    # -- what the other copy says -------------------------------------------------------

    def _later_term(self, report: CopyReport, mine: CopyReport, now: int) -> list[SwitchEffect]:
        if report.term <= self.term:
            return []
        self.term = report.term
        if self.is_primary:
            if self.state is CopyState.AWAKE:
                self._go(Trigger.IS_PRIMARY, now, f"primary of term {self.term}")
            elif self.state is CopyState.SUSPENDED:
                if self._usable(mine):
                    return self._take_place(now)
                self._go(Trigger.NOTHING_HELD, now, "waits for the other copy's state")
        elif self.state is CopyState.PRIMARY:
            self._go(Trigger.LATER_TERM, now, f"the other copy is primary of term {self.term}")
        return []

    def _said(self, report: CopyReport, mine: CopyReport, now: int) -> list[SwitchEffect]:
        match self.state:
            case CopyState.JOINING:
                if self.is_primary and report.boundary >= 0:
                    return [ReadState()]
                return self._take_place(now)
            case CopyState.SUSPENDED:
                hybrid = self._settings.protection is Protection.HYBRID
                if hybrid and report.overloaded and self._usable(mine):
                    self._go(Trigger.OVERLOADED, now, "the primary is overloaded")
                    return [Wake()]
            case CopyState.AWAKE:
                if self._caught_up(report, mine):
                    self._go(Trigger.PRIMARY_BACK, now, "the primary is back")
                    return [Sleep()]
            case CopyState.PRIMARY:
                behind = report.boundary - mine.boundary
                if behind > self._settings.read_state_after_us:
                    return [ReadState()]
        return []

    def _caught_up(self, report: CopyReport, mine: CopyReport) -> bool:
        return (
            report.state is CopyState.PRIMARY
            and report.term == self.term
            and report.ready
            and not report.overloaded
            and not report.stalled
            and report.boundary + self._slack_us >= mine.boundary
            and report.live_boundary + self._slack_us >= mine.live_boundary
        )

    # -- silence ------------------------------------------------------------------------

    def _missed(self, mine: CopyReport, now: int) -> list[SwitchEffect]:
        if self.state is not CopyState.SUSPENDED or self.heard_at is None:
            return []
        if not self._usable(mine):
            return []
        if self._settings.protection is Protection.PASSIVE:
            return self._promote(now)
        self._go(Trigger.MISSED, now, "the primary missed a heartbeat")
        return [Wake()]

    def _time_passed(self, mine: CopyReport, now: int) -> list[SwitchEffect]:
        if now < self.deadline or not self._usable(mine):
            return []
        return self._promote(now)

    def _promote(self, now: int) -> list[SwitchEffect]:
        ran = self.running
        self.term += 1
        silence_us = now - self._heard_or_begun()
        self._go(
            Trigger.SILENT_TOO_LONG, now, f"the primary was silent for {silence_us / 1e6:.1f} s"
        )
        return [] if ran else [Wake()]

    def _heard_or_begun(self) -> int:
        return self._begun_at if self.heard_at is None else self.heard_at

    def validate(self) -> None:
        if self.state is CopyState.PRIMARY:
            self.require(self.is_primary, f"PRIMARY in term {self.term} of the other copy")
        elif self.state is not CopyState.JOINING:
            self.require(not self.is_primary, f"primary of term {self.term}, but not running as it")
