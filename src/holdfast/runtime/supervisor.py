"""The supervisor: starts the processes of a deployment and starts again what dies.

    data/
      supervisor.pid       who supervises; one at a time
      processes.json       pid, restarts and last start of every process
      plan.json            the network's schemas (planning.py)
      addresses.json       the ports (addresses.py)
      logs/NAME.log        what each process says, JSON lines
      processes/NODE/      the logs and states of each node

A process that dies is started again at once the first time, then after pauses that double up to
five seconds; after one that stayed up for two seconds they start afresh. Each process leads a
process group of its own, with its JVM in it, so that killing it kills all of it.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError
from holdfast.flight.peers import call, explain
from holdfast.runtime.addresses import Addresses
from holdfast.runtime.durable import write_whole
from holdfast.runtime.planning import Topology, is_planned, read_plan

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
STAYED_UP_SECONDS = 2.0
_STOP_SECONDS = 15.0

Tell = Callable[[str], None]


class SupervisorError(HoldfastError):
    """The deployment cannot be started, or is not running."""


@dataclass
class Child:
    """One process."""

    name: str
    popen: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restarts: int = -1
    pause: float = 0.0
    due: float = 0.0

    @property
    def pid(self) -> int | None:
        return None if self.popen is None else self.popen.pid


class Supervisor:
    """Runs a deployment's processes on this machine."""

    def __init__(self, deployment: Deployment, tell: Tell = lambda text: None) -> None:
        self.deployment = deployment
        self._tell = tell
        self._children = {name: Child(name) for name in deployment.processes}
        self._lock_fd: int | None = None
        self._stopping = False

    # -- starting -----------------------------------------------------------------------

    def start(self) -> None:
        """Plan the network if that was not done, choose ports, start every process."""
        security = self.deployment.security.read()
        for endpoint in self.deployment.endpoints.values():
            security.check_binding(endpoint.host)
        self.deployment.data.mkdir(parents=True, exist_ok=True)
        self._take_lock()
        (self.deployment.data / "logs").mkdir(exist_ok=True)
        self._plan()
        Addresses.choose(self.deployment)
        for child in self._children.values():
            self._spawn(child)
        self._write_state()

    def _take_lock(self) -> None:
        path = self.deployment.data / "supervisor.pid"
        self._lock_fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock_fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._lock_fd)
            self._lock_fd = None
            raise SupervisorError(
                f"{self.deployment.name} is running already, supervised by process "
                f"{path.read_text().strip()}; stop it with holdfast down"
            ) from None
        os.truncate(self._lock_fd, 0)
        os.pwrite(self._lock_fd, f"{os.getpid()}\n".encode(), 0)

    def _plan(self) -> None:
        if not is_planned(self.deployment):
            self._tell("reading the network (Spark takes a few seconds)")
            done = subprocess.run(
                [sys.executable, "-m", "holdfast.runtime.planning", str(self.deployment.path)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                check=False,
            )
            if done.returncode != 0:
                lines = done.stderr.decode(errors="replace").strip().splitlines()
                raise SupervisorError(
                    f"{self.deployment.network} cannot be read: {lines[-1] if lines else '?'}"
                )
        # Whatever does not fit is said here, before anything starts.
        Topology(self.deployment, read_plan(self.deployment))

    def _spawn(self, child: Child) -> None:
        log = (self.deployment.data / "logs" / f"{child.name}.log").open("ab")
        with log:
            child.popen = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "holdfast.runtime.process_main",
                    str(self.deployment.path),
                    child.name,
                ],
                cwd=self.deployment.path.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        child.started = time.monotonic()
        child.restarts += 1

    # -- watching -----------------------------------------------------------------------

    def watch(self) -> None:
        """Look after the processes once; call it again and again."""
        now = time.monotonic()
        changed = False
        for child in self._children.values():
            if child.popen is None:
                if now >= child.due and not self._stopping:
                    self._spawn(child)
                    changed = True
            elif child.popen.poll() is not None:
                self._died(child, now)
                changed = True
        if changed:
            self._write_state()

    def _died(self, child: Child, now: float) -> None:
        assert child.popen is not None
        code = child.popen.returncode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        # What is left of its group: the JVM goes with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.popen.pid, signal.SIGKILL)
        lasted = now - child.started
        child.popen = None
        if lasted >= STAYED_UP_SECONDS or child.pause == 0.0:
            child.pause = FIRST_PAUSE_SECONDS
        else:
            child.pause = min(2 * child.pause, LONGEST_PAUSE_SECONDS)
        child.due = now + child.pause
        if not self._stopping:
            self._tell(
                f"{child.name}: {how} after {lasted:.1f} s; starts again in {child.pause:g} s"
            )

    def run(self) -> None:
        """Watch until told to stop, or interrupted."""
        while not self._stopping:
            self.watch()
            time.sleep(0.05)

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until every node that listens answers, telling which do."""
        waiting = set(self.deployment.endpoints)
        deadline = time.monotonic() + timeout_s
        while waiting and time.monotonic() < deadline and not self._stopping:
            self.watch()
            found = node_status(self.deployment, sorted(waiting))
            for name in sorted(waiting):
                if "error" not in found[name]:
                    waiting.discard(name)
                    self._tell(f"{name}: up ({found[name].get('state', 'running')})")
            time.sleep(0.1)
        if waiting and not self._stopping:
            raise SupervisorError(
                f"{', '.join(sorted(waiting))} did not come up within {timeout_s:g} s; look at "
                f"{self.deployment.data / 'logs'}"
            )

    def pid(self, name: str) -> int | None:
        """The process id of a process, if it runs."""
        return self._children[name].pid

    def uptime(self, name: str) -> float:
        """For how many seconds a process has been running."""
        child = self._children[name]
        return 0.0 if child.popen is None else time.monotonic() - child.started

    def restarts(self, name: str) -> int:
        return self._children[name].restarts

    def kill(self, name: str) -> bool:
        """kill -9 a process and its JVM; whether there was one."""
        child = self._children[name]
        if child.popen is None or child.popen.poll() is not None:
            return False
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.popen.pid, signal.SIGKILL)
        return True

    # -- stopping -----------------------------------------------------------------------

    def request_stop(self) -> None:
        """Make ``run`` return; from a signal handler, say."""
        self._stopping = True

    def stop(self) -> None:
        """Stop every process, politely at first."""
        self._stopping = True
        for child in self._children.values():
            if child.popen is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.popen.pid, signal.SIGCONT)
                    os.kill(child.popen.pid, signal.SIGTERM)
        deadline = time.monotonic() + _STOP_SECONDS
        for child in self._children.values():
            if child.popen is not None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.popen.wait(max(0.1, deadline - time.monotonic()))
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(child.popen.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    child.popen.wait(5.0)
                child.popen = None
        self._write_state()
        if self._lock_fd is not None:
            os.truncate(self._lock_fd, 0)
            os.close(self._lock_fd)
            self._lock_fd = None

    def _write_state(self) -> None:
        found = {
            child.name: {"pid": child.pid, "restarts": max(0, child.restarts)}
            for child in self._children.values()
        }
        write_whole(state_path(self.deployment), json.dumps(found, indent=1).encode())


def state_path(deployment: Deployment) -> Path:
    return deployment.data / "processes.json"


def read_state(deployment: Deployment) -> dict[str, dict[str, Any]]:
    """What the supervisor last wrote of its processes."""
    try:
        found: dict[str, dict[str, Any]] = json.loads(state_path(deployment).read_text())
    except OSError:
        raise SupervisorError(
            f"{deployment.name} is not running here; start it with holdfast up"
        ) from None
    return found


def supervisor_pid(deployment: Deployment) -> int | None:
    """Who supervises the deployment, if anybody does."""
    path = deployment.data / "supervisor.pid"
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return None
    except FileNotFoundError:
        return None
    except OSError:
        text = path.read_text().strip()
        return int(text) if text else None


def node_status(deployment: Deployment, nodes: list[str]) -> dict[str, dict[str, Any]]:
    """What each node says of itself, or why it says nothing."""
    security = deployment.security.read()
    book = Addresses.read(deployment).book(security)
    found = {}
    for name in nodes:
        try:
            found[name] = call(book[name], security, "holdfast", "status", timeout_s=1.0)
        except Exception as error:
            found[name] = {"name": name, "error": explain(error)}
    return found


def send_signal(deployment: Deployment, process: str, number: signal.Signals) -> int:
    """Signal a process and its JVM; its pid."""
    state = read_state(deployment)
    if process not in state:
        raise SupervisorError(f"there is no process {process!r}; there are {sorted(state)}")
    pid = state[process]["pid"]
    if pid is None:
        raise SupervisorError(f"{process} is not running now")
    try:
        os.killpg(int(pid), number)
    except ProcessLookupError:
        raise SupervisorError(f"{process} is not running now") from None
    return int(pid)
