"""The commands for deployments: up, status, top, explain, logs, divide, restart, down, web, client,
replica, rescale, server, cluster, submit, chaos."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from holdfast.commands.arguments import Commands, for_deployment
from holdfast.commands.chaos import add_chaos
from holdfast.commands.cluster import add_cluster
from holdfast.commands.divide import add_divide
from holdfast.commands.explain import explain_output
from holdfast.commands.members import add_members
from holdfast.commands.security import add_security
from holdfast.commands.server import add_server
from holdfast.commands.status_table import show_status, show_top
from holdfast.commands.up import add_up
from holdfast.commands.web import add_web
from holdfast.errors import InputError

if TYPE_CHECKING:
    from holdfast.deployment import Deployment


def add_commands(commands: Commands) -> None:
    """Add the commands to the parser of ``holdfast``."""
    add_up(for_deployment(commands, "up", "start a deployment and look after it"))
    status = for_deployment(
        commands, "status", "what the processes of a deployment say", show_status
    )
    status.add_argument("--json", action="store_true", help="for programs; nothing is left out")
    top = for_deployment(commands, "top", "the same, live", show_top)
    top.add_argument("--seconds", type=float, default=None, help="how long (default: until ctrl-c)")
    held_up = "what holds an output up right now, in words"
    explain = for_deployment(commands, "explain", held_up, explain_output)
    explain.add_argument("output", metavar="OUTPUT")
    logs = for_deployment(
        commands, "logs", "what the processes of a deployment have written", _logs
    )
    logs.add_argument("process", nargs="?", help="one process; default: all")
    logs.add_argument("-n", type=int, default=20, metavar="LINES", help="last lines of each")
    logs.add_argument("--follow", action="store_true", help="go on as they write")
    add_divide(for_deployment(commands, "divide", "measure jobs, and divide X by what they need"))
    restart = for_deployment(
        commands, "restart", "restart processes one after the other while others go on", _restart
    )
    restart.add_argument("process", nargs="*", help="some of them; default: all")
    restart.add_argument(
        "--rolling", action="store_true", required=True, help="the next when the last is well"
    )
    restart.add_argument(
        "--seconds", type=float, default=300.0, help="for each to be well again (default: 300)"
    )
    for_deployment(commands, "down", "stop a deployment", _down)
    add_web(for_deployment(commands, "web", "a page on which to watch a deployment"))
    add_members(commands)
    add_server(commands)
    add_cluster(commands)
    add_security(commands)
    add_chaos(for_deployment(commands, "chaos", "make a part of a deployment fail"))


def _logs(options: argparse.Namespace) -> int:
    from holdfast.deployment import load_deployment

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
    from holdfast.cluster.children import last_lines, lines_after, log_path
    from holdfast.cluster.remote import RemoteServer

    server = deployment.server_of(process)
    if server is not None:
        return RemoteServer(deployment, server).logs(process, offset, count)
    path = log_path(deployment, process)
    return last_lines(path, count) if offset is None else lines_after(path, offset)


def _restart(options: argparse.Namespace) -> int:
    from holdfast.cluster.rolling import restart_rolling

    restart_rolling(
        options.deployment,
        options.process,
        wait_s=options.seconds,
        tell=lambda text: print(text, flush=True),
    )
    return 0


def _down(options: argparse.Namespace) -> int:
    from holdfast.cluster.remote import RemoteServer
    from holdfast.cluster.supervisor import SupervisorError, supervisor_pid
    from holdfast.deployment import load_deployment

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
