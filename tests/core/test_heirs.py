"""Whose work goes on where: every lost shard's, at others, and shared among them when spread."""

from __future__ import annotations

from collections import Counter
from itertools import product

import pytest

from holdfast.core.heirs import SPREAD_OVER, Heirs, parts_of, places_of

RINGS = [*range(2, 9), 50, 341]


@pytest.mark.parametrize("shards", RINGS)
@pytest.mark.parametrize("heirs", Heirs)
def test_a_lost_shards_work_goes_on_at_others_in_equal_parts(heirs: Heirs, shards: int) -> None:
    parts = parts_of(heirs, shards)
    assert parts == (min(shards - 1, SPREAD_OVER) if heirs is Heirs.SPREAD else 1)
    holds: Counter[int] = Counter()
    for shard in range(1, shards + 1):
        ring = [places_of(shard, part, shards, 2) for part in range(1, parts + 1)]
        assert {own for own, _ in ring} == {shard}
        others = [other for _, other in ring]
        # Nobody inherits twice from one, nobody from itself, and the next one always does.
        assert len({*others, shard}) == parts + 1
        assert others[0] == shard % shards + 1
        assert set(others) <= set(range(1, shards + 1))
        holds.update(others)
    # Everybody holds as much for others as others hold for it.
    assert set(holds.values()) == {parts}


def test_one_shard_is_its_own_heir_and_further_copies_follow_the_second() -> None:
    assert parts_of(Heirs.SPREAD, 1) == 1
    assert places_of(1, 1, 1, 2) == (1, 1)
    assert places_of(3, 1, 4, 3) == (3, 4, 1)


@pytest.mark.parametrize(("places", "shards"), [(3, 4), (2, 3), (2, 5), (3, 7), (4, 6)])
@pytest.mark.parametrize("heirs", Heirs)
def test_a_lost_server_takes_no_second_copy_with_it(heirs: Heirs, places: int, shards: int) -> None:
    """Where the last shard and the first one are on one server, and where neighbours are."""
    for servers in (
        [f"s{at % places}" for at in range(shards)],
        sorted(f"s{at % places}" for at in range(shards)),
    ):
        for copies, shard in product(range(2, shards), range(1, shards + 1)):
            for part in range(1, parts_of(heirs, shards) + 1):
                found = places_of(shard, part, shards, copies, servers)
                assert found[0] == shard
                assert len(set(found)) == copies
                apart = {servers[one - 1] for one in found}
                assert len(apart) == min(copies, places)


def test_copies_on_one_server_go_around_it() -> None:
    assert places_of(1, 1, 3, 2, ["s", "s", "s"]) == (1, 2)
    assert places_of(3, 2, 3, 2, [None, None, None]) == (3, 2)
    # A third copy is on a server that has one only if there is no other, and never at one shard.
    assert places_of(1, 1, 4, 3, ["a", "b", "a", "b"]) == (1, 2, 4)
    assert places_of(1, 1, 4, 3, ["a", "b", "a", "c"]) == (1, 2, 4)


@pytest.mark.parametrize("shards", [3, 4, 7])
@pytest.mark.parametrize("heirs", Heirs)
def test_no_two_copies_of_a_shard_or_part_are_at_one_place(heirs: Heirs, shards: int) -> None:
    for copies, shard in product(range(2, shards + 1), range(1, shards + 1)):
        for part in range(1, parts_of(heirs, shards) + 1):
            assert len(set(places_of(shard, part, shards, copies))) == copies
