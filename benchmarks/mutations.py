"""Proof that the simulator finds bugs: plant one mistake at a time, see which seed notices.

make bench BENCH=mutations                 every mutation, up to 100 runs each
make bench BENCH=mutations ARGS=--quick    up to 15 runs each
make bench BENCH=mutations ARGS=--record   in full, and docs/results/mutations.*

The first run is that of the seed that noticed the mistake when it was last recorded, then come the
seeds from 0; for the record they are tried in order. Ends with 1 if one was not found.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from itertools import islice
from multiprocessing import get_context
from typing import Any

from matplotlib.figure import Figure

from benchmarks.machine import describe_machine, machine_text
from benchmarks.record import record, recorded
from holdfast.simulation.main import collected_afterwards
from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.planting import RUNS
from holdfast.simulation.run import Verdict, run

COMMAND = "make bench BENCH=mutations ARGS=--record"


@dataclass(frozen=True)
class Found:
    """What came of one mutation: the first seed that noticed it, after how many runs, and how."""

    name: str
    seed: int | None
    runs: int
    how: str = ""
    said: str = ""

    def __str__(self) -> str:
        if self.seed is None:
            return f"{self.name:60} NOT FOUND in {self.runs} runs"
        return f"{self.name:60} seed {self.seed}, run {self.runs}: {self.how}, {self.said}"


def failed_itself(trace: str) -> bool:
    """Whether what was raised came out of the planted mistake: then nothing has noticed it."""
    places = re.findall(r'File "([^"]+)"', trace)
    called_wrongly = "<locals>.broken()" in trace.rsplit("\n", 2)[-2:][0]
    return called_wrongly or (bool(places) and places[-1].endswith("mutations.py"))


def find(index: int, runs_max: int | None, before: Mapping[str, int]) -> Found:
    """Run until a mutation is noticed; ``before`` has the seeds that noticed some of them."""
    mutation = MUTATIONS[index]
    runs = 0
    with mutation.applied():
        for scenario in islice(mutation.scenarios(before.get(mutation.name)), runs_max):
            runs += 1
            with collected_afterwards():
                result = run(scenario)
            if result.verdict is not Verdict.FINE:
                # A promise is broken by name; a machine that stops has no promise to name.
                crashed = result.verdict is Verdict.CRASH
                if crashed and failed_itself(result.reason):
                    raise RuntimeError(f"{mutation.name} cannot be planted: {result.reason}")
                said = "a machine refused" if crashed else result.reason.split(":")[0]
                how = result.verdict.name.lower()
                return Found(mutation.name, scenario.seed, runs, how, said)
    return Found(mutation.name, None, runs)


def seeds_of_before() -> dict[str, int]:
    """Which seed noticed each mutation when they were last recorded."""
    results = recorded("mutations").get("results", [])
    return {one["name"]: one["seed"] for one in results if one["seed"] is not None}


def find_all(runs_max: int | None, before: Mapping[str, int]) -> list[Found]:
    results = []
    look = partial(find, runs_max=runs_max, before=before)
    # A process per mutation: a mistake must not outlive its run.
    with get_context("fork").Pool(os.cpu_count() or 1, maxtasksperchild=1) as pool:
        for found in pool.imap(look, range(len(MUTATIONS))):
            print(found, flush=True)
            results.append(found)
    return results


def draw(figure: Figure, results: list[Found]) -> None:
    axes = figure.subplots()
    runs = sorted(one.runs for one in results if one.seed is not None)
    axes.step(runs, range(1, len(runs) + 1), where="post")
    axes.set(xscale="log", xlabel="runs", ylabel="mutations found", ylim=(0, len(results) + 1))


def page(summary: dict[str, Any], results: list[Found]) -> str:
    rows = "\n".join(
        f"| {one.name} | {mutation.shape or 'any'} | {one.seed} | {one.runs} "
        f"| {one.how}: {one.said} |"
        for one, mutation in zip(results, MUTATIONS, strict=True)
    )
    return f"""# Mutations: does the simulator find bugs?

`{COMMAND}` on {machine_text(summary["machine"])}: {summary["found"]} of {summary["mutations"]}
deliberate mistakes were found, in {summary["elapsed_s"]:.0f} s altogether. Each is planted by
itself in the protocols of `core/`, and random networks under random failures run with all checkers
until one of them notices.

![mutations found after so many runs](mutations.png)

Every mistake must be found within {RUNS} runs, of consecutive seeds from 0; where it names a
shape of schedule, every run has a schedule of that shape.

| mistake | shape | found by seed | run | how |
|---|---|---|---|---|
{rows}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="up to 15 runs each")
    parser.add_argument("--record", action="store_true", help="write docs/results/mutations.*")
    options = parser.parse_args()
    began = time.monotonic()
    before = {} if options.record else seeds_of_before()
    results = find_all(15 if options.quick else None, before)
    summary: dict[str, Any] = {
        "bench": "mutations",
        "mutations": len(results),
        "found": sum(one.seed is not None for one in results),
        "elapsed_s": round(time.monotonic() - began, 1),
        "machine": describe_machine(),
    }
    if options.record:
        told = summary | {"results": [asdict(one) for one in results]}
        record(told, COMMAND, lambda figure: draw(figure, results), page(summary, results), (5, 3))
    print(json.dumps(summary))
    return 0 if summary["found"] == len(results) else 1


if __name__ == "__main__":
    sys.exit(main())
