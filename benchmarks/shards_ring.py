"""A ring of hybrid shards as real processes, which are killed: what is lost, and for how long.

One client reads counts of every 200 ms for sixteen servers, behind them are windows of an hour for
each of many keys, so that a shard has a state that is worth keeping.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.shards_delivery import kill_one
from holdfast.client import Client, View
from holdfast.cluster.networks import load_network
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor
from holdfast.deployment import Deployment, load_deployment
from holdfast.log import StreamLog
from holdfast.producer import Producer
from holdfast.stream_events import Boundary
from holdfast.testing.deployed import Load, supervised
from holdfast.testing.undisturbed import logged_tuples, undisturbed

NETWORK = """
from pyspark.sql import functions as F
from holdfast import Network, window

network = Network("ring", bucket="200 ms")
load = network.source("load", "server bigint, reading bigint, value double, payload string")
load.groupBy(window("1 hour"), "server", "reading").agg(F.avg("value").alias("v")).output("hours")
counts = load.groupBy(window("200 ms"), "server")
counts.agg(F.count("*").alias("n"), F.sum("value").alias("v")).output("counts")
"""
DEPLOYMENT = """
network = "network.py"
[timing]
delay = "3 seconds"
heartbeat = "100 ms"
[sources.load]
keep = true
[fragments.main]
shards = {shards}
protection = "hybrid"
[fragments.main.standby]
promote_after = "1500 ms"
[clients.reader]
output = "counts"
"""
RATE = 3_000
SERVERS = 16
WAIT_SECONDS = 120.0
# How many digits more each tuple has, one after the other.
WIDTHS = (0, 400)
READINGS = 100_000
# Of kills at random, so many follow one another before every shard is waited for at home.
TOGETHER = 3


@dataclass(frozen=True)
class Outcome:
    """What a run gave; gaps in milliseconds, beyond the time that passes between results anyway.

    at_work          how many of the kills hit a process that did some work just then.
    lost, doubled    results, as of the tuples that the entry point has logged.
    entry_lost       tuples that were sent and are not in that log; entry_doubled, more than once.
    """

    kills: int
    at_work: int
    tuples: int
    results: int
    lost: int
    doubled: int
    identical: bool
    entry_lost: int
    entry_doubled: int
    takeover_gaps_ms: list[float]
    reinstate_gaps_ms: list[float]
    usual_ms: float
    messages_per_1000: float
    record_bytes: float
    # By size of tuples, in bytes as they are logged: the bytes that are sent for each.
    mirrored: list[tuple[float, float]]
    open_windows: int


def readings(first: int, count: int, width: int = 0) -> pa.Table:
    """Tuples that depend on their numbers only, and as many digits as no operator looks at."""
    numbers = np.arange(first, first + count)
    random = np.random.default_rng(first)
    payload = [random.bytes(width // 2).hex() for _ in range(count)] if width else [""] * count
    return pa.table(
        {
            "server": numbers % SERVERS,
            "reading": numbers % READINGS,
            "value": random.random(count),
            "payload": pa.array(payload, pa.string()),
        }
    )


class Watch:
    """A client that notes when stable results came."""

    def __init__(self, deployment: Deployment) -> None:
        self.view = View()
        self.arrivals: list[float] = []
        self._client = Client.of(deployment.path, "counts", name="reader")
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            event = self._client.read(0.05)
            if event is None:
                continue
            self.view.apply(event)
            if isinstance(event, Boundary):
                self.arrivals.append(time.monotonic())

    def reach(self, stime: int) -> None:
        """Wait until everything is stable up to a time."""
        deadline = time.monotonic() + WAIT_SECONDS
        while self.view.stable_until <= stime:
            if time.monotonic() > deadline:
                raise TimeoutError(f"stable up to {self.view.stable_until}, not {stime}")
            time.sleep(0.02)

    def longest_ms(self, since: float) -> float:
        """The longest time without results since a moment, that before its first ones included."""
        times = [each for each in list(self.arrivals) if each >= since]
        steps = np.diff([since, *times])
        return float(max(steps, default=0.0)) * 1e3

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)
        self._client.close()


def now_us() -> int:
    return int(time.time() * 1e6)


def run_ring(directory: Path, shards: int, watched: int, kills: int, windows: int) -> Outcome:
    """Kill shards: ``watched`` times one and look at the gaps, then anything at random."""
    (directory / "network.py").write_text(NETWORK)
    (directory / "deployment.toml").write_text(DEPLOYMENT.format(shards=shards))
    deployment = load_deployment(directory / "deployment.toml")
    takeovers, reinstatements = [], []
    with supervised(deployment) as supervisor:
        with Producer.of(deployment.path, "load", name="before") as producer:
            producer.send(readings(0, windows))
        watch = Watch(deployment)
        widths = [0]
        load = Load(
            deployment, "load", lambda first, count: readings(first, count, widths[-1]), RATE
        )
        watch.reach(now_us())
        _wait_at_home(deployment, shards)
        begun = time.monotonic()
        time.sleep(2.0)
        usual_ms = (
            float(np.median(np.diff([each for each in watch.arrivals if each > begun]))) * 1e3
        )
        mirrored = []
        for width in WIDTHS:
            widths.append(width)
            time.sleep(0.5)
            logged, tuples = _logged_bytes(deployment), load.sent
            messages, record_bytes = _records(deployment, shards, load, 3.0)
            size = (_logged_bytes(deployment) - logged) / max(1, load.sent - tuples)
            mirrored.append((round(size, 1), round(record_bytes, 2)))
        widths.append(0)
        for number in range(watched):
            killed = time.monotonic()
            assert supervisor.kill(f"main.{number % shards + 1}")
            watch.reach(now_us())
            takeovers.append(max(0.0, watch.longest_ms(killed) - usual_ms))
            back = time.monotonic()
            _wait_at_home(deployment, shards)
            watch.reach(now_us())
            reinstatements.append(max(0.0, watch.longest_ms(back) - usual_ms))
        at_work = watched + _kill_anything(supervisor, watch, shards, kills - watched)
        sent = load.stop()
        watch.reach(now_us())
        watch.close()
    counted = compare(deployment, watch.view, (windows, sent))
    return Outcome(
        kills,
        at_work,
        sent + windows,
        *counted,
        [round(each, 1) for each in takeovers],
        [round(each, 1) for each in reinstatements],
        round(usual_ms, 1),
        round(messages, 2),
        mirrored[0][1],
        mirrored,
        windows,
    )


def _kill_anything(supervisor: Supervisor, watch: Watch, shards: int, kills: int) -> int:
    """Kill processes in a random order; how many of them did some work just then.

    What is not at work has nothing to lose. So each kill waits until results came that are newer
    than the one before, and now and then until every shard is at home: between these a process may
    be killed that is not back, and the one that does its work.
    """
    deployment = supervisor.deployment
    names = [f"main.{number + 1}" for number in range(shards)] + ["main-1", "main-2", "entry-load"]
    plan = [names[number % len(names)] for number in range(kills)]
    moments = random.Random(7)
    moments.shuffle(plan)
    at_work = 0
    for number, name in enumerate(plan):
        watch.reach(now_us())
        if number % TOGETHER == 0:
            _wait_at_home(deployment, shards)
        time.sleep(moments.uniform(0, 0.5))
        said = node_status(deployment, list(deployment.processes[name])).values()
        at_work += any(one.get("awake", "error" not in one) for one in said)
        kill_one(supervisor, name)
    return at_work


def _copies(deployment: Deployment, shards: int) -> dict[str, dict[str, Any]]:
    names = [f"main.{shard + 1}-{copy}" for shard in range(shards) for copy in (1, 2)]
    return node_status(deployment, names)


def _wait_at_home(deployment: Deployment, shards: int) -> None:
    """Until each shard does its own work, and its other copy sleeps, with a checkpoint of late."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        found = _copies(deployment, shards)
        asleep = [
            status
            for status in found.values()
            if status.get("copy") == "suspended" and status["boundary"] > now_us() - 5_000_000
        ]
        homes = [found[f"main.{shard + 1}-1"].get("copy") for shard in range(shards)]
        if len(asleep) == shards and set(homes) == {"primary"}:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"not every shard does its own work: {found}")
        time.sleep(0.1)


def _records(
    deployment: Deployment, shards: int, load: Load, seconds: float
) -> tuple[float, float]:
    """Checkpoints and their confirmations for each 1,000 tuples, and their bytes for each tuple.

    Acknowledgements go with pings.
    """

    def sent() -> tuple[int, int]:
        found = [status["checkpoints"] for status in _copies(deployment, shards).values()]
        return sum(int(one["sent"]) for one in found), sum(int(one["bytes"]) for one in found)

    (messages, size), tuples = sent(), load.sent
    time.sleep(seconds)
    (messages_then, size_then), passed = sent(), max(1, load.sent - tuples)
    return 2_000 * (messages_then - messages) / passed, (size_then - size) / passed


def _logged_bytes(deployment: Deployment) -> int:
    """What the entry point has written of all tuples: it keeps them.

    Not the size of its files, which have room reserved at their ends.
    """
    path = deployment.data / "processes" / "entry-load" / "streams" / "load"
    with StreamLog.open(path, read_only=True) as log:
        return log.size_bytes


def compare(
    deployment: Deployment, view: View, sent: Sequence[int]
) -> tuple[int, int, int, bool, int, int]:
    """Results, how many are lost and how many doubled, and whether they are equal to the bit; and
    how many of the tuples that were ``sent`` the entry point has lost, and how many it has twice.

    What results should be is computed from its log, so what it has lost itself shows there only.
    """
    network = load_network(deployment.network, "local[2]", {})
    logged = logged_tuples(deployment.data / "processes" / "entry-load" / "streams" / "load")
    expected = undisturbed(network, {"load": logged}, view.stable_until)["counts"]
    found = view.stable
    assert found is not None
    keys = [_keys(found), _keys(expected)]
    unique = set(keys[0])
    lost = len(set(keys[1]) - unique)
    doubled = len(keys[0]) - len(unique)
    identical = found.combine_chunks().equals(expected.combine_chunks())
    return found.num_rows, lost, doubled, identical, *of_entry(logged["reading"], sent)


def of_entry(logged: pa.ChunkedArray, sent: Sequence[int]) -> tuple[int, int]:
    """How many tuples a log lacks, and has too often, by the readings in it.

    sent  how many each producer has sent, with numbers from 0 on.
    """
    counts = np.bincount(logged.to_numpy(), minlength=READINGS).astype(np.int64)
    for count in sent:
        counts -= np.bincount(np.arange(count) % READINGS, minlength=READINGS)
    return int(-counts[counts < 0].sum()), int(counts[counts > 0].sum())


def _keys(table: pa.Table) -> list[tuple[int, int]]:
    times = table["stime"].cast(pa.int64()).to_pylist()
    return list(zip(times, table["server"].to_pylist(), strict=True))
