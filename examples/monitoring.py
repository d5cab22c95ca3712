"""Which servers are busy? A CSV file in, an average for each server and ten seconds out."""

from pyspark.sql import functions as F

import holdfast

network = holdfast.Network("monitoring", bucket="1 second")
load = network.source("load", "at timestamp, server string, cpu double", stime="at", key="server")
busy = (
    load.groupBy(holdfast.window("10 seconds"), "server")
    .agg(F.avg("cpu").alias("cpu"), F.count("*").alias("readings"))
    .filter("cpu > 0.7")
)
busy.output("busy")

if __name__ == "__main__":
    sources = {"load": holdfast.read_csv("examples/load.csv")}
    holdfast.run(network, sources, {"busy": holdfast.write_console()})
