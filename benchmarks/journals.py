"""What the processes of a deployment wrote down, for benchmarks that ask when something was."""

from __future__ import annotations

import calendar
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# What a copy that runs says of itself.
RUNNING = {"awake", "primary"}


@dataclass(frozen=True)
class Entry:
    """One line: when (microseconds), which node or process, what, and the rest."""

    at: int
    node: str
    event: str
    fields: dict[str, Any]


def entries(data: Path, since: int = 0) -> list[Entry]:
    """Every line of a deployment's logs from a time on, in order of time."""
    found = [entry for log in (data / "logs").glob("*.log") for entry in _read(log)]
    return sorted((entry for entry in found if entry.at >= since), key=lambda entry: entry.at)


def copy_state_at(data: Path, node: str, states: set[str], since: int) -> int | None:
    """When a copy that stands by first came into one of these states."""
    for entry in entries(data, since):
        if entry.node == node and entry.fields.get("copy") in states:
            return entry.at
    return None


def recovery_parts_ms(data: Path, node: str, failed: int, new: int) -> dict[str, float]:
    """What the time from a failure to the first new result was made of.

    detect  until the other copy, ``node``, wakes.
    resume  until its first job begins.
    resend  until the client has the result.
    """
    awake = copy_state_at(data, node, RUNNING, failed)
    if awake is None:
        return {}
    begun = next((each.at for each in entries(data, awake) if _is_first_job(each, node)), new)
    begun = min(begun, new)
    return {
        "detect": (awake - failed) / 1000,
        "resume": (begun - awake) / 1000,
        "resend": (new - begun) / 1000,
    }


def _is_first_job(entry: Entry, node: str) -> bool:
    return entry.node == node and entry.event == "first job"


def _read(log: Path) -> Iterator[Entry]:
    for line in log.read_text(errors="replace").splitlines():
        if line.startswith("{"):
            try:
                fields = json.loads(line)
            except ValueError:
                continue  # the end of a line that is being written
            stamp, _, rest = fields.pop("time").partition(".")
            seconds = calendar.timegm(time.strptime(stamp, "%Y-%m-%dT%H:%M:%S"))
            at = seconds * 1_000_000 + int(rest.rstrip("Z")) * 1000
            who = fields.pop("node" if "node" in fields else "process")
            yield Entry(at, who, fields.pop("event"), fields)
