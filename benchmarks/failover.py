"""Failover: kill -9 of the driver of a stateful query at steady load, until results go on.

    make bench BENCH=failover
    make bench BENCH=failover ARGS=--quick

The same query and load (failover_load.py) on Structured Streaming, whose supervisor restarts the
driver at once, on Flink with a spare TaskManager, where Flink can be had, and on Holdfast under
each protection. One system runs at a time; each is killed
several times, with pauses in which it becomes whole again. A gap is the time from the kill to
the first result about a tuple made after it; the figure is the median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from matplotlib.figure import Figure

from benchmarks.failover_flink import Flink
from benchmarks.failover_holdfast import FRAGMENTS, Holdfast, Workshop
from benchmarks.failover_spark import StructuredStreaming
from benchmarks.flink import find_flink
from benchmarks.machine import describe_machine, machine_text
from benchmarks.record import record

WARM_SECONDS = 8.0
GAP_SECONDS = 120.0
SPARK = "structured_streaming"
# As Flink ships it, and with its settings for a quick recovery.
FLINK, FLINK_SHIPPED = "flink", "flink_as_shipped"
OTHERS = (SPARK, FLINK, FLINK_SHIPPED)
KILLS = 5
# A passive gap is a start of Spark, an active one a change of the reader: one of each says it.
QUICK_KILLS = {SPARK: 2, FLINK: 2, FLINK_SHIPPED: 1, "passive": 1, "active": 1, "hybrid": 2}
WANTED = {"hybrid_over_structured_streaming": 0.05, "hybrid_over_passive": 0.333}

Tell = Callable[[str], None]
Found = dict[str, Any]


def measure_spark(kills: int, tell: Tell) -> Found:
    system = StructuredStreaming()
    system.received.wait_new(0, GAP_SECONDS)
    time.sleep(WARM_SECONDS)
    gaps = []
    for _ in range(kills):
        at = system.kill()
        gaps.append((system.received.wait_new(at, GAP_SECONDS) - at) / 1000)
        tell(f"Structured Streaming: {gaps[-1]:,.0f} ms")
        time.sleep(WARM_SECONDS / 2)
    return {"gaps_ms": gaps, **system.stop(30.0)}


def measure_flink(name: str, kills: int, quick: bool, tell: Tell) -> Found | None:
    python = find_flink(quick)
    if python is None:
        return None
    with Flink(python, tuned=name == FLINK) as system:
        system.begin()
        system.received.wait_new(0, GAP_SECONDS)
        time.sleep(WARM_SECONDS)
        gaps = []
        for number in range(kills):
            if number:
                system.repair()
                time.sleep(WARM_SECONDS / 2)
            at = system.kill()
            gaps.append((system.received.wait_new(at, GAP_SECONDS) - at) / 1000)
            tell(f"{name}: {gaps[-1]:,.0f} ms")
        return {"gaps_ms": gaps, **system.finish(30.0)}


def measure_holdfast(workshop: Workshop, protection: str, kills: int, tell: Tell) -> Found:
    system = Holdfast(workshop.deployment(protection))
    system.received.wait_new(0, GAP_SECONDS)
    time.sleep(WARM_SECONDS / 2)
    gaps, parts = [], []
    for number in range(kills):
        if number:
            system.wait_whole(GAP_SECONDS)
            time.sleep(WARM_SECONDS / 4)
        at = system.kill()
        new = system.received.wait_new(at, GAP_SECONDS)
        gaps.append((new - at) / 1000)
        parts.append(system.parts_ms(at, new))
        tell(f"{protection}: {gaps[-1]:,.0f} ms {parts[-1]}")
    return {"gaps_ms": gaps, "parts_ms": parts, **system.stop(30.0)}


def summary(found: dict[str, Found]) -> Found:
    """The keys that are wanted, then everything."""
    gaps = {name: round(statistics.median(one["gaps_ms"]), 1) for name, one in found.items()}
    told: Found = {"bench": "failover"}
    if "hybrid" in gaps:
        for other in (*OTHERS, "passive"):
            if other in gaps:
                told[f"hybrid_over_{other}"] = round(gaps["hybrid"] / gaps[other], 4)
        for part in found["hybrid"]["parts_ms"][0]:
            values = [each[part] for each in found["hybrid"]["parts_ms"] if part in each]
            told[f"hybrid_{part}_ms"] = round(statistics.median(values), 1)
    if "active" in gaps and FLINK in gaps:
        told[f"active_over_{FLINK}"] = round(gaps["active"] / gaps[FLINK], 4)
    told |= {f"{name}_gap_ms": gap for name, gap in gaps.items()}
    ours = [one for name, one in found.items() if name not in OTHERS]
    told["lost"] = sum(one["lost"] for one in ours)
    told["duplicated"] = sum(one["duplicated"] for one in ours)
    told["details"] = found
    return told


def draw(figure: Figure, told: Found) -> None:
    """Every gap, on a logarithmic scale; the parts of the hybrid one."""
    axes = figure.subplots(1, 2, width_ratios=(2, 1))
    names = list(told["details"])
    for place, name in enumerate(names):
        gaps = told["details"][name]["gaps_ms"]
        axes[0].bar(place, statistics.median(gaps), color=_colour(name))
        axes[0].plot([place] * len(gaps), gaps, "k_")
    axes[0].set_xticks(range(len(names)), [name.replace("_", "\n") for name in names])
    axes[0].set(yscale="log", ylabel="ms", title="kill -9 to the first new result")
    bottom = 0.0
    for part in ("detect", "resume", "resend"):
        value = told.get(f"hybrid_{part}_ms", 0.0)
        axes[1].bar("hybrid", value, bottom=bottom, label=part)
        bottom += value
    axes[1].set(ylabel="ms", title="parts of the hybrid gap")
    axes[1].legend()


def _colour(name: str) -> str:
    return "#b0b0b0" if name in OTHERS else "#1f6f8b"


def text(told: Found, command: str) -> str:
    """The page beside the figures."""
    lines = [
        "# Failover",
        "",
        "`kill -9` of the driver of a stateful query at 3,000 tuples a second: how long until the",
        "client has a result about a tuple made after the kill. Readings are deduplicated by",
        "number within ten seconds; the state is checkpointed in all systems. Structured Streaming",
        "reads files, because its source must be replayable, and a supervisor restarts its driver",
        "within 5 ms. It starts as Spark does by itself; Holdfast's drivers start from an archive",
        "of Spark's classes (`holdfast prepare`), which makes the passive copy some three seconds",
        "quicker and does not matter to the others. Flink (2.3) has a JobManager and two",
        "TaskManagers (the one in use is killed), checkpoints every second and reads files. Its",
        "heartbeats and restarts are those it ships with, or a heartbeat each 100 ms, as Holdfast",
        "has, and no wait before a restart. It prints results as they are made, and again what is",
        "not in a checkpoint yet (*doubled*); a sink that waits for the checkpoint would be later.",
        "[benchmarks/failover.py](../../benchmarks/failover.py) and the files beside it say more.",
        "",
        "![Gaps of every system, and the parts of the hybrid one](failover.png)",
        "",
        f"`{command}`, {machine_text(told['machine'])}, as printed ([all of it](failover.json)):",
        "",
        "| | gap, median ms | each | lost | doubled |",
        "|---|---|---|---|---|",
    ]
    for name, one in told["details"].items():
        each = ", ".join(f"{gap:,.0f}" for gap in one["gaps_ms"])
        median = told[f"{name}_gap_ms"]
        label = name.replace("_", " ")
        lines.append(f"| {label} | {median:,.0f} | {each} | {one['lost']} | {one['duplicated']} |")
    lines += ["", "| figure | measured | wanted |", "|---|---|---|"]
    for key in [key for key in told if "_over_" in key]:
        wanted = f"at most {WANTED[key]}" if key in WANTED else ""
        lines.append(f"| {key.replace('_', ' ')} | {told[key]} | {wanted} |")
    lines += ["", f"The hybrid gap in its parts: {_parts(told)}.", ""]
    return "\n".join(lines)


def _parts(told: Found) -> str:
    parts = [
        ("detect", "until the other copy wakes"),
        ("resume", "until its first job begins"),
        ("resend", "until the client has the result"),
    ]
    return ", ".join(f"{told.get(f'hybrid_{key}_ms', 0):,.0f} ms {what}" for key, what in parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one or two kills of each: 5 minutes")
    parser.add_argument("--record", action="store_true", help="keep the result in docs/results")
    parser.add_argument("--only", action="append", choices=[*OTHERS, *FRAGMENTS])
    parser.add_argument("--kills", type=int, default=None)
    options = parser.parse_args(arguments)
    kills = dict.fromkeys(QUICK_KILLS, options.kills or KILLS)
    if options.quick and not options.kills:
        kills = QUICK_KILLS
    started = time.monotonic()

    def tell(said: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {said}", file=sys.stderr, flush=True)

    found: dict[str, Found] = {}
    workshop = Workshop()
    for name in options.only or (*OTHERS, *FRAGMENTS):
        tell(f"{name} starts")
        if name == SPARK:
            found[name] = measure_spark(kills[name], tell)
        elif name in OTHERS:
            if (flink := measure_flink(name, kills[name], options.quick, tell)) is not None:
                found[name] = flink
        else:
            found[name] = measure_holdfast(workshop, name, kills[name], tell)
    workshop.close()
    told = summary(found)
    told |= {"seconds": round(time.monotonic() - started, 1), "machine": describe_machine()}
    if options.record:
        command = f"make bench BENCH=failover{' ARGS=--quick' if options.quick else ''}"
        record(told, command, lambda figure: draw(figure, told), text(told, command))
    print(json.dumps(told))
    return 0 if told["lost"] == told["duplicated"] == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
