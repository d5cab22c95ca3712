from __future__ import annotations

import pytest

from holdfast.core.consistency import (
    CaughtUp,
    ChooseRelease,
    ConsistencyManager,
    CorrectionWithdrawn,
    DropLive,
    EndReconciliation,
    ForkLive,
    InputFailed,
    InputsCorrected,
    ManagerEffect,
    NodeState,
    OpenStreams,
    PartnerSaid,
    TellPartner,
    TimePassed,
)
from holdfast.core.machine import IllegalTransition
from holdfast.core.messages import (
    PostponeAnswer,
    PostponeRelease,
    PostponeReply,
    PostponeRequest,
)
from holdfast.core.settings import SECOND_US, Input, Output, Policy, ReplicaSettings, Timing
from holdfast.core.sunion import Release

TIMING = Timing(partner_timeout_us=1000, postpone_lease_us=9000)


class At:
    """A replica that is so far, and could go so far."""

    def __init__(self, position: int = 0, reach: int = 0) -> None:
        self.position = position
        self._reach = reach

    def reach(self, now: int) -> int:
        return self._reach


def make(
    address: str = "a",
    partners: tuple[str, ...] = ("b",),
    while_failed: Policy = Policy.PROCESS,
    while_stabilizing: Policy = Policy.PROCESS,
    at: At | None = None,
) -> ConsistencyManager:
    settings = ReplicaSettings(
        address,
        (Input("s", ("e",)),),
        (Output("o", frozenset({"s"}), ("c",)),),
        partners,
        TIMING,
        while_failed,
        while_stabilizing,
    )
    manager = ConsistencyManager(settings, at or At())
    assert manager.handle(CaughtUp(True), 0) == [OpenStreams()]
    return manager


def answers(effects: list[ManagerEffect]) -> list[PostponeAnswer]:
    return [
        effect.message.answer
        for effect in effects
        if isinstance(effect, TellPartner) and isinstance(effect.message, PostponeReply)
    ]


def round_of(effects: list[ManagerEffect]) -> int:
    (effect,) = effects
    assert isinstance(effect, TellPartner)
    assert isinstance(effect.message, PostponeRequest)
    return effect.message.round


def test_a_failure_forks_and_its_end_reconciles_beside_a_partner() -> None:
    manager = make()
    assert manager.handle(InputFailed(), 1) == [ForkLive(), ChooseRelease(Release.PROCESS)]
    asked = manager.handle(InputsCorrected(touched=True), 2)
    assert manager.state is NodeState.ASKING
    reply = PostponeReply(round_of(asked), PostponeAnswer.GRANTED)
    assert manager.handle(PartnerSaid("b", reply), 3) == [ChooseRelease(Release.SUSPEND)]
    assert manager.state.name == "STABILIZATION"
    done = manager.handle(CaughtUp(healed=True), 4)
    assert EndReconciliation(True) in done
    assert TellPartner("b", PostponeRelease(round_of(asked))) in done
    manager.validate()


@pytest.mark.parametrize("how", ["refused", "silent", "no partner"])
def test_without_a_partner_the_live_version_goes_on_beside(how: str) -> None:
    manager = make(partners=() if how == "no partner" else ("b",), while_stabilizing=Policy.DELAY)
    manager.handle(InputFailed(), 1)
    effects = manager.handle(InputsCorrected(touched=True), 2)
    if how == "refused":
        reply = PostponeReply(round_of(effects), PostponeAnswer.REFUSED)
        effects = manager.handle(PartnerSaid("b", reply), 3)
    elif how == "silent":
        assert manager.handle(TimePassed(), 1001) == []
        effects = manager.handle(TimePassed(), 1002)
    assert effects == [ChooseRelease(Release.DELAY)]
    assert manager.state is NodeState.STABILIZATION


def test_suspend_while_stabilizing_asks_nobody() -> None:
    manager = make(while_stabilizing=Policy.SUSPEND)
    manager.handle(InputFailed(), 1)
    effects = manager.handle(InputsCorrected(touched=True), 2)
    assert effects == [DropLive(), ChooseRelease(Release.SUSPEND)]


def test_suspend_while_failed_has_nothing_to_reconcile() -> None:
    manager = make(while_failed=Policy.SUSPEND)
    assert manager.handle(InputFailed(), 1) == [ChooseRelease(Release.SUSPEND)]
    effects = manager.handle(InputsCorrected(touched=False), 2)
    assert effects[-1] == EndReconciliation(True)
    assert manager.state is NodeState.STABLE


def test_two_that_ask_each_other_do_not_wait_for_each_other() -> None:
    first, second = make("a", ("b",)), make("b", ("a",))
    rounds = []
    for manager in (first, second):
        manager.handle(InputFailed(), 1)
        rounds.append(round_of(manager.handle(InputsCorrected(True), 2)))
    to_second = first.handle(PartnerSaid("b", PostponeRequest(rounds[1])), 3)
    to_first = second.handle(PartnerSaid("a", PostponeRequest(rounds[0])), 3)
    assert answers(to_second) == [PostponeAnswer.REFUSED]
    assert answers(to_first) == [PostponeAnswer.GRANTED]
    first.handle(PartnerSaid("b", PostponeReply(rounds[0], PostponeAnswer.GRANTED)), 4)
    late = PostponeReply(rounds[1], PostponeAnswer.REFUSED)
    assert second.handle(PartnerSaid("a", late), 4) == []
    assert (first.state, second.state) == (NodeState.STABILIZATION, NodeState.POSTPONED)


def test_a_postponed_replica_reconciles_when_released_or_when_the_lease_ends() -> None:
    for ending in ("release", "lease"):
        manager = make()
        manager.handle(InputFailed(), 1)
        manager.handle(PartnerSaid("b", PostponeRequest(7)), 2)
        assert manager.handle(InputsCorrected(True), 3) == [], "remembered"
        if ending == "release":
            assert manager.handle(PartnerSaid("b", PostponeRelease(6)), 4) == [], "an old one"
            effects = manager.handle(PartnerSaid("b", PostponeRelease(7)), 4)
        else:
            effects = manager.handle(TimePassed(), 2 + 9000)
        assert manager.state is NodeState.ASKING
        assert round_of(effects) > 0


def test_a_lease_is_renewed_while_reconciling() -> None:
    manager = make()
    manager.handle(InputFailed(), 1)
    asked = round_of(manager.handle(InputsCorrected(True), 2))
    manager.handle(PartnerSaid("b", PostponeReply(asked, PostponeAnswer.GRANTED)), 3)
    assert round_of(manager.handle(TimePassed(), 3003)) == asked
    again = PostponeReply(asked, PostponeAnswer.GRANTED)
    assert manager.handle(PartnerSaid("b", again), 3004) == [], "still the helper"
    assert round_of(manager.handle(TimePassed(), 4003)) == asked


@pytest.mark.parametrize("how", ["silent", "refuses"])
def test_a_partner_lost_while_reconciling_is_replaced_by_the_live_version(how: str) -> None:
    manager = make()
    manager.handle(InputFailed(), 1)
    asked = round_of(manager.handle(InputsCorrected(True), 2))
    manager.handle(PartnerSaid("b", PostponeReply(asked, PostponeAnswer.GRANTED)), 3)
    assert round_of(manager.handle(TimePassed(), 1003)) == asked
    if how == "silent":
        effects = manager.handle(TimePassed(), 2003)
    else:
        reply = PostponeReply(asked, PostponeAnswer.REFUSED)
        effects = manager.handle(PartnerSaid("b", reply), 1004)
    assert effects == [
        TellPartner("b", PostponeRelease(asked)),
        ChooseRelease(Release.PROCESS),
    ]
    assert manager.state is NodeState.STABILIZATION
    manager.validate()


def test_a_grant_that_comes_too_late_is_released() -> None:
    manager = make()
    manager.handle(InputFailed(), 1)
    asked = round_of(manager.handle(InputsCorrected(True), 2))
    manager.handle(CorrectionWithdrawn(), 3)
    assert manager.state is NodeState.UP_FAILURE
    late = PostponeReply(asked, PostponeAnswer.GRANTED)
    assert manager.handle(PartnerSaid("b", late), 4) == [TellPartner("b", PostponeRelease(asked))]


def test_what_is_left_uncorrected_is_a_failure_still() -> None:
    manager = make(partners=())
    manager.handle(InputFailed(), 1)
    manager.handle(InputsCorrected(True), 2)
    effects = manager.handle(CaughtUp(healed=False), 3)
    assert effects[0] == EndReconciliation(False)
    assert manager.state is NodeState.UP_FAILURE


def test_who_cannot_help_refuses() -> None:
    stable = make()
    assert answers(stable.handle(PartnerSaid("b", PostponeRequest(1)), 1)) == [
        PostponeAnswer.NOT_NEEDED
    ]
    suspended = make(while_failed=Policy.SUSPEND)
    suspended.handle(InputFailed(), 1)
    assert answers(suspended.handle(PartnerSaid("b", PostponeRequest(1)), 2)) == [
        PostponeAnswer.REFUSED
    ]


def test_who_is_far_behind_does_not_stand_in_whatever_its_state() -> None:
    reach = 100 * SECOND_US
    near, behind = At(reach - TIMING.delay_us), At(reach - TIMING.delay_us - 1)
    for at, expected in ((near, PostponeAnswer.NOT_NEEDED), (behind, PostponeAnswer.REFUSED)):
        stable = make("b", ("a",), at=at)
        assert answers(stable.handle(PartnerSaid("a", PostponeRequest(1, reach)), 2)) == [expected]
    for at, expected in ((near, PostponeAnswer.GRANTED), (behind, PostponeAnswer.REFUSED)):
        failed = make("b", ("a",), at=at)
        failed.handle(InputFailed(), 1)
        assert answers(failed.handle(PartnerSaid("a", PostponeRequest(1, reach)), 2)) == [expected]


def test_a_helper_that_is_cut_off_meanwhile_is_lost() -> None:
    mine, theirs = At(reach=9 * SECOND_US), At(position=9 * SECOND_US)
    asker, helper = make("a", at=mine), make("b", ("a",), at=theirs)
    for manager in (asker, helper):
        manager.handle(InputFailed(), 1)
    (ask,) = asker.handle(InputsCorrected(touched=True), 2)
    assert isinstance(ask, TellPartner)
    assert isinstance(ask.message, PostponeRequest)
    (agreed,) = helper.handle(PartnerSaid("a", ask.message), 2)
    assert isinstance(agreed, TellPartner)
    assert isinstance(agreed.message, PostponeReply)
    assert asker.handle(PartnerSaid("b", agreed.message), 3) == [ChooseRelease(Release.SUSPEND)]
    mine._reach += 60 * SECOND_US  # new tuples come here, and none there
    (again,) = asker.handle(TimePassed(), asker.deadline)
    assert isinstance(again, TellPartner)
    assert isinstance(again.message, PostponeRequest)
    (refused,) = helper.handle(PartnerSaid("a", again.message), 4)
    assert isinstance(refused, TellPartner)
    assert isinstance(refused.message, PostponeReply)
    effects = asker.handle(PartnerSaid("b", refused.message), 5)
    assert ChooseRelease(Release.PROCESS) in effects, "the live version goes on"
    asker.validate()


def test_the_error_of_an_illegal_transition_names_the_replica() -> None:
    manager = make()
    manager.handle(InputFailed(), 1)
    with pytest.raises(IllegalTransition, match="a consistency manager: INPUT_FAILED"):
        manager.handle(InputFailed(), 2)


def test_it_knows_while_a_partner_corrects() -> None:
    manager = make(address="b", partners=("a",))
    assert not manager.corrects(1)
    # The partner asks again and again.
    for now in (10, 1010):
        manager.handle(PartnerSaid("a", PostponeRequest(1, 0)), now)
        assert manager.corrects(now + 1999)
    assert not manager.corrects(1010 + 2000)
    manager.handle(PartnerSaid("a", PostponeRequest(2, 0)), 5000)
    manager.handle(PartnerSaid("a", PostponeRelease(2)), 5500)
    assert not manager.corrects(5501)
