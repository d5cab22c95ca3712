"""One seed, one simulated cluster: how many servers, and what happens to them.

holdfast simulate --cluster --seeds 200
"""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from random import Random

from holdfast.core import election, register
from holdfast.core.settings import SECOND_US
from holdfast.simulation.checkers import Violation
from holdfast.simulation.cluster_world import ClusterFault, ClusterScenario, ClusterWorld
from holdfast.simulation.managed_world import ManagedWorld
from holdfast.simulation.run import Verdict

_SIZES = (1, 2, 3, 3, 3, 4, 5, 5, 7, 9, 15, 30)
_KINDS = (
    "crash",
    "crash",
    "power",
    "power",
    "pause",
    "partition",
    "partition",
    "cut",
    "cut one way",
    "flap",
    "full disk",
    "slow",
)
_CALM_US = 45 * SECOND_US
# Until every replica that is better off elsewhere has moved there, one after the other.
_MANAGED_CALM_US = 200 * SECOND_US


@dataclass(frozen=True)
class ClusterResult:
    """What came of a run."""

    seed: int
    servers: int
    verdict: Verdict
    reason: str = ""
    simulated_s: float = 0.0
    acknowledged: int = 0
    elections_s: tuple[float, ...] = ()
    changes: int = 0
    visits: Mapping[tuple[str, str, str], int] = field(default_factory=dict)


def cluster_scenario(seed: int) -> ClusterScenario:
    """Everything a seed stands for."""
    random = Random(seed)
    servers = random.choice(_SIZES)
    voters = servers if servers < 9 or random.random() < 0.5 else random.choice((3, 5, 7))
    names = [f"s{index}" for index in range(servers)]
    faults: list[ClusterFault] = []
    at, last = 8.0, random.uniform(20.0, 60.0)
    while at < last:
        faults += _burst(random, names, at)
        at += random.expovariate(1 / 8.0)
    calm_us = max([int(last * SECOND_US), *(fault.until_us for fault in faults)])
    # Where little is submitted, one that was cut off for a while lacks nothing.
    pause_s = random.choice((0.4, 0.4, 10.0))
    ends_us = calm_us + _CALM_US
    return ClusterScenario(seed, servers, voters, calm_us, ends_us, tuple(faults), pause_s)


def _burst(random: Random, names: list[str], at: float) -> list[ClusterFault]:
    """Some faults that overlap; often the coordinator is among those that are hit."""
    found = []
    for _ in range(random.choice((1, 1, 2, 3))):
        begins = at + random.uniform(0.0, 2.0)
        ends = begins + random.choice((0.3, 1.0, 3.0, 10.0, 20.0)) * random.uniform(0.5, 1.5)
        kind = random.choice(_KINDS)
        count = random.randint(1, max(1, (2 * len(names)) // 3))
        if kind in ("cut", "cut one way", "flap"):
            count = min(len(names), count + 1)
        chosen = random.sample(names, count)
        if kind == "power":
            kind, chosen = "crash", list(names)
        if len(chosen) < len(names) and random.random() < 0.5:
            chosen[0] = "coordinator"
        found.append(
            ClusterFault(int(begins * SECOND_US), int(ends * SECOND_US), kind, tuple(chosen))
        )
    return found


def managed_scenario(seed: int) -> ClusterScenario:
    """The same for a cluster that runs something, and is left alone for longer at the end."""
    found = cluster_scenario(seed)
    return replace(found, ends_us=found.calm_us + _MANAGED_CALM_US)


def run_cluster(
    scenario: ClusterScenario, kind: type[ClusterWorld] = ClusterWorld
) -> ClusterResult:
    """Run a scenario to its end or to the first thing that is wrong."""
    world = kind(scenario)
    verdict, reason = Verdict.FINE, ""
    try:
        world.run()
    except Violation as violation:
        verdict, reason = Verdict.WRONG, f"{violation} at {world.clock.now / SECOND_US:.3f} s"
    except Exception:
        verdict = Verdict.CRASH
        reason = f"at {world.clock.now / SECOND_US:.3f} s\n{traceback.format_exc()}"
    return ClusterResult(
        scenario.seed,
        scenario.servers,
        verdict,
        reason,
        world.clock.now / SECOND_US,
        len(world.checker.acknowledged),
        tuple(each / SECOND_US for each in world.elections_us),
        len(world.changes) if isinstance(world, ManagedWorld) else 0,
        dict(world.coverage.visits),
    )


def simulate_cluster(seed: int) -> ClusterResult:
    """One seed, as other processes can do it."""
    return run_cluster(cluster_scenario(seed))


def simulate_managed(seed: int) -> ClusterResult:
    """The same for a cluster that runs something."""
    return run_cluster(managed_scenario(seed), ManagedWorld)


def run_clusters(seeds: range, workers: int) -> int:
    """Run some seeds and say what came of them; the exit code of ``holdfast simulate``.

    Each of them twice: with submissions all the time, and with one that is looked after.
    """
    results = _all(simulate_cluster, seeds, workers)
    managed = _all(simulate_managed, seeds, workers)
    failed = [each for each in (*results, *managed) if each.verdict is not Verdict.FINE]
    for result in failed:
        print(f"seed {result.seed}: {result.servers} servers, {result.verdict.name.lower()}")
        print(result.reason)
        for fault in cluster_scenario(result.seed).faults:
            print(f"  {fault}")
    elections = sorted(each for result in results for each in result.elections_s)
    middle = elections[len(elections) // 2] if elections else 0.0
    print(
        f"{len(results)} clusters, {len(failed)} failed; "
        f"{sum(result.acknowledged for result in results)} submissions acknowledged; "
        f"{len(elections)} times without a coordinator, {middle:g} s in the middle, "
        f"{max(elections, default=0.0):g} s at most; "
        f"{sum(result.changes for result in managed)} changes of replicas"
    )
    visits = Counter[tuple[str, str, str]]()
    for result in (*results, *managed):
        visits.update(result.visits)
    for kind, table in (("Election", election.TABLE), ("Register", register.TABLE)):
        for (state, trigger), target in table.items():
            if not visits[kind, state.name, trigger.name]:
                print(f"  never taken: {kind}: {state.name} --{trigger.name}--> {target.name}")
    return int(failed[0].verdict) if failed else 0


def _all(
    simulate: Callable[[int], ClusterResult], seeds: range, workers: int
) -> list[ClusterResult]:
    if workers <= 1 or len(seeds) == 1:
        return [simulate(seed) for seed in seeds]
    with ProcessPoolExecutor(workers) as pool:
        return list(pool.map(simulate, seeds, chunksize=4))
