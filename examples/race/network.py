"""Readings of two data centres, and those of them that are worth a telephone call."""

from __future__ import annotations

from holdfast import Network

READING = "server string, cpu double"

network = Network("calls", bucket="500 ms")
east, west = (network.source(name, READING) for name in ("east", "west"))
busy = east.withColumn("place", "'east'").union(west.withColumn("place", "'west'"))
busy.filter("cpu > 0.9").output("busy")
