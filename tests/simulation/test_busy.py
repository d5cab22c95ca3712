"""Machines that other programs keep busy: X holds under every policy that promises it."""

from __future__ import annotations

from itertools import product
from random import Random

import pytest

from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.simulation import networks
from holdfast.simulation.executor import Computation, Union
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.layout import place
from holdfast.simulation.networks import Fragment
from holdfast.simulation.run import Verdict, run, shaped
from holdfast.simulation.world import World

X = 3 * SECOND_US
POLICIES = list(product((Policy.PROCESS, Policy.DELAY), repeat=2))


def world(policies: tuple[Policy, Policy], seed: int) -> World:
    """Two replicas merge three streams; the machines become busy, then one stream is away."""
    timing = Timing(bucket_us=200_000, delay_us=X, alpha=0.9, alpha_adapts=True)
    streams = ("s0", "s1", "s2")
    plan = Computation((("f00.0", Union(streams)),))
    fragment = Fragment("f00", plan, ("f00a", "f00b"), *policies, Reconcile.RESTORE)
    spec = networks.build(timing, streams, (fragment,), ("f00.0",), job_us=30_000)
    away = Fault(FaultKind.PARTITION, 30 * SECOND_US, 45 * SECOND_US, ("e0",))
    server_of = place(spec, Random(seed))
    busy = [
        Fault(FaultKind.BUSY, 10 * SECOND_US, away.end + 10 * SECOND_US, (server,))
        for server in sorted({*server_of.values()})
    ]
    schedule = Schedule((away, *busy), away.end + spec.calm_us)
    return World(spec, schedule, Random(seed), server_of)


@pytest.mark.parametrize("policies", POLICIES, ids=lambda each: "-".join(p.value for p in each))
def test_every_policy_is_out_by_x_on_a_busy_machine(policies: tuple[Policy, Policy]) -> None:
    made = world(policies, seed=1)
    made.run()
    (client,), away = made.clients.values(), made.schedule.faults[0]
    delays = [
        came - stime
        for stime, came in client.tentative_times
        if came < away.end or stime >= away.end
    ]
    assert len(delays) > 20
    assert max(delays) - made.skew_us <= X
    alphas = [one.replica.patience.alpha for one in made.replicas.values() if one.replica]
    assert 0.5 <= min(alphas) < 0.87, "they have noticed"


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happens_meanwhile(seed: int) -> None:
    scenario = shaped(seed, "busy")
    assert scenario is not None
    result = run(scenario)
    assert result.verdict is Verdict.FINE, result.reason
    assert result.faults[FaultKind.BUSY.value]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 40))
def test_whatever_happens_meanwhile_more_often(seed: int) -> None:
    test_whatever_happens_meanwhile(seed)
