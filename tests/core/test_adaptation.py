"""Replicas move for what lasts, and seldom."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from holdfast.core.adaptation import Adaptation, AdaptationSettings, Move
from holdfast.core.placement import Choice, Flow, Placement, Query, Site

SECOND = 1_000_000
SETTINGS = AdaptationSettings(gain=0.25, least=1.0, hold_us=60 * SECOND, rest_us=300 * SECOND)


def choice(cost: float, better: float, there: str = "b") -> Choice:
    return Choice("main", "a", cost, (there, better), {})


def looks(adaptation: Adaptation, choices: list[list[Choice]], first_s: int = 0) -> list[int]:
    """The seconds at which something moves, with one look a second."""
    moved = []
    for second, each in enumerate(choices, first_s):
        if adaptation.look(each, second * SECOND) is not None:
            moved.append(second)
    return moved


def test_a_better_server_must_stay_better() -> None:
    assert looks(Adaptation(SETTINGS), [[choice(100.0, 50.0)]] * 100) == [60]


def test_one_look_at_which_it_is_not_begins_anew() -> None:
    series = [[choice(100.0, 50.0)]] * 59 + [[choice(100.0, 90.0)]] + [[choice(100.0, 50.0)]] * 59
    assert looks(Adaptation(SETTINGS), series) == []
    # So does another server.
    series = [[choice(100.0, 50.0, "b")]] * 40 + [[choice(100.0, 50.0, "c")]] * 40
    assert looks(Adaptation(SETTINGS), series) == []


def test_little_is_not_worth_a_move() -> None:
    assert looks(Adaptation(SETTINGS), [[choice(100.0, 80.0)]] * 100) == []
    assert looks(Adaptation(SETTINGS), [[choice(1.0, 0.2)]] * 100) == []


def test_the_move_that_saves_most_comes_first_and_the_others_rest() -> None:
    adaptation = Adaptation(SETTINGS)
    both = [choice(100.0, 50.0), Choice("other", "c", 900.0, ("d", 100.0), {})]
    found = [adaptation.look(both, second * SECOND) for second in range(600)]
    moves = [(second, move) for second, move in enumerate(found) if move is not None]
    assert moves == [
        (60, Move("other", "c", "d")),
        (360, Move("other", "c", "d")),
    ]


def test_a_link_whose_delay_jumps_every_second_moves_nothing() -> None:
    series = [[choice(100.0, 10.0 if second % 2 else 200.0)] for second in range(7200)]
    assert looks(Adaptation(SETTINGS), series) == []


def test_in_a_world_that_does_not_change_moves_come_to_an_end() -> None:
    random = Random(3)
    for _ in range(4):
        names = [f"s{number}" for number in range(8)]
        delays = {
            here: {there: 0.1 if here == there else random.uniform(5, 150) for there in names}
            for here in names
        }
        flows = (Flow("x", "f", 3.0), Flow("y", "f", 1.0), Flow("f", "g", 2.0), Flow("g", "z"))
        query = Query({"x": "s0", "y": "s1", "z": "s2"}, ("f", "g"), flows)
        sites = [Site(name) for name in names]
        places = {"f": random.sample(names, 2), "g": random.sample(names, 2)}
        adaptation = Adaptation(SETTINGS)
        moves: list[int] = []
        for second in range(0, 3 * 3600, 30):
            placement = Placement(sites, delays, query, places)
            choices = [
                placement.explain(name, at) for name, found in places.items() for at in found
            ]
            move = adaptation.look(choices, second * SECOND)
            if move is not None:
                moves.append(second)
                places[move.fragment].remove(move.here)
                places[move.fragment].append(move.there)
        assert all(later - earlier >= 300 for earlier, later in pairwise(moves))
        # Nothing moves any more after the first hour.
        assert not [second for second in moves if second > 3600]


def test_settings_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="a gain between 0 and 1"):
        AdaptationSettings(gain=1.5)
