"""Racing against following one replica, over a wide area.

    make bench BENCH=race               some ten minutes
    make bench BENCH=race ARGS=--quick  four minutes
    make bench BENCH=race ARGS='--matrix FILE'    with round trips that were measured

The same network (race_deployment.py) in the same world (race_world.py) is deployed twice, with
``protection = "race"`` and with ``"active"``. Readings come to one of them at a time, in turns:
undisturbed; one site slowed to a third; all links of the replica that the operator follows cut
without a word. Whom active readers follow is at another site in each undisturbed turn
(race_places.py), and in one more at the nearest. Then one of the two inputs of a union is cut off,
and a watcher reads what it gives. Where replicas race both readers take results without an order;
what an order would have cost is told beside it. What came is compared with an undisturbed run over
the same readings. At last the whole network, with many servers, runs in the simulator
(race_simulated.py), with jobs as long as they took here.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyspark.sql import SparkSession

from benchmarks.machine import describe_machine
from benchmarks.race_measure import FULL, QUICK, Seen, run_modes
from benchmarks.race_places import PLACES, TURNS, links_ms, usual_places
from benchmarks.race_reader import Ages
from benchmarks.race_simulated import simulated
from benchmarks.race_sum import exact_sum_cost
from benchmarks.race_world import draw_places, made, measured

BUSY = 0.8
EXACT_SUM_BAR = 0.9
BARS = {
    "p50_over_active": 0.9,
    "p99_over_active": 0.8,
    "p50_over_nearest": 1.05,
    "p99_slowed_over_active": 0.8,
    "unordered_over_active": 0.2,
    "gap_over_active": 0.3,
}


def outcome(race: Seen, active: Seen, sums: Mapping[str, float]) -> dict[str, Any]:
    """The figures, one over the other."""
    gap, gap_active = statistics.median(race.gaps_ms), statistics.median(active.gaps_ms)
    loads = [*race.loads, *active.loads]
    busy = max(load.busy for load in loads)
    bytes_sent = [statistics.mean(mode.bytes_per_second[: len(TURNS)]) for mode in (race, active)]
    figures: dict[str, Any] = {
        "p50_over_active": p50(race.calm) / p50(active.calm),
        "p99_over_active": p99(race.calm) / p99(active.calm),
        "p50_over_nearest": p50(race.calm) / p50(active.nearest),
        "p50_in_order_over_active": p50(race.in_order) / p50(active.calm),
        "p99_in_order_over_active": p99(race.in_order) / p99(active.calm),
        "p50_in_order_over_nearest": p50(race.in_order) / p50(active.nearest),
        "p99_slowed_over_active": p99(race.slowed) / p99(active.slowed),
        "unordered_over_active": p99(race.missing) / p99(active.missing),
        "unordered_all_stable": race.all_stable,
        "gap_ms": gap,
        "gap_ms_active": gap_active,
        "gap_over_active": gap / max(gap_active, 1.0),
        "kill_gap_ms": _median(race.kill_gaps_ms),
        "kill_gap_ms_active": _median(active.kill_gaps_ms),
        "identical": race.identical and active.identical,
        "traffic_over_active": bytes_sent[0] / bytes_sent[1],
        "exact_sum_cost": sums["exact_sum_cost"],
        "busy": busy,
        "busy_own": max(load.own for load in loads),
        "counts": busy <= BUSY,
    }
    return {
        name: round(value, 3) if isinstance(value, float) else value
        for name, value in figures.items()
    }


def _median(values: Sequence[float]) -> float | None:
    """None of nothing: the quick form kills nobody."""
    return statistics.median(values) if values else None


def p50(ages: Ages) -> float:
    return float(np.percentile(ages, 50))


def p99(ages: Ages) -> float:
    return float(np.percentile(ages, 99))


def told(seen: Seen) -> dict[str, Any]:
    """What one mode gave, for the page."""
    found: dict[str, Any] = {}
    for name in ("calm", "in_order", "nearest", "slowed", "missing"):
        ages = getattr(seen, name)
        if len(ages):
            found |= {f"p50_{name}_ms": round(p50(ages), 1), f"p99_{name}_ms": round(p99(ages), 1)}
    calm = seen.loads[: len(TURNS)]
    return found | {
        "gaps_ms": [round(gap, 1) for gap in seen.gaps_ms],
        "kill_gaps_ms": [round(gap, 1) for gap in seen.kill_gaps_ms],
        "bytes_per_second": round(statistics.mean(seen.bytes_per_second[: len(TURNS)])),
        "results": seen.results,
        "results_calm": len(seen.calm),
        "busy": [round(load.busy, 3) for load in seen.loads],
        "busy_own": [round(load.own, 3) for load in seen.loads],
        "jobs_per_second": round(statistics.mean(load.jobs_per_second for load in calm), 2),
        "job_ms": round(statistics.mean(load.job_ms for load in calm), 1),
    }


def missed(figures: Mapping[str, Any]) -> list[str]:
    """The bars that were not reached."""
    found = [name for name, bar in BARS.items() if figures[name] > bar]
    if figures["exact_sum_cost"] < EXACT_SUM_BAR:
        found.append("exact_sum_cost")
    wanted = ("unordered_all_stable", "identical", "counts")
    return found + [name for name in wanted if not figures[name]]


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
    seen = run_modes(directory, places, matrix, lengths, tell)
    spark = SparkSession.getActiveSession()
    assert spark is not None, "the undisturbed runs left none"
    sums = exact_sum_cost(spark, lengths.sums)
    tell(f"exact sums: {sums['exact_sum_cost']:.3f} of the throughput of ordered ones")
    modes = {mode: told(each) for mode, each in seen.items()}
    job_ms = statistics.mean(each["job_ms"] for each in modes.values())
    whole = simulated(lengths.worlds, int(1_000 * job_ms))
    tell(f"the whole network, simulated: a gap of {whole['gap_over_active']} of active's")
    figures = outcome(seen["race"], seen["active"], sums)
    summary = {
        "bench": "race",
        **figures,
        "missed": missed(figures),
        "sums": {name: round(value, 3) for name, value in sums.items()},
        "modes": modes,
        "links_ms": links_ms(places, matrix),
        "missing_s": lengths.missing_s,
        "simulated": whole,
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
    return 1 if missed(figures) else 0


if __name__ == "__main__":
    sys.exit(main())
