"""A client that shows answers at once, and puts right those that were tentative.

holdfast up examples/protection/hybrid.toml                  # in one terminal
python examples/protection/watch.py hybrid.toml              # in another
holdfast chaos examples/protection/hybrid.toml cut entry-load main-1    # in a third

Three kinds of events come. Tuples are stable, and then final, or tentative: the best there is while
an input is missing. Undo takes tentative ones back; the stable ones that replace them follow.
Boundary says up to which time the stable stream is complete.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import holdfast
from holdfast import ClientEvent, Tuples, Undo


def told(events: Iterable[ClientEvent]) -> Iterator[str]:
    """What to say for each event; a guess that proved right is not mentioned again."""
    guesses: dict[int, object] = {}
    for event in events:
        if isinstance(event, Undo):
            yield f"taken back: what was tentative before {_time(event.below_stime)}"
        elif isinstance(event, Tuples):
            for row in event.table.to_pylist():
                at, answer = int(row["stime"].timestamp() * 1e6), row["busiest"]
                if not event.stable:
                    guesses[at] = answer
                    yield f"{_time(at)} tentative {_shown(answer)}"
                elif at not in guesses:
                    yield f"{_time(at)} stable    {_shown(answer)}"
                elif guesses.pop(at) != answer:
                    yield f"{_time(at)} corrected {_shown(answer)}"
                else:
                    yield f"{_time(at)} confirmed"


def _time(micros: int) -> str:
    return datetime.fromtimestamp(micros / 1e6, UTC).strftime("%H:%M:%S")


def _shown(answer: list[dict[str, object]]) -> str:
    return ", ".join(f"{each['server']} {each['cpu']:.1f}" for each in answer)


if __name__ == "__main__":
    deployment = Path(__file__).with_name(sys.argv[1] if len(sys.argv) > 1 else "hybrid.toml")
    with holdfast.Client.of(deployment, "busiest", name="screen") as client:
        for line in told(client):
            print(line, flush=True)
