"""``holdfast simulate``: run many seeds, or one with its story.

    holdfast simulate --seeds 1000            seeds 0 to 999; what broke, what was never visited
    holdfast simulate --seed 476 --trace      one seed, told as it happens
    holdfast simulate --cluster --seeds 200   clusters of servers that elect a coordinator

Exit codes: 0 all is well, 2 wrong usage, 3 the protocol crashed, 4 a promise was broken, 5 the
system stalled though all was well again. Of several seeds, the first that failed decides.
"""

from __future__ import annotations

import argparse
import gc
import os
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager

from holdfast.simulation.cluster_run import run_clusters
from holdfast.simulation.coverage import Coverage
from holdfast.simulation.run import Result, Scenario, Verdict, scenario_of
from holdfast.simulation.run import run as run_scenario
from holdfast.simulation.shrink import shrink


def simulate_seed(seed: int) -> Result:
    """One run, as other processes can do it."""
    with collected_afterwards():
        return run_scenario(scenario_of(seed))


@contextmanager
def collected_afterwards() -> Iterator[None]:
    """No garbage collection in between: it finds nothing before a world ends."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect()


def simulate(seeds: Iterable[int], workers: int) -> Iterator[Result]:
    """The results of some seeds, in order."""
    if workers <= 1:
        yield from map(simulate_seed, seeds)
        return
    with ProcessPoolExecutor(workers) as pool:
        yield from pool.map(simulate_seed, seeds, chunksize=4)


def run(argv: list[str] | None = None) -> int:
    """The entry point of ``holdfast simulate``."""
    parser = argparse.ArgumentParser(prog="holdfast simulate", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=0, help="the first of them")
    parser.add_argument("--seed", type=int, help="run this seed only")
    parser.add_argument("--trace", action="store_true", help="tell what happens in it")
    parser.add_argument("--no-shrink", action="store_true", help="do not look for a shorter story")
    parser.add_argument(
        "--cluster", action="store_true", help="servers that elect, in place of networks"
    )
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(argv)
    if options.cluster:
        first, count = options.first, options.seeds
        if options.seed is not None:
            first, count = options.seed, 1
        return run_clusters(range(first, first + count), options.workers)
    if options.seed is not None:
        return _one(options.seed, options.trace, not options.no_shrink)
    return _many(range(options.first, options.first + options.seeds), options)


def _one(seed: int, trace: bool, shrinks: bool) -> int:
    scenario = scenario_of(seed)
    describe(scenario)
    result = run_scenario(scenario, print if trace else None)
    tell(result)
    if result.verdict is not Verdict.FINE and shrinks:
        _explain(scenario, result)
    return int(result.verdict)


def _many(seeds: range, options: argparse.Namespace) -> int:
    coverage = Coverage()
    began = time.monotonic()
    simulated_s = 0.0
    failed: list[Result] = []
    for result in simulate(seeds, options.workers):
        simulated_s += result.simulated_s
        coverage.add(result.visits)
        if result.verdict is not Verdict.FINE:
            failed.append(result)
            tell(result)
    elapsed_s = time.monotonic() - began
    print(
        f"{len(seeds)} seeds, {len(failed)} failed; {simulated_s:.0f} simulated seconds in "
        f"{elapsed_s:.0f} s ({simulated_s / elapsed_s:.0f} a second); "
        f"{coverage.share:.1%} of all transitions taken"
    )
    for transition in coverage.never_taken:
        print(f"  never taken: {transition}")
    if failed and not options.no_shrink:
        _explain(scenario_of(failed[0].seed), failed[0])
    return int(failed[0].verdict) if failed else 0


def _explain(scenario: Scenario, result: Result) -> None:
    smallest, how = shrink(scenario, result)
    count = len(smallest.schedule.faults)
    print(f"\nthe shortest schedule found that still fails has {count} faults:")
    for fault in smallest.schedule.faults:
        print(f"  {fault}")
    tell(how)


def describe(scenario: Scenario) -> None:
    """What runs, and what will happen to it."""
    spec = scenario.spec
    timing = spec.timing
    print(
        f"seed {scenario.seed}: X = {timing.delay_us / 1e6:g} s, α = {timing.alpha}, "
        f"buckets of {timing.bucket_us / 1e3:g} ms, heartbeats every "
        f"{timing.heartbeat_interval_us / 1e3:g} ms"
    )
    for fragment in spec.fragments:
        places = ", ".join(f"{name} on {scenario.server_of[name]}" for name in fragment.addresses)
        print(
            f"  {fragment.name}: {places}; {fragment.while_failed.value} while failed, "
            f"{fragment.while_stabilizing.value} while stabilizing, {fragment.reconcile.value}/redo"
        )
        pair = fragment.standby
        if pair is not None:
            print(
                f"    {pair.protection.value}, {pair.checkpointing.value} checkpoints "
                f"{'on disk' if pair.persist else 'in memory'}, promoted after "
                f"{pair.promote_after_us / 1e6:g} s"
            )
        for stream, operator in fragment.plan.outputs:
            print(f"    {stream} = {operator}")
    for client in spec.clients:
        print(f"  {client.address} on {scenario.server_of[client.address]}: {client.input.stream}")
    print("faults:")
    for fault in scenario.schedule.faults:
        print(f"  {fault}")


def tell(result: Result) -> None:
    """How a run ended."""
    print(
        f"seed {result.seed}: {result.verdict.name.lower()} after {result.simulated_s:.1f} s, "
        f"{result.steps} steps, {result.stable} stable and {result.tentative} tentative tuples"
    )
    if result.reason:
        print(result.reason)


if __name__ == "__main__":
    sys.exit(run())
