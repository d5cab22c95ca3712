"""The commands for deployments: up, status, top, logs, down, chaos."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from holdfast.runtime.chaos_commands import add_chaos

if TYPE_CHECKING:
    from holdfast.deployment import Deployment


def add_commands(commands: argparse._SubParsersAction[Any]) -> None:
    """Add the commands to the parser of ``holdfast``."""
    up = _command(commands, "up", "start a deployment and look after it", _up)
    up.add_argument("--wait", type=float, default=120.0, metavar="SECONDS", help="to come up")
    _command(commands, "status", "what the processes of a deployment say", _status)
    top = _command(commands, "top", "the same, live", _top)
    top.add_argument("--seconds", type=float, default=None, help="how long (default: until ctrl-c)")
    logs = _command(commands, "logs", "what the processes of a deployment have written", _logs)
    logs.add_argument("process", nargs="?", help="one process; default: all")
    logs.add_argument("-n", type=int, default=20, metavar="LINES", help="last lines of each")
    logs.add_argument("--follow", action="store_true", help="go on as they write")
    _command(commands, "down", "stop a deployment", _down)
    add_chaos(_command(commands, "chaos", "make a part of a deployment fail", None))


def _command(commands: Any, name: str, text: str, function: Any) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    parser.add_argument("deployment", metavar="DEPLOYMENT.toml")
    if function is not None:
        parser.set_defaults(command=function)
    return parser


def _up(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.runtime.supervisor import Supervisor

    console = Console(stderr=True, highlight=False)
    started = time.monotonic()

    def tell(text: str) -> None:
        console.print(f"[dim]{time.monotonic() - started:6.1f} s[/dim]  {text}", soft_wrap=True)

    supervisor = Supervisor(load_deployment(options.deployment), tell)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: supervisor.request_stop())
    supervisor.start()
    try:
        supervisor.wait_ready(options.wait)
        tell("all up; ctrl-c or holdfast down stops it")
        supervisor.run()
    finally:
        supervisor.stop()
        tell("stopped")
    return 0


def _status(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.runtime.supervisor import supervisor_pid

    deployment = load_deployment(options.deployment)
    Console().print(_table(deployment))
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


def _table(deployment: Deployment) -> Table:
    """One row for each node: what its process and what it itself says."""
    from holdfast.runtime.supervisor import node_status, read_state

    state = read_state(deployment)
    nodes = node_status(deployment, list(deployment.endpoints))
    table = Table(box=None, header_style="dim")
    for column in ("node", "process", "pid", "restarts", "state", "boundary", "tuples", "says"):
        table.add_column(column)
    for process, names in deployment.processes.items():
        for name in names:
            node = nodes.get(name, {})
            boundary = node.get("boundary", 0)
            behind = f"{time.time() - boundary / 1e6:.1f} s ago" if boundary else "–"
            tuples = node.get("next_id", sum(node.get("outputs", {}).values()))
            pid = state.get(process, {}).get("pid")
            table.add_row(
                name,
                process,
                str(pid or "–"),
                str(state.get(process, {}).get("restarts", 0)),
                _state(node),
                behind,
                f"{tuples:,}" if node and "error" not in node else "–",
                str(node.get("error", node.get("why", ""))),
            )
    return table


def _state(node: dict[str, Any]) -> str:
    """The node's state; of a copy that may stand by, whether it runs."""
    state = str(node.get("state", "–"))
    if "copy" not in node:
        return state
    part = f"{node['copy']} {node['term']}"
    return f"{part}, {state}" if node["awake"] else part


def _logs(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment

    deployment = load_deployment(options.deployment)
    names = [options.process] if options.process else sorted(deployment.processes)
    files = []
    for name in names:
        path = deployment.data / "logs" / f"{name}.log"
        if path.exists():
            file = path.open(errors="replace")
            sys.stdout.writelines(file.readlines()[-options.n :])
            files.append(file)
        else:
            print(f"{name} has written nothing yet", file=sys.stderr)
    while options.follow:
        for file in files:
            sys.stdout.writelines(file.readlines())
        sys.stdout.flush()
        time.sleep(0.2)
    return 0


def _down(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment
    from holdfast.runtime.supervisor import SupervisorError, supervisor_pid

    deployment = load_deployment(options.deployment)
    pid = supervisor_pid(deployment)
    if pid is None:
        raise SupervisorError(f"{deployment.name} is not running here")
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + 30.0
    while supervisor_pid(deployment) is not None:
        if time.monotonic() > deadline:
            raise SupervisorError(f"process {pid} did not stop within 30 s")
        time.sleep(0.1)
    print(f"{deployment.name} is stopped")
    return 0
