"""Checkpoint/redo against undo/redo: the paper's Figure 12, and how fast redo runs.

One replica, one input cut off for 5 s, αX = 1 s; new tuples wait for the end of reconciliation,
so that Delay_new shows it. The state of the join grows (left), or the tuples to redo (middle). Two
joins are in series; or a large one stands beside a small one, and the input that fails reaches only
the small one. A last run has a longer failure at 3,000 tuples a second and times redo alone.

    make bench BENCH=dpc-reconcile               25 minutes
    make bench BENCH=dpc-reconcile ARGS=--quick  five minutes

In parts of at most eight minutes each, whose runs a file keeps; the last one writes the page:

    make bench BENCH=dpc-reconcile ARGS='--only state --rows rows.json'
    make bench BENCH=dpc-reconcile ARGS='--only tuples --rows rows.json'
    make bench BENCH=dpc-reconcile ARGS='--only "two joins" --rows rows.json'
    make bench BENCH=dpc-reconcile ARGS='--only beside redo --rows rows.json --record'
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import mean

import numpy as np
from matplotlib.figure import Figure

from benchmarks.dpc_page import Benchmark, Outcome, Tell
from benchmarks.dpc_reconcile_runs import KINDS, PARTS, KeptRuns, Run

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
- The states are larger than the paper's, and come at 5,000 tuples/s: hundreds of thousands of
  tuples are redone in a second here, and what a state of a few thousand adds is lost beside what
  any job takes. *two joins* are in series, and each has a state of the size that is told; to
  rebuild the second takes the input of twice the time. *beside* has a small join below the failed
  input and the largest one below another input: that one keeps its state.
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
- `..._us_per_tuple_of_state`: the slope of the left part of the figure, how much each tuple of
  state adds to reconciliation, fitted to the averages of each size.
- The right part of the figure, what readiness costs, is `marker_ms`: how much longer the job of a
  bucket takes with undo/redo, whose marker is found after every job, than with checkpoints. A
  number around zero, of either sign, is the noise of two medians: no cost was seen, and this
  benchmark is too coarse to say how small it is.
"""


COLUMNS = (
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
)
Numbers = dict[int, float]


def measure(quick: bool, tell: Tell, parts: Sequence[str], kept_in: Path | None) -> Outcome:
    kept = KeptRuns(kept_in, quick)
    kept.add(quick, parts, tell)
    rows = [list(vars(run).values()) for run in kept.runs]
    draws = partial(draw, runs=kept.runs)
    return Outcome(figures(kept.runs), COLUMNS, rows, draws, kept.seconds)


def by_state(runs: Sequence[Run], part: str, kind: str) -> Numbers:
    """What reconciliation took on average, by the size of the state."""
    mine = [run for run in runs if run.part == part and run.reconcile == kind]
    return {
        size: mean(run.reconciliation_s for run in mine if run.state == size)
        for size in sorted({run.state for run in mine})
    }


def slope_us(took: Numbers) -> float | None:
    """How many microseconds each tuple of state adds."""
    if len(took) < 2:
        return None
    return float(np.polyfit(list(took), list(took.values()), 1)[0] * 1e6)


def figures(runs: Sequence[Run]) -> dict[str, float]:
    """Those that the runs there are give."""
    found: dict[str, float | None] = {}
    redo = [run for run in runs if run.part == "redo"]
    if redo:
        speed = mean(run.redone / run.reconciliation_s for run in redo)
        found["redo_tuples_s_over_input_rate"] = speed / redo[0].rate
        found["redo_tuples_s"] = speed
    one, two = by_state(runs, "state", "undo"), by_state(runs, "two joins", "undo")
    redone, beside = by_state(runs, "state", "checkpoint"), by_state(runs, "beside", "undo")
    if one and redone:
        largest = max(one)
        found["checkpoint_redo_over_undo_redo"] = redone[largest] / one[largest]
        for name, other in (("beside", beside), ("two_joins", two)):
            if largest in other:
                found[f"undo_{name}_over_undo"] = other[largest] / one[largest]
    found["checkpoint_us_per_tuple_of_state"] = slope_us(redone)
    found["undo_us_per_tuple_of_state"] = slope_us(one)
    found["undo_two_joins_us_per_tuple_of_state"] = slope_us(two)
    usual = {kind: [run.bucket_ms for run in runs if run.reconcile == kind] for kind in KINDS}
    if all(usual.values()):
        found["marker_ms"] = mean(usual["undo"]) - mean(usual["checkpoint"])
    return {name: round(value, 3) for name, value in found.items() if value is not None}


def draw(figure: Figure, runs: Sequence[Run]) -> None:
    left, middle = figure.subplots(1, 2)
    for kind in KINDS:
        for part, line, more in (("state", "o-", ""), ("two joins", "s--", ", two joins")):
            took = by_state(runs, part, kind)
            left.plot(list(took), list(took.values()), line, label=f"{kind}/redo{more}")
        tuples = [run for run in runs if run.part == "tuples" and run.reconcile == kind]
        middle.plot(
            [run.redone for run in tuples],
            [run.reconciliation_s for run in tuples],
            "o",
            label=f"{kind}/redo",
        )
    left.set(xlabel="state of each join (tuples)", ylabel="reconciliation (s)", ylim=(0, None))
    middle.set(xlabel="tuples redone", ylabel="reconciliation (s)", ylim=(0, None))
    middle.locator_params(axis="x", nbins=5)
    left.legend(fontsize="x-small")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--only", choices=PARTS, nargs="*", default=PARTS, help="only these parts")
    parser.add_argument("--rows", type=Path, help="keeps the runs of parts that are run one by one")
    options, others = parser.parse_known_args(arguments)
    benchmark = Benchmark(
        "dpc-reconcile",
        "Reconciliation by checkpoint/redo and by undo/redo",
        PAPER,
        NOTES,
        partial(measure, parts=options.only, kept_in=options.rows),
    )
    return benchmark.main(others)


if __name__ == "__main__":
    sys.exit(main())
