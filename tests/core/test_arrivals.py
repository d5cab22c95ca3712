from __future__ import annotations

from random import Random

from holdfast.core.arrivals import Arrivals


def look_at(arrivals: Arrivals) -> int | None:
    return arrivals.since


def test_what_is_kept_counts_from_when_it_was_seen_first() -> None:
    arrivals = Arrivals()
    arrivals.look(0, 0, 50)
    assert look_at(arrivals) is None
    arrivals.look(0, 5, 100)
    arrivals.look(0, 5, 200)
    arrivals.look(0, 8, 300)
    assert (arrivals.since, arrivals.before(100), arrivals.before(101)) == (100, 0, 5)
    assert arrivals.before(301) == 8
    arrivals.look(4, 8, 400)
    assert arrivals.since == 100, "the fifth is there"
    arrivals.look(5, 8, 500)
    assert arrivals.since == 300
    arrivals.look(8, 8, 600)
    assert look_at(arrivals) is None
    arrivals.look(8, 9, 700)
    assert arrivals.since == 700


def test_what_came_long_ago_is_known_less_exactly_and_in_little_room() -> None:
    random, arrivals = Random(0), Arrivals()
    came = []
    for now in range(20_000):
        came += [now] * random.randrange(3)
        arrivals.look(0, len(came), now)
    assert len(arrivals._notes) < 700
    assert arrivals.since == 0
    first = 0
    while first < len(came):
        since = arrivals.since
        assert since is not None
        assert 0 <= since - came[first] <= 201, "a hundredth, and a look"
        first += random.randrange(1, 100)
        arrivals.look(first, len(came), 20_000)
    assert arrivals.since is None
