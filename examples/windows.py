"""The same readings in three kinds of windows: tumbling, sliding, and by count."""

from pyspark.sql import functions as F

import holdfast

network = holdfast.Network("windows", bucket="1 second")
load = network.source("load", "at timestamp, server string, cpu double", stime="at")
peak = F.max("cpu").alias("peak")
load.groupBy(holdfast.window("30 seconds"), "server").agg(peak).output("tumbling")
load.groupBy(holdfast.window("30 seconds", "10 seconds"), "server").agg(peak).output("sliding")
load.groupBy(holdfast.count_window(20), "server").agg(peak).output("every_20_readings")

if __name__ == "__main__":
    holdfast.run(network, {"load": holdfast.read_csv("examples/load.csv")})
