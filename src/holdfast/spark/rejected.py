"""Rows on which a user's function raises, where the fragment is told to leave them out.

A task leaves them in the step's directory, as it does with everything it has to tell, by a name
that ends with the step's number; a task that Spark runs again leaves the same. Whoever ordered the
step writes them to the dead letters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import disk
from holdfast.spark.attempts import part_of
from holdfast.spark.step_directories import StepDirectory, told_in

STOP, DEAD_LETTER = "stop", "dead-letter"
DIRECTORY = "rejected"


@dataclass(frozen=True)
class Rejected:
    """A row, which operator's function raised on it, and what it raised."""

    operator: str
    reason: str
    row: dict[str, Any]


def write_rejected(
    directory: str, place: tuple[str, int], step: int, rejected: list[Rejected]
) -> None:
    """Leave the rows that an operator has rejected in one partition."""
    if not rejected:
        return
    inside = Path(directory, DIRECTORY)
    inside.mkdir(exist_ok=True)
    text = json.dumps([{"reason": each.reason, "row": each.row} for each in rejected], default=str)
    path = inside / "~".join(str(each) for each in (*place, step))
    part = Path(part_of(path))
    with disk.open_file(part, "wb") as file:
        file.write(text.encode())
    disk.rename(part, path)


def collect_rejected(directory: StepDirectory) -> tuple[Rejected, ...]:
    """Read what the tasks of a step have left, and remove it."""
    found = []
    for path in told_in(directory, DIRECTORY):
        operator, *_ = path.name.split("~")
        found += [Rejected(operator, **each) for each in json.loads(path.read_text())]
        path.unlink()
    return tuple(found)
