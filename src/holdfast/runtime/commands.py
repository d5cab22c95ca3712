"""The commands for deployments: up, status, top, logs, down, server, chaos."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from holdfast.runtime.chaos_commands import add_chaos
from holdfast.runtime.server_command import add_server
from holdfast.runtime.up_command import add_up

if TYPE_CHECKING:
    from rich.table import Table

    from holdfast.deployment import Deployment

# What fits into a row of the table.
_LONGEST_SAID = 60


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the commands to the parser of ``holdfast``."""
    add_up(_command(commands, "up", "start a deployment and look after it", None))
    _command(commands, "status", "what the processes of a deployment say", _status)
    top = _command(commands, "top", "the same, live", _top)
    top.add_argument("--seconds", type=float, default=None, help="how long (default: until ctrl-c)")
    logs = _command(commands, "logs", "what the processes of a deployment have written", _logs)
    logs.add_argument("process", nargs="?", help="one process; default: all")
    logs.add_argument("-n", type=int, default=20, metavar="LINES", help="last lines of each")
    logs.add_argument("--follow", action="store_true", help="go on as they write")
    _command(commands, "down", "stop a deployment", _down)
    add_server(commands)
    add_chaos(_command(commands, "chaos", "make a part of a deployment fail", None))


def _command(commands: Any, name: str, text: str, function: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("deployment", metavar="DEPLOYMENT.toml")
    if function is not None:
        parser.set_defaults(command=function)
    return parser


def _status(options: argparse.Namespace) -> int:
    from rich.console import Console

    from holdfast.deployment import load_deployment
    from holdfast.runtime.supervisor import supervisor_pid

    deployment = load_deployment(options.deployment)
    notes: dict[str, str] = {}
    Console().print(_table(deployment, notes))
    for name, note in notes.items():
        print(f"{name}: {note}")
    running = supervisor_pid(deployment)
    print(f"supervised by process {running}" if running else "not supervised: run holdfast up")
    return 0 if running else 1


def _top(options: argparse.Namespace) -> int:
    from rich.live import Live

    from holdfast.deployment import load_deployment

    deployment = load_deployment(options.deployment)
    end = None if options.seconds is None else time.monotonic() + options.seconds
    with Live(_table(deployment), auto_refresh=False) as live:
        while end is None or time.monotonic() < end:
            time.sleep(0.5)
            live.update(_table(deployment), refresh=True)
    return 0


def _table(deployment: Deployment, notes: dict[str, str] | None = None) -> Table:
    """One row for each node: what its process and what it itself says.

    What is too long for a row goes to ``notes``, if given.
    """
    from rich.table import Table

    from holdfast.runtime.status import node_status
    from holdfast.runtime.supervisor import read_state

    state = read_state(deployment)
    nodes = node_status(deployment, list(deployment.endpoints))
    table = Table(box=None, header_style="dim")
    for column in ("node", "process", "pid", "restarts", "state", "boundary", "tuples", "says"):
        table.add_column(column, no_wrap=column != "says")
    for process, names in deployment.processes.items():
        server = deployment.server_of(process)
        place = process if server is None else f"{process}@{server}"
        found = state.get(process, {})
        for name in names:
            node = nodes.get(name, {})
            says = _says(found, node)
            if notes is not None and len(says) > _LONGEST_SAID:
                notes[name] = says
                says = "see below"
            boundary = node.get("boundary", 0)
            behind = f"{time.time() - boundary / 1e6:.1f} s ago" if boundary else "–"
            tuples = node.get("next_id", sum(node.get("outputs", {}).values()))
            table.add_row(
                name,
                place,
                str(found.get("pid") or "–"),
                str(found.get("restarts", 0)),
                _state(node),
                behind,
                f"{tuples:,}" if node and "error" not in node else "–",
                says,
            )
    return table


def _state(node: dict[str, Any]) -> str:
    """The node's state; of a copy that may stand by, whether it runs."""
    state = str(node.get("state", "–"))
    if "copy" not in node:
        return state
    part = f"{node['copy']} {node['term']}"
    return f"{part}, {state}" if node["awake"] else part


def _says(process: dict[str, Any], node: dict[str, Any]) -> str:
    """What is wrong with a node, or done to it."""
    if "error" in node or "error" in process:
        return str(process.get("error") or process.get("problem") or node["error"])
    if node.get("refused"):
        return "; ".join(node["refused"].values())
    cut = node.get("cut", {})
    both = sorted({*cut.get("incoming", ()), *cut.get("outgoing", ())})
    return f"cut from {', '.join(both)}" if both else str(node.get("why", ""))


def _logs(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.errors import InputError

    deployment = load_deployment(options.deployment)
    names = [options.process] if options.process else sorted(deployment.processes)
    if names[0] not in deployment.processes:
        raise InputError(f"there is no process {names[0]!r}; there are {[*deployment.processes]}")
    offsets: dict[str, int] = {}
    for name in names:
        lines, offsets[name] = _log_lines(deployment, name, None, options.n)
        sys.stdout.writelines(lines)
        if not offsets[name]:
            print(f"{name} has written nothing yet", file=sys.stderr)
    while options.follow:
        for name in names:
            lines, offsets[name] = _log_lines(deployment, name, offsets[name], 0)
            sys.stdout.writelines(lines)
        sys.stdout.flush()
        time.sleep(0.2)
    return 0


def _log_lines(
    deployment: Deployment, process: str, offset: int | None, count: int
) -> tuple[list[str], int]:
    """The last lines of a process, or those after ``offset``; and where they end."""
    from holdfast.runtime.children import last_lines, lines_after, log_path
    from holdfast.runtime.remote import RemoteServer

    server = deployment.server_of(process)
    if server is not None:
        return RemoteServer(deployment, server).logs(process, offset, count)
    path = log_path(deployment, process)
    return last_lines(path, count) if offset is None else lines_after(path, offset)


def _down(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.runtime.remote import RemoteServer
    from holdfast.runtime.supervisor import SupervisorError, supervisor_pid

    deployment = load_deployment(options.deployment)
    pid = supervisor_pid(deployment)
    if pid is None and not deployment.servers:
        raise SupervisorError(f"{deployment.name} is not running here")
    if pid is None:
        # What runs on servers outlives whoever started it.
        for name in deployment.servers:
            RemoteServer(deployment, name).stop()
    else:
        os.kill(pid, signal.SIGTERM)
        deadline = time.monotonic() + 60.0
        while supervisor_pid(deployment) is not None:
            if time.monotonic() > deadline:
                raise SupervisorError(f"process {pid} did not stop within 60 s")
            time.sleep(0.1)
    print(f"{deployment.name} is stopped")
    return 0
