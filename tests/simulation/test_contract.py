"""The simulator carries out every order a driver may give, and every fact of the product happens.

What the product does that the simulator does not know has never been simulated. What only the
simulator tells its drivers would be a guard that the product lacks. That the product's nodes know
every order is a matter of types: each names its own, and none is left over (mypy).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import get_args

from holdfast.core.effects import (
    Effect,
    OfAll,
    OfClients,
    OfEntryPoints,
    OfReplicas,
    OfServing,
    TimeStandardSet,
)
from holdfast.core.events import Event
from holdfast.core.settings import Protection
from holdfast.simulation import process
from holdfast.simulation.checkpointing import CheckpointingProcess
from holdfast.simulation.client_process import ClientProcess
from holdfast.simulation.entry_process import EntryProcess
from holdfast.simulation.protected_process import ProtectedProcess
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


def test_each_kind_of_process_knows_the_orders_that_its_kind_of_node_gets() -> None:
    common, serving = set(get_args(OfAll)), set(get_args(OfServing))
    replicas = set(get_args(OfReplicas))
    seen = set()
    for one in world_of_every_protection().processes.values():
        wanted = {
            EntryProcess: serving | set(get_args(OfEntryPoints)),
            CheckpointingProcess: serving
            | replicas - {TimeStandardSet},  # only copies that stand by
            ProtectedProcess: serving | replicas,
            ClientProcess: serving | set(get_args(OfClients)),
        }[type(one)]
        assert set(one.orders) == common | wanted
        seen.add(type(one))
    assert len(seen) == 4, "one of each kind"


def made_in(paths: Iterable[Path]) -> set[str]:
    """What is made somewhere in these files: all that is called by its name or out of a table."""
    nodes = [node for path in paths for node in ast.walk(ast.parse(path.read_text()))]
    called: list[ast.expr] = [node.func for node in nodes if isinstance(node, ast.Call)]
    tables = [value for node in nodes if isinstance(node, ast.Dict) for value in node.values]
    return {one.id for one in (*called, *tables) if isinstance(one, ast.Name)}


FACTS = {one.__name__ for one in get_args(Event)}


def test_every_fact_that_drivers_are_told_happens_in_the_simulation() -> None:
    assert FACTS - made_in(SIMULATION.rglob("*.py")) == set()


def test_every_fact_that_drivers_are_told_happens_in_the_product() -> None:
    rooms = ("nodes", "kept", "flight", "connect", "cluster")
    own = [path for room in rooms for path in (SIMULATION.parent / room).rglob("*.py")]
    assert FACTS - made_in([*own, *SIMULATION.parent.glob("*.py")]) == set()


CORE = SIMULATION.parent / "core"


def of_core(path: Path) -> set[Path]:
    """The files of ``core/`` that a file imports."""
    nodes = list(ast.walk(ast.parse(path.read_text())))
    names = {
        each
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module
        for each in (node.module, *(f"{node.module}.{one.name}" for one in node.names))
    }
    found = {CORE / f"{name.removeprefix('holdfast.core.')}.py" for name in names}
    return {each for each in found if each.exists()}


def test_the_page_names_all_of_core_that_is_never_simulated() -> None:
    known, new = set[Path](), set(SIMULATION.rglob("*.py"))
    while new:
        known |= new
        new = {each for path in new for each in of_core(path)} - known
    missing = {path.name for path in {*CORE.glob("*.py")} - known} - {"__init__.py"}
    assert missing == {"fence.py", "producers.py", "scaling.py", "together.py"}
    page = (SIMULATION.parents[2] / "docs" / "design" / "simulation.md").read_text()
    assert all(f"`{name}`" in page for name in missing)


def test_every_protection_is_drawn() -> None:
    drawn = {one.protection for seed in range(60) for one in scenario_of(seed).spec.fragments}
    assert drawn == set(Protection)
