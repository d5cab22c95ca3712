"""A client that needs no order: it is told of each busy server once, the moment somebody knows.

holdfast up examples/race/deployment.toml                              # in one terminal
python examples/race/watch.py                                          # in another
holdfast chaos examples/race/deployment.toml cut entry-west main-1     # in a third, and main-2

With one data centre cut off the other's readings go on coming, and they are final: nothing is
tentative, nothing is taken back. With ``ordered=True``, the default, they would come in the order
of the stream: tentative after ten seconds, and final once both data centres are heard again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import holdfast
from holdfast import Boundary, ClientEvent, Unordered


def told(events: Iterable[ClientEvent]) -> Iterator[str]:
    """What to say for each event."""
    for event in events:
        if isinstance(event, Unordered):
            for row in event.table.to_pylist():
                yield f"{row['stime']:%H:%M:%S} {row['place']} {row['server']} {row['cpu']:.2f}"
        elif isinstance(event, Boundary):
            until = datetime.fromtimestamp(event.stime / 1e6, UTC)
            yield f"{until:%H:%M:%S} of both places all has come until here"


if __name__ == "__main__":
    deployment = Path(__file__).with_name("deployment.toml")
    with holdfast.Client.of(deployment, "busy", name="screen", ordered=False) as client:
        for line in told(client):
            print(line, flush=True)
