"""A thousand servers and ten thousand replicas, on paper: the simulator runs all of them.

    make bench BENCH=scale                  10, 100 and 1,000 servers, and the settings at 100
    make bench BENCH=scale ARGS=--quick     10 and 30 servers, some settings
    make bench BENCH=scale ARGS=--record    in full, and docs/results/scale.*

What happens to each deployment is in scale_run.py.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

from matplotlib.figure import Figure

from benchmarks.machine import describe_machine
from benchmarks.record import RESULTS, record
from benchmarks.scale_run import Setup, run

Point = dict[str, Any]


def sweep(sizes: list[int], at: Setup) -> list[Setup]:
    """The sizes; then, at one size, each setting by itself."""
    setups = [replace(at, servers=size) for size in sizes]
    setups += [replace(at, heartbeat_ms=ms) for ms in (250, 500, 2_000, 4_000)]
    setups += [replace(at, misses=misses) for misses in (1, 10)]
    setups += [replace(at, replicas=replicas) for replicas in (3, 4)]
    return list(dict.fromkeys([*setups, at]))


def measure(setups: list[Setup], workers: int) -> list[Point]:
    """One deployment each, the largest first so that the others run beside it."""
    ordered = sorted(setups, key=lambda one: -one.servers)
    points = []
    with ProcessPoolExecutor(workers, max_tasks_per_child=1) as pool:
        for setup, point in zip(ordered, pool.map(run, ordered), strict=True):
            told = {key: value for key, value in point.items() if key != "healing"}
            print(f"{setup}: {told}", file=sys.stderr, flush=True)
            points.append(point)
    return sorted(points, key=lambda one: (one["servers"], setups.index(setup_of(one))))


def setup_of(point: Point) -> Setup:
    return Setup(point["servers"], point["replicas"], point["heartbeat_ms"], point["misses"])


def by(points: Iterable[Point], at: Setup, setting: str) -> list[Point]:
    """The points that differ from ``at`` in one setting at most."""
    same = [
        one for one in points if replace(setup_of(one), **{setting: getattr(at, setting)}) == at
    ]
    return sorted(same, key=lambda one: one[setting])


def draw(figure: Figure, points: list[Point], at: Setup) -> None:
    traffic, switching, healing = figure.subplots(1, 3)
    sizes = by(points, at, "servers")
    x = [one["servers"] for one in sizes]
    for key, label in (
        ("heartbeats_per_second_per_server", "heartbeats"),
        ("other_messages_per_second_per_server", "the rest"),
        ("peak_messages_per_second_per_server", "most, after the partition"),
    ):
        traffic.plot(x, [one[key] for one in sizes], "o-", label=label)
    traffic.set(
        xscale="log", xlabel="servers", ylim=(0, None), title="messages a second per server"
    )
    traffic.legend(fontsize=7)
    beats = by(points, at, "heartbeat_ms")
    x = [one["heartbeat_ms"] / 1000 for one in beats]
    switching.plot(x, [one["switch_median_s"] for one in beats], "o-", label="median")
    switching.plot(x, [one["switch_longest_s"] for one in beats], "o-", label="longest")
    switching.plot(x, [one["stable_after_s"] for one in beats], "o--", label="all STABLE")
    switching.set(
        xlabel="heartbeat interval, s", ylim=(0, None), title="seconds to switch, to heal"
    )
    switching.legend(fontsize=7)
    for one in sizes:
        times, shares = zip(*one["healing"], strict=True)
        start = one["not_stable_when_healed"]
        healing.plot([0, *times], [start, *shares], "o-", label=f"{one['servers']} servers")
    healing.set(xlabel="seconds after the partition", ylim=(0, None), title="replicas not STABLE")
    healing.legend(fontsize=7)


COLUMNS = {
    "all_replicas": "replicas",
    "heartbeats_per_second_per_server": "heartbeats /s/server",
    "other_messages_per_second_per_server": "other messages /s/server",
    "peak_messages_per_second_per_server": "most after the partition /s/server",
    "switch_median_s": "switch, median s",
    "switch_longest_s": "switch, longest s",
    "news_longest_s": "news again, longest s",
    "stable_after_s": "all STABLE again after s",
}


def table(points: list[Point], setting: str, title: str) -> str:
    head = [title, *COLUMNS.values()]
    rows = [[str(one[setting]), *(f"{one[key]:,}" for key in COLUMNS)] for one in points]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def page(summary: dict[str, Any], points: list[Point], at: Setup, lessons: str) -> str:
    machine = summary["machine"]
    return f"""# Scale, on paper

`{summary["command"]}`: the machines of `core/`, unchanged, in the simulator. Times are simulated;
on {machine["cores"]} cores of an {machine["cpu"]} the largest run took {summary["largest_cpu_s"]:,}
seconds of processor time ({machine["date"]}). What the deployments are and what happens to them is
in `benchmarks/scale_run.py`; after each run every client's stable stream equalled the oracle's and
every replica was STABLE.

![traffic, switching, healing](scale.png)

## Size

{table(by(points, at, "servers"), "servers", "servers")}

## Heartbeat interval, {at.servers} servers

{table(by(points, at, "heartbeat_ms"), "heartbeat_ms", "interval, ms")}

## Misses until a peer counts as gone, {at.servers} servers

{table(by(points, at, "misses"), "misses", "misses")}

## Replicas of each fragment, all of them monitored, {at.servers} servers

{table(by(points, at, "replicas"), "replicas", "replicas of each fragment")}
{lessons}"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small deployments only")
    parser.add_argument("--record", action="store_true", help="write docs/results/scale.*")
    parser.add_argument("--sizes", type=int, nargs="+", default=[10, 100, 1_000], metavar="SERVERS")
    parser.add_argument("--at", type=int, default=100, help="the size at which settings vary")
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    if options.quick:
        at = Setup(30)
        setups = [Setup(10), at, replace(at, heartbeat_ms=250), replace(at, replicas=3)]
    else:
        at = Setup(options.at)
        setups = sweep(options.sizes, at)
    points = measure(setups, options.workers)
    largest = max(points, key=lambda one: one["all_replicas"])
    summary = {
        "bench": "scale",
        "servers": largest["servers"],
        "replicas": largest["all_replicas"],
        "messages_per_second_per_server": round(
            largest["heartbeats_per_second_per_server"]
            + largest["other_messages_per_second_per_server"],
            1,
        ),
        "switch_longest_s": largest["switch_longest_s"],
        "stable_after_s": largest["stable_after_s"],
        "largest_cpu_s": largest["cpu_s"],
        "machine": describe_machine(),
        "points": points,
    }
    if options.record:
        sizes = " ".join(map(str, options.sizes))
        command = f"make bench BENCH=scale ARGS='--record --sizes {sizes} --at {options.at}'"
        summary["command"] = command
        record(summary, command, lambda figure: draw(figure, points, at))
        written = RESULTS / "scale.md"
        # What the figures teach is written by hand, under a heading of its own, and kept.
        old = written.read_text() if written.exists() else ""
        _, mark, lessons = old.partition("\n## What it teaches\n")
        written.write_text(page(summary, points, at, mark + lessons))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
