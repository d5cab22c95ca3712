"""Where servers are drawn that have no coordinates: on a plane on which they are as far from each
other as their delays say, as nearly as a plane allows.

Delays become places by classical scaling. A place on a plane may be turned and mirrored at will, so
it is turned to lie as near as it can to where servers were drawn before: nothing jumps because one
delay has changed.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

Place = tuple[float, float]
_UNKNOWN_MS = 200.0
# A delay that has changed by less than this moves nobody.
_MOVES_SHARE, _MOVES_MS = 0.25, 2.0
# More than these are too many to scale at once; the others are placed beside the nearest of them.
_SCALED = 200


class Plane:
    """The places of servers, as they were last drawn."""

    def __init__(self) -> None:
        self.places: dict[str, Place] = {}
        self._drawn: Mapping[str, Mapping[str, float]] = {}

    def place(self, delays: Mapping[str, Mapping[str, float]]) -> dict[str, Place]:
        """Places between 0 and 1; ``delays`` in milliseconds between all that are there."""
        if delays.keys() - self.places.keys() or self._have_moved(delays):
            self._drawn = {here: dict(found) for here, found in delays.items()}
            self.places = {**self.places, **self._scaled(delays)}
        return {name: self.places[name] for name in delays}

    def _have_moved(self, delays: Mapping[str, Mapping[str, float]]) -> bool:
        for here, found in delays.items():
            for there, now in found.items():
                before = self._drawn.get(here, {}).get(there)
                if before is None or abs(now - before) > _MOVES_MS + _MOVES_SHARE * before:
                    return True
        return False

    def _scaled(self, delays: Mapping[str, Mapping[str, float]]) -> dict[str, Place]:
        names = sorted(delays)
        chosen = names[:: max(1, -(-len(names) // _SCALED))]
        points = scaled(_matrix(delays, chosen))
        known = [place for place, name in enumerate(chosen) if name in self.places]
        if len(known) > 1:
            before = np.array([self.places[chosen[place]] for place in known])
            points = turned(points, known, before)
        found = {name: _place(point) for name, point in zip(chosen, points, strict=True)}
        for number, name in enumerate(names):
            if name not in found:
                near = min(chosen, key=lambda each: delays[name].get(each, _UNKNOWN_MS))
                angle = 2.399963 * number  # no two in one direction
                x, y = found[near]
                found[name] = (x + 0.02 * float(np.cos(angle)), y + 0.02 * float(np.sin(angle)))
        return found


def _matrix(delays: Mapping[str, Mapping[str, float]], names: list[str]) -> npt.NDArray[np.float64]:
    found = np.array(
        [[delays[here].get(there, _UNKNOWN_MS) for there in names] for here in names], np.float64
    )
    np.fill_diagonal(found, 0.0)
    return (found + found.T) / 2


def scaled(distances: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Points of a plane between 0 and 1 with about these distances, up to a factor."""
    count = len(distances)
    if count < 2:
        return np.full((count, 2), 0.5)
    centred = np.eye(count) - 1.0 / count
    values, vectors = np.linalg.eigh(-0.5 * centred @ (distances**2) @ centred)
    points = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0.0))
    # The sign of a direction is arbitrary; the same one each time.
    points *= np.where(points[np.abs(points).argmax(axis=0), range(points.shape[1])] < 0, -1, 1)
    widest = max(float(np.ptp(points, axis=0).max()), 1e-9)
    points = 0.5 + (points - (points.max(axis=0) + points.min(axis=0)) / 2) / widest
    return points if points.shape[1] == 2 else np.column_stack([points, np.full(count, 0.5)])


def turned(
    points: npt.NDArray[np.float64], known: list[int], before: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Turned and mirrored so that the known ones lie near where they were."""
    middle, was = points[known].mean(axis=0), before.mean(axis=0)
    left, _, right = np.linalg.svd((points[known] - middle).T @ (before - was))
    found: npt.NDArray[np.float64] = (points - middle) @ (left @ right) + was
    low, high = found.min(axis=0), found.max(axis=0)
    widest = max(float((high - low).max()), 1e-9)
    moved: npt.NDArray[np.float64] = 0.5 + (found - (low + high) / 2) / max(1.0, widest)
    return moved


def _place(point: npt.NDArray[np.float64]) -> Place:
    return round(float(point[0]), 4), round(float(point[1]), 4)
