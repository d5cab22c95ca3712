"""A slow connection: is it the network, or is the server at its far end busy?

A left join keeps the latencies for which there is no load reading within two seconds.
"""

import pyarrow as pa

import holdfast

network = holdfast.Network("links", bucket="1 second")
load = network.source("load", "at bigint, server string, cpu double", stime="at")
latency = network.source("latency", "at bigint, server string, ms double", stime="at")
(
    latency.filter("ms > 100")
    .join(load.drop("at"), on="server", within="2 seconds", how="left")
    .withColumn("blame", "CASE WHEN cpu > 0.8 THEN 'server' WHEN cpu IS NULL THEN 'unknown' "
                "ELSE 'network' END")
    .output("slow_links")
)  # fmt: skip

SECOND = 1_000_000
LOADS = pa.table(
    {
        "at": [1 * SECOND, 2 * SECOND, 9 * SECOND],
        "server": ["berlin", "osaka", "berlin"],
        "cpu": [0.95, 0.30, 0.20],
    }
)
LATENCIES = pa.table(
    {
        "at": [2 * SECOND, 3 * SECOND, 5 * SECOND, 10 * SECOND],
        "server": ["berlin", "osaka", "quito", "berlin"],
        "ms": [180.0, 140.0, 220.0, 30.0],
    }
)

if __name__ == "__main__":
    sources = {"load": holdfast.generate([LOADS]), "latency": holdfast.generate([LATENCIES])}
    holdfast.run(network, sources)
