"""A small deployment that really runs, supervised in the background: for the page's benchmark, its
pictures and its tests."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from holdfast.deployment import Deployment, load_deployment

NETWORK = """\
from pyspark.sql import functions as F

from holdfast import Network, window

network = Network("monitoring", bucket="500 ms", partitions=1)
load = network.source("load", "value bigint")
pings = network.source("pings", "value bigint")
busy = load.selectExpr("value % 8 as server", "cast(value % 100 as double) as cpu")
slow = pings.selectExpr("value % 8 as server", "cast(value % 300 as double) as cpu")
(
    busy.filter("cpu > 5")
    .union(slow)
    .groupBy(window("1 second"), "server")
    .agg(F.avg("cpu").alias("cpu"), F.count("*").alias("readings"))
    .output("busy")
)
"""
_DEPLOYMENT = """\
name = "monitoring"
network = "network.py"
chaos = true

[timing]
# X: no result waits longer
delay = "2 seconds"

[spark]
master = "local[1]"

[spark.config]
"spark.driver.memory" = "512m"

[sources.load]
from = "rate:{rate}"

[sources.pings]
from = "rate:{rate}"

[fragments.main]
replicas = 2

[clients.recorder]
output = "busy"
sink = "jsonl:data/busy.jsonl"
"""
_UP_SECONDS = 600.0


def write_deployment(directory: Path, rate: int = 100) -> Deployment:
    """Two sources of so many tuples a second each, two replicas, a client."""
    (directory / "network.py").write_text(NETWORK)
    (directory / "deployment.toml").write_text(_DEPLOYMENT.format(rate=rate))
    return load_deployment(directory / "deployment.toml")


@contextlib.contextmanager
def running(deployment: Deployment) -> Iterator[Deployment]:
    """The deployment, supervised by a process of its own."""
    try:
        run("up", str(deployment.path), "--detach", "--wait", f"{_UP_SECONDS:g}")
        yield deployment
    finally:
        run("down", str(deployment.path), check=False)


def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """A command of Holdfast's; with what it wrote, if it failed."""
    command = [sys.executable, "-m", "holdfast.cli", *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=_UP_SECONDS + 60.0, check=False
    )
    if check and done.returncode:
        raise RuntimeError(f"holdfast {' '.join(arguments)}:\n{done.stdout}\n{done.stderr}")
    return done
