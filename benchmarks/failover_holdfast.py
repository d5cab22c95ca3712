"""Holdfast for benchmark failover: the query under one protection, as real processes."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.failover_load import Received, now_us, numbers_of
from benchmarks.journals import recovery_parts_ms
from benchmarks.streams_arrivals import TUPLES_PER_TURN, Arrivals
from holdfast.client import Client, Tuples
from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment, load_deployment
from holdfast.plans.addresses import Addresses
from holdfast.plans.plan import plan_path
from holdfast.producer import Producer
from holdfast.testing.deployed import supervised

NETWORK = """
from holdfast import Network, window

network = Network("failover", bucket="100 ms", partitions=2)
readings = network.source("readings", "number bigint, made bigint, value double")
readings.distinct("number", window=window("10 seconds")).output("unique")
"""
DEPLOYMENT = """
network = "network.py"
chaos = true
data = "{protection}"

[timing]
delay = "20 seconds"
heartbeat = "100 ms"
record_interval = "500 ms"

[sources.readings]

[fragments.main]
{fragment}

[clients.measure]
output = "unique"
"""
FRAGMENTS = {
    "passive": 'protection = "passive"',
    "active": "replicas = 2",
    "hybrid": 'protection = "hybrid"',
}


class Workshop:
    """A directory for deployments of the query; the network is planned once."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="holdfast-failover-"))
        (self.path / "network.py").write_text(NETWORK)
        self._plan: Path | None = None
        self._count = 0

    def deployment(self, protection: str) -> Deployment:
        self._count += 1
        name = f"{protection}-{self._count}"
        text = DEPLOYMENT.format(protection=name, fragment=FRAGMENTS[protection])
        file = self.path / f"{name}.toml"
        file.write_text(text)
        deployment = load_deployment(file)
        if self._plan is not None:
            deployment.data.mkdir()
            shutil.copy(self._plan, plan_path(deployment))
        self._plan = plan_path(deployment)
        return deployment

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class Holdfast:
    """The query under a protection; ``kill`` kills the process the client follows."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._running = contextlib.ExitStack()
        self.supervisor = self._running.enter_context(supervised(deployment))
        security = deployment.security.read()
        book = Addresses.read(deployment).book(security)
        self._producer = Producer(
            "readings", book["entry-readings"], name="failover", security=security, linger_s=0.002
        )
        self.client = self._running.enter_context(
            Client.of(deployment.path, "unique", name="measure")
        )
        self.received = Received()
        self.sent = 0
        self._killed: str | None = None
        self._stopping = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._arrivals = Arrivals(self._send)

    def kill(self) -> int:
        """kill -9 of the replica that serves the client, with its JVM; when that was."""
        self._killed = name = self._serving()
        at = now_us()
        if not self.supervisor.kill(name):
            raise RuntimeError(f"{name} was not running")
        return at

    def _serving(self) -> str:
        """The replica whose results the client takes."""
        for name, status in node_status(self._deployment, self._replicas()).items():
            if status.get("copy") == "primary":
                return name
        followed = self.client.following
        assert followed is not None, "the client follows nobody"
        return followed

    def _replicas(self) -> list[str]:
        return [name for spec in self._deployment.fragments.values() for name in spec.processes]

    def wait_whole(self, timeout_s: float) -> None:
        """Until what was killed is back and as far as the rest, so that it can happen again."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            found = node_status(self._deployment, self._replicas())
            if all(_is_well(one) for one in found.values()):
                return
            time.sleep(0.1)
        raise TimeoutError(f"not whole again after {timeout_s:g} s: {found}")

    def parts_ms(self, killed: int, new: int) -> dict[str, float]:
        """What the gap was made of, from what the copy that took over wrote down."""
        other = next(name for name in self._replicas() if name != self._killed)
        return recovery_parts_ms(self._deployment.data, other, killed, new)

    def stop(self, settle_s: float) -> dict[str, Any]:
        """Send no more, let the rest come, and compare."""
        self._arrivals.stop()
        self._producer.close()
        wanted = self.sent // TUPLES_PER_TURN * (len(np.unique(numbers_of(0))))
        self.received.wait_tuples(wanted, settle_s)
        # Whatever came twice would come now.
        time.sleep(1.0)
        self._stopping.set()
        self._reader.join(5.0)
        self._running.close()
        return self.received.compare(self.sent)

    def _send(self, first: int, made: int) -> None:
        numbers = numbers_of(first)
        times = np.full(len(numbers), made)
        table = {"number": numbers, "made": times, "value": np.sqrt(numbers)}
        self._producer.send(pa.table(table))
        self.sent = first + TUPLES_PER_TURN

    def _read(self) -> None:
        while not self._stopping.is_set():
            event = self.client.read(0.2)
            if isinstance(event, Tuples) and event.stable:
                table = event.table
                self.received.take(table["number"].to_numpy(), table["made"].to_numpy())


def _is_well(status: dict[str, Any]) -> bool:
    """Running and up to date, or asleep with a fresh checkpoint."""
    behind_us = now_us() - int(status.get("boundary", 0))
    return status.get("state") in ("stable", "suspended") and behind_us < 3_000_000
