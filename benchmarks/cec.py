"""Continuous eventual checkpointing: what it costs, and what a recovery takes.

The workloads are the paper's: averages of prices by item over a count of sales; tuples of 100
bytes; *fast* windows of one sale and *slow* ones of 1,000, both of two items; and windows of 10
sales of 100,000 items, of which some 90,000 are open at any time. Input comes as fast as it is
taken, in buckets of 30,000 tuples.

    make bench BENCH=cec              the full form
    make bench BENCH=cec ARGS=--quick

Throughput is compared with the same fragment without checkpoints, a few buckets of the one and
a few of the other in turn. A recovery loses everything but the logs and the record and happens in
the warm process, as does the restart of Structured Streaming it is compared with
(cec_structured.py): the same state and the same sales, from the start of the recovery to the end
of the first bucket after it. Last, a replica of a deployment is killed (cec_deployment.py).
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.cec_deployment import kill_and_recover
from benchmarks.cec_figures import draw
from benchmarks.cec_page import page_of
from benchmarks.cec_pipeline import TUPLE_BYTES, Pipeline, Recovery, Sales, make_engine
from benchmarks.machine import describe_machine
from benchmarks.record import record
from holdfast.core.settings import Continuous
from holdfast.spark.engine import Engine

ITEMS, SIZE = 100_000, 10
BUCKET = 30_000
PAPER_EXTENT = 180_000
RECOVER_WITHIN_US = 500_000
BEGUN = time.monotonic()


@dataclass(frozen=True)
class Form:
    """How much of everything."""

    blocks: int  # fewer of them where hardly anything is written
    block: int
    buckets: int
    factors: dict[int, int]  # of the open windows, with how many buckets its extent may grow
    replays: Sequence[int]
    periods_ms: Sequence[int]
    restarts: int
    deployed_s: float


FULL = Form(
    blocks=30,
    block=2,
    buckets=40,
    factors={1: 40, 2: 40, 4: 60, 8: 120},
    replays=(125_000, 250_000, 500_000, 1_000_000),
    periods_ms=(25, 50, 100, 250),
    restarts=5,
    deployed_s=30.0,
)
QUICK = Form(
    blocks=12,
    block=2,
    buckets=12,
    factors={2: 16, 4: 50, 8: 8},
    replays=(125_000, 500_000),
    periods_ms=(25, 250),
    restarts=3,
    deployed_s=4.0,
)


def tell(text: str) -> None:
    print(f"{time.monotonic() - BEGUN:6.1f} s  {text}", file=sys.stderr, flush=True)


# -- throughput: figure 5 ---------------------------------------------------------------


def throughput(
    engine: Engine, items: int, size: int, modes: dict[str, Pipeline], form: Form
) -> dict[str, Any]:
    """Blocks of buckets for each mode in turn, each time another one first.

    The first bucket of a block is not counted. Every other one has the round of the one before
    beside it, and waits for that, as in a stream that never ends.
    """
    sales = {name: Sales(engine, items, BUCKET) for name in modes}
    for name, pipeline in modes.items():
        for bucket in sales[name].opening(size) if items > 2 else []:
            pipeline.feed(bucket)
        for _ in range(2):
            pipeline.feed(sales[name].next())
        pipeline.finish_round()
    seconds: dict[str, list[float]] = {name: [] for name in modes}
    names = list(modes)
    blocks = form.blocks if items > 2 else 3 * form.blocks // 4
    for turn in range(blocks):
        for name in names[turn % len(names) :] + names[: turn % len(names)]:
            pipeline = modes[name]
            for _ in range(1 + form.block):
                pipeline.feed(sales[name].next())
            pipeline.finish_round()
            seconds[name].append(sum(pipeline.steps.seconds[-form.block :]))
    tuples = form.block * BUCKET
    told: dict[str, Any] = {}
    for name, pipeline in modes.items():
        # Turn by turn, because the machine is quicker at some times than at others.
        ratios = [a / b for a, b in zip(seconds["native"], seconds[name], strict=True)]
        tuples_s = tuples / statistics.median(seconds[name])
        count = blocks * (1 + form.block)
        per_tuple = 1 / (count * BUCKET)
        told[name] = {
            "ratio": round(statistics.median(ratios), 3),
            "tuples_s": round(tuples_s),
            "results_s": round(tuples_s * sum(pipeline.steps.results[-count:]) * per_tuple),
            "frames_s": round(tuples_s * sum(pipeline.steps.windows[-count:]) * per_tuple),
            "pause_ms_max": round(1000 * max(pipeline.steps.pauses[-count:]), 2),
        }
    return told


def figure_5(engines: dict[int, Engine], root: Path, form: Form) -> dict[str, Any]:
    told = {}
    for name, items, size in (("fast", 2, 1), ("slow", 2, 1_000), ("items", ITEMS, SIZE)):
        engine = engines[size]
        target = Continuous(extent=2 * 9 * items // 10 if items > 2 else 1_000)
        modes = {
            "native": Pipeline(engine, root / f"{name}-native", None),
            "open/net": Pipeline(engine, root / f"{name}-net", Continuous(), persist=False),
            "open/disk": Pipeline(engine, root / f"{name}-disk", Continuous()),
            "continuous": Pipeline(engine, root / f"{name}-all", target),
        }
        told[name] = throughput(engine, items, size, modes, form)
        for pipeline in modes.values():
            pipeline.close()
        tell(f"{name} windows: {json.dumps(told[name])}")
    return told


# -- recovery: figures 6, 7 and 9 -------------------------------------------------------


def run_and_crash(
    engine: Engine, directory: Path, settings: Continuous, buckets: int, spread: float = 0.0
) -> dict[str, Any]:
    """Feed, lose everything but the logs, recover; what was kept and what it took.

    ``spread``: buckets have so much more or less than the usual number of tuples.
    """
    pipeline = Pipeline(engine, directory, settings)
    sales = Sales(engine, ITEMS, BUCKET, spread=spread)
    for bucket in sales.opening(SIZE):
        pipeline.feed(bucket, log_input=True)
    for _ in range(buckets):
        pipeline.feed(sales.next(), log_input=True)
    steps = pipeline.steps
    windows = pipeline.status["open_windows"]
    recovery = pipeline.crash()
    begun = time.perf_counter()
    pipeline.feed(sales.next())
    first = time.perf_counter() - begun
    pipeline.close()
    half = buckets // 2
    # Without the first bucket after the recovery.
    results_s = sum(steps.results[-half - 1 : -1]) / sum(steps.seconds[-half - 1 : -1])
    return {
        "open_windows": windows,
        "checks": steps.checks,
        "extent_max": max(steps.extents),
        "pause_ms_max": round(1000 * max(steps.pauses[-buckets:]), 2),
        # By Little's law: windows that are open over windows that close in a second.
        "response_s": round(windows / results_s, 2),
        **_told(recovery),
        "first_bucket_s": round(first, 3),
    }


def _told(recovery: Recovery) -> dict[str, Any]:
    return {
        "extent": recovery.extent,
        "ec_load_s": round(recovery.load_s, 3),
        "replay_tuples": recovery.replay,
        "replay_mb": round(recovery.replay * TUPLE_BYTES / 1e6, 1),
        "replay_s": round(recovery.replay_s, 3),
        "expected_s": round(recovery.expected_s, 3),
    }


def figure_6(engine: Engine, root: Path, form: Form, windows: int) -> dict[str, Any]:
    told = {}
    for factor, buckets in form.factors.items():
        settings = Continuous(extent=factor * windows)
        found = run_and_crash(engine, root / f"q{factor}", settings, buckets)
        found["extent_over_q"] = round(found["extent_max"] / (factor * windows), 3)
        told[str(factor)] = found
        tell(f"Q = {factor} x {windows}: {json.dumps(found)}")
    return told


def figure_7(engine: Engine, root: Path, form: Form) -> dict[str, Any]:
    told = {}
    for replay in form.replays:
        settings = Continuous(replay=replay)
        told[str(replay)] = run_and_crash(engine, root / f"u{replay}", settings, form.buckets)
        tell(f"U = {replay}: {json.dumps(told[str(replay)])}")
    return told


def figures_8_and_9(engine: Engine, root: Path, form: Form, windows: int) -> dict[str, Any]:
    told = {}
    for period in form.periods_ms:
        settings = Continuous(extent=windows, interval_us=10_000, period_us=period * 1_000)
        found = run_and_crash(engine, root / f"cp{period}", settings, form.buckets)
        told[str(period)] = found
        tell(f"CP = {period} ms: {json.dumps(found)}")
    return told


# -- beside Structured Streaming --------------------------------------------------------


def against_structured(engine: Engine, root: Path, form: Form) -> dict[str, Any]:
    child = subprocess.run(
        [sys.executable, "-m", "benchmarks.cec_structured", str(form.restarts)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    restarts = json.loads(child.stdout.splitlines()[-1])["restart_s"]
    settings = Continuous(recover_within_us=RECOVER_WITHIN_US)
    runs = []
    for number in range(3):
        # As sales come in reality: what a tuple takes shows in buckets that differ.
        within = root / f"within{number}"
        runs.append(run_and_crash(engine, within, settings, form.buckets, spread=0.5))
    found = sorted(runs, key=_whole_s)[len(runs) // 2]
    ours, theirs = _whole_s(found), statistics.median(restarts)
    told = {
        **found,
        "recover_within_s": RECOVER_WITHIN_US / 1e6,
        "recovered_s": round(found["ec_load_s"] + found["replay_s"], 3),
        "holdfast_s": round(ours, 3),
        "holdfast_all_s": [round(_whole_s(each), 3) for each in runs],
        "structured_s": round(theirs, 3),
        "structured_all_s": [round(each, 3) for each in restarts],
    }
    tell(f"recover within {RECOVER_WITHIN_US / 1e6} s: {json.dumps(told)}")
    return told


def _whole_s(found: dict[str, Any]) -> float:
    """From the start of the recovery to the end of the first bucket after it."""
    return float(found["ec_load_s"] + found["replay_s"] + found["first_bucket_s"])


def ec_load(figures: dict[str, Any]) -> float:
    """What the smallest extent took that has as many frames as the paper's, or its share."""
    runs = [run for name in ("6", "7", "8 and 9") for run in figures[name].values()]
    large = [run for run in runs if run["extent"] >= PAPER_EXTENT]
    if large:
        return float(min(large, key=lambda run: run["extent"])["ec_load_s"])
    nearest = max(runs, key=lambda run: run["extent"])
    share = PAPER_EXTENT / int(nearest["extent"])
    return round(float(nearest["ec_load_s"]) * share, 3)


def summary(figures: dict[str, Any]) -> dict[str, Any]:
    five, six, beside = figures["5"], figures["6"], figures["structured"]
    deployed = figures["deployment"]
    each_q = {factor: six[factor]["extent_over_q"] for factor in ("2", "4", "8")}
    continuous = [each["continuous"] for each in five.values()]
    return {
        "bench": "cec",
        "throughput_ratio_open_only": min(each["open/disk"]["ratio"] for each in five.values()),
        "throughput_ratio_continuous": min(each["ratio"] for each in continuous),
        "extent_over_q": max(each_q.values()),
        "extent_over_q_each": each_q,
        "ec_load_s": ec_load(figures),
        "recovery_ratio": round(beside["holdfast_s"] / beside["structured_s"], 3),
        "checkpoint_pause_ms_max": max(each["pause_ms_max"] for each in continuous),
        "recover_within_s": deployed["recover_within_s"],
        "recovered_s": deployed["recovered_s"],
        "figures": figures,
        "machine": describe_machine(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="finish within three minutes")
    parser.add_argument("--record", action="store_true", help="keep the result in docs/results")
    options = parser.parse_args()
    form = QUICK if options.quick else FULL
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as temporary:
        root = Path(temporary)
        engines = {size: make_engine(size) for size in (1, SIZE, 1_000)}
        windows = ITEMS * (SIZE - 1) // SIZE
        figures: dict[str, Any] = {"5": figure_5(engines, root, form)}
        engine = engines[SIZE]
        figures["6"] = figure_6(engine, root, form, windows)
        figures["7"] = figure_7(engine, root, form)
        figures["8 and 9"] = figures_8_and_9(engine, root, form, windows)
        native = figures["5"]["items"]["native"]["results_s"]
        figures["response_s without checkpoints"] = round(windows / native, 2)
        figures["structured"] = against_structured(engine, root, form)
        for each in engines.values():
            each.close()
        figures["deployment"] = kill_and_recover(form.deployed_s)
        tell(f"a killed replica: {json.dumps(figures['deployment'])}")
    told = summary(figures)
    told["seconds"] = round(time.monotonic() - BEGUN, 1)
    if options.record:
        command = f"make bench BENCH=cec{' ARGS=--quick' if options.quick else ''}"
        record(told, command, lambda figure: draw(figure, told), page_of(told, command))
    print(json.dumps(told))


if __name__ == "__main__":
    main()
