"""Who brings tuples first, and how much that counts."""

from __future__ import annotations

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

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
