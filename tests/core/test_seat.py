"""Elections and the register, one rule at a time: three seats that are handed messages."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from holdfast.core.cluster_messages import (
    Answer,
    AskVote,
    ClusterFact,
    ClusterOrder,
    ClusterRecord,
    Follow,
    Heard,
    KeepRecord,
    Lead,
    Met,
    Obey,
    Offered,
    RecordKept,
    RecordNotKept,
    Tell,
    TimePassed,
    Version,
    Vote,
)
from holdfast.core.election import ElectionState, ElectionTiming
from holdfast.core.machine import PeerError
from holdfast.core.seat import Seat

VOTERS = ("a", "b", "c")
SILENCE = ElectionTiming().silence_us
LATER = 3 * SILENCE


def seat(name: str = "a", found: ClusterRecord | None = None) -> Seat:
    return Seat(name, ElectionTiming(), lambda: 0.5, found or ClusterRecord(voters=VOTERS), 0)


def told(orders: Iterable[ClusterOrder]) -> dict[str, object]:
    return {order.to: order.message for order in orders if isinstance(order, Tell)}


def kept(one: Seat, orders: list[ClusterOrder], now: int) -> list[ClusterOrder]:
    """Write what is to be written; what comes of it."""
    found = list(orders)
    for order in orders:
        if isinstance(order, KeepRecord):
            found += kept(one, one.handle(RecordKept(order.number), now), now)
    return found


def does(one: Seat, fact: ClusterFact, now: int) -> list[ClusterOrder]:
    return kept(one, one.handle(fact, now), now)


def elected(one: Seat, now: int = LATER) -> list[ClusterOrder]:
    """Have it elected by "b"."""
    does(one, TimePassed(), now)
    term = one.election.term + 1
    does(one, Heard("b", Vote(term, term - 1, True, is_trial=True)), now)
    orders = does(one, Heard("b", Vote(term, term, True, is_trial=False)), now)
    assert one.election.is_coordinating
    return orders


def test_nothing_is_asked_for_while_a_coordinator_speaks() -> None:
    one = seat()
    for now in range(0, LATER, SILENCE // 5):
        assert does(one, Heard("b", Lead(1, Version(), Version())), now)
        assert AskVote not in map(type, told(does(one, TimePassed(), now)).values())
    assert one.election.coordinator == "b"


def test_a_trial_comes_first_and_takes_no_term() -> None:
    one = seat()
    asked = told(does(one, TimePassed(), LATER))
    assert asked == {name: AskVote(1, Version(), is_trial=True) for name in ("b", "c")}
    assert one.election.term == 0
    orders = one.handle(Heard("b", Vote(1, 0, True, is_trial=True)), LATER)
    # Its own vote is on disk before anybody is asked for one.
    assert not told(orders)
    assert told(kept(one, orders, LATER))["c"] == AskVote(1, Version(), is_trial=False)


def test_a_vote_is_on_disk_before_it_is_given_and_is_given_once() -> None:
    one = seat()
    orders = one.handle(Heard("b", AskVote(4, Version(), is_trial=False)), LATER)
    record = next(order.record for order in orders if isinstance(order, KeepRecord))
    assert (record.term, record.voted_for) == (4, "b")
    assert not told(orders)
    assert told(kept(one, orders, LATER)) == {"b": Vote(4, 4, True, is_trial=False)}
    refused = told(does(one, Heard("c", AskVote(4, Version(), is_trial=False)), LATER))
    assert refused == {"c": Vote(4, 4, False, is_trial=False)}
    # And not after a restart either.
    again = seat(found=record)
    asked = Heard("c", AskVote(4, Version(), is_trial=False))
    assert told(does(again, asked, LATER)) == {"c": Vote(4, 4, False, is_trial=False)}


def test_nobody_votes_while_a_coordinator_is_heard_nor_for_one_who_knows_less() -> None:
    one = seat()
    does(one, Heard("b", Lead(3, Version(3, 1), Version(), "value", VOTERS)), 0)
    for is_trial in (True, False):
        asked = Heard("c", AskVote(4, Version(3, 9), is_trial))
        assert told(does(one, asked, 1)) == {"c": Vote(4, 3, False, is_trial)}
    behind = Heard("c", AskVote(4, Version(2, 9), is_trial=False))
    assert told(does(one, behind, LATER)) == {"c": Vote(4, 4, False, is_trial=False)}


def test_a_lower_term_is_refused_and_told_so() -> None:
    one = seat(found=ClusterRecord(5, "", Version(), "", VOTERS))
    answer = told(does(one, Heard("b", Lead(4, Version(4, 1), Version(), "old", VOTERS)), 0))
    assert answer == {"b": Follow(5, Version())}
    assert one.register.value == ""
    leading = seat()
    elected(leading)
    does(leading, Heard("b", Follow(5, Version())), LATER)
    assert not leading.election.is_coordinating


def test_two_coordinators_of_one_term_are_no_accident() -> None:
    one = seat()
    does(one, Heard("b", Lead(1, Version(), Version())), 0)
    with pytest.raises(PeerError, match="forgotten its vote"):
        one.handle(Heard("c", Lead(1, Version(), Version())), 0)


def test_a_coordinator_without_a_majority_steps_down() -> None:
    one = seat()
    elected(one)
    does(one, TimePassed(), LATER + SILENCE - 1)
    assert one.election.is_coordinating
    does(one, Offered(7, one.register.version, "mine"), LATER + SILENCE - 1)
    orders = does(one, TimePassed(), LATER + SILENCE + 1)
    assert one.election.state is ElectionState.FOLLOWING
    assert not one.has_majority
    # Nobody knows what becomes of what it had offered.
    assert [order.is_known for order in orders if isinstance(order, Answer)] == [False]
    refused = does(one, Offered(8, one.register.version, "more"), LATER + SILENCE + 2)
    assert "nobody does now" in next(each.why for each in refused if isinstance(each, Answer))


def test_an_offer_is_acknowledged_when_a_majority_has_it_on_disk() -> None:
    one = seat()
    elected(one)
    does(one, Heard("b", Follow(1, Version(1, 1))), LATER)
    orders = one.handle(Offered(7, Version(1, 1), "mine"), LATER)
    assert told(orders)["b"] == Lead(1, Version(1, 2), Version(1, 1), "mine", VOTERS)
    # "b" has it, and this server's own disk has not yet.
    orders += one.handle(Heard("b", Follow(1, Version(1, 2))), LATER)
    assert not [order for order in orders if isinstance(order, Answer | Obey)]
    orders = kept(one, orders, LATER)
    assert Answer(7, Version(1, 2)) in orders
    assert Obey(Version(1, 2), "mine") in orders


def test_what_an_older_term_left_is_settled_under_the_new_one_only() -> None:
    found = ClusterRecord(1, "", Version(1, 5), "left", VOTERS)
    one = seat(found=found)
    orders = elected(one)
    assert told(orders)["b"] == Lead(2, Version(2, 6), Version(), "left", VOTERS)
    # That everybody has the older version settles nothing.
    orders = does(one, Heard("b", Follow(2, Version(1, 5))), LATER)
    assert not [order for order in orders if isinstance(order, Obey)]
    orders = does(one, Heard("b", Follow(2, Version(2, 6))), LATER)
    assert Obey(Version(2, 6), "left") in orders


def test_an_offer_that_rests_on_an_older_version_is_refused() -> None:
    one = seat()
    elected(one)
    does(one, Offered(7, Version(1, 1), "mine"), LATER)
    orders = does(one, Offered(8, Version(1, 1), "undoes mine"), LATER)
    assert "read that one and try again" in next(
        order.why for order in orders if isinstance(order, Answer)
    )


def test_a_disk_that_fails_holds_promises_back_and_is_tried_again() -> None:
    one = seat()
    orders = one.handle(Heard("b", AskVote(1, Version(), is_trial=False)), LATER)
    number = next(order.number for order in orders if isinstance(order, KeepRecord))
    assert not told(one.handle(RecordNotKept(number), LATER))
    orders = one.handle(TimePassed(), LATER + 1)
    assert told(kept(one, orders, LATER + 1)) == {"b": Vote(1, 1, True, is_trial=False)}


def test_those_without_a_vote_are_told_and_never_stand() -> None:
    one = seat("guest")
    assert not told(does(one, TimePassed(), LATER))
    word = Lead(1, Version(1, 1), Version(1, 1), "value", VOTERS)
    orders = does(one, Heard("a", word), LATER)
    assert told(orders) == {"a": Follow(1, Version(1, 1))}
    assert Obey(Version(1, 1), "value") in orders
    leading = seat()
    does(leading, Met(("guest",)), 0)
    assert "guest" in told(elected(leading))


def test_voters_change_by_one_at_a_time() -> None:
    one = seat()
    elected(one)

    def why(voters: tuple[str, ...]) -> str:
        orders = does(one, Offered(1, one.register.version, "", voters), LATER)
        return next((order.why for order in orders if isinstance(order, Answer)), "")

    # A server that is to vote is there before it does.
    does(one, Heard("d", Follow(1, Version())), LATER)
    assert "only when a majority has the last" in why(("a", "b", "c", "d"))
    does(one, Heard("b", Follow(1, one.register.version)), LATER)
    assert "one server at a time" in why(("a", "b", "d"))
    assert "its own vote" in why(("b", "c"))
    assert why(("a", "b", "c", "d")) == ""
    assert one.register.voters == ("a", "b", "c", "d")
    # Four vote now: two are no majority any more.
    does(one, Heard("b", Follow(1, one.register.version)), LATER)
    assert one.register.settled < one.register.version
    does(one, Heard("d", Follow(1, one.register.version)), LATER)
    assert one.register.settled == one.register.version


def test_one_of_two_manages_nothing() -> None:
    found = ClusterRecord(voters=("a", "b"))
    one = seat(found=found)
    for step in range(1, 20):
        does(one, TimePassed(), step * SILENCE)
        assert not one.election.is_coordinating
        assert not one.has_majority
    assert one.election.term == 0
