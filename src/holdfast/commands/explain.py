"""``holdfast explain``: what holds an output up right now, in words.

From the output up: what its fragment's replicas say of themselves and of what they lack, and of
each stream that lacks, or that is the furthest behind, the same again, up to the entry points.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.why_words import read_why, show_why

Status = dict[str, Any]
# A stream that is no further behind than this is about where it should be.
_CURRENT_US = 1_500_000


@dataclass(frozen=True)
class Graph:
    """Who provides what, and from what.

    producers  the nodes that provide each stream.
    inputs     the streams that shape each stream; none for a source's.
    within_us  X from the sources to each stream.
    """

    producers: Mapping[str, tuple[str, ...]]
    inputs: Mapping[str, tuple[str, ...]]
    within_us: Mapping[str, int] = field(default_factory=dict)


def explain_output(options: argparse.Namespace) -> int:
    """The command: 0 if nothing holds the output up."""
    from holdfast.cluster.status import node_status
    from holdfast.errors import InputError
    from holdfast.plans.topology import reach

    found = reach(options.deployment)
    topology = found.topology
    within_us = {name: topology.within_us(name) for name in topology.shaped_by}
    graph = Graph(topology.producers, topology.shaped_by, within_us)
    known = sorted(set(topology.shaped_by) - set(found.deployment.sources))
    if options.output not in known:
        raise InputError(
            f"{options.deployment} has no output {options.output!r}; it has {', '.join(known)}"
        )
    nodes = sorted({name for names in graph.producers.values() for name in names})
    status = node_status(found.deployment, nodes)
    lines, is_held_up = explain(options.output, graph, status, time.time_ns() // 1000)
    print("\n".join(lines))
    return 1 if is_held_up else 0


def explain(
    output: str, graph: Graph, status: Mapping[str, Status], now: int
) -> tuple[list[str], bool]:
    """The lines, and whether something holds the output up."""
    nodes = [status[name] for name in graph.producers[output]]
    answering = [node for node in nodes if "error" not in node]
    reached = max((_reached(node) for node in answering), default=0)
    whys = [node.get("tentative", {}) for node in answering]
    tentative = [why[output] for why in whys if output in why]
    behind = now - reached
    if not answering:
        head = f"{output} has nobody who provides it."
    elif tentative and len(tentative) == len(answering):
        head = f"{output} is tentative: {show_why(read_why(tentative[0]))}."
    elif behind > max(graph.within_us.get(output, 0), _CURRENT_US):
        head = f"{output} is stable, but {_ago(behind)} behind."
    else:
        head = f"{output} is stable up to {_ago(behind)} ago; nothing holds it up."
        return [head, *_troubles(output, graph, status)], False
    lines = [head]
    _follow(output, graph, status, now, lines, set(), 1)
    # A source that is ahead of the clock lacks nothing: all others are behind it.
    lines += [f"  {text}" for text in _warnings(output, graph, status)]
    if len(lines) == 1:
        lines.append("  Every node that provides it works; it should be current soon.")
    return lines, True


def _follow(
    stream: str,
    graph: Graph,
    status: Mapping[str, Status],
    now: int,
    lines: list[str],
    seen: set[str],
    depth: int,
) -> None:
    """Say of a stream's producers what is wrong, then go to the streams that they lack."""
    if stream in seen:
        return
    seen.add(stream)
    indent = "  " * depth
    for name in graph.producers[stream]:
        lines += [f"{indent}{text}" for text in _said_of(name, stream, status[name], graph, now)]
    inputs = graph.inputs[stream]
    if not inputs:
        return
    boundaries = _boundaries(stream, graph, status)
    newest = max(boundaries.values(), default=0)
    lagging = [name for name in inputs if boundaries.get(name, 0) < now - _CURRENT_US]
    if len(lagging) == len(inputs) and newest:
        lagging = [name for name in inputs if boundaries.get(name, 0) <= newest - _CURRENT_US]
        lagging = lagging or list(inputs)
    for name in lagging:
        reached = boundaries.get(name)
        when = "was never heard of" if not reached else f"was complete {_ago(now - reached)} ago"
        lines.append(f"{indent}{name}, which it needs, {when}:")
        before = len(lines)
        _follow(name, graph, status, now, lines, seen, depth + 1)
        if len(lines) == before:
            lines.append(f"{indent}  {_on_the_way(name, graph, status, reached or 0)}")


def _said_of(name: str, stream: str, node: Status, graph: Graph, now: int) -> list[str]:
    """What is wrong with one node, as far as it goes by its own word."""
    if "error" in node:
        return [f"{name} does not answer: {node['error']}"]
    found = [f"{name}: {text}" for text in node.get("problems", ())]
    found += [f"{name}: {why}" for why in node.get("refused", {}).values()]
    cut = node.get("cut", {})
    peers = sorted({*cut.get("incoming", ()), *cut.get("outgoing", ())})
    if peers:
        found.append(f"{name} is cut off from {', '.join(peers)}, on purpose (holdfast chaos)")
    if not graph.inputs[stream]:
        return found + _said_of_source(name, node, now)
    state = node.get("state")
    if state == "recovering":
        found.append(f"{name} has started again and is catching up")
    elif state in ("asking", "stabilization"):
        found.append(f"{name} has its inputs back and is correcting its results")
    elif state == "postponed":
        found.append(f"{name} goes on with new tuples while a partner corrects its results")
    behind_s = node.get("behind_s", 0)
    if node.get("input_ratio", 0) > 1 and behind_s > 1:
        found.append(f"{name} is overloaded: {behind_s:.1f} s of its input wait for it")
    return found


def _said_of_source(name: str, node: Status, now: int) -> list[str]:
    found = []
    boundary = int(node.get("boundary", 0))
    if now - boundary > _CURRENT_US:
        if not boundary:
            found.append(f"{name} has had no tuple yet")
        else:
            idle = node.get("idle") or []
            quiet = f"; quiet are {', '.join(idle)}" if idle else ""
            found.append(
                f"{name} has nothing newer than {_ago(now - boundary)}: its source is quiet or "
                f"behind{quiet}. If quiet is no failure, say so with idle_after"
            )
    return found


def _on_the_way(stream: str, graph: Graph, status: Mapping[str, Status], reached: int) -> str:
    """Nothing is wrong with who provides it: then it is between them."""
    ahead = [name for name in graph.producers[stream] if _reached(status[name]) > reached]
    names = ", ".join(ahead or graph.producers[stream])
    return f"{names} has more of it, which does not arrive: the network between them is cut or slow"


def _boundaries(stream: str, graph: Graph, status: Mapping[str, Status]) -> dict[str, int]:
    """How far each input has come, at the replica that has the most of it."""
    found: dict[str, int] = {}
    for name in graph.producers[stream]:
        for read, each in status[name].get("inputs", {}).items():
            found[read] = max(found.get(read, 0), int(each["boundary"]))
    return found


def _on_the_way_to(output: str, graph: Graph) -> list[str]:
    """Everybody who provides something that an output hangs on."""
    seen, left, found = set[str](), [output], dict[str, None]()
    while left:
        stream = left.pop()
        if stream not in seen:
            seen.add(stream)
            left += graph.inputs[stream]
            found |= dict.fromkeys(graph.producers[stream])
    return list(found)


def _warnings(output: str, graph: Graph, status: Mapping[str, Status]) -> list[str]:
    """What entry points on the way have to say, though they work."""
    names = _on_the_way_to(output, graph)
    return [f"{name}: {text}" for name in names for text in status[name].get("warnings", ())]


def _troubles(output: str, graph: Graph, status: Mapping[str, Status]) -> list[str]:
    """What is wrong on the way to a stream that is current all the same."""
    return [
        f"  {name} does not answer ({status[name]['error']}); others stand in."
        for name in _on_the_way_to(output, graph)
        if "error" in status[name]
    ]


def _reached(node: Status) -> int:
    return int(node.get("boundary", 0))


def _ago(micros: int) -> str:
    return f"{max(0, micros) / 1e6:.1f} s"
