"""A failure may last: what it costs grows with what arrives, not with how long it has lasted."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from holdfast.core.client import Client
from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.core.sunion import SUnion
from holdfast.simulation import networks
from holdfast.simulation.conditions import Conditions
from holdfast.simulation.executor import Computation, Union
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.layout import place
from holdfast.simulation.networks import Fragment
from holdfast.simulation.world import World
from tests.work_counter import Work

HOUR_US = 3_600 * SECOND_US


def an_hour_without_one_input() -> World:
    """One replica merges two streams in buckets of two seconds; one of them is gone."""
    timing = Timing(
        bucket_us=2 * SECOND_US, delay_us=6 * SECOND_US, heartbeat_interval_us=2 * SECOND_US
    )
    plan = Computation((("f00.0", Union(("s0", "s1"))),))
    policy = Policy.PROCESS
    fragment = Fragment("f00", plan, ("f00a",), policy, policy, Reconcile.RESTORE)
    spec = networks.build(timing, ("s0", "s1"), (fragment,), ("f00.0",))
    away = Fault(FaultKind.PARTITION, 5 * SECOND_US, 5 * SECOND_US + HOUR_US, ("e0",))
    schedule = Schedule((away,), away.end + spec.calm_us)
    # Looking at everything twice a second would itself cost what is held.
    conditions = Conditions(1_000, 0, job_failure_rate=0.0, sample_us=60 * SECOND_US)
    return World(spec, schedule, Random(1), place(spec, Random(1)), conditions=conditions)


@pytest.mark.slow
def test_an_hour_of_failure_costs_each_job_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    costs: dict[bool, list[int]] = {True: [], False: []}
    slices = SUnion.slices

    def counted(self: SUnion, start: int, stop: int, stable_only: bool) -> Any:
        work = Work()
        with work.counted():
            found = slices(self, start, stop, stable_only)
        costs[stable_only].append(work.steps // (1 + len(found)))
        return found

    at_client: list[int] = []
    take = Client._take

    def taken(self: Client, *arguments: Any) -> None:
        work = Work()
        with work.counted():
            take(self, *arguments)
        at_client.append(work.steps)

    monkeypatch.setattr(SUnion, "slices", counted)
    monkeypatch.setattr(Client, "_take", taken)
    world = an_hour_without_one_input()
    world.run()
    live = costs[False]
    assert len(live) > 1_000
    first, last = sum(live[100:200]), sum(live[-100:])
    assert last < 2 * first, f"the hundred last jobs cost {last}, a hundred early ones {first}"
    assert max(costs[True][-20:]) < 2 * max(costs[True][:20])
    # Frames of the failure, and then those that correct it, of which the first find all held.
    assert len(at_client) > 3_000
    shares = [at_client[start : start + 100] for start in range(0, len(at_client) - 100, 100)]
    most, least = max(sum(share) for share in shares), min(sum(share) for share in shares)
    assert most < 4 * least, f"a hundred frames cost the client between {least} and {most}"
    (client,) = world.clients.values()
    assert client.tentative_count > 1_000
    assert len(client.stable) > client.tentative_count
