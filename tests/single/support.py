"""A small monitoring network, its input, and ways to run it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from holdfast.network import Network
from holdfast.single.reports import AdvanceReport, Observer
from holdfast.windows import window

LOAD = "at timestamp, server string, cpu double"


def monitoring(spark: SparkSession | None = None, threshold: float = 0.5) -> Network:
    """Two sources, a filter, an aggregate and a join; outputs ``busy`` and ``both``."""
    network = Network("monitoring", bucket="1 second", spark=spark)
    load = network.source("load", LOAD, stime="at", key="server")
    pings = network.source("pings", "at timestamp, server string, ms double", stime="at")
    busy = (
        load.filter(f"cpu > {threshold}")
        .groupBy(window("10 seconds"), "server")
        .agg(F.avg("cpu").alias("cpu"), F.count("*").alias("readings"))
    )
    busy.output("busy")
    load.drop("at").join(pings.drop("at"), on="server", within="1 second").output("both")
    return network


def write_load(path: Path, seconds: int, first: int = 0, bad: bool = True) -> None:
    """Twenty readings a second, a little out of order, with a bad row now and then."""
    lines = [] if first else ["at,server,cpu"]
    numbers = np.random.default_rng(7).random(2 * 20 * (first + seconds)).reshape(-1, 2)
    for i in range(first * 20, (first + seconds) * 20):
        late = int(numbers[i, 1] * 2)
        second = max(0, i // 20 - late)
        at = f"2024-01-01 00:{second // 60:02}:{second % 60:02}.{i % 20 * 50:03}"
        value = "high" if bad and i % 97 == 50 else f"{numbers[i, 0]}"
        lines.append(f"{at},s{i % 5},{value}")
    with path.open("a" if first else "w") as file:
        file.write("\n".join(lines) + "\n")


def write_pings(path: Path, seconds: int, first: int = 0) -> None:
    with path.open("a" if first else "w") as file:
        for second in range(first, first + seconds):
            at = f"2024-01-01T00:{second // 60:02}:{second % 60:02}Z"
            row = {"at": at, "server": f"s{second % 7}", "ms": second * 1.5}
            file.write(json.dumps(row) + "\n")


def rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


class StopAfter(Observer):
    """Stops a run after so many advances that had tuples."""

    def __init__(self, advances: int) -> None:
        self._left = advances

    def advanced(self, report: AdvanceReport) -> None:
        self._left -= report.tuples_in > 0
        self.wants_stop = self._left <= 0
