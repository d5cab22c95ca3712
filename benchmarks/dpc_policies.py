"""Which policy keeps new tuples within X, and at what price: the paper's Figure 10.

One input of three is cut off for a while, at 4,500 tuples a second and X = 3 s, under every
combination of policies for the time of the failure and the time of the stabilization. One
deployment for each combination goes through failures of growing length. At the end the replica
that others read from is stopped, to time how long a replica takes to change its upstream.

    make bench BENCH=dpc-policies
    make bench BENCH=dpc-policies ARGS=--quick
"""

from __future__ import annotations

import statistics
import sys
from dataclasses import dataclass
from itertools import product
from typing import Any

from matplotlib.figure import Figure

from benchmarks.dpc_arrivals import Figures
from benchmarks.dpc_page import Benchmark, Outcome, Tell
from benchmarks.dpc_setting import Setting
from benchmarks.dpc_world import Hosts, World

BASIC = Setting(rate=4_500)
POLICIES = [
    (failed, stabilizing)
    for failed, stabilizing in product(("process", "delay"), ("process", "delay", "suspend"))
]
BELOW_ALPHA_X = 2.0
SWITCH = Setting(rate=900, fragments=2, bucket_ms=500)

PAPER = """
Figure 10: three inputs, 4,500 tuples/s, X = 3 s, α = 0.9, one input disconnected for up to a
minute, six combinations of what to do with new tuples during the failure and during
stabilization. No combination produces a tentative tuple for failures shorter than αX = 2.7 s.
*Delay & Suspend* breaks Delay_new < X as soon as reconciliation takes longer than 0.3 s; every
combination that suspends during stabilization breaks it for long failures. *Process & Process*
keeps the longest delay at about αX whatever the failure, and produces the most tentative tuples;
delaying in either state saves some and stays just within X. A node takes about 40 ms to change
its upstream neighbour.
"""
NOTES = """
- Delay is from the making of a tuple at the producer to the first result of it at the client, so
  it includes the entry point's log, the wire and Spark; the paper's is that of the node alone.
- The paper's two replicas had a machine each. Here entry points, both replicas (one process, one
  JVM), producers and client share two cores, and of the 0.3 s that X leaves after αX most is the
  Spark job of the first tentative bucket, which both replicas run at the same moment.
- *Suspend* adds the reconciliation to the wait, which grows with the failure, as in the paper.
- Combinations that delay run on the verge of X, as in the paper. *Delay & process* crosses it: what
  has waited αX when the failure heals is answered beside the partner's redo, which here takes the
  cores that the answer needs.
- Tuples of the cut source that had not come to every replica when it was cut were on their way
  and are not counted as available.
- A combination goes through its failures one after the other in one deployment, and its client
  must hold every tuple once, stable, at the end; else there is no figure.
- `switch_ms` is the median time from a replica's decision to read from another upstream replica
  to the first frames from it. `notice_ms` is the time before that, from the moment the old one is
  stopped: its connections close, as those of a killed process do. A silent one takes three
  heartbeats to notice.
"""


@dataclass(frozen=True)
class Run:
    """One failure under one combination."""

    policy: str
    seconds: float
    figures: Figures


def plan(quick: bool) -> list[tuple[tuple[str, str], list[float]]]:
    if not quick:
        lengths = [BELOW_ALPHA_X, 5.0, 10.0, 15.0, 30.0, 60.0]
        return [(each, lengths) for each in POLICIES]
    lengths_of = {
        ("process", "process"): [BELOW_ALPHA_X, 5.0, 15.0],
        ("delay", "delay"): [BELOW_ALPHA_X, 5.0],
    }
    return [(each, lengths_of.get(each, [5.0])) for each in POLICIES]


def measure(quick: bool, tell: Tell) -> Outcome:
    runs: list[Run] = []
    with Hosts() as hosts:
        hosts.schemas(BASIC)
        tell("Spark is up")
        for (failed, stabilizing), lengths in plan(quick):
            setting = Setting(rate=BASIC.rate, while_failed=failed, while_stabilizing=stabilizing)
            with World(hosts, setting) as world:
                world.settle()
                for seconds in lengths:
                    _, found = world.fail(seconds)
                    runs.append(Run(setting.policy, seconds, found))
                    tell(f"{setting.policy}, {seconds:g} s: {found}")
                world.finish()
        switch = measure_switch(hosts, tell)
    return outcome(runs, switch)


def measure_switch(hosts: Hosts, tell: Tell) -> dict[str, float]:
    """Stop the replica that is read from, twice; how long its readers take to change."""
    took: list[float] = []
    noticed: list[float] = []
    with World(hosts, SWITCH) as world:
        world.settle(1.0)
        for _ in range(2):
            (followed,) = hosts.replicas.order("status")["node2-1"]["inputs"].values()
            found = changes_after_stopping(hosts, world, followed["from"])
            took += [change["ms"] for change in found]
            noticed += [change["after_ms"] for change in found]
            hosts.replicas.order("start", name=followed["from"])
            world.settle(0.5)
    tell(f"changes of upstream: {took}, noticed after {noticed}")
    return {
        "switch_ms": round(statistics.median(took), 1),
        "notice_ms": round(statistics.median(noticed), 1),
    }


def changes_after_stopping(hosts: Hosts, world: World, name: str) -> list[dict[str, Any]]:
    """Stop a replica of the first fragment; the changes of those that read from it."""
    at = float(hosts.replicas.order("stop", name=name)["at"])

    def changes() -> list[dict[str, Any]]:
        return [
            {**change, "after_ms": (change["at"] - at) * 1000}
            for reader, noted in world.report().items()
            if reader.startswith("node2")
            for change in noted["switches"]
            if change["at"] >= at and change["to"] != name and change["to"].startswith("main")
        ]

    world.wait(lambda: bool(changes()), 20.0, f"a change away from {name}")
    return changes()


def outcome(runs: list[Run], switch: dict[str, float]) -> Outcome:
    best = [run for run in runs if run.policy == "process & process"]
    worst = max(run.figures.delay_new_s for run in best)
    below = sum(run.figures.tentative for run in runs if run.seconds <= BELOW_ALPHA_X)
    columns = ["policy", "failure s", "Delay_new s", "median s", "N_tentative"]
    rows = [
        [
            run.policy,
            run.seconds,
            run.figures.delay_new_s,
            run.figures.delay_p50_s,
            run.figures.tentative,
        ]
        for run in runs
    ]
    figures = {
        "delay_new_max_over_x": round(worst / BASIC.delay_s, 3),
        "tentative_below_alpha_x": below,
        **switch,
    }
    return Outcome(figures, columns, rows, lambda figure: draw(figure, runs))


def draw(figure: Figure, runs: list[Run]) -> None:
    delay, tentative = figure.subplots(1, 2)
    for policy in dict.fromkeys(run.policy for run in runs):
        mine = [run for run in runs if run.policy == policy]
        lengths = [run.seconds for run in mine]
        delay.plot(lengths, [run.figures.delay_new_s for run in mine], "o-", label=policy)
        tentative.plot(lengths, [run.figures.tentative for run in mine], "o-", label=policy)
    delay.axhline(BASIC.delay_s, color="grey", linestyle="--", label="X")
    delay.set(xlabel="failure (s)", ylabel="Delay_new (s)", title="longest delay", ylim=(0, None))
    tentative.set(xlabel="failure (s)", ylabel="tentative tuples", title="N_tentative")
    delay.legend(fontsize="x-small")


BENCHMARK = Benchmark(
    "dpc-policies", "Policies during failure and stabilization", PAPER, NOTES, measure
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
