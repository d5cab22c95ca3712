"""The processes of a deployment that run on this machine: started, and started again.

A process that dies is started again at once the first time, then after pauses that double up to
five seconds; after one that stayed up for two seconds they start afresh. Each process leads a
process group of its own, with its JVM in it, so that killing it kills all of it.

What is written here is only for those who look: a disk without room stops nobody. What could not
be written is tried again, and a process that cannot be started is, too.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast import disk
from holdfast.cluster.guardian import Guardian
from holdfast.cluster.process_logs import log_data, rotate
from holdfast.core.pauses import pause_after
from holdfast.deployment import Deployment
from holdfast.durable import make_private, write_whole

FIRST_PAUSE_SECONDS = 0.1
LONGEST_PAUSE_SECONDS = 5.0
STAYED_UP_SECONDS = 2.0
_STOP_SECONDS = 15.0
# How often the lengths of the logs are looked at.
_LOGS_SECONDS = 10.0
_WRITE_AGAIN_SECONDS = 1.0
# What a process exits with when it cannot listen on a port.
PORT_TAKEN_CODE = 69
# What a process exits with that takes part no longer.
REMOVED_CODE = 71

Tell = Callable[[str], None]


@dataclass
class Child:
    """One process."""

    name: str
    popen: subprocess.Popen[bytes] | None = None
    started: float = 0.0
    restarts: int = -1
    failures: int = 0
    due: float = 0.0
    # What it said last before it died, if that was an error.
    problem: str | None = None

    @property
    def pause(self) -> float:
        """How long it is left down before it is started again."""
        return pause_after(self.failures, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)

    @property
    def pid(self) -> int | None:
        return None if self.popen is None else self.popen.pid

    @property
    def uptime(self) -> float:
        return 0.0 if self.popen is None else time.monotonic() - self.started


class Children:
    """Some processes of a deployment; any thread may call it."""

    def __init__(
        self,
        deployment: Deployment,
        names: Iterable[str],
        tell: Tell,
        on_port_taken: Callable[[str], None] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        on_port_taken  gets a process that cannot listen; it may give it other ports.
        environment    variables the processes get beside those of this one.
        """
        self.deployment = deployment
        self._environment = environment or {}
        self._on_port_taken = on_port_taken
        self._tell = tell
        self._children = {name: Child(name) for name in names}
        self._stopping = False
        self._lock = threading.RLock()
        # When to write the state again that could not be written, and why it could not.
        self._unwritten: tuple[float, str] | None = None
        self._guardian = Guardian()
        self._logs_due = 0.0

    def __contains__(self, name: str) -> bool:
        return name in self._children

    def __getitem__(self, name: str) -> Child:
        return self._children[name]

    def start(self) -> None:
        """Start every process."""
        make_private(self.deployment.data)
        make_private(self.deployment.data / "logs")
        with self._lock:
            for child in self._children.values():
                self._start(child)
            self._write_state()

    def adopt(self, deployment: Deployment, names: Iterable[str]) -> list[str]:
        """Look after further processes, too; those that were started."""
        with self._lock:
            self.deployment = deployment
            fresh = [name for name in names if name not in self._children and not self._stopping]
            for name in fresh:
                self._children[name] = Child(name)
                self._start(self._children[name])
            if fresh:
                self._write_state()
            return fresh

    def _start(self, child: Child) -> None:
        try:
            self._spawn(child)
        except OSError as error:
            child.failures += 1
            child.due = time.monotonic() + child.pause
            problem = f"it cannot be started: {error}"
            if child.problem != problem:
                self._tell(f"{child.name}: {problem}; trying again")
            child.problem = problem

    def _spawn(self, child: Child) -> None:
        command = [sys.executable, "-m", "holdfast.cluster.process_main"]
        with disk.open_file(log_path(self.deployment, child.name), "ab") as log:
            child.popen = subprocess.Popen(
                [*command, str(self.deployment.path), child.name],
                cwd=self.deployment.path.parent,
                env={**os.environ, **self._environment},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._guardian.watch_over(child.popen.pid)
        child.started = time.monotonic()
        child.restarts += 1

    def watch(self) -> None:
        """Look after the processes once; call it again and again."""
        now = time.monotonic()
        changed = False
        with self._lock:
            if self._stopping:
                return
            for child in self._children.values():
                if child.popen is None:
                    if now >= child.due:
                        self._start(child)
                        changed = True
                elif child.popen.poll() is not None:
                    self._died(child, now)
                    changed = True
            self._rotate_logs(now)
            if changed or (self._unwritten is not None and now >= self._unwritten[0]):
                self._write_state()

    def _rotate_logs(self, now: float) -> None:
        if now < self._logs_due:
            return
        self._logs_due = now + _LOGS_SECONDS
        logs = [log_path(self.deployment, name) for name in self._children]
        for path in (*logs, supervisor_log(self.deployment)):
            # Without room the log stays as it is, and is looked at again.
            with contextlib.suppress(OSError):
                rotate(path)

    def _died(self, child: Child, now: float) -> None:
        assert child.popen is not None
        code = child.popen.returncode
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        # What is left of its group: the JVM goes with it.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.popen.pid, signal.SIGKILL)
        self._guardian.forget(child.popen.pid)
        lasted = now - child.started
        child.popen = None
        child.failures = 1 if lasted >= STAYED_UP_SECONDS else child.failures + 1
        child.due = now + child.pause
        removed = code == REMOVED_CODE
        if removed:
            child.due = float("inf")
        child.problem = _last_problem(log_path(self.deployment, child.name)) if code > 0 else None
        why = f" ({child.problem})" if child.problem else ""
        again = "is not started again" if removed else f"starts again in {child.pause:g} s"
        self._tell(f"{child.name}: {how} after {lasted:.1f} s{why}; {again}")
        if code == PORT_TAKEN_CODE and self._on_port_taken is not None:
            self._on_port_taken(child.name)

    def signal(self, name: str, number: signal.Signals) -> int | None:
        """Signal a process and its JVM; its pid, None if it does not run now."""
        with self._lock:
            child = self._children[name]
            if child.popen is None or child.popen.poll() is not None:
                return None
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child.popen.pid, number)
            return child.popen.pid

    def end(self, name: str) -> int | None:
        """Have a process end in order, after which it is started again; its pid, None if it does
        not run now."""
        with self._lock:
            child = self._children[name]
            if child.popen is None or child.popen.poll() is not None:
                return None
            ask_to_end(child.popen.pid)
            return child.popen.pid

    def stop(self) -> None:
        """Stop every process, politely at first."""
        with self._lock:
            self._stopping = True
            running = [each.popen for each in self._children.values() if each.popen is not None]
            for popen in running:
                with contextlib.suppress(ProcessLookupError):
                    ask_to_end(popen.pid)
            deadline = time.monotonic() + _STOP_SECONDS
            for popen in running:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    popen.wait(max(0.1, deadline - time.monotonic()))
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(popen.pid, signal.SIGKILL)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    popen.wait(5.0)
                self._guardian.forget(popen.pid)
            self._guardian.close()
            for child in self._children.values():
                child.popen = None
            self._write_state()

    def states(self) -> dict[str, dict[str, Any]]:
        """The pid, restarts and uptime of every process."""
        with self._lock:
            return {
                child.name: {
                    "pid": child.pid,
                    "restarts": max(0, child.restarts),
                    "uptime_s": round(child.uptime, 3),
                    "problem": child.problem,
                }
                for child in self._children.values()
            }

    def _write_state(self) -> None:
        """For ``holdfast status``; the processes do not depend on it."""
        path = self.deployment.data / "processes.json"
        started = any(child.pid is not None for child in self._children.values())
        if not started and not path.parent.exists():
            return  # the deployment was refused: nothing was begun, and nothing is left behind
        before = None if self._unwritten is None else self._unwritten[1]
        try:
            write_whole(path, json.dumps(self.states(), indent=1).encode())
        except OSError as error:
            problem = str(error)
            self._unwritten = (time.monotonic() + _WRITE_AGAIN_SECONDS, problem)
            if problem != before:
                self._tell(
                    f"{path} cannot be written, so holdfast status shows what was before; the "
                    f"processes go on: {problem}"
                )
        else:
            self._unwritten = None
            if before is not None:
                self._tell(f"{path} is written again")


def ask_to_end(pid: int) -> None:
    """Have a process end in order; ProcessLookupError if there is none.

    It alone is asked, not its group: it needs its JVM until its replicas have written what they
    have published.
    """
    os.killpg(pid, signal.SIGCONT)
    os.kill(pid, signal.SIGTERM)


def log_path(deployment: Deployment, process: str) -> Path:
    """What a process says, JSON lines."""
    return deployment.data / "logs" / f"{process}.log"


def supervisor_log(deployment: Deployment) -> Path:
    """What the supervisor says, if it runs in the background."""
    return deployment.data / "supervisor.log"


def _last_problem(path: Path) -> str | None:
    """Why a process could not start or go on."""
    for line in reversed(last_lines(path, 50)[0]):
        # A library may have written into the same line, before it or after it.
        start = line.find('{"time"')
        with contextlib.suppress(ValueError):
            said, _ = json.JSONDecoder().raw_decode(line[max(start, 0) :])
            if isinstance(said, dict) and said.get("event") in ("cannot start", "fatal"):
                return str(said.get("problem"))
    return None


def last_lines(path: Path, count: int) -> tuple[list[str], int]:
    """The last lines of a file, and where it ends."""
    start, data = log_data(path)
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.decode(errors="replace").splitlines(keepends=True)
    return lines[-count:] if count else [], start + len(whole)


def lines_after(path: Path, offset: int) -> tuple[list[str], int]:
    """The whole lines that were written after ``offset``, and where they end."""
    if not path.exists():
        return [], offset
    with path.open("rb") as file:
        if os.fstat(file.fileno()).st_size < offset:
            offset = 0  # what came before was put aside
        file.seek(offset)
        data = file.read(1 << 20)
    whole = data[: data.rfind(b"\n") + 1]
    return whole.decode(errors="replace").splitlines(keepends=True), offset + len(whole)
