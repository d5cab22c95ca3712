"""The consistency manager: the state of a replica, and who decides what happens in it.

Theory of operation. A replica is STABLE while every bucket is stable when its time comes. When
SUnion reports a failure it goes to UP_FAILURE: a live version of the fragment is forked from
the stable one and takes buckets as they are (policy ``while_failed``), or nothing is taken at
all (SUSPEND). When SUnion's inputs are corrected, the replica reconciles: the stable version
takes the corrected buckets in large jobs (STABILIZATION) until it has caught up.

New tuples keep arriving meanwhile. Under ``while_stabilizing`` SUSPEND they wait. Otherwise
someone must go on with them: a partner replica that is asked to postpone its own
reconciliation (ASKING), or, if none agrees in time, the live version, which is then kept
beside the stable one. A partner that is STABLE needs no postponing: consumers follow it. One that
is further behind what we could do ourselves than X, because it is cut off or slow, does not stand
in, whatever its state. A partner that agreed is asked again now and then, which renews its lease;
the live version stands still meanwhile. If the partner does not answer, or stands in no more, it
is lost and the live version goes on beside the reconciliation.

Asked by a partner, a replica in UP_FAILURE agrees and is POSTPONED until it is released or
the lease ends; nobody else is to be asked by it meanwhile. If two ask each other, the one
whose address sorts first goes first. A replica that cannot go on with new tuples (it is
reconciling, recovering, suspended or far behind) refuses.

A failure that was over before anything was taken tentatively needs no reconciliation. A new
failure during STABILIZATION ends it: the replica is STABLE and fails again, or, if tentative
results are left uncorrected, goes straight back to UP_FAILURE.

A replica that starts after a crash is RECOVERING: it refuses subscribers until it has rebuilt
its state and caught up, or until it has rebuilt it and a failure keeps it from catching up.

    RECOVERING ──▶ STABLE ──▶ UP_FAILURE ──▶ ASKING ──▶ STABILIZATION ──▶ STABLE
                                  ▲ │           │             │
                                  │ └▶POSTPONED◀┘             │
                                  └────┘◀─────────────────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Protocol, TypeAlias

from holdfast.core.machine import Machine, PeerError
from holdfast.core.messages import (
    Message,
    PostponeAnswer,
    PostponeRelease,
    PostponeReply,
    PostponeRequest,
)
from holdfast.core.settings import Policy, ReplicaSettings
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.core.sunion import Release


class NodeState(Enum):
    RECOVERING = "recovering"
    STABLE = "stable"
    UP_FAILURE = "up_failure"
    ASKING = "asking"
    POSTPONED = "postponed"
    STABILIZATION = "stabilization"


class Trigger(Enum):
    CAUGHT_UP = "caught up"
    INPUT_FAILED = "input failed"
    HEALED_UNTOUCHED = "healed before anything was taken"
    ASK_PARTNERS = "corrected: ask partners"
    RECONCILE = "corrected: reconcile"
    PARTNER_AGREED = "partner agreed"
    NO_PARTNER = "no partner agreed"
    CORRECTED_NO_MORE = "corrected no more"
    PARTNER_ASKED = "partner asked"
    RELEASED = "released"
    LEASE_ENDED = "lease ended"
    LEFT_UNCORRECTED = "new failure during reconciliation"


TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (NodeState.RECOVERING, Trigger.CAUGHT_UP): NodeState.STABLE,
    (NodeState.RECOVERING, Trigger.INPUT_FAILED): NodeState.UP_FAILURE,
    (NodeState.STABLE, Trigger.INPUT_FAILED): NodeState.UP_FAILURE,
    (NodeState.UP_FAILURE, Trigger.HEALED_UNTOUCHED): NodeState.STABLE,
    (NodeState.UP_FAILURE, Trigger.ASK_PARTNERS): NodeState.ASKING,
    (NodeState.UP_FAILURE, Trigger.RECONCILE): NodeState.STABILIZATION,
    (NodeState.UP_FAILURE, Trigger.PARTNER_ASKED): NodeState.POSTPONED,
    (NodeState.ASKING, Trigger.PARTNER_AGREED): NodeState.STABILIZATION,
    (NodeState.ASKING, Trigger.NO_PARTNER): NodeState.STABILIZATION,
    (NodeState.ASKING, Trigger.CORRECTED_NO_MORE): NodeState.UP_FAILURE,
    (NodeState.ASKING, Trigger.PARTNER_ASKED): NodeState.POSTPONED,
    (NodeState.POSTPONED, Trigger.PARTNER_ASKED): NodeState.POSTPONED,  # again: a new lease
    (NodeState.POSTPONED, Trigger.RELEASED): NodeState.UP_FAILURE,
    (NodeState.POSTPONED, Trigger.LEASE_ENDED): NodeState.UP_FAILURE,
    (NodeState.STABILIZATION, Trigger.CAUGHT_UP): NodeState.STABLE,
    (NodeState.STABILIZATION, Trigger.LEFT_UNCORRECTED): NodeState.UP_FAILURE,
}


@dataclass(frozen=True, slots=True)
class InputFailed:
    """SUnion: a bucket is overdue."""


@dataclass(frozen=True, slots=True)
class InputsCorrected:
    """SUnion: the inputs are corrected; ``touched`` if tentative buckets were taken."""

    touched: bool


@dataclass(frozen=True, slots=True)
class CorrectionWithdrawn:
    """SUnion: no longer."""


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The stable version has taken all there is; ``healed`` if nothing tentative is left."""

    healed: bool


@dataclass(frozen=True, slots=True)
class PartnerSaid:
    partner: str
    message: PostponeRequest | PostponeReply | PostponeRelease


@dataclass(frozen=True, slots=True)
class TimePassed:
    pass


ManagerEvent: TypeAlias = (
    InputFailed | InputsCorrected | CorrectionWithdrawn | CaughtUp | PartnerSaid | TimePassed
)


@dataclass(frozen=True, slots=True)
class ForkLive:
    """Start a live version from the stable one, if there is none."""


@dataclass(frozen=True, slots=True)
class DropLive:
    """End the live version, if there is one."""


@dataclass(frozen=True, slots=True)
class ChooseRelease:
    release: Release


@dataclass(frozen=True, slots=True)
class EndReconciliation:
    """Tell SUnion and the outputs that reconciliation is over."""

    healed: bool


@dataclass(frozen=True, slots=True)
class OpenStreams:
    """Recovery is over: accept subscribers."""


@dataclass(frozen=True, slots=True)
class TellPartner:
    partner: str
    message: Message


ManagerEffect: TypeAlias = (
    ForkLive | DropLive | ChooseRelease | EndReconciliation | OpenStreams | TellPartner
)

RELEASES = {
    Policy.SUSPEND: Release.SUSPEND,
    Policy.DELAY: Release.DELAY,
    Policy.PROCESS: Release.PROCESS,
}


class Buckets(Protocol):
    """How far a replica is: SUnion."""

    @property
    def position(self) -> int: ...

    def reach(self, now: int) -> int: ...


class ConsistencyManager(Machine[NodeState, Trigger]):
    """The decisions of one replica."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(self, settings: ReplicaSettings, buckets: Buckets) -> None:
        super().__init__(f"{settings.address} consistency manager", NodeState.RECOVERING)
        self.deadline = FAR_FUTURE
        self._settings = settings
        self._buckets = buckets
        self._corrected = False
        self._round = 0
        self._waiting_for: set[str] = set()
        self._postponed_for: tuple[str, int] | None = None
        # A partner that corrects asks again and again: until when the last time counts.
        self._helps_until = 0
        self._helper: tuple[str, int] | None = None
        self._helper_silent = False

    def handle(self, event: ManagerEvent, now: int) -> list[ManagerEffect]:
        match event:
            case InputFailed():
                return self._failed(now)
            case InputsCorrected(touched):
                return self._inputs_corrected(touched, now)
            case CorrectionWithdrawn():
                self._corrected = False
                if self.state is NodeState.ASKING:
                    self._stop_asking()
                    self.move(Trigger.CORRECTED_NO_MORE, now)
                return []
            case CaughtUp(healed):
                return self._caught_up(healed, now)
            case PartnerSaid(partner, message):
                return self._partner_said(partner, message, now)
            case TimePassed():
                return self._time_passed(now)

    def corrects(self, now: int) -> bool:
        """Whether this replica or a partner corrects something, as far as is known here."""
        return (
            self.state in (NodeState.STABILIZATION, NodeState.POSTPONED) or now < self._helps_until
        )

    def go_on_with(self, settings: ReplicaSettings) -> None:
        """Partners have left; whoever waits for their answer waits in vain, and not for long."""
        self._settings = settings

    # -- failure, correction, end -------------------------------------------------------

    def _failed(self, now: int) -> list[ManagerEffect]:
        effects: list[ManagerEffect] = []
        if self.state is NodeState.RECOVERING:
            effects.append(OpenStreams())
        self.move(Trigger.INPUT_FAILED, now)
        return effects + self._go_on(self._settings.while_failed)

    def _go_on(self, policy: Policy) -> list[ManagerEffect]:
        if policy is Policy.SUSPEND:
            return [ChooseRelease(Release.SUSPEND)]
        return [ForkLive(), ChooseRelease(RELEASES[policy])]

    def _inputs_corrected(self, touched: bool, now: int) -> list[ManagerEffect]:
        self._corrected = True
        if self.state is not NodeState.UP_FAILURE:
            return []  # POSTPONED: remembered until released
        if not touched:
            self._corrected = False
            self.move(Trigger.HEALED_UNTOUCHED, now)
            return [DropLive(), ChooseRelease(Release.HOLD), EndReconciliation(healed=True)]
        if self._settings.while_stabilizing is Policy.SUSPEND:
            self.move(Trigger.RECONCILE, now)
            return self._reconcile_alone()
        if not self._settings.partners:
            self.move(Trigger.RECONCILE, now)
            return self._reconcile_with_second_version()
        self.move(Trigger.ASK_PARTNERS, now)
        self._round = max(self._round + 1, now)
        self._waiting_for = set(self._settings.partners)
        self.deadline = now + self._settings.timing.partner_timeout_us
        request = PostponeRequest(self._round, self._buckets.reach(now))
        return [TellPartner(one, request) for one in self._settings.partners]

    def _reconcile_alone(self) -> list[ManagerEffect]:
        return [DropLive(), ChooseRelease(Release.SUSPEND)]

    def _reconcile_with_second_version(self) -> list[ManagerEffect]:
        return [ChooseRelease(RELEASES[self._settings.while_stabilizing])]

    def _caught_up(self, healed: bool, now: int) -> list[ManagerEffect]:
        if self.state is NodeState.RECOVERING:
            self.move(Trigger.CAUGHT_UP, now)
            return [OpenStreams()]
        self._corrected = False
        effects: list[ManagerEffect] = [EndReconciliation(healed)]
        if self._helper is not None:
            partner, round_ = self._helper
            effects.append(TellPartner(partner, PostponeRelease(round_)))
            self._helper = None
            self.deadline = FAR_FUTURE
        if healed:
            self.move(Trigger.CAUGHT_UP, now)
            return [DropLive(), ChooseRelease(Release.HOLD), *effects]
        self.move(Trigger.LEFT_UNCORRECTED, now)
        return effects + self._go_on(self._settings.while_failed)

    # -- partners -----------------------------------------------------------------------

    def _partner_said(
        self, partner: str, message: PostponeRequest | PostponeReply | PostponeRelease, now: int
    ) -> list[ManagerEffect]:
        if partner not in self._settings.partners:
            raise PeerError(f"{self.name}: {message} of {partner}, which is no partner")
        match message:
            case PostponeRequest(round_, reach):
                answer = self._answer(partner, round_, reach, now)
                if answer is not PostponeAnswer.REFUSED:
                    self._helps_until = now + 2 * self._settings.timing.partner_timeout_us
                return [TellPartner(partner, PostponeReply(round_, answer))]
            case PostponeReply(round_, answer):
                return self._answered(partner, round_, answer, now)
            case PostponeRelease(round_):
                self._helps_until = 0
                if self._postponed_for == (partner, round_):
                    return self._resume(Trigger.RELEASED, now)
                return []

    def _answer(self, partner: str, round_: int, reach: int, now: int) -> PostponeAnswer:
        if not self._stands_in(reach):
            return PostponeAnswer.REFUSED
        if self.state is NodeState.STABLE:
            return PostponeAnswer.NOT_NEEDED
        able = self._settings.while_failed is not Policy.SUSPEND
        mine_first = self.state is NodeState.ASKING and self._settings.address < partner
        if not able or mine_first or not self.can(Trigger.PARTNER_ASKED):
            return PostponeAnswer.REFUSED
        if self._postponed_for is not None and self._postponed_for[0] != partner:
            return PostponeAnswer.REFUSED
        self._stop_asking()
        self.move(Trigger.PARTNER_ASKED, now, partner)
        self._postponed_for = (partner, round_)
        self.deadline = now + self._settings.timing.postpone_lease_us
        return PostponeAnswer.GRANTED

    def _stands_in(self, reach: int) -> bool:
        """Whether this replica goes about as far as who asks could go itself."""
        return self._buckets.position >= reach - self._settings.timing.delay_us

    def _answered(
        self, partner: str, round_: int, answer: PostponeAnswer, now: int
    ) -> list[ManagerEffect]:
        granted = answer is PostponeAnswer.GRANTED
        if self._helper == (partner, round_):
            self._helper_silent = False
            return self._lost_helper() if answer is PostponeAnswer.REFUSED else []
        if self.state is not NodeState.ASKING or round_ != self._round:
            # Too late, or a second partner that need not wait: let it go on.
            return [TellPartner(partner, PostponeRelease(round_))] if granted else []
        if answer is PostponeAnswer.REFUSED:
            self._waiting_for.discard(partner)
            return [] if self._waiting_for else self._no_partner(now)
        self._stop_asking()
        self.move(Trigger.PARTNER_AGREED, now, f"{partner} {answer.value}")
        self._helper = (partner, round_)
        self._helper_silent = False
        self.deadline = now + self._settings.timing.partner_timeout_us
        return [ChooseRelease(Release.SUSPEND)]

    def _lost_helper(self) -> list[ManagerEffect]:
        """Nobody goes on with new tuples any more: the live version must."""
        assert self._helper is not None
        partner, round_ = self._helper
        self._helper = None
        self.deadline = FAR_FUTURE
        effects: list[ManagerEffect] = [TellPartner(partner, PostponeRelease(round_))]
        return effects + self._reconcile_with_second_version()

    def _no_partner(self, now: int) -> list[ManagerEffect]:
        self._stop_asking()
        self.move(Trigger.NO_PARTNER, now)
        return self._reconcile_with_second_version()

    def _stop_asking(self) -> None:
        self._waiting_for = set()
        self.deadline = FAR_FUTURE

    def _resume(self, trigger: Trigger, now: int) -> list[ManagerEffect]:
        self._postponed_for = None
        self.deadline = FAR_FUTURE
        self.move(trigger, now)
        return self._inputs_corrected(True, now) if self._corrected else []

    def _time_passed(self, now: int) -> list[ManagerEffect]:
        if now < self.deadline:
            return []
        if self.state is NodeState.ASKING:
            return self._no_partner(now)
        if self._helper is not None:
            if self._helper_silent:
                return self._lost_helper()
            partner, round_ = self._helper
            self._helper_silent = True
            self.deadline = now + self._settings.timing.partner_timeout_us
            return [TellPartner(partner, PostponeRequest(round_, self._buckets.reach(now)))]
        return self._resume(Trigger.LEASE_ENDED, now)

    def validate(self) -> None:
        waiting = self.state in (NodeState.ASKING, NodeState.POSTPONED) or self._helper is not None
        self.require(waiting == (self.deadline != FAR_FUTURE), "a deadline without a wait")
        self.require(
            (self.state is NodeState.POSTPONED) == (self._postponed_for is not None),
            f"postponed for {self._postponed_for} in {self.state.name}",
        )
