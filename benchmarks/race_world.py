"""A wide-area world on one machine: places, and how long a message takes between them.

Made of cities: great circles, light in fibre (200 km a millisecond) on roads that are half as long
again, and a last mile at either end. Or measured: a matrix of round trips in milliseconds, a row
for each machine, 0 or less where nothing was measured.

Of either, eight places are drawn whose links all take from 20 to 150 ms one way: three sites with
replicas, four with sources, one with the application.
"""

from __future__ import annotations

import gzip
import math
import random
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt

SHORTEST_MS, LONGEST_MS = 20.0, 150.0
JITTER_MS = 8.0
# Within one place.
LOCAL_MS = 0.3
_KM_PER_MS = 200.0
_DETOUR = 1.5
_LAST_MILE_MS = (1.0, 8.0)
_EARTH_KM = 6_371.0

# Degrees north and east.
CITIES: Mapping[str, tuple[float, float]] = {
    "amsterdam": (52.4, 4.9),
    "auckland": (-36.8, 174.8),
    "bogota": (4.7, -74.1),
    "boston": (42.4, -71.1),
    "cairo": (30.0, 31.2),
    "chicago": (41.9, -87.6),
    "dakar": (14.7, -17.5),
    "dallas": (32.8, -96.8),
    "delhi": (28.6, 77.2),
    "helsinki": (60.2, 24.9),
    "johannesburg": (-26.2, 28.0),
    "kyoto": (35.0, 135.8),
    "lagos": (6.5, 3.4),
    "lima": (-12.0, -77.0),
    "madrid": (40.4, -3.7),
    "mexico-city": (19.4, -99.1),
    "moscow": (55.8, 37.6),
    "mumbai": (19.1, 72.9),
    "nairobi": (-1.3, 36.8),
    "perth": (-31.9, 115.9),
    "reykjavik": (64.1, -21.9),
    "san-diego": (32.7, -117.2),
    "santiago": (-33.4, -70.7),
    "sao-paulo": (-23.6, -46.6),
    "seattle": (47.6, -122.3),
    "seoul": (37.6, 127.0),
    "singapore": (1.4, 103.8),
    "sydney": (-33.9, 151.2),
    "taipei": (25.0, 121.6),
    "tel-aviv": (32.1, 34.8),
    "vancouver": (49.3, -123.1),
    "warsaw": (52.2, 21.0),
}

Matrix = npt.NDArray[np.float64]


def made(random_: random.Random) -> tuple[list[str], Matrix]:
    """The cities, and the milliseconds between them, one way."""
    names = list(CITIES)
    miles = [random_.uniform(*_LAST_MILE_MS) for _ in names]
    found = np.zeros((len(names), len(names)))
    for row, here in enumerate(names):
        for column, there in enumerate(names):
            fibre = _DETOUR * _great_circle_km(CITIES[here], CITIES[there]) / _KM_PER_MS
            found[row, column] = fibre + miles[row] + miles[column]
    return names, found


def _great_circle_km(one: tuple[float, float], other: tuple[float, float]) -> float:
    north, east = math.radians(one[0]), math.radians(one[1])
    north_2, east_2 = math.radians(other[0]), math.radians(other[1])
    half = (
        math.sin((north_2 - north) / 2) ** 2
        + math.cos(north) * math.cos(north_2) * math.sin((east_2 - east) / 2) ** 2
    )
    return 2 * _EARTH_KM * math.asin(math.sqrt(half))


def measured(path: Path) -> tuple[list[str], Matrix]:
    """The machines of a file of round trips, and half of each."""
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    rows = [[float(each) for each in line.split()] for line in text.decode().splitlines() if line]
    if not rows or any(len(row) != len(rows) for row in rows):
        raise SystemExit(f"{path} is no square matrix of numbers")
    return [f"machine-{index}" for index in range(len(rows))], np.array(rows) / 2


def draw_places(
    names: list[str], matrix: Matrix, count: int, random_: random.Random
) -> tuple[list[str], dict[tuple[str, str], float]]:
    """So many places whose links are neither short nor long, and the milliseconds between them."""
    fits = (matrix >= SHORTEST_MS) & (matrix <= LONGEST_MS)
    fits &= fits.T
    for _ in range(10_000):
        chosen: list[int] = []
        left = list(range(len(names)))
        while left and len(chosen) < count:
            place = random_.choice(left)
            chosen.append(place)
            left = [each for each in left if fits[place, each]]
        if len(chosen) == count:
            break
    else:
        raise SystemExit(
            f"there are no {count} places whose links all take {SHORTEST_MS:g} to "
            f"{LONGEST_MS:g} ms one way"
        )
    found = {
        (names[here], names[there]): LOCAL_MS if here == there else float(matrix[here, there])
        for here in chosen
        for there in chosen
    }
    return [names[each] for each in chosen], found


def matrix_text(places: list[str], matrix: Mapping[tuple[str, str], float]) -> str:
    """The matrix as a deployment names it."""
    lines = [" ".join(["", *places])]
    for here in places:
        lines.append(" ".join([here, *(f"{matrix[here, there]:.2f}" for there in places)]))
    return "\n".join(lines) + "\n"
