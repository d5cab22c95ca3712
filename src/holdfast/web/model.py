"""What the page is told of a deployment: plain values, made of two looks and the plan.

    nodes      of each: kind, what it is of, process, state, words; how far behind; rates
    processes  of each: server, pid, restarts, CPU, memory, nodes
    servers    of each: its place and its processes; "" is the machine the deployment started on
    links      who sends to whom: stream, tuples a second, whether it is cut

Places on a map, utilities, collected replicas and shards will be further fields of these.
"""

from __future__ import annotations

from typing import Any

from holdfast.deployment import Deployment, FragmentSpec
from holdfast.plans.budget import divide, end_to_end_us
from holdfast.plans.plan import Plan
from holdfast.web.looking import Look

HERE = ""
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
            {**each.plain(), "says": _lines_of(each.name, said)} for each in plan.operators
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

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
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


def live(now: Look, before: Look | None, places: Places) -> dict[str, dict[str, Any]]:
    """What changes from look to look."""
    passed = 0.0 if before is None else now.at - before.at
    older = {} if before is None else before.nodes
    nodes = {
        name: _node(name, status, older.get(name, {}), passed, now, places)
        for name, status in now.nodes.items()
    }
    return {
        "nodes": nodes,
        "processes": {
            name: _process(name, now, before, passed, places) for name in places.processes
        },
        "servers": _servers(places),
        "links": _links(now, before, passed),
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
        "rate": _rate(_count(status), _count(older), passed),
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


def _rate(count: int, before: int, passed: float) -> float:
    """A second; a node that has begun anew says nothing of the rate."""
    return round((count - before) / passed, 1) if passed > 0 and count >= before > 0 else 0.0


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


def _servers(places: Places) -> dict[str, Any]:
    deployment = places.deployment
    here = {HERE: {"host": "this machine"}} if HERE in places.server_of.values() else {}
    return here | {
        name: {"host": endpoint.host, "spare": name in deployment.spares}
        for name, endpoint in deployment.servers.items()
    }


def _links(now: Look, before: Look | None, passed: float) -> dict[str, Any]:
    """Keyed by sender, reader and stream, with tabs between them, which no name has."""
    found: dict[str, Any] = {}
    cuts = _cuts(now)
    for sender, reader, stream, next_id in _feeds(now):
        found[f"{sender}\t{reader}\t{stream}"] = {"rate": next_id, "cut": False}
    older = {} if before is None else {each[:3]: each[3] for each in _feeds(before)}
    for key, link in found.items():
        sender, reader, stream = key.split("\t")
        link["rate"] = _rate(link["rate"], older.get((sender, reader, stream), 0), passed)
        link["cut"] = (sender, reader) in cuts
        cuts.discard((sender, reader))
    for sender, reader in cuts:
        found[f"{sender}\t{reader}\t"] = {"rate": 0.0, "cut": True}
    return found


def _feeds(look: Look) -> list[tuple[str, str, str, int]]:
    """Sender, reader, stream, and how many tuples of it the reader has."""
    found = []
    for name, status in look.nodes.items():
        for stream, each in status.get("inputs", {}).items():
            if each.get("from"):
                found.append((str(each["from"]), name, str(stream), int(each["next_id"])))
        if status.get("kind") == "client" and status.get("from"):
            output = look.deployment.clients[name].output
            found.append((str(status["from"]), name, output, int(status["next_id"])))
    return found


def _cuts(look: Look) -> set[tuple[str, str]]:
    """Sender and reader of every link that is cut."""
    found = set()
    for name, status in look.nodes.items():
        cut = status.get("cut", {})
        found |= {(str(other), name) for other in cut.get("incoming", ())}
        found |= {(name, str(other)) for other in cut.get("outgoing", ())}
    return found


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
