"""Which copy runs: terms, silence, return."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.messages import CopyReport, CopyState
from holdfast.core.records import Membership
from holdfast.core.settings import Protection, StandbySettings
from holdfast.core.standby import (
    Begun,
    CopiesChanged,
    PartnerMissed,
    PartnerSaid,
    ReadState,
    Sleep,
    StandbySwitch,
    StateHeld,
    SwitchEffect,
    TermHeard,
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


def said(switch: StandbySwitch, report: CopyReport, mine: CopyReport) -> PartnerSaid:
    """What the only other copy says."""
    return PartnerSaid("a" if switch.address == "b" else "b", report, mine)


def missed(switch: StandbySwitch, mine: CopyReport) -> PartnerMissed:
    return PartnerMissed("a" if switch.address == "b" else "b", mine)


def begun(
    address: str, settings: StandbySettings, found: CopyReport
) -> tuple[StandbySwitch, list[SwitchEffect]]:
    switch = StandbySwitch(address, settings, 20)
    return switch, switch.handle(Begun(found), 0)


def sleeping(settings: StandbySettings) -> StandbySwitch:
    switch, _ = begun("b", settings, HELD)
    if switch.state is CopyState.JOINING:
        switch.handle(said(switch, says(CopyState.PRIMARY), HELD), 1)
    switch.handle(said(switch, says(CopyState.PRIMARY), HELD), 1)
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
    assert switch.handle(missed(switch, HELD), 200) == [Wake()]
    mine = says(CopyState.AWAKE, 500)
    behind = says(CopyState.PRIMARY, 400)
    assert switch.handle(said(switch, behind, mine), 300) == []
    recovering = says(CopyState.PRIMARY, 500, ready=False)
    assert switch.handle(said(switch, recovering, mine), 300) == []
    near = says(CopyState.PRIMARY, 490)
    assert switch.handle(said(switch, near, mine), 400) == [Sleep()]
    assert switch.state is CopyState.SUSPENDED
    assert switch.term == 0


def test_silence_for_too_long_begins_the_next_term() -> None:
    switch = sleeping(HYBRID)
    switch.handle(missed(switch, HELD), 200)
    assert switch.handle(TimePassed(HELD), 5_000) == []
    assert switch.handle(TimePassed(HELD), 5_001) == []  # it runs already
    assert (switch.state, switch.term) == (CopyState.PRIMARY, 1)
    switch.validate()


def test_a_passive_copy_begins_the_next_term_at_once() -> None:
    switch = sleeping(PASSIVE)
    assert switch.handle(missed(switch, HELD), 200) == [Wake()]
    assert (switch.state, switch.term) == (CopyState.PRIMARY, 1)


def test_a_primary_goes_on_in_a_later_term_until_the_new_one_has_caught_up() -> None:
    switch, _ = begun("a", HYBRID, HELD)
    mine = says(CopyState.PRIMARY, 300)
    assert switch.handle(said(switch, says(CopyState.PRIMARY, 100, term=1), mine), 10) == []
    assert switch.state is CopyState.AWAKE
    mine = says(CopyState.AWAKE, 300, term=1)
    caught_up = says(CopyState.PRIMARY, 300, term=1)
    assert switch.handle(said(switch, caught_up, mine), 20) == [Sleep()]


def test_a_restarted_primary_learns_its_term_from_the_other_copy() -> None:
    switch, _ = begun("b", HYBRID, HELD)
    awake = says(CopyState.AWAKE, 900, term=1)
    assert switch.handle(said(switch, awake, HELD), 10) == [Wake()]
    assert (switch.state, switch.term) == (CopyState.PRIMARY, 1)


def test_a_primary_far_behind_reads_the_other_copys_state() -> None:
    switch, _ = begun("a", HYBRID, HELD)
    mine = says(CopyState.PRIMARY, 100)
    assert switch.handle(said(switch, says(CopyState.AWAKE, 1_100), mine), 10) == []
    assert switch.handle(said(switch, says(CopyState.AWAKE, 1_101), mine), 20) == [ReadState("b")]


def test_a_copy_without_a_disk_asks_before_it_begins() -> None:
    switch, effects = begun("a", IN_MEMORY, NOTHING)
    assert (switch.state, effects) == (CopyState.JOINING, [])
    awake = says(CopyState.AWAKE, 700)
    assert switch.handle(said(switch, awake, NOTHING), 10) == [ReadState("b")]
    assert switch.handle(StateHeld(), 20) == [Wake()]
    assert switch.is_primary
    switch.validate()


def test_two_copies_without_anything_begin_empty() -> None:
    first, _ = begun("a", IN_MEMORY, NOTHING)
    second, _ = begun("b", IN_MEMORY, NOTHING)
    assert first.handle(said(first, NOTHING, NOTHING), 10) == [Wake()]
    assert second.handle(said(second, NOTHING, NOTHING), 10) == []
    assert (first.state, second.state) == (CopyState.PRIMARY, CopyState.SUSPENDED)
    empty = says(CopyState.SUSPENDED, -1, ready=False)
    assert second.handle(missed(second, empty), 500) == []
    assert second.handle(TimePassed(empty), 50_000) == []


def test_a_copy_that_needs_nothing_stands_in_with_nothing() -> None:
    """What is delivered at most once goes on from now: there is no state to wait for."""
    settings = replace(PASSIVE, persist=False)
    first = StandbySwitch("a", settings, 20, lossy=True)
    assert first.handle(Begun(NOTHING), 0) == [Wake()]
    second = StandbySwitch("b", settings, 20, lossy=True)
    assert second.handle(Begun(NOTHING), 0) == []
    second.handle(said(second, says(CopyState.PRIMARY), NOTHING), 1)
    assert second.handle(missed(second, NOTHING), 301_000) == [Wake()]
    assert (second.state, second.term) == (CopyState.PRIMARY, 1)
    # Where a state is needed, there is none to go on from.
    other = StandbySwitch("b", settings, 20)
    other.handle(Begun(NOTHING), 0)
    other.handle(said(other, says(CopyState.PRIMARY), NOTHING), 1)
    assert other.handle(missed(other, NOTHING), 301_000) == []


def test_a_copy_that_never_heard_of_its_primary_waits_before_it_replaces_it() -> None:
    switch, _ = begun("b", HYBRID, HELD)
    assert switch.handle(missed(switch, HELD), 200) == []
    assert switch.deadline == 5_000
    assert switch.handle(TimePassed(HELD), 5_000) == [Wake()]
    assert switch.term == 1


def test_an_overloaded_primary_wakes_the_other_copy() -> None:
    switch = sleeping(HYBRID)
    overloaded = says(CopyState.PRIMARY, overloaded=True)
    assert switch.handle(said(switch, overloaded, HELD), 10) == [Wake()]
    mine = says(CopyState.AWAKE)
    assert switch.handle(said(switch, overloaded, mine), 20) == []
    assert switch.handle(said(switch, says(CopyState.PRIMARY), mine), 30) == [Sleep()]


# -- three copies -------------------------------------------------------------------------------

THREE = replace(HYBRID, copies=("a", "b", "c"), heartbeat_interval_us=100)
# A copy waits so long for one before it that does not stand in.
PATIENCE_US = 300


def third(settings: StandbySettings = THREE, address: str = "c") -> StandbySwitch:
    """A copy that sleeps beside a primary and another secondary."""
    switch, _ = begun(address, settings, HELD)
    switch.handle(PartnerSaid("a", says(CopyState.PRIMARY), HELD), 1)
    other = "b" if address == "c" else "c"
    hears = replace(HELD, hears=True)
    switch.handle(PartnerSaid(other, hears, HELD), 1)
    assert switch.state is CopyState.SUSPENDED
    return switch


def test_terms_go_around_all_copies() -> None:
    assert [THREE.primary_of(term) for term in range(4)] == ["a", "b", "c", "a"]
    assert THREE.order_of(4) == ("b", "c", "a")
    assert [THREE.term_after(1, name) for name in "abc"] == [3, 4, 2]


def test_the_next_one_stands_in_and_the_one_after_it_sleeps_on() -> None:
    second, switch = third(address="b"), third()
    assert second.handle(PartnerMissed("a", HELD), 200) == [Wake()]
    assert switch.handle(PartnerMissed("a", HELD), 200) == []
    awake = says(CopyState.AWAKE)
    assert switch.handle(PartnerSaid("b", awake, HELD), 210) == []
    assert switch.handle(TimePassed(HELD), 50_000) == []


def test_the_last_copy_stands_in_at_once_when_both_others_are_lost() -> None:
    switch = third()
    assert switch.handle(PartnerMissed("b", HELD), 200) == []
    assert switch.handle(PartnerMissed("a", HELD), 210) == [Wake()]
    switch.validate()


def test_one_that_stands_in_and_is_lost_is_stood_in_for() -> None:
    switch = third()
    switch.handle(PartnerMissed("a", HELD), 200)
    switch.handle(PartnerSaid("b", says(CopyState.AWAKE), HELD), 210)
    assert switch.handle(PartnerMissed("b", HELD), 400) == [Wake()]
    # It is the primary of its own term, if that lasts.
    switch.handle(TimePassed(HELD), 5_001)
    assert (switch.state, switch.term) == (CopyState.PRIMARY, 2)


def test_nobody_stands_in_for_a_primary_that_one_before_it_hears() -> None:
    switch = third()
    switch.handle(PartnerMissed("a", HELD), 200)
    switch.handle(PartnerSaid("b", replace(HELD, hears=True), HELD), 10_000)
    assert switch.handle(TimePassed(HELD), 60_000) == []


def test_one_before_it_that_does_not_stand_in_is_waited_for_briefly() -> None:
    switch = third()
    switch.handle(PartnerMissed("a", HELD), 200)
    switch.handle(PartnerSaid("b", HELD, HELD), 210)
    assert switch.handle(TimePassed(HELD), 199 + PATIENCE_US) == []
    assert switch.handle(TimePassed(HELD), 200 + PATIENCE_US) == [Wake()]


def test_of_two_that_woke_the_later_of_the_ring_goes_back_to_sleep() -> None:
    second, switch = third(address="b"), third()
    for each in (second, switch):
        each.handle(PartnerMissed("c" if each is second else "b", HELD), 200)
        assert each.handle(PartnerMissed("a", HELD), 200) == [Wake()]
    awake = says(CopyState.AWAKE)
    assert second.handle(PartnerSaid("c", awake, awake), 300) == []
    assert switch.handle(PartnerSaid("b", replace(awake, ready=False), awake), 300) == []
    assert switch.handle(PartnerSaid("b", awake, awake), 310) == [Sleep()]


def test_the_one_with_the_least_to_do_stands_in() -> None:
    by_load = replace(THREE, by_load=True)
    busy, idle = replace(HELD, load=800), replace(HELD, load=200)
    second, switch = third(by_load, "b"), third(by_load)
    second.handle(PartnerSaid("c", idle, busy), 100)
    switch.handle(PartnerSaid("b", busy, idle), 100)
    assert second.handle(PartnerMissed("a", busy), 200) == []
    assert switch.handle(PartnerMissed("a", idle), 200) == [Wake()]
    # Nearly the same is the same: then the ring decides.
    second = third(by_load, "b")
    second.handle(PartnerSaid("c", replace(HELD, load=210), replace(HELD, load=290)), 100)
    assert second.handle(PartnerMissed("a", replace(HELD, load=290)), 200) == [Wake()]


def test_a_copy_without_a_disk_begins_empty_only_when_all_others_have_nothing_twice() -> None:
    switch, _ = begun("a", replace(THREE, persist=False), NOTHING)
    for at, peer in enumerate("bbcc"):
        assert switch.handle(PartnerSaid(peer, NOTHING, NOTHING), at) == []
    assert switch.handle(PartnerSaid("b", NOTHING, NOTHING), 9) == [Wake()]
    late, _ = begun("a", replace(THREE, persist=False), NOTHING)
    late.handle(PartnerSaid("b", NOTHING, NOTHING), 1)
    held = says(CopyState.SUSPENDED, 300)
    assert late.handle(PartnerSaid("c", held, NOTHING), 2) == [ReadState("c")]


def test_a_copy_at_home_takes_its_work_back_when_it_was_well_for_a_while() -> None:
    home = replace(THREE, returns=True, checkpoint_interval_us=100)
    switch, _ = begun("a", home, HELD)
    primary = says(CopyState.PRIMARY, 5_000, term=1)
    mine = says(CopyState.AWAKE, 5_000, term=1)
    switch.handle(PartnerSaid("b", primary, mine), 10)
    assert switch.state is CopyState.SUSPENDED
    old, fresh = says(CopyState.SUSPENDED, 3_000, term=1), says(CopyState.SUSPENDED, 4_900, term=1)
    assert switch.handle(PartnerSaid("b", primary, old), 20) == []
    assert switch.handle(PartnerSaid("b", primary, fresh), 5_500) == []
    assert switch.handle(PartnerSaid("b", primary, fresh), 10_499) == []
    assert switch.handle(PartnerSaid("b", primary, fresh), 10_500) == [Wake()]
    assert (switch.state, switch.term) == (CopyState.PRIMARY, 3)
    switch.validate()


# -- who goes and comes -------------------------------------------------------------------


def test_a_copy_that_is_about_to_go_does_not_go_home() -> None:
    home = replace(THREE, returns=True, checkpoint_interval_us=100)
    switch, _ = begun("a", home, HELD)
    primary = says(CopyState.PRIMARY, 5_000, term=1)
    switch.handle(PartnerSaid("b", primary, says(CopyState.AWAKE, 5_000, term=1)), 10)
    fresh = says(CopyState.SUSPENDED, 4_900, term=1)
    switch.handle(CopiesChanged(home, frozenset("a"), fresh), 20)
    for now in (30, 10_500, 20_000):
        assert switch.handle(PartnerSaid("b", primary, fresh), now) == []
    switch.handle(CopiesChanged(home, frozenset(), fresh), 20_010)
    assert switch.handle(PartnerSaid("b", primary, fresh), 20_020) == []
    assert switch.handle(PartnerSaid("b", primary, fresh), 25_020) == [Wake()]


def test_a_copy_takes_over_from_a_primary_that_is_about_to_go_which_runs_until_then() -> None:
    switch = sleeping(PASSIVE)
    leaving = CopiesChanged(PASSIVE, frozenset({"a"}), HELD)
    assert switch.handle(leaving, 100) == [Wake()]
    assert (switch.state, switch.term) == (CopyState.PRIMARY, 1)
    first, _ = begun("a", PASSIVE, HELD)
    first.handle(CopiesChanged(PASSIVE, frozenset({"a"}), HELD), 100)
    assert (first.state, first.term) == (CopyState.PRIMARY, 0), "nobody has taken over yet"
    mine = says(CopyState.PRIMARY, 500)
    starts = says(CopyState.PRIMARY, 100, term=1, ready=False)
    assert first.handle(said(first, starts, mine), 200) == []
    assert first.state is CopyState.AWAKE
    assert first.handle(said(first, says(CopyState.PRIMARY, 490, term=1), mine), 300) == [Sleep()]


def test_a_copy_that_is_alone_is_the_primary_at_once_also_when_it_starts() -> None:
    switch = sleeping(HYBRID)
    gone = CopiesChanged(HYBRID, frozenset({"a"}), HELD)
    assert switch.handle(gone, 100) == [Wake()]
    again = StandbySwitch("b", HYBRID, 20)
    again.handle(gone, 200)
    assert again.handle(Begun(HELD), 200) == [Wake()]


def test_one_that_arrives_is_no_primary_to_wait_for() -> None:
    switch, _ = begun("b", HYBRID, HELD)  # it has forgotten the term
    arrives = replace(NOTHING, arrives=True)
    assert switch.handle(said(switch, arrives, HELD), 100) == [Wake()]
    assert switch.term == 1
    # The other one hears of the term while it joins, and stands by with what it is lent.
    other = StandbySwitch("a", HYBRID, 20)
    assert other.handle(TermHeard("b", 1), 100) == []
    assert other.handle(Begun(HELD), 200) == []
    assert other.state is CopyState.SUSPENDED


def test_a_new_copy_has_the_place_of_the_one_that_went() -> None:
    def copies(known: Membership, settings: StandbySettings = HYBRID) -> tuple[str, ...]:
        return settings.among(known).copies

    moved = Membership().with_in_place_of("c", "b", "a")
    assert (moved.epoch, copies(moved)) == (1, ("c", "b"))
    alone = moved.without("b")
    assert copies(alone) == ("c", "b"), "nobody has its place"
    filled = alone.with_another("d", "c")
    assert copies(filled) == ("c", "d")
    both = filled.with_in_place_of("e", "d", "c").with_in_place_of("f", "e", "d")
    assert copies(both) == ("e", "f")
    # Whoever starts with the places as they are comes to the same.
    for since in (moved, filled, both):
        assert copies(both, HYBRID.among(since)) == ("e", "f")
    assert both.without_soon("e").leaves_since("e") == both.epoch + 1
