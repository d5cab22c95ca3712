"""Servers on a plane: as far apart as their delays say, and where they were before."""

from __future__ import annotations

import math

import pytest

from holdfast.deployment_checks import coordinates
from holdfast.web.plane import Plane

# Four corners of a field of 40 ms by 30 ms.
CORNERS = {"a": (0.0, 0.0), "b": (40.0, 0.0), "c": (40.0, 30.0), "d": (0.0, 30.0)}


def delays(corners: dict[str, tuple[float, float]]) -> dict[str, dict[str, float]]:
    return {
        here: {there: math.dist(one, other) for there, other in corners.items()}
        for here, one in corners.items()
    }


def test_places_are_as_far_apart_as_delays_say() -> None:
    found = Plane().place(delays(CORNERS))
    unit = math.dist(found["a"], found["b"]) / 40.0
    for one, other in (("a", "c"), ("b", "c"), ("b", "d"), ("c", "d")):
        wanted = math.dist(CORNERS[one], CORNERS[other])
        assert math.dist(found[one], found[other]) / unit == pytest.approx(wanted, rel=0.01)
    assert all(0 <= part <= 1 for place in found.values() for part in place)


def test_nobody_moves_for_a_little_and_newcomers_leave_the_others_about_where_they_are() -> None:
    plane = Plane()
    before = plane.place(delays(CORNERS))
    jittered = {name: (x * 1.02, y) for name, (x, y) in CORNERS.items()}
    assert plane.place(delays(jittered)) == before
    after = plane.place(delays({**CORNERS, "e": (20.0, 15.0)}))
    for name in CORNERS:
        assert math.dist(before[name], after[name]) < 0.05
    # One that is gone is not drawn anew, and is where it was when it is back.
    assert plane.place(delays({"a": CORNERS["a"], "b": CORNERS["b"]}))["a"] == after["a"]


def test_a_thousand_servers_have_places_too() -> None:
    many = {f"s{each}": (float(each % 40), float(each // 40)) for each in range(1000)}
    assert len(Plane().place(delays(many))) == 1000


def test_coordinates_are_degrees() -> None:
    assert coordinates("52.52, -13.4") == (52.52, -13.4)
    for wrong in ("", "52", "91, 0", "0, 181", "north, 3"):
        with pytest.raises(ValueError, match="latitude and longitude"):
            coordinates(wrong)
