"""Two fragments: sums by server every second, then the busiest server of every two seconds."""

from __future__ import annotations

from pyspark.sql import functions as F

from holdfast import Network, top, window

network = Network("protected", bucket="500 ms")
load = network.source("load", "server string, cpu double")
sums = load.groupBy(window("1 second"), "server").agg(F.sum("cpu").alias("cpu"))
busiest = sums.fragment("busiest").groupBy(window("2 seconds")).agg(top(2, "cpu", "server"))
busiest.withColumnRenamed("top(2, cpu, server)", "busiest").output("busiest")
