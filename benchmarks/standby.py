"""Standby: the experiments of the paper on hybrid standby, on a chain of real processes.

    make bench BENCH=standby
    make bench BENCH=standby ARGS=--quick

standby_chain.py says what the chain is, standby_delay.py, standby_recovery.py, standby_traffic.py
and standby_detectors.py what is measured and how, standby_report.py shows it beside the paper.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from benchmarks import standby_detectors
from benchmarks import standby_plans as plans
from benchmarks.machine import describe_machine
from benchmarks.record import record, recorded
from benchmarks.standby_chain import Chain, Plan, Workshop
from benchmarks.standby_delay import CutOff, Stopped, under_failures
from benchmarks.standby_page import page
from benchmarks.standby_recovery import cut_off, median, stand_still
from benchmarks.standby_report import draw, summary
from benchmarks.standby_traffic import by_rate, measure

WARM_SECONDS = 2.0
# The share of the time that each of three primaries is failed.
PRIMARIES = ("subjob-2-1", "subjob-3-1", "hybrid-1")
SHARED = {True: (0.0, 0.1, 0.3), False: (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)}

Tell = Callable[[str], None]
Found = dict[str, Any]


def modes(workshop: Workshop, quick: bool, tell: Tell) -> Found:
    """Fig. 4, 5, 6, 9, 10: the four modes side by side, and three primaries on one secondary."""
    chain = _start(workshop.deployment(plans.modes()), 1_000, tell)
    rates = (1_000, 10_000) if quick else (1_000, 5_000, 10_000, 15_000, 20_000, 25_000)
    found: Found = {"traffic": by_rate(chain, rates, 4.0 if quick else 20.0)}
    tell(f"traffic {json.dumps(found['traffic'])}")
    found["switching"] = {}
    for rate in (1_000, 7_000) if quick else (1_000, 3_000, 5_000, 7_000):
        for seconds in (3.0,) if quick else (5.0, 10.0):
            chain.elements.rate = rate
            one = stand_still(chain, "first", seconds, ("passive", "hybrid"), 2)
            # The passive copies have changed places: back again. They have their engines now,
            # so only the first time were they deployed.
            stand_still(chain, "second", 1.0, ("passive",), 1)
            found["switching"][f"{rate} {seconds:g} s"] = one
            tell(f"{rate}/s, {seconds:g} s: {json.dumps(one)}")
    chain.elements.rate = 1_000
    seconds = 6.0 if quick else 100.0
    found["shared"] = under_failures(chain, CutOff, PRIMARIES, SHARED[quick], seconds)["hybrid"]
    tell(f"shared {json.dumps(found['shared'])}")
    chain.elements.rate = 3_000 if quick else 10_000
    fractions = (0.3, 0.8) if quick else (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
    found["delay"] = under_failures(chain, Stopped, ("first", "second"), fractions, seconds)
    tell(f"delay {json.dumps(found['delay'])}")
    found["wrong"] = chain.stop()
    if not quick:
        chain = _start(workshop.deployment(plans.dedicated()), 1_000, tell)
        apart = under_failures(chain, CutOff, PRIMARIES, SHARED[quick], seconds)
        found["dedicated"] = apart["hybrid"]
        tell(f"dedicated {json.dumps(found['dedicated'])}")
        found["dedicated_wrong"] = chain.stop()
    return found


def variants(workshop: Workshop, quick: bool, tell: Tell) -> Found:
    """Fig. 7, 8: recovery by the intervals of heartbeats and checkpoints."""
    found: Found = {"about": {}, "recovery": {}, "wrong": {}}
    for plan, about in plans.variants(quick):
        chain = _start(workshop.deployment(plan), 1_000, tell)
        found["about"] |= about
        for name, one in about.items():
            # Passive copies change places for good, and keep their engines from then on: only
            # the first time are they deployed.
            rounds = 1 if one["protection"] == "passive" else 2 if quick else 5
            found["recovery"][name] = median([cut_off(chain, name) for _ in range(rounds)])
            tell(f"recovery {name} {json.dumps(found['recovery'][name])}")
        found["wrong"] |= chain.stop()
    return found


def detectors(workshop: Workshop, quick: bool, tell: Tell) -> Found:
    """Fig. 11, 12, 13: what checkpoints send, and who notices that a machine is overloaded."""
    chain = _start(workshop.deployment(plans.detectors(quick)), 1_000, tell, on_one_core="first")
    found: Found = {"traffic": measure(chain, 4.0 if quick else 20.0), "levels": {}}
    tell(f"traffic {json.dumps(found['traffic'])}")
    for share in (0.2, 0.95) if quick else (0.2, 0.4, 0.6, 0.8, 0.9, 0.95):
        one = standby_detectors.measure(chain, share, 5 if quick else 60)
        found["levels"][f"{share:.0%}"] = one
        tell(f"detectors {share:.0%} {json.dumps(one)}")
    found["wrong"] = chain.stop()
    return found


def _start(deployment: Any, rate: int, tell: Tell, on_one_core: str | None = None) -> Chain:
    chain = Chain(deployment, rate, on_one_core)
    chain.wait_flowing()
    time.sleep(WARM_SECONDS)
    chain.wait_flowing()
    tell(f"{', '.join(chain.branches)}: running")
    return chain


EXPERIMENTS = {"modes": modes, "variants": variants, "detectors": detectors}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="few points, four minutes")
    parser.add_argument("--record", action="store_true", help="keep the result in docs/results")
    parser.add_argument("--only", action="append", choices=list(EXPERIMENTS))
    options = parser.parse_args(arguments)
    started = time.monotonic()

    def tell(said: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {said}", file=sys.stderr, flush=True)

    workshop = Workshop()
    found: Found = {}
    chosen = options.only or list(EXPERIMENTS)
    workshop.plan_ahead(_plans(chosen, options.quick))
    tell("planned")
    for name in chosen:
        found[name] = EXPERIMENTS[name](workshop, options.quick, tell)
    workshop.close()
    told = _told(found)
    told |= {"seconds": round(time.monotonic() - started, 1), "machine": describe_machine()}
    print(json.dumps(told))
    if options.record:
        command = f"make bench BENCH=standby{' ARGS=--quick' if options.quick else ''}"
        kept = recorded("standby") if options.only else {}
        # Experiments that were left out stay as the run before had them.
        known = {name: kept[name] for name in EXPERIMENTS if name in kept} | found
        told |= _told(known)
        record(told, command, lambda figure: draw(figure, told), page(told, command), (16, 7))
    return 0 if told["wrong"] == 0 else 1


def _plans(experiments: Sequence[str], quick: bool) -> Iterator[Plan]:
    """Every chain there will be."""
    if "modes" in experiments:
        yield plans.modes()
        if not quick:
            yield plans.dedicated()
    if "variants" in experiments:
        yield from (plan for plan, _ in plans.variants(quick))
    if "detectors" in experiments:
        yield plans.detectors(quick)


def _told(found: Found) -> Found:
    return {"bench": "standby", **summary(found), **found}


if __name__ == "__main__":
    sys.exit(main())
