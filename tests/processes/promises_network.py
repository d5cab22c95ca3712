"""Three sources in one fragment; what is missing taints some of its outputs and not others."""

from __future__ import annotations

from pyspark.sql import functions as F

from holdfast import Network, Stream, window

network = Network("promises", bucket="200 ms")
a, b, c = (network.source(name, "k bigint, v double") for name in ("a", "b", "c"))


def summed(stream: Stream) -> Stream:
    totals = (F.sum("v").alias("v"), F.count("*").alias("n"))
    return stream.groupBy(window("400 ms"), "k").agg(*totals)


# A union goes on without c, a join of c blocks, and what c does not reach stays stable.
summed(a.union(b, c)).output("sums")
summed(a.union(b)).output("steady")
a.join(c.withColumnRenamed("v", "w"), on="k", within="20 ms").output("matched")
