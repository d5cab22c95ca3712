"""Distance on one machine: what goes from one node to another takes its time on the way.

    delay      how long every message takes
    jitter     up to so much longer, drawn for each message
    bandwidth  what waits at the sender because the link is full
    lost       connections break, after so many seconds on the mean

The sender holds a message back until it would have arrived. Messages of one connection overtake
each other never; those of different connections may, as between different TCP connections. Many
can be under way at once. What a process that is killed had under way dies with it, and so does what
a connection had that breaks: whoever read from it is told, and opens another where it stood.

A deployment names the places of its nodes and a matrix of the latencies between places: a text
file whose first line has the places, and every other line a place and the milliseconds from it to
each of them, one way. A line that begins with # is a remark.

               boston   kyoto
    boston        0.3    74.1
    kyoto        74.1     0.3
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from holdfast.errors import HoldfastError

# Calls are given up after two seconds; links this long can carry nothing.
LONGEST_MS = 10_000.0


class DistanceError(HoldfastError):
    """A distance, or a matrix of them, that cannot be meant."""


@dataclass(frozen=True)
class Distance:
    """How long what one node sends takes to another.

    bandwidth  KiB a second; 0 for any number of them.
    lost_s     for how long a connection lasts on the mean; 0 for as long as it is wanted.
    """

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    bandwidth: float = 0.0
    lost_s: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not math.isfinite(value) or value < 0:
                raise DistanceError(f"{name} is a number from 0 on, got {value!r}")
        if self.delay_ms + self.jitter_ms > LONGEST_MS:
            raise DistanceError(
                f"delay and jitter together are at most {LONGEST_MS:.0f} ms, got "
                f"{self.delay_ms + self.jitter_ms:g}; cut the link instead"
            )

    @property
    def is_none(self) -> bool:
        return self == Distance()

    @staticmethod
    def of(document: Mapping[str, Any]) -> Distance:
        """A distance as ``asdict`` gives it."""
        try:
            return Distance(**{name: float(value) for name, value in document.items()})
        except (TypeError, ValueError):
            raise DistanceError(f"a distance has delay_ms and jitter_ms, got {document}") from None


@dataclass(frozen=True)
class Distances:
    """Where the nodes of a deployment are, and how far the places are from each other."""

    places: Mapping[str, str] = field(default_factory=dict)
    matrix: Mapping[tuple[str, str], float] = field(default_factory=dict)
    jitter_ms: float = 0.0
    bandwidth: float = 0.0
    lost_s: float = 0.0

    def of(self, node: str) -> dict[str, Distance]:
        """How far it is from a node to every other that has a place."""
        if node not in self.places:
            return {}
        here = self.places[node]
        return {
            other: Distance(self.matrix[here, there], self.jitter_ms, self.bandwidth, self.lost_s)
            for other, there in self.places.items()
            if other != node
        }


def read_matrix(path: Path) -> dict[tuple[str, str], float]:
    """The milliseconds from each place to each other."""
    try:
        text = path.read_text()
    except (OSError, ValueError) as error:
        raise DistanceError(f"{path.name} cannot be read: {error}") from None
    lines = [
        line.split() for line in text.splitlines() if line.strip() and not line.startswith("#")
    ]
    names = lines[0] if lines else []
    found: dict[tuple[str, str], float] = {}
    for row in lines[1:]:
        if len(row) != len(names) + 1:
            raise DistanceError(
                f"{path.name}: a place and {len(names)} numbers are needed, got {' '.join(row)!r}"
            )
        for name, number in zip(names, row[1:], strict=True):
            found[row[0], name] = _milliseconds(path, row[0], name, number)
    missing = [name for name in names if (name, name) not in found]
    if not names or missing:
        what = f"no line for {missing[0]}" if missing else "no places"
        raise DistanceError(f"{path.name} has {what}; its first line names the places")
    return found


def _milliseconds(path: Path, here: str, there: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= LONGEST_MS:
        raise DistanceError(
            f"{path.name}: from {here} to {there} it is a number of milliseconds from 0 to "
            f"{LONGEST_MS:.0f}, got {text!r}"
        )
    return value
