"""Stopping and going on: a second run with the same state directory continues the first.

A directory is read while files are put into it. Each run takes the files that are new; the
windows that were open stay open in between, and the result is that of one run over all files.
"""

import tempfile
from pathlib import Path

from pyspark.sql import functions as F

import holdfast

network = holdfast.Network("going-on", bucket="1 second")
load = network.source("load", "at timestamp, server string, cpu double", stime="at")
load.groupBy(holdfast.window("1 minute"), "server").agg(
    F.count("*").alias("readings"), F.max("cpu").alias("peak")
).output("peaks")

if __name__ == "__main__":
    place = Path(tempfile.mkdtemp())
    (place / "in").mkdir()
    lines = Path("examples/load.csv").read_text().splitlines()
    header, rows = lines[0], lines[1:]
    for run in range(3):
        part = "\n".join([header, *rows[run * 60 : run * 60 + 60], ""])
        (place / "in" / f"{run}.csv").write_text(part)
        summary = holdfast.run(
            network,
            {"load": holdfast.read_directory(place / "in", follow=False)},
            {"peaks": holdfast.write_jsonl(place / "peaks.jsonl")},
            state=place / "state",
        )
        print(f"run {run}: {summary.tuples_in} tuples so far")
        print((place / "peaks.jsonl").read_text())
