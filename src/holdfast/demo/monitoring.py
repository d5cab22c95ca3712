"""The wide-area monitoring network of the Borealis-R paper, section 3.2.

Servers all over the world report their CPU load, and the latencies of their connections to
each other. Readings come in by region and are merged. A join puts beside every slow connection
the load of the server at its far end, and so tells whether the server or the network is to
blame.
"""

from __future__ import annotations

from pyspark.sql import functions as F

from holdfast.network import Network
from holdfast.windows import window

REGIONS = ("america", "asia", "europe")
LOAD = "at timestamp, server string, region string, cpu double"
LATENCY = "at timestamp, origin string, origin_region string, server string, latency_ms double"
BUCKET = "500 ms"
SLOW_MS = 250
BUSY_CPU = 0.8


def monitoring_network() -> Network:
    """The network; its sources are load_REGION and latency_REGION."""
    network = Network("monitoring", bucket=BUCKET)
    loads = [network.source(f"load_{region}", LOAD, stime="at", key="server") for region in REGIONS]
    latencies = [
        network.source(f"latency_{region}", LATENCY, stime="at", key=("origin", "server"))
        for region in REGIONS
    ]
    load = loads[0].union(*loads[1:])
    latency = latencies[0].union(*latencies[1:])

    load.groupBy(window("5 seconds"), "region").agg(
        F.avg("cpu").alias("cpu"), F.count("*").alias("readings")
    ).output("region_load")

    slow = latency.filter(f"latency_ms > {SLOW_MS}")
    explained = slow.join(load.drop("at"), on="server", within=("500 ms", "1 us"))
    explained.filter(f"cpu > {BUSY_CPU}").groupBy(window("2 seconds"), "server", "region").agg(
        F.count("*").alias("slow_links"),
        F.avg("latency_ms").alias("latency_ms"),
        F.max("cpu").alias("cpu"),
    ).filter("slow_links >= 5").output("busy_server")
    explained.filter(f"cpu <= {BUSY_CPU}").groupBy(
        window("2 seconds"), "origin_region", "region"
    ).agg(F.count("*").alias("slow_links"), F.avg("latency_ms").alias("latency_ms")).filter(
        "slow_links >= 5"
    ).output("slow_network")
    return network
