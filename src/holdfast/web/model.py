"""What the page is told of a deployment: plain values, made of two looks and the plan.

nodes      of each: kind, what it is of, process, state, words; how far behind; rates
processes  of each: server, pid, restarts, CPU, memory, nodes
servers    of each: its place and its processes; "" is the machine the deployment started on
links      who sends to whom: stream, tuples a second, how late, whether it is cut (flows.py)
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from holdfast.deployment import Deployment, FragmentSpec
from holdfast.plans.budget import divide, end_to_end_us
from holdfast.plans.plan import Plan
from holdfast.web.flows import links, rate, utilities
from holdfast.web.looking import Look
from holdfast.web.plane import Plane
from holdfast.web.servers import HERE, servers

# An entry point writes or does not, many times a second: it serves.
_SERVING = ("idle", "writing")


def fixed(deployment: Deployment, plan: Plan | None) -> dict[str, Any]:
    """What stays until the deployment is started anew."""
    return {
        "deployment": deployment.name,
        "chaos": deployment.chaos,
        "delay_s": deployment.timing.delay_us / 1e6,
        "fragments": {
            name: _fragment(spec, [deployment.fragments[each] for each in spec.merges])
            for name, spec in deployment.fragments.items()
        },
        "sources": {
            name: {"node": spec.process, "reads": _kind(spec.reads)}
            for name, spec in deployment.sources.items()
        },
        "clients": {
            name: {"output": spec.output, "sink": _kind(spec.sink)}
            for name, spec in deployment.clients.items()
        },
        "output_delays": {} if plan is None else _delays(deployment, plan),
        **_network(plan),
    }


def _fragment(spec: FragmentSpec, shards: list[FragmentSpec]) -> dict[str, Any]:
    """A fragment; one with shards as what its shards are, with the replicas of all of them."""
    shown = shards[0] if shards else spec
    return {
        "protection": shown.protection.value,
        "replicas": [name for each in (*shards, spec) for name in each.processes],
        "while_failed": shown.while_failed.value,
        "while_stabilizing": shown.while_stabilizing.value,
        "reconcile": shown.reconcile.value,
    }


def _delays(deployment: Deployment, plan: Plan) -> dict[str, float]:
    """X from the sources to each output, in seconds."""
    shares = divide(deployment, plan)
    served = {each.stream for fragment in plan.fragments.values() for each in fragment.outputs}
    return {
        output: end_to_end_us(plan, shares, output) / 1e6
        for output in plan.outputs
        if output in served
    }


def _kind(connector: str | None) -> str | None:
    """Of ``kind:where,options`` the kind: the rest may hold a password."""
    return None if connector is None else connector.partition(":")[0]


def _network(plan: Plan | None) -> dict[str, Any]:
    if plan is None:
        return {"operators": [], "outputs": {}}
    # Every shard of a fragment says the same of its operators.
    said = list(
        dict.fromkeys(line for each in plan.fragments.values() for line in each.description)
    )
    return {
        "bucket_s": plan.bucket_us / 1e6,
        "operators": [
            {**asdict(each), "says": _lines_of(each.name, said)} for each in plan.operators
        ],
        "outputs": {name: plan.output_operators.get(name) for name in plan.outputs},
        "streams": {
            name: {
                "inputs": list(each.inputs),
                "outputs": [output.stream for output in each.outputs],
            }
            for name, each in plan.fragments.items()
        },
    }


def _lines_of(operator: str, said: list[str]) -> list[str]:
    start = f"{operator}: "
    found = [line.removeprefix(start) for line in said if line.startswith(start)]
    return [line for line in found if not line.startswith(("from ", "columns "))]


class Places:
    """Who is where in a deployment: looked up for every node in every look, so made once."""

    def __init__(self, deployment: Deployment, plan: Plan | None = None) -> None:
        self.deployment = deployment
        self.plan = plan
        self.processes = deployment.processes
        endpoints = deployment.endpoints
        self.process_of = {
            node: process for process, nodes in self.processes.items() for node in nodes
        }
        self.server_of = {
            process: endpoints[nodes[0]].server or HERE for process, nodes in self.processes.items()
        }
        self.what: dict[str, dict[str, Any]] = {
            name: {"kind": "client", "of": client.output}
            for name, client in deployment.clients.items()
        }
        for source, entry in deployment.sources.items():
            self.what[entry.process] = {"kind": "entry", "of": source}
        for fragment, spec in deployment.fragments.items():
            self.what |= {name: {"kind": "replica", "of": fragment} for name in spec.processes}
        # Who could send each stream.
        self.producers: dict[str, tuple[str, ...]] = {}
        for name, one in ({} if plan is None else plan.fragments).items():
            spec = deployment.fragments[name]
            present = tuple(each for each in spec.processes if each not in deployment.gone)
            self.producers |= {each.stream: present for each in one.outputs}


def live(
    now: Look, before: Look | None, places: Places, plane: Plane | None = None
) -> dict[str, dict[str, Any]]:
    """What changes from look to look."""
    passed = 0.0 if before is None else now.at - before.at
    older = {} if before is None else before.nodes
    nodes = {
        name: _node(name, status, older.get(name, {}), passed, now, places)
        for name, status in now.nodes.items()
    }
    for name, worth in utilities(now).items():
        if name in nodes and nodes[name]["kind"] == "replica":
            nodes[name]["utility"] = round(worth, 3)
    return {
        "nodes": nodes,
        "processes": {
            name: _process(name, now, before, passed, places) for name in places.processes
        },
        "servers": servers(now, places.server_of.values(), plane),
        "links": links(now, before, passed, places.producers),
    }


def _node(
    name: str,
    status: dict[str, Any],
    older: dict[str, Any],
    passed: float,
    now: Look,
    places: Places,
) -> dict[str, Any]:
    process = places.process_of[name]
    found = now.processes.get(process, {})
    if "error" in status:
        said = found.get("error") or found.get("problem") or status["error"]
        state = "paused" if found.get("paused") else str(status.get("state", "gone"))
        return {"process": process, "state": state, "says": str(said), **places.what[name]}
    boundary = int(status.get("boundary", 0))
    return {
        "process": process,
        "state": _state(status),
        "says": _says(status),
        "behind_s": round(max(0.0, now.at - boundary / 1e6), 2) if boundary > 0 else None,
        "boundary": boundary,
        "rate": rate(_count(status), _count(older), passed),
        "count": _count(status),
        "cut_from": _cut_from(status),
        "from": status.get("from"),
        "inputs": status.get("inputs", {}),
        "outputs": status.get("outputs", {}),
        "operators": status.get("operators", {}),
        "copy": status.get("copy"),
        "term": status.get("term"),
        "awake": status.get("awake"),
        "log_bytes": status.get("log_bytes"),
        "waiting": status.get("waiting"),
        "uptime_s": int(status.get("uptime_s", 0)),
        **places.what[name],
    }


def _state(status: dict[str, Any]) -> str:
    if "copy" in status and not status.get("awake"):
        return "standing by"
    return shown_state(str(status.get("state", "unknown")))


def shown_state(state: str) -> str:
    """A state as the page has it."""
    return "serving" if state in _SERVING else state


def _says(status: dict[str, Any]) -> str:
    found = [*status.get("problems", ()), *status.get("refused", {}).values()]
    found += status.get("warnings", ())
    if found:
        return "; ".join(str(each) for each in found)
    cut = _cut_from(status)
    return f"cut from {', '.join(cut)}" if cut else str(status.get("why", ""))


def _cut_from(status: dict[str, Any]) -> list[str]:
    cut = status.get("cut", {})
    return sorted({*cut.get("incoming", ()), *cut.get("outgoing", ())})


def _count(status: dict[str, Any]) -> int:
    if "next_id" in status:
        return int(status["next_id"])
    return sum(int(each) for each in status.get("outputs", {}).values())


def _process(
    name: str, now: Look, before: Look | None, passed: float, places: Places
) -> dict[str, Any]:
    found = now.processes.get(name, {})
    older = {} if before is None else before.processes.get(name, {})
    used = None
    if "cpu_s" in found and found.get("pid") == older.get("pid") and passed > 0:
        used = round(max(0.0, found["cpu_s"] - older.get("cpu_s", 0.0)) / passed, 2)
    return {
        "server": places.server_of[name],
        "nodes": list(places.processes[name]),
        "pid": found.get("pid"),
        "restarts": found.get("restarts", 0),
        "cpu": used,
        "memory_bytes": found.get("memory_bytes"),
        "problem": found.get("error") or found.get("problem"),
    }


def troubles(nodes: dict[str, Any]) -> list[str]:
    """What is not as it should be, in words: why results may be tentative now."""
    found = []
    for name, node in nodes.items():
        if node["state"] in ("gone", "paused", "slow"):
            found.append(f"{name} does not answer")
        elif node["cut_from"]:
            found.append(f"{name}: cut from {', '.join(node['cut_from'])}")
        elif node["kind"] == "replica" and node["state"] not in ("stable", "standing by"):
            found.append(f"{name}: {node['state']}")
    return found
