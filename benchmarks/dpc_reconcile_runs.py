"""The runs of benchmark dpc-reconcile: what is failed and reconciled, and what each one took."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.dpc_arrivals import Failure, Figures
from benchmarks.dpc_page import Tell
from benchmarks.dpc_setting import Setting
from benchmarks.dpc_world import Hosts, World

FAILURE_S = 5.0
KINDS = ("checkpoint", "undo")
PARTS = ("state", "tuples", "two joins", "beside", "redo")
# Hundreds of thousands of tuples are redone in a second: what a state of the paper's size takes is
# lost beside what any job takes. At its 1,000 tuples a second a larger one is minutes long.
STATE_RATE = 5_000


@dataclass(frozen=True)
class Run:
    """One reconciliation."""

    part: str
    reconcile: str
    state: int
    rate: int
    failure_s: float
    reconciliation_s: float
    stabilization_s: float
    delay_new_s: float
    redone: int
    bucket_ms: float


def settings(quick: bool, parts: Sequence[str]) -> list[tuple[str, Setting]]:
    """What is run, in this order."""
    states = [100, 25_000] if quick else [100, 25_000, 50_000, 100_000]
    rates = [1_000, 4_500] if quick else [1_000, 3_000, 6_000, 12_000]
    plain = Setting(replicas=1, delay_s=1.0 / 0.9, while_stabilizing="suspend").as_json()
    large = {**plain, "rate": STATE_RATE}
    found: list[tuple[str, dict[str, Any]]] = []
    for kind in KINDS:
        kept = {"reconcile": kind}
        found += [("state", {**large, **kept, "state_tuples": size}) for size in states]
        found += [("tuples", {**plain, **kept, "rate": rate, "state_tuples": 20}) for rate in rates]
        found += [
            ("two joins", {**large, **kept, "state_tuples": size, "joins": 2})
            for size in (states if not quick or kind == "undo" else states[-1:])
        ]
        beside = {"state_tuples": 20, "beside_tuples": states[-1]}
        found.append(("beside", {**large, **kept, **beside}))
    found.append(("redo", {**plain, "rate": 3_000, "redo_buckets": 75}))
    ordered = sorted(found, key=lambda each: PARTS.index(each[0]))
    return [(part, Setting(**each)) for part, each in ordered if part in parts]


def run_all(quick: bool, parts: Sequence[str], tell: Tell) -> list[Run]:
    runs = []
    with Hosts() as hosts:
        for part, setting in settings(quick, parts):
            failure_s = FAILURE_S
            if part == "redo":
                failure_s = 20.0 if quick else 60.0
            with World(hosts, setting) as world:
                # The state must be full before it is lost.
                state_s = setting.state_tuples / setting.rate * setting.joins
                world.settle(max(1.5, state_s, 3 * setting.beside_tuples / setting.rate))
                for _ in range(1 if quick else 3):
                    failure, found = world.fail(failure_s)
                    runs.append(reconciliation(part, setting, failure_s, failure, found, world))
                    tell(describe(runs[-1]))
                world.finish()
    return runs


def describe(run: Run) -> str:
    return (
        f"{run.part}: {run.reconcile}, {run.state} tuples of state, {run.rate} tuples/s: "
        f"{run.redone} tuples redone in {run.reconciliation_s:.3f} s, stabilization "
        f"{run.stabilization_s:.3f} s, Delay_new {run.delay_new_s:.3f} s"
    )


def reconciliation(
    part: str,
    setting: Setting,
    failure_s: float,
    failure: Failure,
    found: Figures,
    world: World,
) -> Run:
    """What the replica noted of its stabilization."""
    (noted,) = world.report().values()
    since = failure.cut / 1e6
    states = [(at, state) for at, state in noted["states"] if at >= since]
    begin = next(at for at, state in states if state == "stabilization")
    end = next(at for at, state in states if state == "stable" and at > begin)
    jobs: list[dict[str, Any]] = [job for job in noted["jobs"] if begin <= job["done"] <= end]
    # Up to the job that takes the last bucket that was whole when stabilization began.
    there = begin * 1e6 - 2_000 * setting.bucket_ms
    last = next(i for i, job in enumerate(jobs) if job["line"] == "stable" and job["stop"] > there)
    redo = jobs[: last + 1]
    usual = sorted(
        job["seconds"] for job in noted["jobs"] if job["done"] < since and job["line"] == "stable"
    )
    return Run(
        part,
        setting.reconcile,
        max(setting.state_tuples, setting.beside_tuples),
        setting.rate,
        failure_s,
        round(redo[-1]["done"] - begin, 3),
        round(end - begin, 3),
        found.delay_new_s,
        sum(job["tuples"] for job in redo if job["line"] == "stable"),
        round(usual[len(usual) // 2] * 1000, 1),
    )


class KeptRuns:
    """The runs of parts that are run one by one, in a file; in memory where there is none."""

    def __init__(self, path: Path | None, quick: bool) -> None:
        self.runs: list[Run] = []
        self.seconds = 0.0
        self._path = path
        self._quick = quick
        if path is not None and path.exists():
            kept = json.loads(path.read_text())
            if kept["quick"] != quick:
                raise SystemExit(f"{path} has runs of the other form; name another file")
            self.runs = [Run(**each) for each in kept["runs"]]
            self.seconds = kept["seconds"]

    def add(self, quick: bool, parts: Sequence[str], tell: Tell) -> None:
        """Run some parts; what they gave earlier goes."""
        began = time.monotonic()
        fresh = run_all(quick, parts, tell)
        self.runs = [run for run in self.runs if run.part not in parts] + fresh
        self.runs.sort(key=lambda run: PARTS.index(run.part))
        self.seconds += time.monotonic() - began
        if self._path is not None:
            runs = [asdict(run) for run in self.runs]
            kept = {"quick": self._quick, "seconds": self.seconds, "runs": runs}
            self._path.write_text(json.dumps(kept, indent=1))
