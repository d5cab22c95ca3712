"""Where replicas are placed, and why."""

from __future__ import annotations

from itertools import product
from random import Random

from holdfast.core.placement import Delays, Flow, Placement, Query, Site

# Four servers on a line, ten apart.
LINE = ("a", "b", "c", "d")


def line(names: tuple[str, ...] = LINE) -> Delays:
    return {
        here: {there: 10.0 * abs(x - y) for y, there in enumerate(names)}
        for x, here in enumerate(names)
    }


def chain(source: str, client: str, rate_in: float = 1.0, rate_out: float = 1.0) -> Query:
    flows = (Flow("source", "main", rate_in), Flow("main", "screen", rate_out))
    return Query({"source": source, "screen": client}, ("main",), flows)


def sites(*zones: str, room: int = 9) -> list[Site]:
    return [Site(name, zone, room) for name, zone in zip(LINE, zones or ("",) * 4, strict=True)]


def test_a_replica_is_where_the_heavier_stream_is_short() -> None:
    heavy_input = Placement(sites(), line(), chain("a", "d", 10.0, 1.0)).place(1)
    assert heavy_input.places == {"main": ("a",)}
    assert heavy_input.cost == 30.0
    heavy_output = Placement(sites(), line(), chain("a", "d", 1.0, 10.0)).place(1)
    assert heavy_output.places == {"main": ("d",)}


def test_replicas_of_a_fragment_share_no_server_and_no_zone() -> None:
    placed = Placement(sites("x", "x", "y", "y"), line(), chain("a", "a")).place(3)
    assert placed.places == {"main": ("a", "c")}
    assert placed.lacking == {"main": 1}


def test_a_busy_server_is_ruled_out_and_room_is_shared_by_fragments() -> None:
    busy = [Site("a", room=0), *(Site(name) for name in LINE[1:])]
    assert Placement(busy, line(), chain("a", "a")).place(1).places == {"main": ("b",)}
    flows = (Flow("source", "one"), Flow("source", "two"))
    query = Query({"source": "a"}, ("one", "two"), flows)
    placed = Placement(sites(room=1), line(), query).place(1).places
    assert {*placed["one"], *placed["two"]} == {"a", "b"}


def test_replicas_that_are_there_stay_and_others_are_added() -> None:
    placed = Placement(sites(), line(), chain("a", "a"), {"main": ["d"]}).place(2)
    assert placed.places == {"main": ("d", "a")}
    gone = Placement(sites()[:2], line(), chain("a", "a"), {"main": ["d"]}).place(2)
    assert gone.places == {"main": ("d", "a")}  # "d" is no server any more, and is counted


def test_neighbours_that_hold_each_other_back_are_moved_together() -> None:
    flows = (Flow("source", "one", 1.0), Flow("one", "two", 100.0), Flow("two", "screen", 2.0))
    query = Query({"source": "a", "screen": "d"}, ("one", "two"), flows)
    assert Placement(sites(), line(), query).place(1).places == {"one": ("d",), "two": ("d",)}


def test_no_placement_of_small_networks_is_cheaper() -> None:
    random = Random(7)
    for _ in range(30):
        names = tuple("abcde")
        delays = {
            here: {there: 0.0 if here == there else random.uniform(1, 100) for there in names}
            for here in names
        }
        flows = tuple(
            Flow(here, there, random.uniform(0.1, 5.0))
            for here, there in (("s", "f"), ("t", "f"), ("f", "g"), ("t", "g"), ("g", "z"))
        )
        query = Query({"s": "a", "t": "b", "z": "e"}, ("f", "g"), flows)
        places = [Site(name) for name in names]
        found = Placement(places, delays, query).place(1).cost
        least = min(
            Placement(places, delays, query, {"f": [f], "g": [g]}).cost()
            for f, g in product(names, names)
        )
        assert found <= least + 1e-6


def test_it_says_why() -> None:
    query = chain("a", "a", 1.0, 1.0)
    placement = Placement([*sites("", "", "", "")[:3], Site("d", room=0)], line(), query)
    placement.place(2)
    choice = placement.explain("main", "b")
    assert choice.cost == 20.0
    assert choice.runner_up == ("c", 40.0)
    assert choice.ruled_out == {"a": "has a replica of the fragment", "d": "is too busy"}
