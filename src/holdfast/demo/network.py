"""The demonstration's network: what all three regions together see of each server.

Every result needs every region: without one of them, an answer is either late or tentative.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from holdfast.demo.readings import REGIONS
from holdfast.network import Network
from holdfast.windows import window

network = Network("monitoring", bucket="500 ms")
america, *others = (network.source(name, "server string, latency_ms double") for name in REGIONS)
(
    america.union(*others)
    .groupBy(window("1 second"), "server")
    .agg(
        F.count("*").alias("probes"),
        F.avg("latency_ms").alias("latency_ms"),
        F.max("latency_ms").alias("slowest_ms"),
    )
    .output("latency")
)
