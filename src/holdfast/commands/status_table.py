"""``holdfast status`` and ``holdfast top``: a row for each node, or JSON for programs.

Below the table ``status`` has a line for each shard (shard_lines.py), and how X is divided.

In a terminal, what is too long for a row stands below the table. In a pipe every row is whole:
nothing is cut, whatever the width is said to be.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holdfast.commands.shard_lines import ShardView, shard_lines, shard_views, shards_json
from holdfast.why_words import read_why, show_why

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.deployment import Deployment

COLUMNS = ("node", "process", "pid", "restarts", "state", "boundary", "tuples", "says")
# What fits into a row of the table.
_LONGEST_SAID = 60
_LIVE_SECONDS, _PIPED_SECONDS = 0.5, 2.0
# Who is slower is said to be slow; the others are not kept waiting for it.
_TOP_ANSWER_SECONDS = 2.0


@dataclass(frozen=True)
class NodeReport:
    """What a node's process and the node itself say.

    found   the process: pid, restarts, uptime_s, problem
    status  the node: what it answers to "status", or its error
    """

    name: str
    process: str
    server: str | None
    found: dict[str, Any]
    status: dict[str, Any]


def reports(deployment: Deployment, within_s: float | None = None) -> list[NodeReport]:
    """One for each node; ``within_s`` is how long an answer may take."""
    from holdfast.cluster.status import ANSWER_SECONDS, node_status
    from holdfast.cluster.supervisor import read_state

    state = read_state(deployment)
    nodes = node_status(deployment, list(deployment.endpoints), within_s or ANSWER_SECONDS)
    return [
        NodeReport(
            name, process, deployment.server_of(process), state.get(process, {}), nodes[name]
        )
        for process, names in deployment.processes.items()
        for name in names
    ]


def show_status(options: argparse.Namespace) -> int:
    """The command: 0 if somebody looks after the deployment."""
    from holdfast.cluster.supervisor import supervisor_pid
    from holdfast.deployment import load_deployment

    deployment = load_deployment(options.deployment)
    found, running = reports(deployment), supervisor_pid(deployment)
    if options.json:
        print(json.dumps(_plain(deployment, found, running), default=str))
        return 0 if running or _is_submitted(deployment) else 1
    notes: dict[str, str] = {}
    rows = [_row(each, notes if sys.stdout.isatty() else None) for each in found]
    print("\n".join(_lines(rows)))
    for name, note in notes.items():
        print(f"{name}: {note}")
    for line in (*shard_lines(_shards(deployment, found)), *_budget(deployment, found)):
        print(line)
    if _is_submitted(deployment):
        print("looked after by the cluster it was submitted to")
        return 0
    print(f"supervised by process {running}" if running else "not supervised: run holdfast up")
    return 0 if running else 1


def _shards(deployment: Deployment, found: Sequence[NodeReport]) -> dict[str, ShardView]:
    return shard_views(deployment, {each.name: each.status for each in found})


def _is_submitted(deployment: Deployment) -> bool:
    """Whether all of it runs on servers and nobody has ever started it here."""
    started_here = (deployment.data / "supervisor.pid").exists()
    return not started_here and not deployment.hosted_by(None)


def _budget(deployment: Deployment, found: Sequence[NodeReport]) -> list[str]:
    """How X is divided, where it was given for outputs, and what replicas wait of it now."""
    if not deployment.outputs:
        return []
    from holdfast.plans.measured_file import read_next
    from holdfast.plans.topology import reach

    waits = [
        f"  {each.name} waits {each.status['alpha']:g} x {each.status['delay_s']:g} s now"
        + ("" if (need := each.status.get("need_s")) is None else f", its jobs need {need:g} s")
        for each in found
        if "alpha" in each.status
    ]
    if read_next(deployment.data) is not None:
        waits.append("measured since: holdfast up divides by it when it starts next")
    return reach(deployment.path).topology.budget() + waits


def show_top(options: argparse.Namespace) -> int:
    """The command: the table again and again."""
    from holdfast.deployment import load_deployment

    deployment = load_deployment(options.deployment)
    end = None if options.seconds is None else time.monotonic() + options.seconds
    if not sys.stdout.isatty():
        while True:
            found = reports(deployment, _TOP_ANSWER_SECONDS)
            print("\n".join(_lines([_row(each, None) for each in found])), flush=True)
            if end is not None and time.monotonic() + _PIPED_SECONDS > end:
                return 0
            time.sleep(_PIPED_SECONDS)
            print()
    from rich.live import Live

    with Live(_table(deployment), auto_refresh=False) as live:
        while end is None or time.monotonic() < end:
            time.sleep(_LIVE_SECONDS)
            live.update(_table(deployment), refresh=True)
    return 0


def _plain(
    deployment: Deployment, found: Sequence[NodeReport], running: int | None
) -> dict[str, Any]:
    """For programs; ``status`` is as the node gives it, ``outputs`` how X of each is divided,
    ``shards`` who does the work of each, and whom that one knows."""
    from holdfast.plans.topology import reach

    return {
        "deployment": deployment.name,
        "supervisor": running,
        "outputs": reach(deployment.path).topology.division(),
        "shards": shards_json(_shards(deployment, found)),
        "nodes": {
            each.name: {
                "process": each.process,
                "server": each.server,
                **each.found,
                "says": _says(each.found, each.status),
                "status": each.status,
            }
            for each in found
        },
    }


def _table(deployment: Deployment) -> Table:
    from rich.table import Table

    table = Table(box=None, header_style="dim")
    for column in COLUMNS:
        table.add_column(column, no_wrap=column != "says")
    for each in reports(deployment, _TOP_ANSWER_SECONDS):
        table.add_row(*_row(each, None))
    return table


def _row(report: NodeReport, notes: dict[str, str] | None) -> list[str]:
    """The cells of a node; what is too long for a row goes to ``notes``, if given."""
    node, found = report.status, report.found
    says = _says(found, node)
    if notes is not None and len(says) > _LONGEST_SAID:
        notes[report.name] = says
        says = "see below"
    boundary = node.get("boundary", 0)
    tuples = node.get("next_id", sum(node.get("outputs", {}).values()))
    return [
        report.name,
        report.process if report.server is None else f"{report.process}@{report.server}",
        str(found.get("pid") or "–"),
        str(found.get("restarts", 0)),
        _state(node),
        _when(boundary),
        f"{tuples:,}" if node and "error" not in node else "–",
        " ".join(says.split()),
    ]


def _lines(rows: Sequence[Sequence[str]]) -> list[str]:
    """The table as text, each column as wide as its widest cell."""
    whole = [COLUMNS, *rows]
    widths = [max(len(row[i]) for row in whole) for i in range(len(COLUMNS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in whole
    ]


def _state(node: dict[str, Any]) -> str:
    """The node's state; of a copy that may stand by, whether it runs; what it delivers otherwise
    than once."""
    state = str(node.get("state", "–"))
    if node.get("delivery", "exactly-once") != "exactly-once":
        state = f"{state}, {node['delivery']}"
    if "copy" not in node:
        return state
    part = f"{node['copy']} {node['term']}"
    return f"{part}, {state}" if node["awake"] else part


def _when(boundary: int) -> str:
    """How far a boundary is from the present."""
    if not boundary:
        return "–"
    ago = time.time() - boundary / 1e6
    return f"{ago:.1f} s ago" if ago > -0.05 else f"{-ago:.1f} s ahead"


def _says(process: dict[str, Any], node: dict[str, Any]) -> str:
    """What is wrong with a node, or done to it."""
    if "error" in node or "error" in process:
        return str(process.get("error") or process.get("problem") or node["error"])
    problems = [*node.get("problems", ()), *node.get("refused", {}).values()]
    problems += node.get("warnings", ())
    tentative = node.get("tentative", {}).items()
    problems += [f"{name} is tentative: {show_why(read_why(why))}" for name, why in tentative]
    if problems:
        return "; ".join(problems)
    cut = node.get("cut", {})
    both = sorted({*cut.get("incoming", ()), *cut.get("outgoing", ())})
    return f"cut from {', '.join(both)}" if both else str(node.get("why", ""))
