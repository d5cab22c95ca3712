"""A tuple is known by its id at the source and the trail it came by."""

from __future__ import annotations

import pytest

from holdfast.core.machine import PeerError
from holdfast.core.provenance import ALONE, TIMED, Choice, Claim, Trail


def test_routes_follow_on_each_other() -> None:
    # The second of three, then the first of two.
    trail = Trail().then(Trail(2, 1)).then(Trail(1, 0))
    assert trail == Trail(3, 0b010)
    assert trail.seq(5) == 0b101_010
    assert trail.id_of(0b101_010) == 5
    assert trail.id_of(0b101_011) is None
    claim = Claim(Trail(2, 1), 3, 9, 77)
    assert claim.then(Trail(1, 0)) == Claim(trail, 3, 9, 77)


def test_a_choice_takes_what_is_named_or_the_rest() -> None:
    claims = (Claim(Trail(1, 0), 2, 4, 0), Claim(Trail(1, 1), 0, 1, 0))
    named = [4, 6, 1]
    assert [seq for seq in range(8) if Choice(claims, inside=True).takes(seq, 0)] == sorted(named)
    rest = [seq for seq in range(8) if Choice(claims, inside=False).takes(seq, 0)]
    assert rest == [seq for seq in range(8) if seq not in named]


def test_behind_a_memory_tuples_are_known_by_their_times() -> None:
    trail = TIMED.then(Trail(1, 1))
    assert trail == Trail(1, 1, timed=True)
    assert trail.place_of(0b111, 40) == 40
    assert trail.place_of(0b110, 40) is None
    # Ids and times of trails that look alike are different things.
    claims = (Claim(trail, 30, 50, 49), Claim(Trail(1, 0), 0, 2, 49))
    choice = Choice(claims, inside=True)
    assert choice.takes(0b111, 49)
    assert not choice.takes(0b111, 50)
    assert choice.takes(0b10, 50)
    assert not choice.takes(0b100, 40)


def test_a_pair_is_claimed_alone_by_its_seq_and_its_time() -> None:
    hashed = -(5 << 40) - 9
    trail = TIMED.singly
    assert trail == Trail(alone=True)
    claim = Claim(trail, hashed & ALONE, (hashed & ALONE) + 1, 40)
    assert claim.names(hashed, 40)
    assert not claim.names(hashed, 41)
    assert not claim.names(hashed + 1, 40)
    # Behind a union it is what it is there; the highest bits go.
    branch = Trail(2, 3)
    behind = claim.then(branch)
    assert behind.trail == TIMED.then(branch).singly
    assert behind.names(hashed << 2 | 3, 40)
    assert not behind.names(hashed << 2 | 1, 40)
    # A claim of times holds what was claimed alone.
    times = Choice((Claim(TIMED, 0, 100, 99),), inside=True, but=(claim,))
    assert times.takes(hashed, 39)
    assert not times.takes(hashed, 40)


@pytest.mark.parametrize(
    "claim",
    [
        Claim(Trail(alone=True), 3, 5, 0),
        Claim(Trail(alone=True), ALONE + 1, ALONE + 2, 0),
        Claim(Trail(64, 0), 0, 1, 0),
        Claim(Trail(1, 2), 0, 1, 0),
        Claim(Trail(-1, 0), 0, 1, 0),
        Claim(Trail(), 3, 3, 0),
        Claim(Trail(), -1, 3, 0),
    ],
)
def test_claims_that_cannot_be_are_refused(claim: Claim) -> None:
    with pytest.raises(PeerError, match="cannot have the results"):
        claim.check("somebody")
