"""From a tuple's making to its arrival at the client, against Structured Streaming.

The query has state and passes every tuple on at once: readings deduplicated by number within ten
seconds. 3,000 tuples a second arrive in both cases in the same way, 30 every 10 ms; each carries
the time it was made, and the latency of each is taken where the result arrives.

- Holdfast: producer, entry point (its log synced before anything is sent on), one replica, client,
  as four processes. A tuple waits for the end of its bucket, half of it on average. Structured
  Streaming begins a batch when the last one is done; so the buckets are short, 50 ms, and beside
  them those of 100 ms that were measured before tasks stayed for many buckets.
- Structured Streaming: the socket source, ``dropDuplicatesWithinWatermark``, a trigger as soon as
  the last one is done, a checkpoint on disk, and the best of what streams_structured.py tries. Its
  source keeps nothing: unlike the entry point it may lose tuples with its process.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.streams_arrivals import TUPLES_PER_TURN, WARM_SECONDS, Arrivals, percentiles
from benchmarks.streams_structured import choose, measure_structured_streaming

BUCKET_MS, LONGER_BUCKET_MS = 50, 100

NETWORK = """
from holdfast import Network, window

network = Network("latency", bucket="BUCKET ms", partitions=2)
readings = network.source("readings", "number bigint, made bigint, value double")
readings.distinct("number", window=window("10 seconds")).output("unique")
"""
DEPLOYMENT = """
network = "network.py"
chaos = true

[timing]
delay = "10 seconds"
heartbeat = "250 ms"
record_interval = "2 seconds"

[sources.readings]

[fragments.main]

[clients.measure]
output = "unique"
"""


def measure_holdfast(seconds: float, bucket_ms: int = BUCKET_MS) -> dict[str, float]:
    """Latencies of a deployment with such buckets."""
    from holdfast.client import Client, Tuples
    from holdfast.deployment import load_deployment
    from holdfast.plans.addresses import Addresses
    from holdfast.producer import Producer
    from holdfast.testing.deployed import supervised

    directory = Path(tempfile.mkdtemp(prefix="holdfast-streams-"))
    (directory / "network.py").write_text(NETWORK.replace("BUCKET", str(bucket_ms)))
    (directory / "deployment.toml").write_text(DEPLOYMENT)
    deployment = load_deployment(directory / "deployment.toml")
    latencies: list[Any] = []
    with supervised(deployment):
        security = deployment.security.read()
        book = Addresses.read(deployment).book(security)
        producer = Producer(
            "readings", book["entry-readings"], name="bench", security=security, linger_s=0.002
        )

        def send(first: int, made: int) -> None:
            numbers = np.arange(first, first + TUPLES_PER_TURN)
            times = np.full(TUPLES_PER_TURN, made)
            producer.send(pa.table({"number": numbers, "made": times, "value": np.sqrt(numbers)}))

        at = {"main-1": book["main-1"]}
        with Client("unique", at, name="measure", security=security) as client:
            arrivals = Arrivals(send)
            start = None
            while start is None or time.monotonic() - start < WARM_SECONDS + seconds:
                event = client.read(1.0)
                if isinstance(event, Tuples) and event.stable:
                    start = start or time.monotonic()
                    if time.monotonic() - start > WARM_SECONDS:
                        now = time.time_ns() // 1000
                        latencies.append(now - event.table["made"].to_numpy())
            arrivals.stop()
        producer.close()
    shutil.rmtree(directory, ignore_errors=True)
    return percentiles(latencies)


def measure(seconds: float, rounds: int = 1) -> dict[str, Any]:
    """Both, turn about; the medians."""
    ours, longer, theirs = [], [], []
    choice = choose()
    for _ in range(rounds):
        ours.append(measure_holdfast(seconds))
        longer.append(measure_holdfast(seconds, LONGER_BUCKET_MS))
        theirs.append(measure_structured_streaming(choice, seconds))

    def median(found: list[dict[str, float]], key: str) -> float:
        return statistics.median(each[key] for each in found)

    p50, other = median(ours, "p50_ms"), median(theirs, "p50_ms")
    return {
        "e2e_p50_ms": p50,
        "e2e_p99_ms": median(ours, "p99_ms"),
        "e2e_bucket_ms": BUCKET_MS,
        f"e2e_bucket_{LONGER_BUCKET_MS}_p50_ms": median(longer, "p50_ms"),
        f"e2e_bucket_{LONGER_BUCKET_MS}_p99_ms": median(longer, "p99_ms"),
        f"e2e_bucket_{LONGER_BUCKET_MS}_ratio": round(median(longer, "p50_ms") / other, 2),
        "structured_streaming": " ".join(choice),
        "structured_streaming_p50_ms": other,
        "structured_streaming_p99_ms": median(theirs, "p99_ms"),
        "e2e_ratio": round(p50 / other, 2),
        "e2e_tuples": [int(each["tuples"]) for each in ours],
    }


if __name__ == "__main__":
    print(json.dumps(measure(15.0)))
