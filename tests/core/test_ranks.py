"""Who brings tuples first, and how much that counts."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.provenance import Claim, Trail
from holdfast.core.ranks import Ranks, shares


def test_the_first_gets_all_the_second_half() -> None:
    ranks = Ranks()
    assert shares(ranks.weights) == {}
    ranks.arrived("a", 0, 10)
    ranks.arrived("b", 0, 4)
    ranks.arrived("c", 0, 6)
    assert ranks.weights == {"a": 10, "b": 2, "c": 4 / 3 + 1}
    # Tuples that a feed brings again, because it was opened anew, count once.
    ranks.arrived("b", 0, 4)
    assert ranks.weights["b"] == 2
    ranks.arrived("b", 4, 12)
    assert ranks.weights["b"] == 2 + 2 / 3 + 4 / 2 + 2


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 5)), max_size=40))
def test_weights_are_those_of_single_tuples(steps: list[tuple[str, int]]) -> None:
    ranks = Ranks()
    reached = dict.fromkeys("abc", 0)
    brought: dict[int, int] = {}
    expected = dict.fromkeys("abc", Fraction(0))
    for peer, count in steps:
        first = reached[peer]
        for one in range(first, first + count):
            brought[one] = brought.get(one, 0) + 1
            expected[peer] += Fraction(1, brought[one])
        reached[peer] += count
        ranks.arrived(peer, first, reached[peer])
    for peer, weight in ranks.weights.items():
        assert abs(weight - expected[peer]) < 1e-9


TRAIL = Trail(1, 0)


def test_early_arrivals_count_as_those_in_order_do() -> None:
    ranks = Ranks()
    ranks.arrived_early("a", [Claim(TRAIL, 0, 10, 100)], 10, cut=0)
    ranks.arrived_early("b", [Claim(TRAIL, 5, 15, 150)], 10, cut=0)
    ranks.arrived_early("c", [Claim(TRAIL, 0, 15, 150)], 15, cut=0)
    assert ranks.weights == {"a": 10, "b": 5 / 2 + 5, "c": 5 / 2 + 5 / 3 + 5 / 2}
    # What a feed brings again, because it was opened anew, counts once; another trail is other.
    ranks.arrived_early("a", [Claim(TRAIL, 0, 10, 100)], 10, cut=0)
    assert ranks.weights["a"] == 10
    ranks.arrived_early("a", [Claim(Trail(1, 1), 0, 4, 100)], 4, cut=0)
    assert ranks.weights["a"] == 14


def test_a_claim_of_many_weighs_what_the_frame_holds() -> None:
    """Most of what is claimed may have been filtered away."""
    ranks = Ranks()
    ranks.arrived_early("a", [Claim(TRAIL, 0, 60, 9), Claim(Trail(1, 1), 0, 40, 9)], 5, cut=0)
    assert ranks.weights["a"] == 5


def test_what_the_order_stands_for_is_forgotten_and_late_ones_weigh_nothing() -> None:
    ranks = Ranks()
    ranks.arrived_early("a", [Claim(TRAIL, 0, 10, 100)], 10, cut=0)
    ranks.arrived_early("b", [Claim(TRAIL, 0, 10, 100)], 10, cut=101)
    assert ranks.weights == {"a": 10}
    assert ranks.size == 0


CLAIMS = st.tuples(st.integers(0, 20), st.integers(1, 6)).map(lambda at: (at[0], sum(at)))


@given(st.lists(st.tuples(st.sampled_from("abc"), CLAIMS), max_size=40))
def test_early_weights_are_those_of_single_tuples(
    steps: list[tuple[str, tuple[int, int]]],
) -> None:
    ranks = Ranks()
    brought: dict[int, set[str]] = {}
    expected = dict.fromkeys("abc", Fraction(0))
    for peer, (first, end) in steps:
        for one in range(first, end):
            by = brought.setdefault(one, set())
            if peer not in by:
                by.add(peer)
                expected[peer] += Fraction(1, len(by))
        ranks.arrived_early(peer, [Claim(TRAIL, first, end, end)], end - first, cut=0)
    for peer, weight in ranks.weights.items():
        assert abs(weight - expected[peer]) < 1e-9
