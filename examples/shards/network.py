"""What each of many sensors measured in a second, and how far it strayed from its usual value."""

from __future__ import annotations

from pyspark.sql import functions as F

from holdfast import Network, window

network = Network("sensors", bucket="200 ms")
readings = network.source("readings", "sensor string, value double", fragment="sensors")
seconds = readings.groupBy(window("1 second"), "sensor").agg(F.avg("value").alias("value"))
usual = readings.groupBy(window("1 minute", "1 second"), "sensor").agg(
    F.avg("value").alias("usual")
)
# Both know the sensor, and so does the join: any shard that has all of a sensor can do all of it.
strayed = (
    seconds.drop("window")
    .join(usual.drop("window"), on="sensor", within="100 ms")
    .filter("abs(value - usual) > 10")
)
strayed.output("strayed")
