"""The deployment of benchmark faults: `holdfast up` as a process, and what runs below it.

Five fragments, one for each protection. Their first copies share the process ``first``, their
second ones ``second``, so that two cores do; the entry point and each client are processes of
their own. All of it may have 256 open files each, and its data is on a small tmpfs.
"""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil

from holdfast.cluster.supervisor import read_state, supervisor_pid
from holdfast.deployment import Deployment, load_deployment
from holdfast.errors import HoldfastError
from holdfast.flight.peers import call, explain
from holdfast.plans.addresses import Addresses

NETWORK = Path(__file__).with_name("faults_network.py")
PROTECTIONS = ("none", "active", "passive", "hybrid", "continuous")
REPLICAS = ("first", "second")
X_SECONDS = 4.0
OPEN_FILES = 256
DATA_MIB = 1_024
UP_SECONDS = 600.0

HEAD = f"""
name = "faults"
network = "network.py"
chaos = true
[timing]
delay = "{X_SECONDS:g} seconds"
[spark]
master = "local[1]"
[sources.load]
keep = true
[fragments.none]
colocate = "first"
"""
FRAGMENT = """
[fragments.{name}]
protection = "{protection}"
colocate = ["first", "second"]
"""
CLIENTS = """
[clients.sink-{name}]
output = "{name}"
sink = "jsonl:data/{name}.jsonl"
[clients.watch-{name}]
output = "{name}"
"""


def deployment_text() -> str:
    parts = [HEAD]
    for name in PROTECTIONS[1:]:
        protection = "passive" if name == "continuous" else name
        parts.append(FRAGMENT.format(name=name, protection=protection))
        if name == "continuous":
            parts.append('checkpoint = "continuous"\nextent = 60\n')
    return "".join([*parts, *(CLIENTS.format(name=name) for name in PROTECTIONS)])


class Deployed:
    """A deployment that runs, under `holdfast up`."""

    def __init__(self, directory: Path, tell: Callable[[str], None]) -> None:
        """``directory`` is empty; ``data`` below it may be a mount."""
        shutil.copy(NETWORK, directory / "network.py")
        (directory / "deployment.toml").write_text(deployment_text())
        self.deployment: Deployment = load_deployment(directory / "deployment.toml")
        self._tell = tell
        self._log = directory / "up.log"
        self._up: subprocess.Popen[bytes] | None = None
        self._pool = ThreadPoolExecutor(24)

    # -- holdfast up --------------------------------------------------------------------

    def up(self) -> None:
        """Start it, as whoever looks after it would; does not wait."""

        def limit() -> None:
            # A JVM takes the hard limit for itself: it keeps hundreds of archives open.
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (OPEN_FILES, hard))

        command = [sys.executable, "-m", "holdfast.cli", "up", str(self.deployment.path)]
        with self._log.open("ab") as log:
            self._up = subprocess.Popen(
                [*command, "--wait", str(UP_SECONDS)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=limit,
                start_new_session=True,
            )

    def wait_up(self) -> None:
        """Until every node answers, and the supervisor is there."""
        nodes = [name for name in self.deployment.endpoints if not name.startswith("watch-")]
        self.until("everything up", lambda: self._is_up(nodes), UP_SECONDS)

    def _is_up(self, nodes: list[str]) -> bool:
        if self._up is not None and self._up.poll() is not None:
            # A supervisor that ended is started again, as the system would; it says why.
            self._tell(f"holdfast up ended with {self._up.returncode}: {self.last_said()}")
            time.sleep(1.0)
            self.up()
        try:
            found = self.statuses(nodes)
        except (OSError, ValueError, HoldfastError):
            return False
        return all("error" not in said for said in found.values())

    @property
    def supervisor(self) -> psutil.Process:
        pid = supervisor_pid(self.deployment)
        if pid is None:
            raise RuntimeError("there is no supervisor")
        return psutil.Process(pid)

    def forget_up(self) -> None:
        """It was killed."""
        if self._up is not None:
            self._up.wait(30.0)

    def down(self) -> None:
        if self._up is not None and self._up.poll() is None:
            self._up.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._up.wait(90.0)
            if self._up.poll() is None:
                self._up.kill()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def last_said(self) -> str:
        return " | ".join(self._log.read_text(errors="replace").splitlines()[-3:])

    # -- processes ----------------------------------------------------------------------

    def process(self, name: str) -> psutil.Process | None:
        """A process of the deployment, if it runs."""
        try:
            pid = read_state(self.deployment).get(name, {}).get("pid")
            return None if pid is None else psutil.Process(pid)
        except (psutil.NoSuchProcess, OSError, ValueError, HoldfastError):
            return None

    def running(self, name: str) -> psutil.Process:
        found: list[psutil.Process] = []

        def is_there() -> bool:
            process = self.process(name)
            found[:] = [] if process is None else [process]
            return bool(found)

        self.until(f"{name} running", is_there, UP_SECONDS)
        return found[0]

    def jvm(self, name: str) -> list[psutil.Process]:
        with contextlib.suppress(psutil.NoSuchProcess):
            children = self.running(name).children(recursive=True)
            return [each for each in children if each.name() == "java"]
        return []

    def workers(self, name: str) -> list[psutil.Process]:
        """The Python workers of its Spark."""
        found = []
        for jvm in self.jvm(name):
            with contextlib.suppress(psutil.NoSuchProcess):
                found += [each for each in jvm.children(recursive=True) if "python" in each.name()]
        return found

    def restarts(self) -> int:
        with contextlib.suppress(OSError, ValueError, HoldfastError):
            return sum(int(each["restarts"]) for each in read_state(self.deployment).values())
        return 0

    def pids(self) -> dict[str, int]:
        """The pid of every process that runs."""
        state = read_state(self.deployment)
        return {name: each["pid"] for name, each in state.items() if each["pid"] is not None}

    # -- nodes --------------------------------------------------------------------------

    def statuses(self, nodes: list[str] | None = None) -> dict[str, dict[str, Any]]:
        """What nodes say of themselves, all asked at once."""
        security = self.deployment.security.read()
        book = Addresses.read(self.deployment).book(security)
        asked = nodes or [name for name in book if not name.startswith("watch-")]

        def ask(node: str) -> dict[str, Any]:
            try:
                return call(book[node], security, "holdfast", "status", timeout_s=2.0)
            except Exception as error:
                return {"error": explain(error)}

        return dict(zip(asked, self._pool.map(ask, asked), strict=True))

    def control(self, node: str, what: str, options: dict[str, Any]) -> bool:
        """Tell a node to fail, or to be well again; whether it heard."""
        security = self.deployment.security.read()
        book = Addresses.read(self.deployment).book(security)
        try:
            call(book[node], security, "holdfast", what, options, timeout_s=5.0)
        except Exception:
            return False
        return True

    def nodes_of(self, process: str) -> list[str]:
        return list(self.deployment.processes[process])

    def protections_in(self, process: str) -> set[str]:
        """The fragments whose running copy is in a process."""
        found = set()
        for node, said in self.statuses(self.nodes_of(process)).items():
            if said.get("awake", "copy" not in said) and "error" not in said:
                found.add(node.rsplit("-", 1)[0])
        return found

    def wait_settled(self) -> None:
        """Until some copy of every fragment runs, after whatever happened before."""

        def is_settled() -> bool:
            return set().union(*map(self.protections_in, REPLICAS)) == set(PROTECTIONS)

        self.until("a running copy of every fragment", is_settled, UP_SECONDS)

    def until(self, what: str, holds: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what} did not come within {seconds:g} s")
            time.sleep(0.1)


def mount_small(directory: Path) -> bool:
    """A tmpfs that can be filled up; False if this user may not mount one."""
    directory.mkdir(mode=0o700)
    size = f"size={DATA_MIB}m,mode=0700"
    command = ["mount", "-t", "tmpfs", "-o", size, "faults", str(directory)]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def unmount(directory: Path) -> None:
    subprocess.run(["umount", "--lazy", str(directory)], capture_output=True, check=False)


def send_all(processes: list[psutil.Process], number: signal.Signals) -> int:
    """Signal processes; how many were there."""
    sent = 0
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            os.kill(process.pid, number)
            sent += 1
    return sent
