"""A deployment that says recover_within = "2 seconds": what a killed replica needs.

The paper's query as real processes: an entry point, a replica with continuous checkpoints, a
client. The replica is killed with SIGKILL; the supervisor starts it again. What counts is what
the restarted replica tells of its recovery: reading its log, and computing again what came since.
The start of the process and of Spark comes on top, and is told apart.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from holdfast.cluster.status import node_status
from holdfast.deployment import load_deployment
from holdfast.testing.deployed import Load, supervised

ITEMS = 100_000
TUPLES_PER_SECOND = 20_000
WITHIN_S = 2.0
PADS = pa.array(["x" * 56] * (TUPLES_PER_SECOND // 50))
NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, count_window

network = Network("prices", bucket="200 ms", partitions=2)
sales = network.source("sales", "item bigint, price int, pad string")
mean = F.avg("price").alias("price")
sales.groupBy(count_window(10), "item").agg(mean).output("prices")
"""
DEPLOYMENT = f"""
network = "network.py"
chaos = true
[timing]
delay = "3 seconds"
[sources.sales]
[fragments.main]
checkpoint = "continuous"
recover_within = "{WITHIN_S} seconds"
[clients.reader]
output = "prices"
sink = "jsonl:data/prices.jsonl"
"""


def sales(first: int, count: int) -> pa.Table:
    random = np.random.default_rng(first)
    prices = pa.array(random.integers(1, 1_000, count), pa.int32())
    return pa.table({"item": random.integers(0, ITEMS, count), "price": prices, "pad": PADS})


def wait_for(what: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Until there is something, which is given back."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.05)
    raise TimeoutError(f"nothing came in {seconds} s")


def kill_and_recover(seconds: float) -> dict[str, Any]:
    """Run for a while, kill the replica, and tell what its recovery took."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-deployed-") as temporary:
        root = Path(temporary)
        (root / "network.py").write_text(NETWORK)
        (root / "deployment.toml").write_text(DEPLOYMENT)
        deployment = load_deployment(root / "deployment.toml")

        def status() -> dict[str, Any]:
            return node_status(deployment, ["main-1"])["main-1"]

        with supervised(deployment) as supervisor:
            load = Load(deployment, "sales", sales, TUPLES_PER_SECOND)
            wait_for(lambda: status().get("checkpoint", {}).get("open_windows"))
            time.sleep(seconds)
            before = status()["checkpoint"]
            begun = time.monotonic()
            if not supervisor.kill("main-1"):
                raise RuntimeError("main-1 was not there to be killed")
            wait_for(lambda: status().get("checkpoint", {}).get("took", {}).get("frames"))
            wait_for(lambda: status().get("state") == "stable")
            restart_s = time.monotonic() - begun
            took = status()["checkpoint"]["took"]
            sent = load.stop()
    return {
        "recover_within_s": WITHIN_S,
        "recovered_s": round(took["load_s"] + took["replay_s"], 3),
        "expected_s": round(before["recovery_us"] / 1e6, 3),
        "open_windows": before["open_windows"],
        "extent": took["frames"],
        "ec_load_s": round(took["load_s"], 3),
        "replay_tuples": took["tuples"],
        "replay_s": round(took["replay_s"], 3),
        "restart_s": round(restart_s, 1),
        "tuples": sent,
    }


if __name__ == "__main__":
    print(json.dumps(kill_and_recover(float(sys.argv[1]))))
