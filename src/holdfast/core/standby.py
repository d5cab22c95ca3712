"""The standby switch: which of a fragment's copies runs.

Theory of operation. Copies are deterministic: whatever two of them compute from the same
position is the same, ids and all, and consumers take each tuple once. So it never matters for
correctness how many copies run; the switch decides only how soon one does, and at what price.

A *term* says who is the primary: copies take turns, a term each. Each copy asks every other at a
fixed interval and tells its own term and position; the greater term counts. There is thus
exactly one primary for each term, and whoever was away learns its place from the first word.

- *Hybrid*: at the first missed heartbeat a secondary wakes and runs from the checkpoint it
  holds (AWAKE). When the primary answers and has caught up with it, it goes back to sleep. A
  primary that finds itself far behind takes the other's newer state first. If the primary's
  silence lasts too long, the secondary begins the next term that is its own, as its primary.
- *Passive*: after some missed heartbeats the secondary begins such a term at once.

With more than two copies the secondaries have an order: around the ring from the primary on, or by
how much their processes have to do. One stands in when it misses the primary and everyone before
it; while somebody before it says that it hears the primary, or anybody runs, it sleeps on. Orders
by load may differ for a moment, as each goes by what it heard last: so one that waits for those
before it waits for a few heartbeats each and no longer. If several have woken, all but the first
around the ring go back to sleep when it has caught up with them.

A primary that says that it is *stalled*, with work that does not get done (progress.py), counts as
missing: its answers are none.

A primary that learns of a later term is a secondary of that term, and goes on running until
the new primary has caught up with it. A secondary that has never heard of its primary waits as
long as it would before it replaces it. Where the first copy is at home, as that of a shard is, it
begins a term again once it has held what the primary has for as long.

Where checkpoints are only in memory, a copy that starts has nothing, and must not begin with
an empty state while another has a real one: it is JOINING until the others have told what they
have. If one of them has the primary's, the copy reads its state; if none has any, they begin empty.
Of several, each must have said so twice, the second time after all had said it once: a state that
one sends to another while they are asked is missed otherwise.
Where checkpoints are persisted, what is on disk (nothing, at the very beginning) is always a
position the producers still serve. That is not so of a copy that takes another one's place later:
it *arrives*, and is JOINING until it holds what another copy has lent it (``core.joining``).

The next in the order takes over, with a term of its own, when the primary is about to go, is gone,
or arrives and holds nothing. One that is about to go runs on until the new primary has caught up.

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
    OTHER_RUNS = "a copy before it runs"
    AT_HOME = "is back where it belongs"
    NOTHING_HELD = "is the primary and holds nothing"
    TAKES_OVER = "takes over from a primary that goes"


_J, _S, _A, _P = CopyState.JOINING, CopyState.SUSPENDED, CopyState.AWAKE, CopyState.PRIMARY

RUNNING = (CopyState.AWAKE, CopyState.PRIMARY)
# Loads, in thousandths, that differ by less count as the same: then the ring decides.
LOAD_STEP = 100

TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (_J, Trigger.IS_PRIMARY): _P,
    (_J, Trigger.IS_SECONDARY): _S,
    (_S, Trigger.MISSED): _A,
    (_S, Trigger.OVERLOADED): _A,
    (_S, Trigger.SILENT_TOO_LONG): _P,
    (_S, Trigger.IS_PRIMARY): _P,
    (_S, Trigger.NOTHING_HELD): _J,
    (_S, Trigger.AT_HOME): _P,
    (_S, Trigger.TAKES_OVER): _P,
    (_A, Trigger.TAKES_OVER): _P,
    (_A, Trigger.PRIMARY_BACK): _S,
    (_A, Trigger.OTHER_RUNS): _S,
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
    """Another copy's word, and this copy's own position."""

    peer: str
    report: CopyReport
    mine: CopyReport


@dataclass(frozen=True, slots=True)
class PartnerMissed:
    """The failure detector gave another copy up."""

    peer: str
    mine: CopyReport


@dataclass(frozen=True, slots=True)
class StateHeld:
    """Another copy's state has come."""


@dataclass(frozen=True, slots=True)
class TimePassed:
    mine: CopyReport


@dataclass(frozen=True, slots=True)
class TermHeard:
    """Another copy's word, while this one takes its place."""

    peer: str
    term: int


@dataclass(frozen=True, slots=True)
class CopiesChanged:
    """Who has the places of the copies now; ``leaving`` are about to go, or gone."""

    settings: StandbySettings
    leaving: frozenset[str]
    mine: CopyReport


SwitchEvent: TypeAlias = (
    Begun | PartnerSaid | PartnerMissed | StateHeld | TimePassed | TermHeard | CopiesChanged
)


@dataclass(frozen=True, slots=True)
class Wake:
    """Run from what is held."""


@dataclass(frozen=True, slots=True)
class Sleep:
    """Stop running; hold what there is."""


@dataclass(frozen=True, slots=True)
class ReadState:
    """Ask another copy for its state."""

    peer: str


SwitchEffect: TypeAlias = Wake | Sleep | ReadState


class StandbySwitch(Machine[CopyState, Trigger]):
    """The switch of one copy."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self, address: str, settings: StandbySettings, slack_us: int, lossy: bool = False
    ) -> None:
        """``slack_us`` is how far behind a primary counts as caught up; what is ``lossy`` goes on
        from now: it holds nothing, and needs nothing to begin."""
        super().__init__(f"{address} standby switch", CopyState.JOINING)
        self.term = 0
        self.reason = "starting"
        # When each of the others was last heard, but for what a stalled one says.
        self.heard: dict[str, int] = {}
        self.address = address
        self._settings = settings
        self._slack_us = slack_us
        self._lossy = lossy
        self._begun_at = 0
        self._term_at = 0
        self._others = settings.others_than(address)
        # What each has said last, and since when it is missed.
        self._reports: dict[str, CopyReport] = {}
        self._missed: dict[str, int] = {}
        # Who has said that it has nothing, in this round; several others are asked twice.
        self._empty: set[str] = set()
        self._rounds = 1 if len(self._others) == 1 else 2
        self._load = 0
        self._home_since: int | None = None
        # Those who are about to go, or gone, or have a place and nothing to go on from.
        self._leaving: frozenset[str] = frozenset()
        self._arriving: set[str] = set()

    @property
    def is_primary(self) -> bool:
        """Whether this copy is the primary of its term."""
        return self._settings.primary_of(self.term) == self.address

    @property
    def heard_at(self) -> int | None:
        """When the primary was last heard; of the primary itself, any other."""
        if self.is_primary:
            return max(self.heard.values(), default=None)
        return self.heard.get(self._settings.primary_of(self.term))

    @property
    def hears(self) -> bool:
        """Whether the primary, another copy, is there."""
        primary = self._settings.primary_of(self.term)
        return primary in self.heard and primary not in self._missed

    def takes_checkpoints(self, peer: str, now: int) -> bool:
        """Whether another copy would hold what it is sent; one that arrives takes what it asked."""
        heard_at = self.heard.get(peer)
        there = heard_at is not None and now - heard_at <= self._settings.promote_after_us
        return there and peer not in self._arriving

    @property
    def running(self) -> bool:
        return self.state in (CopyState.AWAKE, CopyState.PRIMARY)

    @property
    def deadline(self) -> int:
        """When silence will have lasted too long."""
        if self.state is CopyState.AWAKE:
            return self._heard_or_begun() + self._settings.promote_after_us
        return self._stands_in_at() if self.state is CopyState.SUSPENDED else FAR_FUTURE

    def handle(self, event: SwitchEvent, now: int) -> list[SwitchEffect]:
        match event:
            case Begun(mine):
                self._begun_at = now
                effects = self._take_place(now) if self._usable(mine) else []
                return effects or self._relieve(mine, now)
            case PartnerSaid(peer, report, mine):
                self._hear(peer, report, mine, now)
                effects = self._later_term(report, mine, now)
                if not report.arrives:
                    effects += self._said(peer, report, mine, now)
                return effects or self._relieve(mine, now) or self._look(mine, now)
            case PartnerMissed(peer, mine):
                self._missed.setdefault(peer, now)
                self._reports.pop(peer, None)
                self._empty.discard(peer)
                return self._look(mine, now)
            case StateHeld():
                if self.state is CopyState.JOINING and self.is_primary:
                    self._go(Trigger.IS_PRIMARY, now, "has read the other copy's state")
                    return [Wake()]
                return []
            case TimePassed(mine):
                self._load = mine.load
                return self._look(mine, now)
            case TermHeard(peer, term):
                self.heard[peer] = now
                if term > self.term:
                    self.term, self._term_at = term, now
                return []
            case CopiesChanged(settings, leaving, mine):
                self._change(settings, leaving)
                return self._relieve(mine, now)

    def _hear(self, peer: str, report: CopyReport, mine: CopyReport, now: int) -> None:
        self._load = mine.load
        self._reports[peer] = report
        if not report.stalled or peer not in self.heard:
            self.heard[peer] = now
        if not report.stalled:
            self._missed.pop(peer, None)
        (self._arriving.add if report.arrives else self._arriving.discard)(peer)

    def _usable(self, mine: CopyReport) -> bool:
        return mine.boundary >= 0 or self._settings.persist or self._lossy

    def _go(self, trigger: Trigger, now: int, reason: str) -> None:
        self.move(trigger, now, f"term {self.term}")
        self.reason = reason
        self._home_since = None

    def _take_place(self, now: int) -> list[SwitchEffect]:
        if self.is_primary:
            self._go(Trigger.IS_PRIMARY, now, f"primary of term {self.term}")
            return [Wake()]
        self._go(Trigger.IS_SECONDARY, now, "another copy is the primary")
        return []

    # -- what another copy says ---------------------------------------------------------

    def _later_term(self, report: CopyReport, mine: CopyReport, now: int) -> list[SwitchEffect]:
        if report.term <= self.term:
            return []
        self.term, self._term_at = report.term, now
        if self.is_primary:
            if self.state is CopyState.AWAKE:
                self._go(Trigger.IS_PRIMARY, now, f"primary of term {self.term}")
            elif self.state is CopyState.SUSPENDED:
                if self._usable(mine):
                    return self._take_place(now)
                self._go(Trigger.NOTHING_HELD, now, "waits for another copy's state")
        elif self.state is CopyState.PRIMARY:
            self._go(Trigger.LATER_TERM, now, f"another copy is primary of term {self.term}")
        return []

    def _said(
        self, peer: str, report: CopyReport, mine: CopyReport, now: int
    ) -> list[SwitchEffect]:
        match self.state:
            case CopyState.JOINING:
                if self.is_primary and report.boundary >= 0:
                    return [ReadState(peer)]
                return [] if self.is_primary and not self._none_has(peer) else self._take_place(now)
            case CopyState.SUSPENDED:
                hybrid = self._settings.protection is Protection.HYBRID
                overloaded = self._is_primarys(peer, report) and report.overloaded
                if hybrid and overloaded and self._usable(mine) and self._is_first(mine):
                    self._go(Trigger.OVERLOADED, now, "the primary is overloaded")
                    return [Wake()]
                if peer == self._settings.primary_of(self.term):
                    return self._go_home(report, mine, now)
            case CopyState.AWAKE:
                if self._caught_up(report, mine):
                    self._go(Trigger.PRIMARY_BACK, now, "the primary is back")
                    return [Sleep()]
                if self._runs_before(peer, report, mine):
                    self._go(Trigger.OTHER_RUNS, now, f"{peer} stands in for the primary")
                    return [Sleep()]
            case CopyState.PRIMARY:
                behind = report.boundary - mine.boundary
                if behind > self._settings.read_state_after_us:
                    return [ReadState(peer)]
        return []

    def _none_has(self, peer: str) -> bool:
        """Whether nobody has a state, now that one more says that it has none."""
        self._empty.add(peer)
        if len(self._empty) < len(self._others):
            return False
        self._empty.clear()
        self._rounds -= 1
        return self._rounds <= 0

    def _is_primarys(self, peer: str, report: CopyReport) -> bool:
        return len(self._others) == 1 or (
            peer == self._settings.primary_of(self.term) and report.term == self.term
        )

    def _caught_up(self, report: CopyReport, mine: CopyReport) -> bool:
        return report.state is CopyState.PRIMARY and self._is_as_far(report, mine)

    def _is_as_far(self, report: CopyReport, mine: CopyReport) -> bool:
        return (
            report.term == self.term
            and report.ready
            and not report.overloaded
            and not report.stalled
            and report.boundary + self._slack_us >= mine.boundary
            and report.live_boundary + self._slack_us >= mine.live_boundary
        )

    def _runs_before(self, peer: str, report: CopyReport, mine: CopyReport) -> bool:
        """Whether another secondary runs and is the one to do so, whatever the loads are."""
        order = self._settings.order_of(self.term)
        first = order.index(peer) < order.index(self.address)
        runs = report.state is CopyState.AWAKE and peer not in self._leaving
        return first and runs and self._is_as_far(report, mine)

    def _go_home(self, report: CopyReport, mine: CopyReport, now: int) -> list[SwitchEffect]:
        """Take the work back that was this copy's, without a gap: the other runs until then."""
        fresh_us = self._slack_us + 3 * self._settings.checkpoint_interval_us
        settled = (
            self._settings.returns
            and self._settings.copies[0] == self.address
            and self.address not in self._leaving
            and report.state is CopyState.PRIMARY
            and self._usable(mine)
            and mine.boundary + fresh_us >= report.boundary >= 0
        )
        if not settled:
            self._home_since = None
            return []
        if self._home_since is None:
            self._home_since = now
        if now - self._home_since < self._settings.promote_after_us:
            return []
        self.term = self._settings.term_after(self.term, self.address)
        self._go(Trigger.AT_HOME, now, "it is back, and takes its work again")
        return [Wake()]

    # -- silence ------------------------------------------------------------------------

    def _before(self) -> list[str]:
        """Those who are to stand in before this copy, the primary not counted."""
        ring = self._settings.order_of(self.term)[1:]
        if self._settings.by_load:
            loads = {peer: report.load for peer, report in self._reports.items()}
            loads[self.address] = self._load
            ring = tuple(sorted(ring, key=lambda name: loads.get(name, 0) // LOAD_STEP))
        at = ring.index(self.address)
        none = self._missed.keys() | self._leaving | self._arriving
        return [peer for peer in ring[:at] if peer not in none]

    def _is_first(self, mine: CopyReport) -> bool:
        self._load = mine.load
        return not self._before()

    def _stands_in_at(self) -> int:
        """When this copy, which sleeps, is to run, if nothing is heard until then."""
        settings = self._settings
        primary = settings.primary_of(self.term)
        if primary not in self.heard:
            lost_at = self._heard_or_begun() + settings.promote_after_us
        elif primary in self._missed:
            lost_at = self._missed[primary]
        else:
            return FAR_FUTURE
        there = [(peer, one) for peer, one in self._reports.items() if peer not in self._missed]
        if any(one.state in RUNNING for peer, one in there if peer != primary):
            return FAR_FUTURE
        before = self._before()
        if any(one.hears for peer, one in there if peer in before):
            return FAR_FUTURE
        patience_us = (settings.misses_until_awake + 2) * settings.heartbeat_interval_us
        return lost_at + len(before) * patience_us

    def _look(self, mine: CopyReport, now: int) -> list[SwitchEffect]:
        """Whether it is time to stand in, or to be the primary."""
        self._load = mine.load
        if now < self.deadline or not self._usable(mine):
            return []
        suspended = self.state is CopyState.SUSPENDED
        known = self._settings.primary_of(self.term) in self.heard
        if suspended and known and self._settings.protection is Protection.HYBRID:
            self._go(Trigger.MISSED, now, "the primary missed a heartbeat")
            return [Wake()]
        return self._promote(now)

    def _promote(self, now: int) -> list[SwitchEffect]:
        ran = self.running
        silence_us = now - self._heard_or_begun()
        self.term = self._settings.term_after(self.term, self.address)
        self._go(
            Trigger.SILENT_TOO_LONG, now, f"the primary was silent for {silence_us / 1e6:.1f} s"
        )
        return [] if ran else [Wake()]

    # -- who goes and comes ---------------------------------------------------------------

    def _change(self, settings: StandbySettings, leaving: frozenset[str]) -> None:
        self._settings, self._leaving = settings, leaving
        self._others = settings.others_than(self.address)
        there = set(self._others)
        for known in (self.heard, self._reports, self._missed):
            for peer in known.keys() - there:
                del known[peer]
        self._arriving &= there
        self._empty &= there

    def _relieve(self, mine: CopyReport, now: int) -> list[SwitchEffect]:
        """Take over, if the primary is none to go on with and this copy is the next."""
        none = self._leaving | self._arriving
        order = self._settings.order_of(self.term)
        first = next((peer for peer in order if peer not in none | self._missed.keys()), "")
        sleeps = self.state in (CopyState.SUSPENDED, CopyState.AWAKE)
        if order[0] not in none or first != self.address or not sleeps or not self._usable(mine):
            return []
        ran = self.running
        self.term = self._settings.term_after(self.term, self.address)
        self._go(Trigger.TAKES_OVER, now, f"{order[0]} goes, or holds nothing yet")
        return [] if ran else [Wake()]

    def _heard_or_begun(self) -> int:
        """Since when the primary of this term may be silent."""
        heard_at = self.heard_at
        return max(self._term_at, self._begun_at if heard_at is None else heard_at)

    def validate(self) -> None:
        if self.state is CopyState.PRIMARY:
            self.require(self.is_primary, f"PRIMARY in term {self.term} of another copy")
        elif self.state is not CopyState.JOINING:
            self.require(not self.is_primary, f"primary of term {self.term}, but not running as it")
