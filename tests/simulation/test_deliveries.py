"""At most once never doubles, at least once never loses, exactly once does neither."""

from __future__ import annotations

from random import Random

import pytest

from holdfast.core.settings import Delivery
from holdfast.simulation.checkers import consistency
from holdfast.simulation.faults import Schedule
from holdfast.simulation.mutations import MUTATIONS
from holdfast.simulation.run import Scenario, Verdict, run, shaped
from holdfast.simulation.world import World


def delivering(seed: int) -> Scenario:
    scenario = shaped(seed, "deliveries")
    assert scenario is not None
    return scenario


def kinds(scenario: Scenario) -> set[Delivery]:
    return {one.delivery for one in scenario.spec.fragments}


FIRST = {
    kind: next(seed for seed in range(100) if kind in kinds(delivering(seed)))
    for kind in (Delivery.AT_MOST_ONCE, Delivery.AT_LEAST_ONCE)
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*FIRST.values(), 23])
def test_what_is_promised_is_kept_while_servers_are_lost(seed: int) -> None:
    result = run(delivering(seed))
    assert (result.verdict, result.reason) == (Verdict.FINE, "")
    assert result.stable > 20


@pytest.mark.slow
def test_at_most_once_nothing_is_lost_while_nobody_is() -> None:
    scenario = delivering(FIRST[Delivery.AT_MOST_ONCE])
    world = World(scenario.spec, Schedule((), 30_000_000), Random(1), scenario.server_of)
    world.begin()
    world.clock.run_until(30_000_000)
    streams = consistency.oracle(world)
    for client in world.clients.values():
        since, until = 10_000_000, client.boundary
        expected = [row for row in streams[client.stream] if since <= row[0] < until]
        assert [row for row in client.stable if since <= row[0] < until] == expected
        assert len(expected) > 10


@pytest.mark.parametrize(
    ("name", "seed"),
    [
        ("record at least once what nobody has confirmed", 17),
        ("acknowledge at least once what only came", 0),
        ("go on at most once by the ids of another life", 2),
        ("keep for a copy that sleeps what it never asks for", 5),
        ("take at most once what is older than what is here", 57),
    ],
)
def test_mistakes_in_what_is_kept_are_found(name: str, seed: int) -> None:
    (found,) = [one for one in MUTATIONS if one.name == name]
    with found.applied():
        assert run(delivering(seed)).verdict is not Verdict.FINE
    assert run(delivering(seed)).verdict is Verdict.FINE
