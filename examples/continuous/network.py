"""Windows of every kind, and a join, in one fragment whose state is kept in its output log.

A fragment in front of it has no state; one behind it keeps its state beside its log.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from holdfast import Network, Stream, count_window, session_window, window

network = Network("windows", bucket="200 ms")
load = network.source("load", "number bigint, server bigint, cpu double")
readings = load.filter("cpu >= 0").fragment("windows")
sums = [F.sum("cpu").alias("cpu"), F.max("number").alias("newest")]


def told(kind: str, results: Stream) -> Stream:
    return results.select(F.lit(kind).alias("kind"), "server", "cpu", "newest")


seconds = told("second", readings.groupBy(window("1 second", "400 ms"), "server").agg(*sums))
dozens = told("dozen", readings.groupBy(count_window(12), "server").agg(*sums))
overlaps = told("overlap", readings.groupBy(count_window(40, 15), "server").agg(*sums))
peaks = readings.filter("cpu > 0.93")
bursts = told("burst", peaks.groupBy(session_window("60 ms"), "server").agg(*sums))
lows = readings.filter("cpu < 0.02").selectExpr("server", "number as low")
drops = peaks.join(lows, on="server", within="300 ms").selectExpr(
    "'drop' as kind", "server", "cpu", "greatest(number, low) as newest"
)
# Its input is computed in the fragment, so it cannot be replayed: every change is kept.
pace = dozens.groupBy(count_window(7), "server").agg(
    F.sum("cpu").alias("cpu"), F.max("newest").alias("newest")
)
found = seconds.union(dozens, overlaps, bursts, drops, told("pace", pace))
found.output("found")
totals = found.fragment("totals").groupBy(window("2 seconds"), "kind")
totals.agg(F.count("*").alias("results"), F.sum("cpu").alias("cpu")).output("totals")
