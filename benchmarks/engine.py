"""Holdfast's engine against Structured Streaming: same query, same Parquet files, same machine.

The query sums and counts prices by item in tumbling windows of ten buckets. Each system runs in
a process of its own; both stay warm, and the cases alternate between them, so that noise on the
machine hits both alike. Structured Streaming runs with each of its two state stores, in the full
form also with two sets of JVM options, and is given the best of them in every figure. It writes
to the no-op sink, while Holdfast hands every result to Python. Before anything is timed, both
must give the same rows.

    make bench BENCH=engine            the full form
    make bench BENCH=engine ARGS=--quick
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.figure import Figure

from benchmarks.machine import describe_machine
from benchmarks.record import record

BUCKET_US = 1_000_000
WINDOW_BUCKETS = 10
STORES = ("hdfs", "rocksdb")
SYSTEMS = ("holdfast", "spark-large", "spark-small")


@dataclass(frozen=True)
class Case:
    """One input: so many buckets of so many tuples over so many keys."""

    name: str
    tuples: int
    keys: int
    buckets: int
    bucket_us: int = BUCKET_US
    open_windows: int = 0

    def directory(self, root: Path) -> Path:
        return root / self.name


def cases(quick: bool) -> list[Case]:
    few = 1 if quick else 4
    return [
        Case("check", 300, 20, 2 * WINDOW_BUCKETS + 2),
        Case("latency", 300, 100, 24 * few),
        Case("100k", 30_000, 100_000, 12 * few),
        Case("1m", 300_000, 1_000_000, 12 * few),
    ]


def sweep(quick: bool) -> list[Case]:
    """Buckets so short that all of them fall into the windows opened first."""
    buckets, short = (15, 1000) if quick else (60, 1000)
    sizes = (10_000, 100_000, 1_000_000, *(() if quick else (10_000_000,)))
    return [Case(f"sweep-{size}", 3_000, size, buckets, short, size) for size in sizes]


def many_queries(quick: bool) -> Case:
    """Ten queries over three sources, and one of them; so many tuples of each source a bucket."""
    return Case("queries", 1_000, 1_000, 30 if quick else 90)


def write_input(case: Case, root: Path) -> None:
    """One Parquet file for each bucket."""
    directory = case.directory(root)
    directory.mkdir()
    random = np.random.default_rng(7)
    for index in range(case.buckets):
        stime = np.sort(random.integers(0, case.bucket_us, case.tuples)) + index * case.bucket_us
        table = pa.table(
            {
                "at": pa.array(stime, pa.timestamp("us", tz="UTC")),
                "item": pa.array(random.integers(0, case.keys, case.tuples)),
                "price": pa.array(random.integers(0, 1000, case.tuples), pa.int32()),
                "pad": pa.array([b"x" * 70] * case.tuples, pa.binary()),
            }
        )
        pq.write_table(table, directory / f"{index:05}.parquet", compression="none")


class Child:
    """A system in a process of its own, told over a pipe what to run."""

    def __init__(self, system: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.engine_systems", system],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="finish within two minutes")
    parser.add_argument("--record", action="store_true", help="keep the result in docs/results")
    options = parser.parse_args()
    rounds = 1 if options.quick else 3
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        root = Path(temporary)
        systems = ["holdfast", "spark-large"] if options.quick else SYSTEMS
        children = {name: Child(name) for name in systems}
        try:
            first, *timed = cases(options.quick)
            for case in (first, *timed):
                write_input(case, root)
            check(first, root, children)
            results = {case.name: compare(case, root, children, rounds) for case in timed}
            queries = children["holdfast"].run(many_queries(options.quick), root, queries=True)
            swept = {}
            for case in sweep(options.quick):
                write_input(case, root)
                swept[str(case.open_windows)] = children["holdfast"].run(case, root)
        finally:
            for child in children.values():
                child.close()
    told = summary(results, swept, queries)
    if options.record:
        record(
            told,
            f"make bench BENCH=engine{' ARGS=--quick' if options.quick else ''}",
            lambda figure: draw(figure, told),
        )
    print(json.dumps(told))


def summary(
    results: dict[str, Any], swept: dict[str, dict[str, float]], queries: dict[str, float]
) -> dict[str, Any]:
    return {
        "bench": "engine",
        "latency_ratio": round(results["latency"]["latency_ratio"], 3),
        "throughput_ratio_100k": round(results["100k"]["throughput_ratio"], 2),
        "throughput_ratio_1m": round(results["1m"]["throughput_ratio"], 2),
        "state_sweep": {size: round(each["median_ms"], 1) for size, each in swept.items()},
        "bytes_per_window": round(list(swept.values())[-1]["bytes_per_window"], 1),
        "ten_queries_over_one": round(queries["ten_queries_over_one"], 2),
        "details": {
            "queries": {key: round(value, 3) for key, value in queries.items()},
            **{
                name: {key: round(value, 3) for key, value in each.items()}
                for name, each in results.items()
            },
        },
        "machine": describe_machine(),
    }


def draw(figure: Figure, told: dict[str, Any]) -> None:
    """Left: how long a bucket takes. Middle: tuples a second. Right: with more state."""
    axes = figure.subplots(1, 3)
    details = told["details"]
    pair, colours = ("Structured Streaming", "Holdfast"), ("#b0b0b0", "#1f6f8b")
    latency = details["latency"]
    axes[0].bar(pair, [latency["spark_median_ms"], latency["holdfast_median_ms"]], color=colours)
    axes[0].set(title="a bucket of 300 tuples", ylabel="median ms")
    for offset, (key, colour) in enumerate(zip(("spark", "holdfast"), colours, strict=True)):
        values = [details[case][f"{key}_tuples_s"] / 1000 for case in ("100k", "1m")]
        places = [index + offset * 0.4 for index in range(2)]
        axes[1].bar(places, values, 0.4, color=colour, label=pair[offset])
    axes[1].set(title="throughput", ylabel="thousand tuples/s")
    axes[1].set_xticks([0.2, 1.2], ["100,000 keys", "1,000,000 keys"])
    axes[1].legend(fontsize=7)
    sizes = [int(size) for size in told["state_sweep"]]
    axes[2].plot(sizes, list(told["state_sweep"].values()), "o-", color=colours[1])
    axes[2].set(title="3,000 tuples a bucket", xlabel="open windows", ylabel="median ms")
    axes[2].set_xscale("log")
    axes[2].set_ylim(0, 1.3 * max(told["state_sweep"].values()))


if __name__ == "__main__":
    main()
