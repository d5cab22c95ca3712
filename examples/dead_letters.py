"""Rows that cannot become tuples go to a file with the reason; the query goes on."""

import tempfile
from pathlib import Path

import holdfast

ROWS = """\
at,server,cpu
2026-03-01 12:00:00,berlin,0.5
2026-03-01 12:00:01,berlin,high
2026-03-01 12:00:02,,0.5
tomorrow,osaka,0.5
2026-03-01 12:00:20,osaka,0.7
2026-03-01 11:00:00,osaka,0.6
2026-03-01 12:00:21,quito
"""

network = holdfast.Network("dead-letters", bucket="1 second")
load = network.source("load", "at timestamp, server string, cpu double", stime="at", key="server")
load.output("good")

if __name__ == "__main__":
    place = Path(tempfile.mkdtemp())
    (place / "load.csv").write_text(ROWS)
    letters = place / "dead-letters.jsonl"
    # A tuple may be up to ten seconds older than the newest one before it.
    source = holdfast.read_csv(place / "load.csv", lateness="10 seconds")
    holdfast.run(network, {"load": source}, dead_letters=letters)
    print(letters.read_text())
