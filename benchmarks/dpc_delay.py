"""How long to wait for a missing input: the paper's Figure 9.

One input of three is cut off for 5 s at 3,000 tuples a second, for a growing αX, with new tuples
delayed all the time (*delay*) or processed as they come once αX is over (*process*).

    make bench BENCH=dpc-delay
    make bench BENCH=dpc-delay ARGS=--quick
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

from matplotlib.figure import Figure

from benchmarks.dpc_arrivals import Figures
from benchmarks.dpc_page import Benchmark, Outcome, Tell
from benchmarks.dpc_setting import Setting
from benchmarks.dpc_world import Hosts, World

FAILURE_S = 5.0
ALPHA = 0.9

PAPER = """
Figure 9: a failure of 5 s, αX from 0.5 s to 6 s. Delay_new grows with αX for both policies.
*Process* catches up as soon as αX is over, so while αX is small against the failure it produces
tentative tuples for nearly all of it: N_tentative looks like a step. *Delay* produces fewer in
proportion to αX. With αX longer than the failure there are none.
"""
NOTES = """
- The same policy holds during stabilization (`process & process`, `delay & delay`).
- Delay is from making a tuple to the first result of it at the client. Buckets are 200 ms long;
  a tuple at a bucket's begin waits αX, those after it in the bucket a little less.
- `delay_over_alpha_x` is the largest of Delay_new - αX over all runs of *process*, in seconds: what
  entry point, wire, Spark and client add to the wait.
"""


@dataclass(frozen=True)
class Run:
    policy: str
    alpha_x_s: float
    figures: Figures


def measure(quick: bool, tell: Tell) -> Outcome:
    waits = [0.5, 1.5, 2.7, 5.5] if quick else [0.5, 1.0, 1.5, 2.0, 2.7, 3.5, 4.0, 4.5, 5.5, 6.0]
    runs = []
    with Hosts() as hosts:
        hosts.schemas(Setting())
        tell("Spark is up")
        for policy in ("process", "delay"):
            for alpha_x_s in waits:
                setting = Setting(
                    delay_s=alpha_x_s / ALPHA, while_failed=policy, while_stabilizing=policy
                )
                with World(hosts, setting) as world:
                    world.settle(1.0)
                    _, found = world.fail(FAILURE_S)
                    world.finish()
                runs.append(Run(policy, alpha_x_s, found))
                tell(f"{policy}, αX = {alpha_x_s:g} s: {found}")
    return outcome(runs)


def outcome(runs: list[Run]) -> Outcome:
    process = [run for run in runs if run.policy == "process" and run.alpha_x_s < FAILURE_S]
    over = max(run.figures.delay_new_s - run.alpha_x_s for run in process)
    longest = [run for run in runs if run.alpha_x_s > FAILURE_S]
    columns = ["policy", "αX s", "Delay_new s", "median s", "N_tentative"]
    rows = [
        [
            run.policy,
            run.alpha_x_s,
            run.figures.delay_new_s,
            run.figures.delay_p50_s,
            run.figures.tentative,
        ]
        for run in runs
    ]
    figures = {
        "delay_over_alpha_x": round(over, 3),
        "tentative_with_long_wait": sum(run.figures.tentative for run in longest),
    }
    return Outcome(figures, columns, rows, lambda figure: draw(figure, runs))


def draw(figure: Figure, runs: list[Run]) -> None:
    delay, tentative = figure.subplots(1, 2)
    for policy in ("process", "delay"):
        mine = [run for run in runs if run.policy == policy]
        waits = [run.alpha_x_s for run in mine]
        delay.plot(waits, [run.figures.delay_new_s for run in mine], "o-", label=policy)
        tentative.plot(waits, [run.figures.tentative for run in mine], "o-", label=policy)
    delay.plot([0, 6], [0, 6], color="grey", linestyle="--", label="αX")
    delay.set(xlabel="αX (s)", ylabel="Delay_new (s)", title="longest delay, failure of 5 s")
    tentative.set(xlabel="αX (s)", ylabel="tentative tuples", title="N_tentative")
    delay.legend(fontsize="x-small")


BENCHMARK = Benchmark("dpc-delay", "How long to wait for a missing input", PAPER, NOTES, measure)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
