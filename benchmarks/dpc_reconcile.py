"""Checkpoint/redo against undo/redo: the paper's Figure 12, and how fast redo runs.

One replica, one input cut off for 5 s, αX = 1 s; new tuples wait for the end of reconciliation,
so that Delay_new shows it. The state of the join grows (left), or the tuples to redo (middle). Two
joins are in series; or a large one stands beside a small one, and the input that fails reaches only
the small one. A last run has a longer failure at 3,000 tuples a second and times redo alone.

    make bench BENCH=dpc-reconcile
    make bench BENCH=dpc-reconcile ARGS=--quick
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from statistics import mean
from typing import Any

from matplotlib.figure import Figure

from benchmarks.dpc_arrivals import Failure, Figures
from benchmarks.dpc_page import Benchmark, Outcome, Tell
from benchmarks.dpc_setting import Setting
from benchmarks.dpc_world import Hosts, World

FAILURE_S = 5.0
KINDS = ("checkpoint", "undo")

PAPER = """
Figure 12: a failure of 5 s with αX = 1 s. Delay_new, which is the time of reconciliation, grows
linearly with the size of the state (left, at 1,000 tuples/s) and with the tuples to process again
(middle, with a state of 20 tuples). Undo/redo takes longer, because it must rebuild the state
instead of copying it; the difference grows with the state. Two joins in series double the slope.
Checkpoints cost more processor time than stream markers while nothing fails (right), but both can
be taken only when a failure comes.
"""
NOTES = """
- A state version here is immutable, so the checkpoint is the version itself: nothing is copied, and
  reconciliation by checkpoint does not depend on the size of the state. Undo/redo gives the state
  of the operators below the failed input up and rebuilds it from the input since their stream
  marker. No tentative tuple is kept for it: it is the paper's undo with "limited history".
- *two joins* are in series, each with the state of the largest single one. *beside* has a small
  join below the failed input and the largest one below another input: that one keeps its state.
- *reconciliation* is the time from the begin of the state STABILIZATION until all input that was
  there by then is processed as stable, everything that belongs to it included: reading the held
  input, the Spark jobs, handing on the results. *stabilization* is the whole time in that state,
  with the buckets that came in meanwhile. New tuples waited no longer for it than they had waited
  for the missing input before, so Delay_new stays a little above αX.
- `redo_tuples_s_over_input_rate`: tuples redone after the long failure, over the time of the
  reconciliation, over the 3,000 tuples/s at which they arrived: how much faster than real time
  redo runs.
- `checkpoint_redo_over_undo_redo`: the ratio of the reconciliations at the largest state.
- `undo_beside_over_undo`, `undo_two_joins_over_undo`: reconciliation by undo with as large a state
  beside what failed, and with two such states in series, over that with the largest state.
- The right part of the figure, what readiness costs, is `marker_ms`: how much longer the job of a
  bucket takes with undo/redo, whose marker is found after every job, than with checkpoints. A
  number around zero, of either sign, is the noise of two medians: no cost was seen, and this
  benchmark is too coarse to say how small it is.
"""


@dataclass(frozen=True)
class Run:
    """One reconciliation."""

    part: str
    setting: Setting
    failure_s: float
    figures: Figures
    reconciliation_s: float
    stabilization_s: float
    redone: int
    redo_jobs: int
    bucket_ms: float


def settings(quick: bool) -> list[tuple[str, Setting]]:
    states = [100, 5_000] if quick else [100, 1_000, 5_000, 10_000, 20_000]
    rates = [1_000, 4_500] if quick else [1_000, 2_000, 3_000, 4_500, 6_000]
    base = Setting(replicas=1, delay_s=1.0 / 0.9, while_stabilizing="suspend")
    plain = base.as_json()
    found = []
    for size in states:
        for kind in KINDS:
            one = {**plain, "rate": 1_000, "state_tuples": size, "reconcile": kind}
            found.append(("state", Setting(**one)))
    for rate in rates:
        for kind in KINDS:
            one = {**plain, "rate": rate, "state_tuples": 20, "reconcile": kind}
            found.append(("tuples", Setting(**one)))
    for kind in KINDS:
        one = {**plain, "rate": 1_000, "state_tuples": 5_000, "joins": 2, "reconcile": kind}
        found.append(("two joins", Setting(**one)))
    for kind in KINDS:
        one = {**plain, "rate": 1_000, "state_tuples": 20, "beside_tuples": 5_000}
        found.append(("beside", Setting(**{**one, "reconcile": kind})))
    one = {**plain, "rate": 3_000, "redo_buckets": 75}
    found.append(("redo", Setting(**one)))
    return found


def measure(quick: bool, tell: Tell) -> Outcome:
    runs = []
    with Hosts() as hosts:
        for part, setting in settings(quick):
            failure_s = FAILURE_S
            if part == "redo":
                failure_s = 20.0 if quick else 60.0
            repeat = 1 if quick else 3
            with World(hosts, setting) as world:
                # The state must be full before it is lost.
                state_s = setting.state_tuples / setting.rate * setting.joins
                world.settle(max(1.5, state_s, 3 * setting.beside_tuples / setting.rate))
                for _ in range(repeat):
                    failure, found = world.fail(failure_s)
                    runs.append(reconciliation(part, setting, failure_s, failure, found, world))
                    tell(describe(runs[-1]))
                world.finish()
    return outcome(runs)


def describe(run: Run) -> str:
    setting = run.setting
    return (
        f"{run.part}: {setting.reconcile}, {setting.state_tuples} tuples of state, "
        f"{setting.rate} tuples/s: {run.redone} tuples redone in {run.redo_jobs} jobs in "
        f"{run.reconciliation_s:.3f} s, stabilization {run.stabilization_s:.3f} s, {run.figures}"
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
        setting,
        failure_s,
        found,
        round(redo[-1]["done"] - begin, 3),
        round(end - begin, 3),
        sum(job["tuples"] for job in redo if job["line"] == "stable"),
        len(redo),
        round(usual[len(usual) // 2] * 1000, 1),
    )


def outcome(runs: list[Run]) -> Outcome:
    largest = max(run.setting.state_tuples for run in runs if run.part == "state")
    took = {
        kind: mean(
            run.reconciliation_s
            for run in runs
            if run.part == "state"
            and run.setting.state_tuples == largest
            and run.setting.reconcile == kind
        )
        for kind in KINDS
    }
    usual = {
        kind: mean(run.bucket_ms for run in runs if run.setting.reconcile == kind) for kind in KINDS
    }
    redo = [run for run in runs if run.part == "redo"]
    speed = mean(run.redone / run.reconciliation_s for run in redo)
    undone = {
        part: mean(
            run.reconciliation_s
            for run in runs
            if run.part == part and run.setting.reconcile == "undo"
        )
        for part in ("two joins", "beside")
    }
    figures = {
        "redo_tuples_s_over_input_rate": round(speed / redo[0].setting.rate, 1),
        "checkpoint_redo_over_undo_redo": round(took["checkpoint"] / took["undo"], 3),
        "undo_beside_over_undo": round(undone["beside"] / took["undo"], 3),
        "undo_two_joins_over_undo": round(undone["two joins"] / took["undo"], 3),
        "redo_tuples_s": round(speed),
        "marker_ms": round(usual["undo"] - usual["checkpoint"], 1),
    }
    columns = [
        "part",
        "reconcile",
        "state tuples",
        "tuples/s",
        "failure s",
        "reconciliation s",
        "stabilization s",
        "Delay_new s",
        "tuples redone",
        "bucket job ms",
    ]
    rows = [
        [
            run.part,
            run.setting.reconcile,
            run.setting.state_tuples,
            run.setting.rate,
            run.failure_s,
            run.reconciliation_s,
            run.stabilization_s,
            run.figures.delay_new_s,
            run.redone,
            run.bucket_ms,
        ]
        for run in runs
    ]
    return Outcome(figures, columns, rows, lambda figure: draw(figure, runs))


def draw(figure: Figure, runs: list[Run]) -> None:
    left, middle = figure.subplots(1, 2)
    for kind in KINDS:
        mine = [run for run in runs if run.setting.reconcile == kind]
        state = [run for run in mine if run.part == "state"]
        tuples = [run for run in mine if run.part == "tuples"]
        left.plot(
            [run.setting.state_tuples for run in state],
            [run.reconciliation_s for run in state],
            "o-",
            label=f"{kind}/redo",
        )
        middle.plot(
            [run.redone for run in tuples],
            [run.reconciliation_s for run in tuples],
            "o-",
            label=f"{kind}/redo",
        )
    left.set(xlabel="state (tuples)", ylabel="reconciliation (s)", ylim=(0, None))
    middle.set(xlabel="tuples redone", ylabel="reconciliation (s)", ylim=(0, None))
    middle.locator_params(axis="x", nbins=5)
    left.legend(fontsize="x-small")


BENCHMARK = Benchmark(
    "dpc-reconcile", "Reconciliation by checkpoint/redo and by undo/redo", PAPER, NOTES, measure
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
