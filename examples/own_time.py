"""Tuples that bring their own time: out of order, late, and one from another century."""

import json
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

import holdfast

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
# As they come in; the last but one is a broken clock's.
READINGS = [NOON + timedelta(seconds=second) for second in (0, 4, 2, 11, 9, 24, 3)]
READINGS += [datetime(2099, 1, 1, tzinfo=UTC), NOON + timedelta(seconds=31)]


def row(at: datetime) -> pa.Table:
    return pa.table({"at": [at], "sensor": ["hall"]})


network = holdfast.Network("own-time", bucket="1 second")
load = network.source("load", "at timestamp, sensor string", stime="at")
load.groupBy(holdfast.window("10 seconds"), "sensor").count().output("counts")

if __name__ == "__main__":
    letters = Path(tempfile.mkdtemp()) / "dead-letters.jsonl"
    # A reading may be up to five seconds older than the newest before it, and a minute ahead of
    # this machine's clock. With late="take" the late one would count in the window that is open
    # when it comes; with idle_after="10 seconds" a source that is quiet would hold up nobody.
    tables = [row(at) for at in READINGS]
    source = holdfast.generate(tables, lateness="5 seconds", future_limit="1 minute")
    holdfast.run(network, {"load": source}, dead_letters=letters)
    for line in letters.read_text().splitlines():
        letter = json.loads(line)
        print(letter["row"]["at"], "is", letter["reason"])
