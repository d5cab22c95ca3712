"""Simulated clusters: elections and the register while servers and links fail."""

from __future__ import annotations

import pytest

from holdfast.simulation.cluster_mutations import (
    CLUSTER_MUTATIONS,
    CLUSTER_RUNS,
    ClusterMutation,
)
from holdfast.simulation.cluster_run import cluster_scenario, run_cluster, simulate_cluster
from holdfast.simulation.cluster_world import ClusterFault, ClusterScenario, ClusterWorld
from holdfast.simulation.run import Verdict

SECOND = 1_000_000


@pytest.mark.parametrize("seed", range(12))
def test_clusters_keep_their_promises(seed: int) -> None:
    result = simulate_cluster(seed)
    assert result.verdict is Verdict.FINE, result.reason


@pytest.mark.thorough
@pytest.mark.parametrize("mutation", CLUSTER_MUTATIONS, ids=lambda mutation: mutation.name)
def test_planted_mistakes_are_found(mutation: ClusterMutation) -> None:
    with mutation.applied():
        found = (simulate_cluster(seed).verdict for seed in range(CLUSTER_RUNS))
        assert any(verdict is not Verdict.FINE for verdict in found)


def test_a_mistake_is_found_and_the_seed_tells_the_same_again() -> None:
    mutation = next(one for one in CLUSTER_MUTATIONS if one.name == "one vote less elects")
    with mutation.applied():
        seed = next(seed for seed in range(CLUSTER_RUNS) if simulate_cluster(seed).verdict)
        first, second = (run_cluster(cluster_scenario(seed)).reason for _ in range(2))
    assert first == second
    assert simulate_cluster(seed).verdict is Verdict.FINE


def world(servers: int, *faults: ClusterFault, ends_s: int = 60) -> ClusterWorld:
    ends = ends_s * SECOND
    return ClusterWorld(ClusterScenario(1, servers, servers, 0, ends, faults))


def test_the_majority_goes_on_and_the_minority_says_so() -> None:
    apart = ClusterFault(10 * SECOND, 60 * SECOND, "partition", ("s0", "s1"))
    found = world(5, apart)
    acknowledged: list[int] = []

    def look() -> None:
        for name in ("s0", "s1"):
            seat = found.servers[name].seat
            assert seat is not None
            assert not seat.has_majority
        for name in ("s2", "s3", "s4"):
            seat = found.servers[name].seat
            assert seat is not None
            assert seat.has_majority
        acknowledged.append(len(found.checker.acknowledged))

    for at in (35, 59):
        found.clock.at(at * SECOND, look)
    found.run_until(59 * SECOND)
    assert acknowledged[1] > acknowledged[0]


def test_a_cluster_of_two_that_loses_one_manages_nothing() -> None:
    found = world(2, ClusterFault(15 * SECOND, 500 * SECOND, "crash", ("s1",)))
    found.run_until(14 * SECOND)
    before = len(found.checker.acknowledged)
    assert before
    found.run_until(18 * SECOND)
    at_loss = len(found.checker.acknowledged)
    found.run_until(60 * SECOND)
    seat = found.servers["s0"].seat
    assert seat is not None
    assert not seat.has_majority
    assert len(found.checker.acknowledged) == at_loss
