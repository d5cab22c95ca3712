"""The network of benchmark faults: the same query in five fragments, one for each protection."""

from __future__ import annotations

from pyspark.sql import functions as F

from holdfast import Network, window

network = Network("faults", bucket="500 ms", partitions=1)
load = network.source("load", "number bigint, k bigint, v double")
for protection in ("none", "active", "passive", "hybrid", "continuous"):
    counts = load.fragment(protection).groupBy(window("1 second"), "k")
    counts.agg(
        F.count("*").alias("c"), F.sum("v").alias("v"), F.max("number").alias("newest")
    ).output(protection)
