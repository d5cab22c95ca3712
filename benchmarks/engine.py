"""Holdfast's engine against Structured Streaming: same query, same Parquet files, same machine.

The query sums and counts prices by item in tumbling windows of ten buckets. Each system runs in
a process of its own; both stay warm, and the cases alternate between them, so that noise on the
machine hits both alike. Structured Streaming runs with each of its two state stores, in the full
form also with two sets of JVM options, and is given the best of them in every figure. It writes
to the no-op sink, while Holdfast hands every result to Python. Before anything is timed, all
must give the same rows. Beside Flink, where it can be had, both take the input as fast as they
can: engine_ready.py says more.

    make bench BENCH=engine            the full form
    make bench BENCH=engine ARGS=--quick
    make bench BENCH=engine ARGS="--only sweep"
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.engine_inputs import (
    Case,
    cases,
    many_queries,
    ready,
    sweep,
    write_input,
)
from benchmarks.engine_ready import compare_ready, flink_command, flink_environment, same_rows
from benchmarks.machine import Memory, describe_machine
from benchmarks.record import record

STORES = ("hdfs", "rocksdb")
SYSTEMS = ("holdfast", "spark-large", "spark-small")
PARTS = ("structured", "flink", "queries", "expressions", "joins", "sweep")


class Child:
    """A system in a process of its own, told over a pipe what to run."""

    def __init__(self, command: list[str], environment: dict[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, case: Case, root: Path, **options: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        order = {"case": asdict(case), "root": str(root), **options}
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith("{"):
                answer: dict[str, Any] = json.loads(line)
                return answer
        raise RuntimeError(f"the process for {case.name} ended with {self._process.wait()}")

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def compare(case: Case, root: Path, children: dict[str, Child], rounds: int) -> dict[str, Any]:
    """Run a case on both systems in turns; the ratio of each round, and their median."""
    per_round = []
    for _ in range(rounds):
        others = [child for name, child in children.items() if name != "holdfast"]
        spark = [child.run(case, root, store=store) for child in others for store in STORES]
        holdfast = children["holdfast"].run(case, root)
        best = min(spark, key=lambda each: float(each["mean_ms"]))
        quick = min(spark, key=lambda each: float(each["median_ms"]))
        per_round.append(
            {
                "holdfast_median_ms": holdfast["median_ms"],
                "spark_median_ms": quick["median_ms"],
                "latency_ratio": holdfast["median_ms"] / quick["median_ms"],
                "holdfast_tuples_s": case.tuples / holdfast["mean_ms"] * 1000,
                "spark_tuples_s": case.tuples / best["mean_ms"] * 1000,
                "throughput_ratio": best["mean_ms"] / holdfast["mean_ms"],
            }
        )
        print(f"{case.name}: {json.dumps(per_round[-1])}", flush=True)
    return {key: statistics.median(each[key] for each in per_round) for key in per_round[0]}


def check(case: Case, root: Path, children: dict[str, Child]) -> None:
    """Both systems must give the same rows before anything is timed."""
    spark = children["spark-large"].run(case, root, store="hdfs", rows=True)["rows"]
    holdfast = children["holdfast"].run(case, root, rows=True)["rows"]
    if not spark or spark != holdfast:
        raise SystemExit(
            f"the systems disagree: Structured Streaming gave {len(spark)} rows, Holdfast "
            f"{len(holdfast)}"
        )
    print(f"check: {len(spark)} result rows, the same from both", flush=True)


class Run:
    """The parts of the benchmark that are wanted, one after the other."""

    def __init__(self, root: Path, parts: Sequence[str], quick: bool) -> None:
        self._root, self._parts, self._quick = root, parts, quick
        self._rounds = 1 if quick else 3
        self._first, *self._timed = cases(quick)
        write_input(self._first, root)
        spark = SYSTEMS[1:2] if quick else SYSTEMS[1:]
        wanted = ("holdfast", *(spark if "structured" in parts else ()))
        own = [sys.executable, "-m", "benchmarks.engine_systems"]
        self.children = {name: Child([*own, name]) for name in wanted}
        self._holdfast = self.children["holdfast"]

    def structured(self) -> dict[str, Any]:
        for case in self._timed:
            write_input(case, self._root)
        check(self._first, self._root, self.children)
        return {
            case.name: compare(case, self._root, self.children, self._rounds)
            for case in self._timed
        }

    def flink(self) -> dict[str, Any]:
        command = flink_command(self._quick)
        if command is None:
            return {}
        flink = Child(command, flink_environment())
        try:
            same_rows(self._first, self._root, self._holdfast, flink)
            found = {}
            for case in ready(self._quick):
                write_input(case, self._root)
                found[case.name] = compare_ready(
                    case, self._root, self._holdfast, flink, self._rounds
                )
        finally:
            flink.close()
        return found

    def queries(self) -> dict[str, Any]:
        return self._holdfast.run(many_queries(self._quick), self._root, queries=True)

    def expressions(self) -> dict[str, Any]:
        case = many_queries(self._quick)
        return self._holdfast.run(case, self._root, queries=True, expressions=True)

    def joins(self) -> dict[str, Any]:
        return self._holdfast.run(self._first, self._root, joins=30 if self._quick else 120)

    def sweep(self) -> dict[str, Any]:
        cases = sweep(self._quick)
        for case in cases:
            write_input(case, self._root)
        with Memory(self._holdfast.pid) as memory:
            told = [asdict(case) for case in cases]
            found = self._holdfast.run(cases[-1], self._root, sweep=told)
        for each in found.values():
            each["peak_gib"] = memory.peak_gib
            print(json.dumps(each), flush=True)
        return found

    def all(self) -> dict[str, Any]:
        try:
            return {part: getattr(self, part)() for part in self._parts}
        finally:
            for child in self.children.values():
                child.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="finish within five minutes")
    parser.add_argument("--record", action="store_true", help="keep the result in docs/results")
    parser.add_argument("--only", action="append", choices=PARTS, help="only this part")
    options = parser.parse_args()
    if options.record and options.only:
        parser.error("--record keeps whole runs; leave --only out")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        found = Run(Path(temporary), options.only or PARTS, options.quick).all()
    told = summary(found)
    told |= {"seconds": round(time.monotonic() - begin, 1), "machine": describe_machine()}
    if options.record:
        record(
            told,
            f"make bench BENCH=engine{' ARGS=--quick' if options.quick else ''}",
            lambda figure: draw(figure, told),
            size=(12, 3.4),
        )
    print(json.dumps(told))


def summary(found: dict[str, Any]) -> dict[str, Any]:
    """The figures that are wanted, of the parts that ran; then everything."""
    told: dict[str, Any] = {"bench": "engine"}
    if results := found.get("structured"):
        told["latency_ratio"] = round(results["latency"]["latency_ratio"], 3)
        told["throughput_ratio_100k"] = round(results["100k"]["throughput_ratio"], 2)
        told["throughput_ratio_1m"] = round(results["1m"]["throughput_ratio"], 2)
    for name, each in found.get("flink", {}).items():
        told[f"flink_ratio_{name.removeprefix('ready-')}"] = round(each["flink_ratio"], 2)
    if swept := found.get("sweep"):
        medians = {size: each["median_ms"] for size, each in swept.items()}
        told["state_sweep"] = {size: round(each, 2) for size, each in medians.items()}
        told["state_sweep_ratio"] = round(max(medians.values()) / min(medians.values()), 3)
        for key in ("p99_ms", "longest_ms"):
            told[f"state_sweep_{key}"] = {n: round(each[key], 2) for n, each in swept.items()}
        last = list(swept.values())[-1]
        for key in ("merging_median_ms", "merging_longest_ms"):
            told[key] = round(last[key], 1)
        told["bytes_per_window"] = round(last["bytes_per_window"], 1)
        told["memory_per_window"] = round(last["memory_per_window"], 1)
        told["sweep_peak_gib"] = round(last["peak_gib"], 2)
    if joins := found.get("joins"):
        medians = {size: each["median_ms"] for size, each in joins.items()}
        told["join_sweep"] = {size: round(each, 2) for size, each in medians.items()}
        told["join_sweep_ratio"] = round(max(medians.values()) / min(medians.values()), 3)
    if queries := found.get("queries"):
        told["ten_queries_over_one"] = round(queries["ten_queries_over_one"], 2)
    if expressions := found.get("expressions"):
        ratio = expressions["ten_queries_over_one"]
        told["ten_queries_of_expressions_over_one"] = round(ratio, 2)
    alone = {"queries": queries or {}, "expressions": expressions or {}}
    timed = {**alone, **(results or {}), **found.get("flink", {})}
    told["details"] = {
        name: {key: round(value, 3) for key, value in each.items()} for name, each in timed.items()
    }
    return told


GREY, BLUE = "#b0b0b0", "#1f6f8b"


def draw(figure: Figure, told: dict[str, Any]) -> None:
    """How long a bucket takes; tuples a second, beside each system; a bucket with more state."""
    details = told["details"]
    beside_flink = "ready-1m" in details
    small, spark, *flink, state = figure.subplots(1, 4 if beside_flink else 3)
    latency = details["latency"]
    pair = ("Structured\nStreaming", "Holdfast")
    small.bar(pair, [latency["spark_median_ms"], latency["holdfast_median_ms"]], color=(GREY, BLUE))
    small.set(title="a bucket of 300 tuples", ylabel="median ms")
    _draw_throughput(spark, details, ("100k", "1m"), ("spark", pair[0]))
    spark.set(title="a bucket at a time", ylabel="thousand tuples/s")
    for axes in flink:
        _draw_throughput(axes, details, ("ready-100k", "ready-1m"), ("flink", "Flink"))
        axes.set(title="all that is there")
    sizes = [int(size) for size in told["state_sweep"]]
    state.plot(sizes, list(told["state_sweep"].values()), "o-", color=BLUE)
    state.set(title="3,000 tuples a bucket", xlabel="open windows", ylabel="median ms")
    state.set_xscale("log")
    state.set_ylim(0, 1.3 * max(told["state_sweep"].values()))


def _draw_throughput(
    axes: Axes, details: dict[str, Any], names: Sequence[str], other: tuple[str, str]
) -> None:
    shown = ((*other, GREY), ("holdfast", "Holdfast", BLUE))
    for offset, (key, label, colour) in enumerate(shown):
        values = [details[case][f"{key}_tuples_s"] / 1000 for case in names]
        places = [index + offset * 0.4 for index in range(len(names))]
        axes.bar(places, values, 0.4, color=colour, label=label)
    axes.set_xticks([0.2, 1.2], ["100,000\nkeys", "1,000,000\nkeys"])
    axes.legend(fontsize=7)


if __name__ == "__main__":
    main()
