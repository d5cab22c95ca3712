"""The monitoring network of benchmark race, deployed over a wide area on one machine.

    load readings ────▶ merged (a union of each kind) ──▶ alerts (join on the server that was busy,
    latency readings ─▶   └──▶ slow (the long ones)              or was far away) ──▶ the operator
                                └──▶ a watcher, beside the operator

Two places send readings of each kind. Two fragments have three replicas each, one at each of
three sites; a site is one process with one Spark driver. Replicas with the same number are at
different sites, so that whoever follows the first that is named follows somebody far away.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.race_places import (
    FRAGMENTS,
    READER,
    SITES,
    SOURCES,
    WATCHER,
    followed_at,
    site_of,
    usual_places,
)
from benchmarks.race_reader import Reader
from benchmarks.race_world import JITTER_MS, matrix_text
from benchmarks.standby_chain import now_us
from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment, load_deployment
from holdfast.flight.distance import Distance
from holdfast.flight.peers import call
from holdfast.plans.addresses import Addresses
from holdfast.producer import Producer
from holdfast.testing.deployed import supervised

SERVERS = 10
# No part of a bucket, so that readings come at any time of it in both modes.
TURN_SECONDS = 0.6
BUCKET_MS = 500
# As long until somebody counts as gone as by default, with fewer questions on the way: all these
# processes have two processors, and asking takes more of them than anything else but jobs.
HEARTBEAT_MS, MISSES = 375, 2
FLOWING_SECONDS = 120.0

NETWORK = f"""
from holdfast import Network

network = Network("race", bucket="{BUCKET_MS} ms", partitions=1)
LOAD = "server bigint, load double, load_made bigint"
LATENCY = "origin bigint, server bigint, ms double, made bigint"


def united(columns, *names):
    first, *others = [network.source(name, columns).fragment("merged") for name in names]
    return first.union(*others)


loads = united(LOAD, "load_east", "load_west").fragment("alerts")
latencies = united(LATENCY, "latency_east", "latency_west")
latencies.filter("ms > 50.0").output("slow")
alerts = latencies.fragment("alerts").join(loads, on="server", within="{BUCKET_MS} ms")
alerts = alerts.filter("ms > 50.0").selectExpr(
    "origin", "server", "ms", "load > 0.8 AS busy", "greatest(made, load_made) AS made"
)
alerts.output("alerts")
"""


def write_deployment(
    directory: Path, protection: str, places: list[str], matrix: Mapping[tuple[str, str], float]
) -> Deployment:
    (directory / "network.py").write_text(NETWORK)
    (directory / "latencies.txt").write_text(matrix_text(places, matrix))
    at = ", ".join(f'{node} = "{place}"' for node, place in usual_places(places).items())
    lines = [
        'network = "network.py"\nchaos = true\n[timing]\ndelay = "20 seconds"',
        f'heartbeat = "{HEARTBEAT_MS} ms"\nmisses_until_down = {MISSES}',
        '[spark]\nmaster = "local[1]"',
        f'[distances]\nmatrix = "latencies.txt"\njitter = "{JITTER_MS:g} ms"\nplaces = {{ {at} }}',
        *(f"[sources.{name}]\nkeep = true" for name in SOURCES),
    ]
    for fragment in FRAGMENTS:
        at_sites = [SITES[site_of(fragment, number)] for number in range(len(SITES))]
        lines.append(
            f'[fragments.{fragment}]\nprotection = "{protection}"\nreplicas = {len(SITES)}\n'
            f"colocate = {at_sites}"
        )
    lines.append(f'[clients.{READER}]\noutput = "alerts"')
    lines.append(f'[clients.{WATCHER}]\noutput = "slow"')
    (directory / "deployment.toml").write_text("\n".join(lines) + "\n")
    return load_deployment(directory / "deployment.toml")


class Readings:
    """What the servers of both kinds of places report, one after the other, while they do."""

    def __init__(self, deployment: Deployment) -> None:
        self._producers = {
            name: Producer.of(deployment.path, name, name="readings") for name in SOURCES
        }
        self._random = np.random.default_rng(1)
        self._flowing, self._stopping = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def flow(self) -> None:
        self._flowing.set()

    def pause(self) -> None:
        self._flowing.clear()

    def _run(self) -> None:
        number, due = 0, 0.0
        while not self._stopping.is_set():
            if not self._flowing.wait(0.2):
                continue
            # One after the other: what has nothing to do with each other comes at any time.
            name = SOURCES[number % len(SOURCES)]
            self._producers[name].send(self._rows(name, number // len(SOURCES)))
            number += 1
            due = max(due + TURN_SECONDS / len(SOURCES), time.monotonic())
            self._stopping.wait(max(0.0, due - time.monotonic()))

    def _rows(self, name: str, turn: int) -> pa.Table:
        half = SERVERS // 2
        own = np.arange(half) + (half if name.endswith("west") else 0)
        made = np.full(half, now_us())
        if name.startswith("load"):
            loads = self._random.random(half)
            return pa.table({"server": own, "load": loads, "load_made": made})
        others = (own + 1 + turn) % SERVERS
        waits = self._random.exponential(120.0, half)
        return pa.table({"origin": own, "server": others, "ms": waits, "made": made})

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(30.0)
        for producer in self._producers.values():
            producer.close()


class Running:
    """The network in one mode, with its readings and its readers.

    Who races need not wait for an order; who follows one replica has its order.
    """

    def __init__(self, deployment: Deployment, mode: str, places: list[str]) -> None:
        self.deployment, self.mode, self.places = deployment, mode, places
        self._stack = contextlib.ExitStack()
        self.supervisor = self._stack.enter_context(supervised(deployment))
        self.wait_stable()
        self.operator = self._reader("alerts", READER)
        self.watcher: Reader | None = None
        self.readings = Readings(deployment)
        self._stack.callback(self.readings.close)

    def _reader(self, output: str, name: str) -> Reader:
        reader = Reader(self.deployment, output, name, ordered=self.mode == "active")
        self._stack.callback(reader.close)
        return reader

    def watch(self) -> Reader:
        """The watcher, who begins to read when it is first asked for."""
        if self.watcher is None:
            self.watcher = self._reader("slow", WATCHER)
        return self.watcher

    def wait_stable(self, timeout_s: float = 120.0) -> None:
        """Until everybody is well: nobody is followed because the others were still starting."""
        names = [f"{fragment}-{number + 1}" for fragment in FRAGMENTS for number in range(3)]
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            found = node_status(self.deployment, names)
            if all(found[name].get("state") == "stable" for name in names):
                return
            time.sleep(0.2)
        raise TimeoutError(f"not all replicas were stable after {timeout_s:g} s")

    @contextlib.contextmanager
    def flowing(self) -> Iterator[None]:
        """Readings come, and results of them; at the end all of them have come out."""
        start = now_us()
        self.readings.flow()
        try:
            self.operator.wait_made(start, FLOWING_SECONDS)
            yield
        finally:
            self.readings.pause()
        if not self.drained():
            raise TimeoutError(f"results of {self.mode} did not come out")

    def drained(self) -> bool:
        """Wait until nothing is under way any more; whether it is so."""
        until = now_us() + 500 * BUCKET_MS
        readers = [self.operator, *([self.watcher] if self.watcher is not None else [])]
        return all(reader.wait_until(until, FLOWING_SECONDS) for reader in readers)

    def followed(self) -> dict[str, str]:
        """Of each fragment the replica whom the operator follows, or whom that one follows."""
        alerts = self.operator.following
        inputs = node_status(self.deployment, [alerts])[alerts]["inputs"]
        upstream = [str(each["from"]) for each in inputs.values()]
        return {name.rpartition("-")[0]: name for name in (alerts, *upstream)}

    def tell_links(self, node: str, options: dict[str, object]) -> None:
        security = self.deployment.security.read()
        location = Addresses.read(self.deployment).book(security)[node]
        call(location, security, "holdfast", "links", options, timeout_s=20.0)

    def follow_at(self, at: tuple[int, int]) -> None:
        """Put those who are followed at certain sites."""
        self._move(followed_at(self.places, self.followed(), at))

    def _move(self, places: Mapping[str, str]) -> None:
        matrix = self.deployment.distances.matrix
        for node, here in places.items():
            ways = {
                other: Distance(matrix[here, there], JITTER_MS)
                for other, there in places.items()
                if other != node
            }
            if node == WATCHER:
                continue  # it looks at what does not depend on distances
            if node == READER:
                for other, distance in ways.items():
                    self.operator.client.links.set_distance(other, distance)
            else:
                listed = {other: asdict(distance) for other, distance in ways.items()}
                self.tell_links(node, {"delay": listed})

    @contextlib.contextmanager
    def cut_off(self, node: str) -> Iterator[None]:
        """Nothing that a node sends arrives, and nothing that is sent to it."""
        everyone = [*self.deployment.endpoints, READER]
        self.tell_links(node, {"cut": [name for name in everyone if name != node]})
        try:
            yield
        finally:
            self.tell_links(node, {"heal": None})

    @contextlib.contextmanager
    def without(self, source: str) -> Iterator[None]:
        """Nothing of one source comes to whoever merges it."""
        names = [f"merged-{number + 1}" for number in range(len(SITES))]
        for name in names:
            self.tell_links(name, {"cut": [f"entry-{source}"]})
        try:
            yield
        finally:
            for name in names:
                self.tell_links(name, {"heal": None})

    def process_of(self, node: str) -> str:
        found = self.deployment.processes.items()
        return next(process for process, nodes in found if node in nodes)

    def close(self) -> None:
        self._stack.close()
