"""How fast the simulator is, how much it visits, and whether anything breaks.

Speed is measured on one fixed network of ten replicas (five fragments of two, three sources)
that suffers a failure every few seconds, on as many processes as there are cores. Then random
seeds run, each a network and a schedule of its own, with every checker.

    make bench BENCH=simulation                 2,000 seeds
    make bench BENCH=simulation ARGS=--quick    100 seeds
    make bench BENCH=simulation ARGS=--record   in full, and docs/results/simulation.*

With --against COMMIT the speed of an earlier version is measured in turn with this one's, so that
what else the machine does counts for both; over_before is the median of how they compare.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from random import Random
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, get_args

from matplotlib.figure import Figure

from benchmarks.machine import describe_machine, machine_text
from benchmarks.record import record
from holdfast.core.events import Event
from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.simulation import networks, schedules
from holdfast.simulation.coverage import TABLES, Coverage
from holdfast.simulation.executor import Computation, Join, Operator, Union, Window
from holdfast.simulation.faults import Schedule
from holdfast.simulation.layout import layout_of, place
from holdfast.simulation.main import collected_afterwards, simulate
from holdfast.simulation.networks import Fragment, NetworkSpec
from holdfast.simulation.run import Result, Scenario, Verdict, run, scenario_of

# So many times two versions are measured in turn.
_ROUNDS = 5

COMMAND = "make bench BENCH=simulation ARGS=--record"


def ten_replicas() -> NetworkSpec:
    """Three sources, five fragments of two replicas each, the paper's X and α."""
    timing = Timing(bucket_us=500_000, heartbeat_interval_us=500_000)

    def fragment(name: str, operator: Operator) -> Fragment:
        return Fragment(
            name,
            Computation(((f"{name}.0", operator),)),
            (f"{name}a", f"{name}b"),
            Policy.PROCESS,
            Policy.PROCESS,
            Reconcile.RESTORE,
        )

    fragments = (
        fragment("f0", Union(("s0", "s1"))),
        fragment("f1", Window(("s1", "s2"), 2 * SECOND_US)),
        fragment("f2", Join(("f0.0", "s2"), SECOND_US)),
        fragment("f3", Union(("f1.0", "f2.0"))),
        fragment("f4", Window(("f3.0",), 5 * SECOND_US)),
    )
    return networks.build(timing, ("s0", "s1", "s2"), fragments, ("f4.0",))


def long_run(seed: int, seconds: int) -> Scenario:
    """The fixed network with a failure every few seconds, and a calm at the end."""
    spec = ten_replicas()
    random = Random(seed)
    server_of = place(spec, random)
    layout = layout_of(spec, server_of)
    faults = []
    at = 5
    while at < seconds - 60:
        faults.append(schedules.fault(random, at * SECOND_US, layout))
        at += random.randint(2, 20)
    last = max((one.end for one in faults), default=0)
    end = max(seconds * SECOND_US, last + 30 * SECOND_US)
    return Scenario(seed, spec, server_of, Schedule(tuple(faults), end))


def timed(seed_and_seconds: tuple[int, int]) -> tuple[Result, float]:
    began = time.process_time()
    with collected_afterwards():
        result = run(long_run(*seed_and_seconds))
    return result, time.process_time() - began


def measure_speed(seconds: int, workers: int) -> tuple[float, float]:
    """Simulated seconds per second of all workers together, and per second of a processor."""
    with ProcessPoolExecutor(workers) as pool:
        list(pool.map(timed, [(seed, 60) for seed in range(workers)]))  # start the workers
        began = time.monotonic()
        results = list(pool.map(timed, [(seed, seconds) for seed in range(2 * workers)]))
        elapsed_s = time.monotonic() - began
    for result, _ in results:
        if result.verdict is not Verdict.FINE:
            raise SystemExit(f"seed {result.seed}: {result.reason}")
    simulated_s = sum(result.simulated_s for result, _ in results)
    return simulated_s / elapsed_s, simulated_s / sum(cpu_s for _, cpu_s in results)


# Runs where an earlier version is unpacked; its benchmark has the same function.
_BEFORE = """
import json, sys
sys.path[:0] = ["src", "."]
from benchmarks.simulation import measure_speed
print(json.dumps(measure_speed(int(sys.argv[1]), int(sys.argv[2]))))
"""


def measure_before(commit: str, seconds: int, workers: int) -> tuple[float, float]:
    """The same of an earlier version."""
    with TemporaryDirectory() as directory:
        packed = subprocess.run(
            ["git", "archive", commit, "src", "benchmarks"], check=True, capture_output=True
        )
        with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
            archive.extractall(directory, filter="data")
        command = [sys.executable, "-c", _BEFORE, str(seconds), str(workers)]
        done = subprocess.run(command, cwd=directory, check=True, capture_output=True, text=True)
    speed, per_cpu = json.loads(done.stdout.splitlines()[-1])
    return speed, per_cpu


def compare(commit: str | None, seconds: int, workers: int) -> dict[str, float]:
    """The speed of this version, and of another in turn with it: the medians of some rounds."""
    rounds = 1 if commit is None else _ROUNDS
    now, before = [], []
    for _ in range(rounds):
        now.append(measure_speed(seconds // rounds, workers))
        if commit is not None:
            before.append(measure_before(commit, seconds // rounds, workers))
    found = _medians(now, "")
    if before:
        found |= _medians(before, "_before")
        ratios = [
            (one[0] / other[0], one[1] / other[1]) for one, other in zip(now, before, strict=True)
        ]
        found["over_before"], found["over_before_by_cpu"] = (
            round(median(each), 3) for each in zip(*ratios, strict=True)
        )
    return found


def _medians(speeds: list[tuple[float, float]], which: str) -> dict[str, float]:
    by_clock, by_cpu = (round(median(each), 1) for each in zip(*speeds, strict=True))
    return {
        f"simulated_seconds_per_second{which}": by_clock,
        f"simulated_seconds_per_cpu_second{which}": by_cpu,
    }


@dataclass
class Swept:
    """What came of the seeds."""

    seeds: int
    violations: int = 0
    simulated_s: float = 0.0
    # After how many seeds which share of all transitions had been taken.
    growth: list[tuple[int, float]] = field(default_factory=list)
    coverage: Coverage = field(default_factory=Coverage)
    shapes: Counter[str] = field(default_factory=Counter)
    # How often each kind of failure hit a process or a link in use.
    faults: Counter[str] = field(default_factory=Counter)
    # How many fragments had which protection, and which way of keeping their state.
    protections: Counter[str] = field(default_factory=Counter)
    checkpoints: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)

    @property
    def never_happened(self) -> list[str]:
        """The events that no process was told of."""
        return sorted(one.__name__ for one in get_args(Event) if not self.events[one.__name__])


def checkpoints_of(spec: NetworkSpec, fragment: Fragment) -> str:
    """How the state of a fragment is kept: what its copies send, or what is on disk."""
    settings = spec.replica_settings()[fragment.addresses[0]]
    if settings.continuous is not None:
        return "continuous"
    if fragment.standby is not None:
        return fragment.standby.checkpointing.value
    return {"nothing": "rebuilt from input", "state": "state on disk"}[settings.keeping.value]


def sweep(seeds: int, workers: int) -> Swept:
    """Every seed from 0, with every checker."""
    swept = Swept(seeds)
    for count, result in enumerate(simulate(range(seeds), workers), 1):
        swept.coverage.add(result.visits)
        swept.simulated_s += result.simulated_s
        swept.faults.update(result.faults)
        swept.events.update(result.events)
        scenario = scenario_of(result.seed)
        swept.shapes[scenario.schedule.shape] += 1
        for fragment in scenario.spec.fragments:
            swept.protections[fragment.protection.value] += 1
            swept.checkpoints[checkpoints_of(scenario.spec, fragment)] += 1
        if result.verdict is not Verdict.FINE:
            swept.violations += 1
            print(f"seed {result.seed}: {result.verdict.name} {result.reason}", flush=True)
        if count <= 20 or count % 20 == 0:
            swept.growth.append((count, swept.coverage.share))
        if count % 100 == 0:
            print(f"{count} seeds, {swept.violations} violations", flush=True)
    for transition in swept.coverage.never_taken:
        print(f"never taken: {transition}")
    for event in swept.never_happened:
        print(f"never happened: {event}")
    return swept


def draw(figure: Figure, swept: Swept) -> None:
    axes = figure.subplots()
    axes.plot(*zip(*swept.growth, strict=True))
    axes.set(xscale="log", xlabel="seeds", ylabel="share of transitions taken", ylim=(0, 1.02))


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{count:,} {name}" for name, count in counts.most_common())


def page(summary: dict[str, Any], swept: Swept) -> str:
    shapes = _counted(swept.shapes)
    faults = "\n".join(f"| {name} | {count:,} |" for name, count in swept.faults.most_common())
    before = ""
    if "simulated_seconds_per_second_before" in summary:
        before = (
            f" An earlier version, in turn with it: "
            f"{summary['simulated_seconds_per_second_before']:,.0f} "
            f"({summary['simulated_seconds_per_cpu_second_before']:,.0f}); this one's speed over "
            f"that one's, the median of {_ROUNDS} turns: {summary['over_before']:g} "
            f"({summary['over_before_by_cpu']:g})."
        )
    never = "".join(f"\n- {one}" for one in swept.coverage.never_taken) or " none"
    return f"""# Simulation

`{COMMAND}` on {machine_text(summary["machine"])}.

- Speed: {summary["simulated_seconds_per_second"]:,.0f} simulated seconds in a second, with ten
  replicas that suffer a failure every few seconds and one run on each core
  ({summary["simulated_seconds_per_cpu_second"]:,.0f} in a second of one processor).{before}
- {summary["seeds"]:,} seeds, each a random network under a schedule of failures, with every
  checker: {summary["violations"]} violations in {summary["simulated_hours"]} simulated hours,
  {summary["elapsed_s"]:,.0f} s of real time.
- {summary["transitions_covered"]:.1%} of the {summary["transitions"]} transitions of replicas,
  entry points and clients taken. Never taken:{never}

Schedules: {shapes}.

| failure | how often it hit somebody |
|---|---|
{faults}

Fragments by protection: {_counted(swept.protections)}; by how their state is kept:
{_counted(swept.checkpoints)}.

![share of transitions taken after so many seeds](simulation.png)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="100 seeds")
    parser.add_argument("--record", action="store_true", help="write docs/results/simulation.*")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many, in full")
    parser.add_argument("--against", metavar="COMMIT", help="an earlier version to compare with")
    options = parser.parse_args()
    workers = os.cpu_count() or 1
    machine = describe_machine()
    # First, and by itself: the seeds would keep the processors busy.
    speeds = compare(options.against, 300 if options.quick else 1_000, workers)
    print(f"ten replicas on {workers} cores: {json.dumps(speeds)}", flush=True)
    began = time.monotonic()
    swept = sweep(100 if options.quick else options.seeds, workers)
    summary: dict[str, Any] = {
        "bench": "simulation",
        **speeds,
        "seeds": swept.seeds,
        "violations": swept.violations,
        "faults": dict(swept.faults.most_common()),
        "protections": dict(swept.protections.most_common()),
        "checkpoints": dict(swept.checkpoints.most_common()),
        "events_never_produced": swept.never_happened,
        "transitions": sum(len(table) for table in TABLES.values()),
        "transitions_covered": round(swept.coverage.share, 4),
        "simulated_hours": round(swept.simulated_s / 3600, 2),
        "elapsed_s": round(time.monotonic() - began, 1),
        "machine": machine,
    }
    if options.record:
        told = summary | {"never_taken": swept.coverage.never_taken, "shapes": swept.shapes}
        record(told, COMMAND, lambda figure: draw(figure, swept), page(summary, swept), (5, 3))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
