"""The simulator carries out every order a driver may give, and every fact of the product happens.

What the product does that the simulator does not know has never been simulated.
"""

from __future__ import annotations

import ast
from pathlib import Path
from random import Random
from typing import get_args

from holdfast.core.effects import Effect
from holdfast.core.events import Event
from holdfast.core.settings import Protection
from holdfast.simulation import process
from holdfast.simulation.run import scenario_of
from holdfast.simulation.world import World

SIMULATION = Path(process.__file__).parent


def world_of_every_protection() -> World:
    """The first one of the generator's that has copies that stand by, and others."""
    for seed in range(200):
        scenario = scenario_of(seed)
        pairs = [one.standby for one in scenario.spec.fragments]
        if None in pairs and any(pairs):
            return World(scenario.spec, scenario.schedule, Random(seed), scenario.server_of)
    raise AssertionError("the generator draws no such network")


def test_every_order_is_carried_out_by_somebody() -> None:
    known = {kind for one in world_of_every_protection().processes.values() for kind in one.orders}
    orders = set(get_args(Effect))
    assert orders - known == set(), "orders of the drivers that no simulated process knows"
    assert known - orders == set(), "orders that no driver gives"


def test_every_fact_that_drivers_are_told_happens_in_the_simulation() -> None:
    made = {
        node.func.id
        for path in SIMULATION.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert {one.__name__ for one in get_args(Event)} - made == set()


def test_every_protection_is_drawn() -> None:
    drawn = {one.protection for seed in range(60) for one in scenario_of(seed).spec.fragments}
    assert drawn == set(Protection)
