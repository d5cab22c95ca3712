"""A chain of three fragments: clean readings, summarize them by server, find the busy ones."""

from __future__ import annotations

from pyspark.sql import functions as F

from holdfast import Network, window

network = Network("monitoring", bucket="200 ms")
load = network.source("load", "number bigint, server bigint, cpu double")
clean = load.filter("cpu >= 0").withColumn("percent", "cpu * 100")
summary = (
    clean.fragment("summary")
    .groupBy(window("1 second"), "server")
    .agg(
        F.sum("percent").alias("percent"),
        F.count("*").alias("readings"),
        F.max("number").alias("newest"),
    )
)
busy = (
    summary.fragment("busy")
    .withColumn("mean", "percent / readings")
    .groupBy(window("2 seconds"), "server")
    .agg(F.max("mean").alias("mean"), F.sum("readings").alias("readings"))
)
busy.output("busy")
