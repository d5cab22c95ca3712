"""Rows on which a user's function raises, where the fragment is told to leave them out.

A task leaves them in the step's directory, as it does with everything it has to tell; a task that
Spark runs again leaves the same. Whoever ordered the step writes them to the dead letters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import disk

STOP, DEAD_LETTER = "stop", "dead-letter"
DIRECTORY = "rejected"


@dataclass(frozen=True)
class Rejected:
    """A row, which operator's function raised on it, and what it raised."""

    operator: str
    reason: str
    row: dict[str, Any]


def write_rejected(directory: str, operator: str, partition: int, rejected: list[Rejected]) -> None:
    """Leave the rows that one partition of an operator has rejected."""
    if not rejected:
        return
    place = Path(directory, DIRECTORY)
    place.mkdir(exist_ok=True)
    text = json.dumps([{"reason": each.reason, "row": each.row} for each in rejected], default=str)
    path = place / f"{operator}~{partition}"
    hidden = path.with_name(f".{path.name}")
    with disk.open_file(hidden, "wb") as file:
        file.write(text.encode())
    disk.rename(hidden, path)


def collect_rejected(directory: Path) -> tuple[Rejected, ...]:
    """Read and remove what the tasks of a step have left."""
    place = directory / DIRECTORY
    if not place.is_dir():
        return ()
    found = []
    for path in sorted(place.iterdir()):
        operator, _, partition = path.name.rpartition("~")
        if partition.isdigit() and not operator.startswith("."):
            found += [Rejected(operator, **each) for each in json.loads(path.read_text())]
        path.unlink()
    return tuple(found)
