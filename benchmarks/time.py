"""X as a promise on any machine, and sources with their own time.

One input of three is cut off under every policy that goes on with new tuples, with α as the
replicas find it: on the machine as it is, and beside two programs that burn both cores. Then
sources with their own time: one row stamped 2099, one source that is quiet, and rows in random
order within the lateness.

    make bench BENCH=time               a quarter of an hour
    make bench BENCH=time ARGS=--quick  four minutes and a half
    make bench BENCH=time ARGS="--only delay --lengths 30,60"           # some failures alone
    make bench BENCH=time ARGS="--only 'delay & delay' --lengths 15,15 --burnt"
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from benchmarks.dpc_arrivals import delays_s
from benchmarks.dpc_page import Benchmark, Outcome, Tell
from benchmarks.dpc_setting import FAILED, Setting
from benchmarks.dpc_world import Hosts, World
from benchmarks.time_sources import future_row, idle_source, random_order

SETTING = Setting(rate=3_000, adapts=True)
POLICIES = [(failed, each) for failed, each in product(("process", "delay"), ("process", "delay"))]
BURNERS = 2
# Of failures, in seconds.
LENGTHS, QUICK_LENGTHS = [2.0, 5.0, 15.0, 60.0], [2.0, 5.0, 15.0]
# In random order within the lateness.
ROWS = 1_000_000
PAPER = """
Every available tuple is processed within X, and a failure shorter than αX makes nothing tentative.
The paper gives each node its X and chooses α = 0.9 by hand; how X is assigned it leaves open. In
its Figure 10 *process & process* keeps the longest delay at about αX whatever the failure, and the
policies that delay stay just within X.
"""
NOTES = """
- `alpha` is the least share of X that a replica waited, looked up right before each failure; it
  follows what jobs were measured to take. X is 3 s.
- `tentative_below_alpha_x`: tentative tuples in failures of 0.9 of the αX in force.
- Delay is from the making of a tuple at the producer to its first result at the client. Tuples of
  the cut source count only when they could be had.
- `..._burnt`: beside two programs that burn both cores, at the same priority.
- `future_row_gap_s`, `idle_gap_s`: the longest time without a result while one row stamped 2099
  came, and while one source said nothing for longer than its `idle_after`.
- `out_of_order_lost`: tuples whose times were in random order within the lateness, and which are
  not, or not once, in the stable stream; the stream is compared with that of sorted ones.
- `explained`: the share of tentative blocks that name the source that was cut.
- `load_at_start` is the machine's load when the run began: others may have used it.
"""


@dataclass
class Run:
    """The failures under one combination of policies."""

    policy: str
    burnt: bool
    alphas: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    worst_s: list[float] = field(default_factory=list)
    tentative: list[int] = field(default_factory=list)
    within: list[tuple[int, int]] = field(default_factory=list)
    explained: list[tuple[int, int]] = field(default_factory=list)
    below_alpha_x: int = 0


@contextmanager
def burning(count: int) -> Iterator[None]:
    """So many programs that do nothing but work."""
    code = "while True: pass"
    burners = [subprocess.Popen([sys.executable, "-c", code]) for _ in range(count)]
    try:
        yield
    finally:
        for each in burners:
            each.kill()
            each.wait()


def fail(world: World, run: Run, seconds: float) -> int:
    """One failure; the number of tentative tuples."""
    run.alphas.append(world.alpha())
    failure, found = world.fail(seconds)
    seen = world.arrivals.seen(failure.cut - 2_000_000)
    delays = delays_s(seen, failure, failure.healed + 10_000_000)
    x_s = world.setting.delay_s
    run.seconds.append(seconds)
    run.worst_s.append(found.delay_new_s)
    run.tentative.append(found.tentative)
    run.within.append((len(delays), int((delays <= x_s).sum())))
    run.explained.append(world.arrivals.explained(failure.cut, FAILED))
    return found.tentative


def go_through(hosts: Hosts, policies: tuple[str, str], lengths: list[float], burnt: bool) -> Run:
    """Failures of these lengths, and one just below αX, under one combination."""
    failed, stabilizing = policies
    setting = replace(SETTING, while_failed=failed, while_stabilizing=stabilizing)
    run = Run(setting.policy, burnt)
    with World(hosts, setting) as world:
        world.settle(5.0)
        for seconds in lengths:
            fail(world, run, seconds)
        if not burnt:
            run.below_alpha_x = fail(world, run, 0.9 * world.alpha() * setting.delay_s)
        world.finish()
    return run


def measure(quick: bool, tell: Tell) -> Outcome:
    lengths = QUICK_LENGTHS if quick else LENGTHS
    load = os.getloadavg()[0]
    runs: list[Run] = []
    with Hosts() as hosts:
        hosts.schemas(SETTING)
        tell(f"Spark is up; the load was {load:.1f}")
        for policies in POLICIES:
            runs.append(go_through(hosts, policies, lengths, burnt=False))
            tell(str(runs[-1]))
        with burning(BURNERS):
            for policies in [POLICIES[0], POLICIES[-1]] if quick else POLICIES:
                runs.append(go_through(hosts, policies, lengths[1:], burnt=True))
                tell(f"burnt: {runs[-1]}")
        sources = {**future_row(hosts, tell), **idle_source(hosts, tell)}
        sources |= random_order(hosts, ROWS, tell)
    return outcome(runs, sources, load)


def outcome(runs: list[Run], sources: dict[str, Any], load: float) -> Outcome:
    calm, burnt = ([run for run in runs if run.burnt is each] for each in (False, True))
    x_s = SETTING.delay_s
    available = sum(count for run in burnt for count, _ in run.within)
    in_time = sum(count for run in burnt for _, count in run.within)
    blocks = sum(count for run in runs for count, _ in run.explained)
    right = sum(count for run in runs for _, count in run.explained)
    figures = {
        "delay_new_max_over_x": {run.policy: _over(run, x_s) for run in calm},
        "alpha": {run.policy: min(run.alphas) for run in calm},
        "tentative_below_alpha_x": sum(run.below_alpha_x for run in calm),
        "within_x_burnt": round(in_time / available, 5) if available else None,
        "delay_new_max_over_x_burnt": max((_over(run, x_s) for run in burnt), default=None),
        "alpha_burnt": min((alpha for run in burnt for alpha in run.alphas), default=None),
        **sources,
        "explained": round(right / blocks, 4) if blocks else None,
        "load_at_start": round(load, 1),
    }
    columns = ["policy", "burnt", "failure s", "α", "Delay_new s", "N_tentative"]
    rows = [
        [run.policy, run.burnt, round(seconds, 2), alpha, worst, tentative]
        for run in runs
        for seconds, alpha, worst, tentative in zip(
            run.seconds, run.alphas, run.worst_s, run.tentative, strict=True
        )
    ]
    return Outcome(figures, columns, rows, lambda figure: draw(figure, runs))


def _over(run: Run, x_s: float) -> float:
    return round(max(run.worst_s) / x_s, 3)


def draw(figure: Figure, runs: list[Run]) -> None:
    delay, alpha = figure.subplots(1, 2)
    for run in runs:
        label = f"{run.policy}{', burnt' if run.burnt else ''}"
        order = np.argsort(run.seconds)
        lengths = [run.seconds[each] for each in order]
        style = "x--" if run.burnt else "o-"
        delay.plot(lengths, [run.worst_s[each] for each in order], style, label=label)
        alpha.plot(lengths, [run.alphas[each] for each in order], style, label=label)
    delay.axhline(SETTING.delay_s, color="grey", linestyle=":", label="X")
    delay.set(xlabel="failure (s)", ylabel="Delay_new (s)", title="longest delay", ylim=(0, None))
    alpha.set(xlabel="failure (s)", ylabel="α", title="α in force", ylim=(0, 1))
    delay.legend(fontsize="x-small")


def part(only: str, lengths: list[float], burnt: bool) -> int:
    """Some failures under the policies whose names begin so; nothing of it is recorded."""
    chosen = [each for each in POLICIES if " & ".join(each).startswith(only)]
    with Hosts() as hosts, burning(BURNERS if burnt else 0):
        hosts.schemas(SETTING)
        for policies in chosen:
            run = go_through(hosts, policies, lengths, burnt)
            about = {"bench": "time", "part": run.policy, "burnt": burnt, "seconds": run.seconds}
            print(
                json.dumps(
                    {
                        **about,
                        "delay_new_s": run.worst_s,
                        "alpha": run.alphas,
                        "tentative": run.tentative,
                        "within_x": [list(each) for each in run.within],
                    }
                ),
                flush=True,
            )
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--only")
    parser.add_argument("--lengths", default="30,60")
    parser.add_argument("--burnt", action="store_true")
    options, rest = parser.parse_known_args()
    if options.only is None:
        return BENCHMARK.main(rest)
    lengths = [float(each) for each in options.lengths.split(",")]
    return part(options.only, lengths, options.burnt)


BENCHMARK = Benchmark("time", "X as a promise, and sources' own time", PAPER, NOTES, measure)

if __name__ == "__main__":
    sys.exit(main())
