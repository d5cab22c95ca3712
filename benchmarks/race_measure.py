"""One mode of benchmark race: the network runs, is disturbed, and is compared with an ideal run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.race_deployment import SOURCES, Running, nearest_places, write_deployment
from benchmarks.race_load import Load, LoadMeter
from benchmarks.race_missing import Watcher, without_an_input
from benchmarks.standby_chain import now_us, traffic_of
from holdfast.cluster.chaos import disturb
from holdfast.cluster.disturbances import Disturbance
from holdfast.cluster.networks import load_network
from holdfast.testing.undisturbed import logged_tuples, undisturbed

SLOWED_TO = 1 / 3
# Young JVMs compile what they run: for a while jobs take twice as long as later.
WARM_SECONDS = 12.0
CUT_SECONDS = 3.0
BEFORE_SECONDS = 2.0
FLOWING_SECONDS = 120.0
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Lengths:
    """How long things are looked at."""

    calm_s: float
    slowed_s: float
    cuts: int
    kills: int
    missing_s: float
    sums: int
    worlds: int


FULL = Lengths(60.0, 40.0, 10, 2, 20.0, 40, 5)
QUICK = Lengths(10.0, 8.0, 3, 0, 10.0, 24, 1)


@dataclass
class Seen:
    """What one mode gave."""

    calm: tuple[float, float] = (0.0, 0.0)
    nearest: tuple[float, float] | None = None
    slowed: tuple[float, float] = (0.0, 0.0)
    gaps_ms: list[float] = field(default_factory=list)
    kill_gaps_ms: list[float] = field(default_factory=list)
    bytes_per_second: float = 0.0
    loads: list[Load] = field(default_factory=list)
    identical: bool = False
    results: int = 0
    following: str = ""
    missing: tuple[float, float] = (0.0, 0.0)
    all_stable: bool = True


def watch(running: Running, seconds: float, seen: Seen) -> tuple[float, float]:
    """The median and the 99th percentile of the delays of alerts made in so many seconds."""
    meter = LoadMeter(running.deployment)
    start = now_us()
    time.sleep(seconds)
    end = now_us()
    seen.loads.append(meter.read())
    running.alerts.wait_made(end, FLOWING_SECONDS)
    delays = running.alerts.delays_ms(start, end)
    return float(np.percentile(delays, 50)), float(np.percentile(delays, 99))


def gap_ms(running: Running, disturbance: Callable[[], None]) -> float:
    """The longest time between results from a disturbance on, less the usual one."""
    time.sleep(BEFORE_SECONDS)
    start = now_us()
    usual = running.alerts.usual_interval_ms(start)
    disturbance()
    running.alerts.wait_made(now_us(), FLOWING_SECONDS)
    return max(0.0, running.alerts.longest_interval_ms(start, now_us()) - usual)


def measure(
    running: Running, lengths: Lengths, places: list[str] | None, watcher: Watcher, tell: Tell
) -> Seen:
    """``places``: see also what following the nearest would give."""
    seen = Seen()
    running.alerts.wait_made(now_us(), FLOWING_SECONDS)
    time.sleep(WARM_SECONDS)
    seen.following = running.alerts.following
    sent = sum(size for _, size in traffic_of(running.deployment).values())
    started = time.monotonic()
    seen.calm = watch(running, lengths.calm_s, seen)
    now = sum(size for _, size in traffic_of(running.deployment).values())
    seen.bytes_per_second = (now - sent) / (time.monotonic() - started)
    load = seen.loads[0]
    tell(
        f"calm: {seen.calm[0]:.0f} and {seen.calm[1]:.0f} ms, following {seen.following}; "
        f"the machine was busy for {load.busy:.0%} of the time, {load.own:.0%} with this, "
        f"{load.jobs_per_second:.1f} jobs a second of {load.job_ms:.0f} ms"
    )
    if places is not None:
        usual, matrix = running.deployment.distances.places, running.deployment.distances.matrix
        running.move(nearest_places(places, matrix, running.followed()))
        time.sleep(2.0)
        seen.nearest = watch(running, lengths.calm_s, seen)
        running.move(usual)
        tell(f"nearest: {seen.nearest[0]:.0f} and {seen.nearest[1]:.0f} ms")
    process = running.process_of(running.alerts.following)
    slow = Disturbance(lengths.slowed_s + 2.0, process, share=SLOWED_TO)
    slowing = threading.Thread(target=disturb, args=(running.deployment, slow), daemon=True)
    slowing.start()
    time.sleep(1.0)
    seen.slowed = watch(running, lengths.slowed_s, seen)
    slowing.join(30.0)
    tell(f"{process} slowed: {seen.slowed[0]:.0f} and {seen.slowed[1]:.0f} ms")
    running.alerts.wait_made(now_us(), FLOWING_SECONDS)
    for _ in range(lengths.cuts):
        seen.gaps_ms.append(gap_ms(running, lambda: cut(running)))
    tell(f"cut off: gaps of {[round(gap) for gap in seen.gaps_ms]} ms")
    for _ in range(lengths.kills):
        seen.kill_gaps_ms.append(gap_ms(running, lambda: kill(running)))
    seen.missing = without_an_input(running, watcher, lengths.missing_s)
    seen.all_stable = not watcher.tentative or watcher.ordered
    tell(f"an input missing: {seen.missing[0]:.0f} and {seen.missing[1]:.0f} ms for the other")
    return seen


def cut(running: Running) -> None:
    with running.cut_off(running.alerts.following):
        time.sleep(CUT_SECONDS)


def kill(running: Running) -> None:
    """Kill whom the operator follows, with everything beside it, and wait until it is back."""
    process = running.process_of(running.alerts.following)
    running.supervisor.kill(process)
    deadline = time.monotonic() + FLOWING_SECONDS
    time.sleep(CUT_SECONDS)
    while running.supervisor.uptime(process) < CUT_SECONDS and time.monotonic() < deadline:
        time.sleep(0.5)


def run_mode(
    directory: Path,
    protection: str,
    places: list[str],
    matrix: Mapping[tuple[str, str], float],
    lengths: Lengths,
    tell: Tell,
) -> Seen:
    directory.mkdir()
    deployment = write_deployment(directory, protection, places, matrix)
    running = Running(deployment)
    watcher = Watcher(deployment, ordered=protection == "active")
    try:
        tell(f"{protection} is up")
        nearest = places if protection == "active" else None
        seen = measure(running, lengths, nearest, watcher, tell)
        complete = running.finish() and watcher.finish(running.alerts.boundary)
        came, slow = running.alerts.table(), watcher.table()
    finally:
        watcher.stop()
        running.close()
    network = load_network(deployment.network, "local[2]", {})
    logs = deployment.data / "processes"
    sources = {name: logged_tuples(logs / f"entry-{name}" / "streams" / name) for name in SOURCES}
    expected = undisturbed(network, sources)
    seen.results = came.num_rows
    seen.identical = complete and _same(came, expected["alerts"])
    seen.identical &= watcher.is_all_of(slow, expected["slow"])
    tell(f"{protection}: {came.num_rows:,} results, identical {seen.identical}")
    return seen


def _same(came: pa.Table, expected: pa.Table) -> bool:
    columns = [name for name in came.column_names if name != "tmax"]
    return bool(
        came.select(columns).combine_chunks().equals(expected.select(columns).combine_chunks())
    )
