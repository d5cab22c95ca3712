"""Simulated clusters that run something: replicas are placed, replaced and moved while it fails."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.simulation.cluster_mutations import ClusterMutation
from holdfast.simulation.cluster_run import managed_scenario, run_cluster, simulate_managed
from holdfast.simulation.cluster_world import ClusterFault, ClusterScenario
from holdfast.simulation.managed_checkers import read_value
from holdfast.simulation.managed_mutations import MANAGED_MUTATIONS, MANAGED_RUNS
from holdfast.simulation.managed_world import ManagedWorld
from holdfast.simulation.run import Verdict

SECOND = 1_000_000


@pytest.mark.parametrize("seed", range(6))
def test_what_a_cluster_runs_is_looked_after(seed: int) -> None:
    result = simulate_managed(seed)
    assert result.verdict is Verdict.FINE, result.reason


@pytest.mark.thorough
@pytest.mark.parametrize("mutation", MANAGED_MUTATIONS, ids=lambda mutation: mutation.name)
def test_planted_mistakes_are_found(mutation: ClusterMutation) -> None:
    with mutation.applied():
        found = (simulate_managed(seed).verdict for seed in range(MANAGED_RUNS))
        assert any(verdict is Verdict.WRONG for verdict in found)


def test_a_seed_tells_the_same_again() -> None:
    worlds = [ManagedWorld(managed_scenario(1)) for _ in range(2)]
    for world in worlds:
        world.run()
    assert worlds[0].changes == worlds[1].changes
    assert worlds[0].changes


def test_a_server_that_is_lost_is_replaced_and_one_that_returns_is_not_one_too_many() -> None:
    calm = ClusterScenario(3, 7, 7, 80 * SECOND, 240 * SECOND, ())
    world = ManagedWorld(calm)
    world.run_until(19 * SECOND)
    before = read_value(world.servers["s0"].record.value)
    name = next(name for name, each in before.items() if each.wanted > 1)
    lost = next(iter(before[name].at.values()))
    away = ClusterFault(20 * SECOND, 80 * SECOND, "crash", (lost,))
    world = ManagedWorld(replace(calm, faults=(away,)))
    world.run_until(79 * SECOND)
    other = next(each for each in world.names if each != lost)
    during = read_value(world.servers[other].record.value)
    assert lost in before[name].at.values()
    assert lost not in during[name].at.values()
    assert len(during[name].at) == during[name].wanted
    result = run_cluster(replace(calm, faults=(away,)), ManagedWorld)
    assert result.verdict is Verdict.FINE, result.reason


def test_nothing_moves_in_a_world_in_which_nothing_happens() -> None:
    world = ManagedWorld(ClusterScenario(5, 9, 9, 0, 400 * SECOND, ()))
    world.run()
    assert len(world.changes) == 1, "what was submitted"
