"""A network as text and as a picture, with two fragments."""

import tempfile
from pathlib import Path

from pyspark.sql import functions as F

import holdfast

network = holdfast.Network("drawing")
here = network.source("here", "at timestamp, server string, cpu double", stime="at", fragment="in")
there = network.source(
    "there", "at timestamp, server string, cpu double", stime="at", fragment="in"
)
busy = here.union(there).filter("cpu > 0.8").fragment("averages")
busy.groupBy(holdfast.window("10 seconds"), "server").agg(F.avg("cpu")).output("averages")
busy.distinct("server", window=holdfast.window("1 hour")).output("new_servers")

if __name__ == "__main__":
    print(network.describe())
    place = Path(tempfile.mkdtemp())
    for name in ("network.svg", "network.png"):
        network.draw(str(place / name))
        print(f"drawn into {place / name}")
