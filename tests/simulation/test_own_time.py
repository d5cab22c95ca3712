"""Sources with their own time in a world full of failures: every promise holds."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from holdfast.core.source_time import Late, TimeVerdict
from holdfast.simulation.checkers import Violation
from holdfast.simulation.own_time import OwnTimeSource, with_own_time
from holdfast.simulation.run import scenario_of
from holdfast.simulation.world import World

SEEDS = range(6)


def world_of(seed: int) -> World:
    scenario = scenario_of(seed)
    spec = with_own_time(scenario.spec)
    return World(spec, scenario.schedule, Random(seed), scenario.server_of, None)


def sources(world: World) -> list[OwnTimeSource]:
    found = (entry.source for entry in world.entries.values())
    return [source for source in found if isinstance(source, OwnTimeSource)]


@pytest.mark.slow
def test_out_of_order_idle_and_wrong_stamps_break_no_promise() -> None:
    """Whatever is set; restarts and other replicas come to the same stream each time."""
    verdicts: Counter[TimeVerdict] = Counter()
    settled, promised, most_idle = set[Late](), 0, 0
    for seed in SEEDS:
        world = world_of(seed)
        world.run()  # raises if a promise is broken
        for source in sources(world):
            verdicts += source.verdicts
            most_idle = max(most_idle, source.most_idle)
            settled.add(source.settings.late)
            promised += source.promised
            assert source.time.boundary > 0
    assert min(verdicts[each] for each in TimeVerdict) > 0
    assert most_idle == 2
    assert settled == set(Late)
    assert promised > 0


def test_a_boundary_that_overtakes_its_tuples_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mistake planted: the boundary is the newest tuple, whatever may still come."""
    monkeypatch.setattr(OwnTimeSource, "reached", property(lambda self: self.time.newest + 1))
    assert any(is_noticed(world_of(seed)) for seed in range(20))


def is_noticed(world: World) -> bool:
    try:
        world.run()
    except Violation as violation:
        return "a tuple has been offered for" in str(violation)
    return False
