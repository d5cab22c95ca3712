"""Deployments that do not run, and looks at them that nobody took: for pictures of any size."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.deployment import Deployment, load_deployment
from holdfast.plans.plan import OperatorPlan, Plan, read_plan, write_plan
from holdfast.web.looking import Look

_SMALL = """\
name = "small"
network = "network.py"
chaos = true
[sources.load]
[fragments.main]
replicas = 2
[clients.recorder]
output = "busy"
sink = "jsonl:busy.jsonl"
"""


def small(directory: Path, operators: int = 4) -> Deployment:
    """Two replicas; a network of so many operators."""
    return _written(directory, _SMALL, operators)


def wide(directory: Path, servers: int) -> Deployment:
    """A replica on each of many servers."""
    names = [f"server-{each:04}" for each in range(servers)]
    listed = ", ".join(f'"{name}"' for name in names)
    text = f"""\
name = "wide"
network = "network.py"
[sources.load]
[fragments.main]
replicas = [{listed}]
"""
    text += "".join(
        f'[servers.{name}]\nlisten = "127.0.0.1:{4700 + each}"\n' for each, name in enumerate(names)
    )
    return _written(directory, text, 4)


def two_queries(directory: Path) -> Deployment:
    """Two queries that have nothing in common, in two fragments."""
    text = """\
name = "two"
network = "network.py"
chaos = true
[sources.load]
[sources.pings]
[fragments.main]
replicas = 2
[fragments.near]
replicas = 1
"""
    deployment = _written(directory, text, 4)
    first = plan(4)
    others = (
        OperatorPlan("pings", "source 'pings'", "source", "near", (), "server string"),
        OperatorPlan("near_1", "slow servers", "stateless", "near", ("pings",), "n bigint"),
    )
    both = replace(
        first,
        outputs=("busy", "slow"),
        operators=(*first.operators, *others),
        output_operators={**first.output_operators, "slow": "near_1"},
    )
    write_plan(deployment, both)
    return deployment


CITIES = {
    "boston": "42.36, -71.06",
    "berlin": "52.52, 13.41",
    "paris": "48.86, 2.35",
    "tokyo": "35.68, 139.69",
    "sydney": "-33.87, 151.21",
    "lima": "-12.05, -77.04",
    "nairobi": "-1.29, 36.82",
    "seattle": "47.61, -122.33",
}


def mapped(directory: Path) -> Deployment:
    """Replicas in three of eight cities."""
    text = """\
name = "cities"
network = "network.py"
[sources.load]
listen = "boston"
[fragments.main]
replicas = ["boston", "berlin", "tokyo"]
[clients.recorder]
output = "busy"
sink = "jsonl:busy.jsonl"
listen = "sydney"
"""
    for place, (name, at) in enumerate(CITIES.items()):
        text += f'[servers.{name}]\nlisten = "127.0.0.1:{4700 + place}"\nat = "{at}"\n'
    return _written(directory, text, 4)


def _written(directory: Path, text: str, operators: int) -> Deployment:
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "network.py").write_text("network = None\n")
    (directory / "deployment.toml").write_text(text)
    deployment = load_deployment(directory / "deployment.toml")
    write_plan(deployment, plan(operators))
    return deployment


def plan(count: int) -> Plan:
    """A network of layers, in which each operator reads two of the layer before it."""
    found = [OperatorPlan("load", "source 'load'", "source", "main", (), "server string")]
    layer = ["load"]
    while len(found) < count:
        size = min(12, count - len(found))
        made = []
        for place in range(size):
            number = len(found)
            inputs = tuple(dict.fromkeys((layer[place % len(layer)], layer[-1])))
            kind = "stateful" if number % 3 == 0 else "stateless"
            label = f"operator {number} of server"
            found.append(OperatorPlan(f"op_{number}", label, kind, "main", inputs, "n bigint"))
            made.append(f"op_{number}")
        layer = made
    return Plan(200_000, {}, {}, ("busy",), tuple(found), {"busy": found[-1].name})


def look(deployment: Deployment, turn: int) -> Look:
    """The deployment at a moment, a little different each time."""
    choice, at = random.Random(turn), 1_700_000_000.0 + turn
    nodes: dict[str, dict[str, Any]] = {}
    stateful = [each.name for each in read_plan(deployment).operators if each.kind == "stateful"]
    for name in deployment.endpoints:
        inputs = {"load": {"from": "entry-load", "next_id": 100 * turn, "boundary": 0}}
        nodes[name] = {
            "kind": "replica",
            "state": choice.choice(["stable"] * 9 + ["up_failure"]),
            "boundary": int((at - choice.random()) * 1e6),
            "inputs": inputs if name.startswith("main") else {},
            "outputs": {"busy": 10 * turn},
            "operators": {name: {"rows": turn, "bytes": 9 * turn} for name in stateful},
        }
    for source in deployment.sources.values():
        nodes[source.process] = {
            "kind": "entry",
            "state": "idle",
            "next_id": 100 * turn,
            "boundary": int(at * 1e6),
        }
    if "recorder" in nodes:
        nodes["recorder"] = {"kind": "client", "state": "stable", "from": "main-1", "next_id": turn}
    processes = {
        name: {"pid": 7, "restarts": 0, "cpu_s": turn * 0.3, "memory_bytes": 10**9 + turn}
        for name in deployment.processes
    }
    return Look(at, deployment, 1, processes, nodes)
