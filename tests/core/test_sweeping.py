"""When checkpoints go out."""

from __future__ import annotations

from holdfast.core.messages import Refusal
from holdfast.core.settings import Checkpointing
from holdfast.core.sweeping import (
    PATIENCE_US,
    PAUSE_US,
    CheckpointerState,
    Grown,
    Look,
    Numbers,
    PartnerAnew,
    Refused,
    Ship,
    SweepingCheckpointer,
    Taken,
    Trimmed,
)

INTERVAL_US = 1_000


def make(how: Checkpointing = Checkpointing.SWEEPING) -> tuple[SweepingCheckpointer, Ship]:
    """One whose first checkpoint is under way since time 0."""
    made = SweepingCheckpointer("a", how, INTERVAL_US, Numbers(0, 1))
    (first,) = made.handle(Look(10), 0)
    assert first.base is None
    return made, first


def test_a_checkpoint_follows_a_trim() -> None:
    made, first = make()
    made.handle(Taken(first.number), 10)
    assert made.handle(Look(20), 1_000) == []  # nothing was trimmed
    made.handle(Trimmed(), 1_100)
    (second,) = made.handle(Look(20), 1_100)
    assert second.base == first.number
    assert second.number > first.number


def test_trims_closer_than_the_interval_share_a_checkpoint() -> None:
    made, first = make()
    made.handle(Taken(first.number), 10)
    made.handle(Trimmed(), 200)
    assert made.handle(Look(20), 200) == []
    assert made.deadline == INTERVAL_US
    assert len(made.handle(Look(20), INTERVAL_US)) == 1


def test_a_checkpoint_waits_until_new_results_are_trimmed() -> None:
    made, first = make()
    made.handle(Taken(first.number), 10)
    made.handle(Trimmed(), 200)
    made.handle(Grown(), INTERVAL_US)
    assert made.handle(Look(20), INTERVAL_US) == []
    made.handle(Trimmed(), INTERVAL_US + 100)
    assert len(made.handle(Look(20), INTERVAL_US + 100)) == 1


def test_without_trims_it_waits_twice_as_long() -> None:
    made, first = make()
    made.handle(Taken(first.number), 10)
    assert made.deadline == 2 * INTERVAL_US
    assert len(made.handle(Look(20), 2 * INTERVAL_US)) == 1


def test_nothing_new_is_not_sent() -> None:
    made, first = make()
    made.handle(Taken(first.number), 10)
    made.handle(Trimmed(), 5_000)
    assert made.handle(Look(10), 5_000) == []


def test_one_is_under_way_at_a_time_until_it_is_given_up() -> None:
    made, _ = make(Checkpointing.INDIVIDUAL)
    assert made.handle(Look(20), 5_000) == []
    (second,) = made.handle(Look(20), PATIENCE_US)
    assert second.base is None
    assert made.handle(Look(30), 2 * PATIENCE_US) == [], "the second may take twice as long"
    made.handle(Taken(second.number), 2 * PATIENCE_US)
    assert (made.base, made.confirmed) == (second.number, 20)


def test_one_that_is_taken_after_it_was_given_up_is_there_to_build_on() -> None:
    made, first = make(Checkpointing.INDIVIDUAL)
    (second,) = made.handle(Look(20), PATIENCE_US)
    made.handle(Taken(first.number), PATIENCE_US + 1)
    assert (made.base, made.confirmed) == (first.number, 10)
    assert made.state is CheckpointerState.SHIPPING, "the second is still under way"
    made.handle(Taken(second.number), PATIENCE_US + 2)
    assert (made.base, made.confirmed) == (second.number, 20)
    made.handle(Taken(first.number), PATIENCE_US + 3)
    assert made.base == second.number, "what is said of the first is old"


def test_whole_ones_that_take_long_are_sent_once_and_then_changes() -> None:
    """The other copy holds each 7 s after it was sent, and has nothing to say before."""
    took_us = 7_000_000
    made, first = make(Checkpointing.INDIVIDUAL)
    sent, at = [(first, took_us)], 0
    under_way = list(sent)
    while at < 60_000_000:
        at += 100_000
        for ship, due in [one for one in under_way if one[1] <= at]:
            under_way.remove((ship, due))
            made.handle(Taken(ship.number), at)
        for ship in made.handle(Look(at), at):
            sent.append((ship, at + took_us))
            under_way.append(sent[-1])
    assert sum(ship.base is None for ship, _ in sent) <= 3
    assert sent[-1][0].base is not None
    assert made.confirmed > 40_000_000
    assert len(sent) < 15, "each is given as long as the one before it took, and more"


def test_what_was_built_on_a_base_that_was_replaced_meanwhile_is_no_reason_for_a_whole_one() -> (
    None
):
    made, first = make(Checkpointing.INDIVIDUAL)
    made.handle(Taken(first.number), 10)
    (second,) = made.handle(Look(20), 1_000)
    (third,) = made.handle(Look(30), 1_000 + PATIENCE_US)
    assert second.base == third.base == first.number
    made.handle(Taken(second.number), 1_001 + PATIENCE_US)
    made.handle(Refused(third.number, Refusal.WHOLE_NEEDED), 1_002 + PATIENCE_US)
    (fourth,) = made.handle(Look(40), 3_000 + PATIENCE_US)
    assert fourth.base == second.number


def test_after_a_failure_it_rests_for_as_long_as_that_took() -> None:
    made, first = make(Checkpointing.INDIVIDUAL)
    made.handle(Refused(first.number, Refusal.FAILED), 2_500_000)
    assert made.handle(Look(20), 4_999_999) == []
    assert made.deadline == 5_000_000
    assert len(made.handle(Look(20), 5_000_000)) == 1


def test_a_failure_told_after_a_long_absence_is_no_reason_to_rest_as_long() -> None:
    made, first = make(Checkpointing.INDIVIDUAL)
    # Nobody looked meanwhile: the other copy could not be reached.
    away = 20 * PATIENCE_US
    made.handle(Refused(first.number, Refusal.FAILED), away)
    assert made.deadline == away + PATIENCE_US
    assert len(made.handle(Look(20), away + PATIENCE_US)) == 1


def test_a_missing_base_is_followed_by_a_whole_checkpoint() -> None:
    made, first = make(Checkpointing.INDIVIDUAL)
    made.handle(Taken(first.number), 10)
    (second,) = made.handle(Look(20), 1_000)
    made.handle(Refused(second.number, Refusal.WHOLE_NEEDED), 1_010)
    (third,) = made.handle(Look(30), 2_000)
    assert (second.base, third.base) == (first.number, None)
    made.handle(Taken(third.number), 2_010)
    made.handle(PartnerAnew(), 2_020)
    assert made.base is None


def test_a_synchronous_checkpoint_stops_processing_until_it_is_held() -> None:
    made, first = make(Checkpointing.SYNCHRONOUS)
    assert made.pauses(1)
    made.handle(Taken(first.number), 10)
    assert not made.pauses(11)
    made.handle(Look(20), INTERVAL_US)
    assert made.state is CheckpointerState.SHIPPING
    assert made.pauses(INTERVAL_US + PAUSE_US - 1)
    assert not made.pauses(INTERVAL_US + PAUSE_US)


def test_numbers_of_checkpoints_are_nobody_elses() -> None:
    copies = [Numbers(at, 3) for at in range(3)]
    found = [one.next(now) for now in (5, 5, 6, 100, 3) for one in copies]
    assert len(set(found)) == len(found)
    for one in copies:
        assert one.next(1_000) >= 1_000
