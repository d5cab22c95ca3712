"""One seed, one run: the network, the schedule and every random choice come from it."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from random import Random

from holdfast.core.settings import SECOND_US
from holdfast.simulation import networks, schedules
from holdfast.simulation.checkers import Stall, Violation
from holdfast.simulation.faults import Schedule
from holdfast.simulation.layout import layout_of, place
from holdfast.simulation.networks import NetworkSpec
from holdfast.simulation.own_time import with_own_time
from holdfast.simulation.shards import sharding
from holdfast.simulation.world import World

# In such a share of the runs every other source has producers with times of their own.
_WITH_OWN_TIME = 0.2


class Verdict(IntEnum):
    """How a run ended; the numbers are the exit codes of ``holdfast simulate``."""

    FINE = 0
    CRASH = 3
    WRONG = 4
    STALL = 5


@dataclass(frozen=True)
class Scenario:
    """A network, where it runs, and what happens to it. ``seed`` decides the rest."""

    seed: int
    spec: NetworkSpec
    server_of: dict[str, str]
    schedule: Schedule


@dataclass(frozen=True)
class Result:
    """What came of a run."""

    seed: int
    verdict: Verdict
    reason: str = ""
    simulated_s: float = 0.0
    steps: int = 0
    tentative: int = 0
    stable: int = 0
    visits: Mapping[tuple[str, str, str], int] = field(default_factory=dict)
    faults: Mapping[str, int] = field(default_factory=dict)
    events: Mapping[str, int] = field(default_factory=dict)


def scenario_of(seed: int) -> Scenario:
    """Everything a seed stands for."""
    scenario = shaped(seed)
    assert scenario is not None, "some shape fits every network"
    return scenario


def shaped(seed: int, shape: str | None = None) -> Scenario | None:
    """The same with a schedule of one shape; None if the seed's network is none for it."""
    random = Random(seed)
    spec = networks.racing(Random(-1 - seed), networks.generate(random))
    spec = sharding(Random(-3 - seed), spec)
    server_of = place(spec, random)
    layout = layout_of(spec, server_of)
    chosen = schedules.choose(random, layout, shape)
    if chosen is None:
        return None
    special = schedules.network_for(chosen, random)
    if special is not None:
        spec = special
        server_of = place(spec, random)
        layout = layout_of(spec, server_of)
    elif Random(-2 - seed).random() < _WITH_OWN_TIME:
        spec = with_own_time(spec)
    times = (spec.timing.least_alpha_x_us, spec.calm_us)
    schedule = schedules.generate(random, chosen, layout, *times)
    schedule = schedules.with_returning_clients(Random(-4 - seed), schedule, layout)
    return Scenario(seed, spec, server_of, schedule)


def run(scenario: Scenario, tell: Callable[[str], None] | None = None) -> Result:
    """Run a scenario to its end or to the first thing that is wrong."""
    world = World(scenario.spec, scenario.schedule, Random(scenario.seed), scenario.server_of, tell)
    verdict, reason = Verdict.FINE, ""
    try:
        world.run()
    except Stall as stall:
        verdict, reason = Verdict.STALL, str(stall)
    except Violation as violation:
        verdict, reason = Verdict.WRONG, f"{violation} at {world.clock.now / SECOND_US:.3f} s"
    except Exception:
        verdict = Verdict.CRASH
        reason = f"at {world.clock.now / SECOND_US:.3f} s\n{traceback.format_exc()}"
    return Result(
        scenario.seed,
        verdict,
        reason,
        world.clock.now / SECOND_US,
        world.clock.steps,
        sum(client.tentative_count for client in world.clients.values()),
        sum(len(client.stable) for client in world.clients.values()),
        dict(world.coverage.visits),
        dict(world.faults),
        {one.__name__: count for one, count in world.events.items()},
    )
