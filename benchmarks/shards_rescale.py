"""Another number of shards while real processes run: for how long no stable results come.

The network and the load are those of the ring (shards_ring.py), the shards have one replica each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.shards_ring import DEPLOYMENT, NETWORK, RATE, Watch, compare, now_us, readings
from holdfast.cluster.rescaling import rescale
from holdfast.deployment import load_deployment
from holdfast.producer import Producer
from holdfast.testing.deployed import Load, supervised

# For each step; with the processes of both generations a small machine needs some 10 s of quiet.
RESCALE_SECONDS = 120.0


@dataclass(frozen=True)
class Rescalings:
    """What a run gave; gaps in milliseconds, beyond the time that passes between results anyway."""

    gaps_ms: list[float]
    seconds: list[float]
    lost: int
    doubled: int
    identical: bool
    entry_lost: int
    entry_doubled: int


def run_rescalings(directory: Path, numbers: tuple[int, ...], windows: int) -> Rescalings:
    """Begin with the first number of shards, and go through the others."""
    (directory / "network.py").write_text(NETWORK)
    alone, _, clients = DEPLOYMENT.format(shards=numbers[0]).partition('protection = "hybrid"')
    (directory / "deployment.toml").write_text(alone + clients[clients.index("[clients") :])
    deployment = load_deployment(directory / "deployment.toml")
    gaps, seconds = [], []
    with supervised(deployment):
        with Producer.of(deployment.path, "load", name="before") as producer:
            producer.send(readings(0, windows))
        watch = Watch(deployment)
        load = Load(deployment, "load", readings, RATE)
        watch.reach(now_us())
        begun = time.monotonic()
        time.sleep(2.0)
        usual = np.median(np.diff([each for each in watch.arrivals if each > begun]))
        for shards in numbers[1:]:
            since = time.monotonic()
            rescale(deployment.path, "main", shards, wait_s=RESCALE_SECONDS, tell=_tell(since))
            seconds.append(round(time.monotonic() - since, 1))
            watch.reach(now_us())
            gaps.append(round(max(0.0, watch.longest_ms(since) - float(usual) * 1e3), 1))
        sent = load.stop()
        watch.reach(now_us())
        watch.close()
    _, lost, doubled, identical, *entry = compare(deployment, watch.view, (windows, sent))
    return Rescalings(gaps, seconds, lost, doubled, identical, *entry)


def _tell(since: float) -> Callable[[str], None]:
    """Say how far a step is, so that one that takes long can be told from one that stands still."""
    return lambda text: print(
        f"{time.monotonic() - since:7.1f} s  {text}", file=sys.stderr, flush=True
    )
