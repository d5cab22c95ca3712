"""Which servers are taken for one zone, by what was seen of them."""

from __future__ import annotations

from holdfast.core.placement import Flow, Placement, Query, Site
from holdfast.core.together import AT_ONCE_US, FailedTogether

KNOWN = tuple("abcdefgh")
TOLD = dict.fromkeys(KNOWN, "") | {"e": "boston", "f": "boston"}


class Seen:
    def __init__(self) -> None:
        self.watch = FailedTogether()
        self.now = 0

    def fail(self, *names: str, apart_us: int = 1_000_000) -> None:
        """They fall silent one after the other, and are back much later."""
        for count in range(1, len(names) + 1):
            self.now += apart_us
            self.watch.look(KNOWN, names[:count], self.now)
        for silent in (names, (), ()):
            self.now += AT_ONCE_US + 1
            self.watch.look(KNOWN, silent, self.now)


def test_once_may_be_chance_and_twice_is_a_zone() -> None:
    seen = Seen()
    seen.fail("a", "b")
    assert seen.watch.zones(TOLD) == TOLD
    seen.fail("a", "b")
    zones = seen.watch.zones(TOLD)
    assert zones["a"] == zones["b"] != ""
    assert {name: zone for name, zone in zones.items() if name not in "ab"} == {
        name: zone for name, zone in TOLD.items() if name not in "ab"
    }


def test_failures_that_are_apart_say_nothing() -> None:
    seen = Seen()
    for _ in range(3):
        seen.fail("a", "b", apart_us=2 * AT_ONCE_US)
    assert seen.watch.pairs() == []


def test_two_that_mostly_fail_alone_are_none() -> None:
    seen = Seen()
    for name in ("a", "b"):
        for _ in range(4):
            seen.fail(name)
    for _ in range(2):
        seen.fail("a", "b")
    assert seen.watch.pairs() == []


def test_who_sees_most_of_them_silent_is_cut_off_itself() -> None:
    seen = Seen()
    for _ in range(3):
        seen.fail(*KNOWN[1:], apart_us=1)
    assert seen.watch.pairs() == []


def test_zones_that_were_told_are_united_with_what_is_seen() -> None:
    seen = Seen()
    for _ in range(2):
        seen.fail("a", "e")
    zones = seen.watch.zones(TOLD)
    assert zones["a"] == zones["e"] == zones["f"]
    # And so no fragment has two replicas there.
    sites = [Site(name, zones[name]) for name in ("a", "e", "f", "b")]
    delays = {one: {other: float(one != other) for other in KNOWN} for one in KNOWN}
    query = Query({"source": "a"}, ("main",), (Flow("source", "main"),))
    assert "b" in Placement(sites, delays, query).place(2).places["main"]
