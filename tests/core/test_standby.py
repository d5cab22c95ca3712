"""Which copy runs: terms, silence, return."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.messages import CopyReport, CopyState
from holdfast.core.settings import Protection, StandbySettings
from holdfast.core.standby import (
    Begun,
    PartnerMissed,
    PartnerSaid,
    ReadState,
    Sleep,
    StandbySwitch,
    StateHeld,
    SwitchEffect,
    TimePassed,
    Wake,
)

HYBRID = StandbySettings(("a", "b"), promote_after_us=5_000, read_state_after_us=1_000)
PASSIVE = replace(HYBRID, protection=Protection.PASSIVE, misses_until_awake=3)
IN_MEMORY = replace(HYBRID, persist=False)


def says(
    state: CopyState,
    boundary: int = 100,
    term: int = 0,
    ready: bool = True,
    overloaded: bool = False,
) -> CopyReport:
    return CopyReport(term, state, boundary, boundary, ready, overloaded)


NOTHING = says(CopyState.JOINING, -1, ready=False)
HELD = says(CopyState.SUSPENDED)


def begun(
    address: str, settings: StandbySettings, found: CopyReport
) -> tuple[StandbySwitch, list[SwitchEffect]]:
    switch = StandbySwitch(address, settings, 20)
    return switch, switch.handle(Begun(found), 0)


def sleeping(settings: StandbySettings) -> StandbySwitch:
    switch, _ = begun("b", settings, HELD)
    if switch.state is CopyState.JOINING:
        switch.handle(PartnerSaid(says(CopyState.PRIMARY), HELD), 1)
    switch.handle(PartnerSaid(says(CopyState.PRIMARY), HELD), 1)
    assert switch.state is CopyState.SUSPENDED
    return switch


def test_the_first_copy_is_the_primary_of_term_0() -> None:
    first, effects = begun("a", HYBRID, NOTHING)
    assert first.state is CopyState.PRIMARY
    assert effects == [Wake()]
    second, effects = begun("b", HYBRID, NOTHING)
    assert second.state is CopyState.SUSPENDED
    assert effects == []


def test_a_hybrid_copy_wakes_at_a_missed_heartbeat_and_sleeps_when_the_primary_is_back() -> None:
    switch = sleeping(HYBRID)
    assert switch.handle(PartnerMissed(HELD), 200) == [Wake()]
    mine = says(CopyState.AWAKE, 500)
    behind = says(CopyState.PRIMARY, 400)
    assert switch.handle(PartnerSaid(behind, mine), 300) == []
    recovering = says(CopyState.PRIMARY, 500, ready=False)
    assert switch.handle(PartnerSaid(recovering, mine), 300) == []
    near = says(CopyState.PRIMARY, 490)
    assert switch.handle(PartnerSaid(near, mine), 400) == [Sleep()]
    assert switch.state is CopyState.SUSPENDED
    assert switch.term == 0


def test_silence_for_too_long_begins_the_next_term() -> None:
    switch = sleeping(HYBRID)
    switch.handle(PartnerMissed(HELD), 200)
    assert switch.handle(TimePassed(HELD), 5_000) == []
    assert switch.handle(TimePassed(HELD), 5_001) == []  # it runs already
    assert (switch.state, switch.term) == (CopyState.PRIMARY, 1)
    switch.validate()


def test_a_passive_copy_begins_the_next_term_at_once() -> None:
    switch = sleeping(PASSIVE)
    assert switch.handle(PartnerMissed(HELD), 200) == [Wake()]
    assert (switch.state, switch.term) == (CopyState.PRIMARY, 1)


def test_a_primary_goes_on_in_a_later_term_until_the_new_one_has_caught_up() -> None:
    switch, _ = begun("a", HYBRID, HELD)
    mine = says(CopyState.PRIMARY, 300)
    assert switch.handle(PartnerSaid(says(CopyState.PRIMARY, 100, term=1), mine), 10) == []
    assert switch.state is CopyState.AWAKE
    mine = says(CopyState.AWAKE, 300, term=1)
    caught_up = says(CopyState.PRIMARY, 300, term=1)
    assert switch.handle(PartnerSaid(caught_up, mine), 20) == [Sleep()]


def test_a_restarted_primary_learns_its_term_from_the_other_copy() -> None:
    switch, _ = begun("b", HYBRID, HELD)
    awake = says(CopyState.AWAKE, 900, term=1)
    assert switch.handle(PartnerSaid(awake, HELD), 10) == [Wake()]
    assert (switch.state, switch.term) == (CopyState.PRIMARY, 1)


def test_a_primary_far_behind_reads_the_other_copys_state() -> None:
    switch, _ = begun("a", HYBRID, HELD)
    mine = says(CopyState.PRIMARY, 100)
    assert switch.handle(PartnerSaid(says(CopyState.AWAKE, 1_100), mine), 10) == []
    assert switch.handle(PartnerSaid(says(CopyState.AWAKE, 1_101), mine), 20) == [ReadState()]


def test_a_copy_without_a_disk_asks_before_it_begins() -> None:
    switch, effects = begun("a", IN_MEMORY, NOTHING)
    assert (switch.state, effects) == (CopyState.JOINING, [])
    awake = says(CopyState.AWAKE, 700)
    assert switch.handle(PartnerSaid(awake, NOTHING), 10) == [ReadState()]
    assert switch.handle(StateHeld(), 20) == [Wake()]
    assert switch.is_primary
    switch.validate()


def test_two_copies_without_anything_begin_empty() -> None:
    first, _ = begun("a", IN_MEMORY, NOTHING)
    second, _ = begun("b", IN_MEMORY, NOTHING)
    assert first.handle(PartnerSaid(NOTHING, NOTHING), 10) == [Wake()]
    assert second.handle(PartnerSaid(NOTHING, NOTHING), 10) == []
    assert (first.state, second.state) == (CopyState.PRIMARY, CopyState.SUSPENDED)
    empty = says(CopyState.SUSPENDED, -1, ready=False)
    assert second.handle(PartnerMissed(empty), 500) == []
    assert second.handle(TimePassed(empty), 50_000) == []


def test_a_copy_that_never_heard_of_its_primary_waits_before_it_replaces_it() -> None:
    switch, _ = begun("b", HYBRID, HELD)
    assert switch.handle(PartnerMissed(HELD), 200) == []
    assert switch.deadline == 5_000
    assert switch.handle(TimePassed(HELD), 5_000) == [Wake()]
    assert switch.term == 1


def test_an_overloaded_primary_wakes_the_other_copy() -> None:
    switch = sleeping(HYBRID)
    overloaded = says(CopyState.PRIMARY, overloaded=True)
    assert switch.handle(PartnerSaid(overloaded, HELD), 10) == [Wake()]
    mine = says(CopyState.AWAKE)
    assert switch.handle(PartnerSaid(overloaded, mine), 20) == []
    assert switch.handle(PartnerSaid(says(CopyState.PRIMARY), mine), 30) == [Sleep()]
