"""Racing against following one replica, over a wide area.

    make bench BENCH=race               some ten minutes
    make bench BENCH=race ARGS=--quick  four minutes
    make bench BENCH=race ARGS='--matrix FILE'    with round trips that were measured

The same network (race_deployment.py) in the same world (race_world.py) runs once with
``protection = "race"`` and once with ``"active"``, one after the other, and in each: undisturbed;
one site slowed to a third; all links of the replica that the operator follows cut without a word.
Active also with everybody following the nearest replica. Then one of the two inputs of a union is
cut off, and a watcher reads what it gives, without an order where replicas race (race_missing.py).
What came is compared with an undisturbed run over the same readings.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from pyspark.sql import SparkSession

from benchmarks.machine import describe_machine
from benchmarks.race_deployment import (
    PLACES,
    SOURCES,
    Running,
    nearest_places,
    usual_places,
    write_deployment,
)
from benchmarks.race_missing import Watcher, without_an_input
from benchmarks.race_sum import exact_sum_cost
from benchmarks.race_world import draw_places, made, measured
from benchmarks.standby_chain import now_us, traffic_of
from holdfast.cluster.chaos import disturb
from holdfast.cluster.disturbances import Disturbance
from holdfast.cluster.networks import load_network
from holdfast.testing.undisturbed import logged_tuples, undisturbed

BUSY = 0.8
SLOWED_TO = 1 / 3
CUT_SECONDS = 4.0
BEFORE_SECONDS = 3.0
FLOWING_SECONDS = 120.0
Tell = Callable[[str], None]
EXACT_SUM_BAR = 0.9
BARS = {
    "p50_over_active": 0.9,
    "p99_over_active": 0.8,
    "p50_over_nearest": 1.05,
    "p99_slowed_over_active": 0.8,
    "unordered_over_active": 0.2,
    "gap_over_active": 0.3,
}


@dataclass(frozen=True)
class Lengths:
    """How long things are looked at."""

    calm_s: float
    slowed_s: float
    cuts: int
    kills: int
    sums: int


FULL, QUICK = Lengths(60.0, 40.0, 10, 2, 40), Lengths(15.0, 12.0, 3, 0, 16)


@dataclass
class Seen:
    """What one mode gave."""

    calm: tuple[float, float] = (0.0, 0.0)
    nearest: tuple[float, float] | None = None
    slowed: tuple[float, float] = (0.0, 0.0)
    gaps_ms: list[float] = field(default_factory=list)
    kill_gaps_ms: list[float] = field(default_factory=list)
    bytes_per_second: float = 0.0
    busy: list[float] = field(default_factory=list)
    identical: bool = False
    results: int = 0
    following: str = ""
    missing: tuple[float, float] = (0.0, 0.0)
    all_stable: bool = True


def watch(running: Running, seconds: float, seen: Seen) -> tuple[float, float]:
    """The median and the 99th percentile of the delays of alerts made in so many seconds."""
    psutil.cpu_percent()
    start = now_us()
    time.sleep(seconds)
    end = now_us()
    seen.busy.append(psutil.cpu_percent() / 100)
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
    time.sleep(2.0)
    seen.following = running.alerts.following
    sent = sum(size for _, size in traffic_of(running.deployment).values())
    started = time.monotonic()
    seen.calm = watch(running, lengths.calm_s, seen)
    now = sum(size for _, size in traffic_of(running.deployment).values())
    seen.bytes_per_second = (now - sent) / (time.monotonic() - started)
    tell(f"calm: {seen.calm[0]:.0f} and {seen.calm[1]:.0f} ms, following {seen.following}")
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
    seen.missing = without_an_input(running, watcher)
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


def outcome(race: Seen, active: Seen, sums: Mapping[str, float]) -> dict[str, Any]:
    """The figures, one over the other."""
    nearest = active.nearest or active.calm
    gap, gap_active = statistics.median(race.gaps_ms), statistics.median(active.gaps_ms)
    busy = max([*race.busy, *active.busy])
    figures: dict[str, Any] = {
        "p50_over_active": race.calm[0] / active.calm[0],
        "p99_over_active": race.calm[1] / active.calm[1],
        "p50_over_nearest": race.calm[0] / nearest[0],
        "p99_slowed_over_active": race.slowed[1] / active.slowed[1],
        "unordered_over_active": race.missing[1] / max(active.missing[1], 1.0),
        "unordered_all_stable": race.all_stable,
        "gap_ms": gap,
        "gap_ms_active": gap_active,
        "gap_over_active": gap / max(gap_active, 1.0),
        "identical": race.identical and active.identical,
        "traffic_over_active": race.bytes_per_second / active.bytes_per_second,
        "exact_sum_cost": sums["exact_sum_cost"],
        "busy": busy,
        "counts": busy <= BUSY,
    }
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def told(seen: Seen) -> dict[str, Any]:
    """What one mode gave, for the page."""
    found: dict[str, Any] = {
        "p50_ms": round(seen.calm[0], 1),
        "p99_ms": round(seen.calm[1], 1),
        "p50_slowed_ms": round(seen.slowed[0], 1),
        "p99_slowed_ms": round(seen.slowed[1], 1),
        "p50_missing_ms": round(seen.missing[0], 1),
        "p99_missing_ms": round(seen.missing[1], 1),
        "gaps_ms": [round(gap, 1) for gap in seen.gaps_ms],
        "kill_gaps_ms": [round(gap, 1) for gap in seen.kill_gaps_ms],
        "bytes_per_second": round(seen.bytes_per_second),
        "results": seen.results,
        "following": seen.following,
    }
    if seen.nearest is not None:
        found |= {"p50_nearest_ms": round(seen.nearest[0], 1)}
        found |= {"p99_nearest_ms": round(seen.nearest[1], 1)}
    return found


def passes(figures: Mapping[str, Any]) -> bool:
    within = all(figures[name] <= bar for name, bar in BARS.items())
    within = within and figures["exact_sum_cost"] >= EXACT_SUM_BAR
    within = within and figures["unordered_all_stable"]
    return within and figures["identical"] and figures["counts"]


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four minutes")
    parser.add_argument("--matrix", type=Path, help="measured round trips, in milliseconds")
    parser.add_argument("--seed", type=int, default=1, help="of the world")
    parser.add_argument("--record", action="store_true", help="keep the figures in docs/results")
    options = parser.parse_args(arguments)
    chance = random.Random(options.seed)
    names, every = made(chance) if options.matrix is None else measured(options.matrix)
    places, matrix = draw_places(names, every, PLACES, chance)
    directory = Path(tempfile.mkdtemp(prefix="holdfast-race-"))
    started = time.monotonic()

    def tell(text: str) -> None:
        print(f"{time.monotonic() - started:7.1f} s  {text}", file=sys.stderr, flush=True)

    tell(f"the world: {', '.join(f'{n} {p}' for n, p in usual_places(places).items())}")
    lengths = QUICK if options.quick else FULL
    seen = {
        mode: run_mode(directory / mode, mode, places, matrix, lengths, tell)
        for mode in ("race", "active")
    }
    spark = SparkSession.getActiveSession()
    assert spark is not None, "the undisturbed runs left none"
    sums = exact_sum_cost(spark, lengths.sums)
    figures = outcome(seen["race"], seen["active"], sums)
    summary = {
        "bench": "race",
        **figures,
        "sums": {name: round(value, 3) for name, value in sums.items()},
        "modes": {mode: told(each) for mode, each in seen.items()},
        "places": usual_places(places),
        "world": "made" if options.matrix is None else "measured",
        "seconds": round(time.monotonic() - started, 1),
        "machine": describe_machine(),
    }
    if figures["identical"]:
        shutil.rmtree(directory, ignore_errors=True)
    else:
        tell(f"see {directory}")
    if not figures["counts"]:
        tell(f"the machine was busy for {figures['busy']:.0%} of the time: this does not count")
    if options.record:
        from benchmarks.race_page import record_page

        record_page(summary, " ".join(each for each in sys.argv[1:] if each != "--record"))
    print(json.dumps(summary))
    return 0 if passes(figures) else 1


if __name__ == "__main__":
    sys.exit(main())
