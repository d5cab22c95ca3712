"""Proof that the simulator finds bugs: plant one mistake at a time, see which seed notices.

make bench BENCH=mutations                every mutation, up to its stated number of seeds
make bench BENCH=mutations ARGS=--quick   up to 15 seeds each
"""

from __future__ import annotations

import argparse
import json
import os
from concurrent.futures import ProcessPoolExecutor

from holdfast.simulation.mutations import MUTATIONS, Mutation
from holdfast.simulation.run import Verdict, run, scenario_of


def find(index: int, seeds: int) -> tuple[int, str] | None:
    """The first seed that notices a mutation, and how."""
    with MUTATIONS[index].applied():
        for seed in range(seeds):
            result = run(scenario_of(seed))
            if result.verdict is not Verdict.FINE:
                return seed, result.verdict.name.lower()
    return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="up to 15 seeds each")
    options = parser.parse_args()
    limits = [min(15, one.seeds) if options.quick else one.seeds for one in MUTATIONS]
    found = 0
    # A process per mutation: a mistake must not outlive its run.
    with ProcessPoolExecutor(os.cpu_count() or 1, max_tasks_per_child=1) as pool:
        results = pool.map(find, range(len(MUTATIONS)), limits)
        for one, limit, result in zip(MUTATIONS, limits, results, strict=True):
            found += result is not None
            print(line(one, limit, result), flush=True)
    print(json.dumps({"mutations": len(MUTATIONS), "found": found}))


def line(mutation: Mutation, limit: int, result: tuple[int, str] | None) -> str:
    where = f"seed {result[0]} ({result[1]})" if result else f"NOT FOUND within {limit} seeds"
    return f"{mutation.name:60} {where}"


if __name__ == "__main__":
    main()
