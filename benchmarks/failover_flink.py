"""Flink for benchmark failover: a JobManager and two TaskManagers, of which one is a spare.

They are started with the scripts Flink ships, the job is handed over through PyFlink. The state is
checkpointed every second (exactly once); tuples come as files, as for Structured Streaming, looked
for every 100 ms. Results are printed by the TaskManager and read from there by the client, which
is the quickest way out of it: what was printed after the last checkpoint is printed again. A sink
that holds results back until a checkpoint would double nothing, and be a second later.

*Shipped*: heartbeats and restarts as Flink has them by itself. *Tuned*: a heartbeat each 100 ms,
as Holdfast has here, and no wait before the restart. The TaskManager that was killed is started
again only when the gap is over, so that the spare has the machine to itself.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks.failover_files import Files
from benchmarks.failover_load import Received, now_us, numbers_of
from benchmarks.flink import ROOT
from benchmarks.streams_arrivals import TUPLES_PER_TURN, Arrivals

START_SECONDS = 90.0
LINE = re.compile(r"\+I\[(\d+), (\d+)\]$")
SETTINGS = {
    "jobmanager.rpc.address": "localhost",
    "jobmanager.memory.process.size": "1g",
    "taskmanager.memory.process.size": "1728m",
    "taskmanager.numberOfTaskSlots": "1",
    "taskmanager.host": "localhost",
    "parallelism.default": "1",
    "execution.checkpointing.interval": "1 s",
    "execution.checkpointing.mode": "EXACTLY_ONCE",
}
TUNED = {
    "heartbeat.interval": "100",
    "heartbeat.timeout": "2000",
    "restart-strategy.type": "fixed-delay",
    "restart-strategy.fixed-delay.attempts": "1000",
    "restart-strategy.fixed-delay.delay": "0 s",
}
LOGGING = """
rootLogger.level = WARN
rootLogger.appenderRef.file.ref = File
appender.file.name = File
appender.file.type = FILE
appender.file.fileName = ${sys:log.file}
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d %-5p %-60c %x - %m%n
"""


class Flink:
    """The query on a cluster of its own; ``kill`` kills the TaskManager that runs it."""

    def __init__(self, python: Path, tuned: bool) -> None:
        self._python = python
        self._home = Path(
            subprocess.check_output(
                [str(python), "-c", "import pyflink; print(pyflink.__path__[0])"], text=True
            ).strip()
        )
        self._temporary = tempfile.TemporaryDirectory(prefix="holdfast-failover-flink-")
        self._root = Path(self._temporary.name)
        self._port = _free_port()
        self._settings = {
            **SETTINGS,
            **(TUNED if tuned else {}),
            "execution.checkpointing.dir": f"file://{self._root}/checkpoints",
        }
        self._environment = self._configure()
        self.received = Received()
        self._files = Files(self._root / "input")
        self._stopping = threading.Event()
        self._readers: list[threading.Thread] = []
        self._workers: dict[str, subprocess.Popen[bytes]] = {}
        self._manager = self._start("jobmanager", "manager")
        self._arrivals: Arrivals | None = None

    def begin(self) -> None:
        """Start the cluster and the job, then the load."""
        self.repair()
        self._submit()
        self._arrivals = Arrivals(self._files.send)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Nothing of it goes on."""
        if self._arrivals is not None:
            self._arrivals.stop()
        self._stopping.set()
        for process in (*self._workers.values(), self._manager):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(10.0)
        for reader in self._readers:
            reader.join(5.0)
        self._temporary.cleanup()

    def kill(self) -> int:
        """kill -9 of the TaskManager without a free slot; when that was."""
        (busy,) = [one["id"] for one in self._task_managers() if one["freeSlots"] == 0]
        worker = self._workers.pop(busy)
        at = now_us()
        os.killpg(worker.pid, signal.SIGKILL)
        worker.wait(10.0)
        return at

    def repair(self) -> None:
        """As many TaskManagers as there should be, all of them known to the JobManager."""
        while len(self._workers) < 2:
            name = f"worker-{now_us()}"
            named = f"-Dtaskmanager.resource-id={name}"
            self._workers[name] = self._start("taskmanager", name, named)
            self._follow(self._root / f"{name}.out")
        self._wait_for(lambda: {one["id"] for one in self._task_managers()} >= set(self._workers))

    def finish(self, settle_s: float) -> dict[str, Any]:
        """Send no more, let the rest come, and compare."""
        assert self._arrivals is not None, "the load has not begun"
        self._arrivals.stop()
        self._files.write()
        wanted = self._files.sent // TUPLES_PER_TURN * (len(np.unique(numbers_of(0))))
        with contextlib.suppress(TimeoutError):
            self._wait_for(lambda: self.received.distinct() >= wanted, settle_s)
        return self.received.compare(self._files.sent)

    def _configure(self) -> dict[str, str]:
        """Its own directories, so that nothing is left in Flink's."""
        settings = self._root / "conf"
        shutil.copytree(self._home / "conf", settings)
        (settings / "log4j-console.properties").write_text(LOGGING)
        own = {
            **self._settings,
            "jobmanager.rpc.port": str(_free_port()),
            "rest.port": str(self._port),
            "rest.bind-port": str(self._port),
            "io.tmp.dirs": str(self._root),
        }
        shipped = (settings / "config.yaml").read_text()
        (options,) = re.findall(r"^ +all: (--add-exports.*)$", shipped, re.MULTILINE)
        lines = [f"{key}: {value}" for key, value in {**own, "env.java.opts.all": options}.items()]
        (settings / "config.yaml").write_text("\n".join(lines) + "\n")
        return {
            **os.environ,
            "FLINK_CONF_DIR": str(settings),
            "FLINK_LOG_DIR": str(self._root),
            "FLINK_PID_DIR": str(self._root),
        }

    def _start(self, script: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self._root / f"{name}.out").open("ab") as out:
            return subprocess.Popen(
                [str(self._home / "bin" / f"{script}.sh"), "start-foreground", *arguments],
                stdout=out,
                stderr=out,
                env=self._environment,
                start_new_session=True,
            )

    def _submit(self) -> None:
        subprocess.run(
            [
                str(self._python),
                "-m",
                "benchmarks.failover_flink_job",
                str(self._port),
                str(self._root / "input"),
                json.dumps(self._settings),
            ],
            cwd=ROOT,
            env=self._environment,
            check=True,
            timeout=START_SECONDS,
        )

    def _task_managers(self) -> list[dict[str, Any]]:
        with urllib.request.urlopen(f"http://localhost:{self._port}/taskmanagers", timeout=5) as at:
            found: list[dict[str, Any]] = json.load(at)["taskmanagers"]
        return found

    def _wait_for(self, condition: Callable[[], bool], timeout_s: float = START_SECONDS) -> None:
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if condition():
                    return
            time.sleep(0.1)
        raise TimeoutError(f"Flink is not ready after {timeout_s:g} s: see {self._root}")

    def _follow(self, path: Path) -> None:
        reader = threading.Thread(target=self._read, args=(path,), daemon=True)
        reader.start()
        self._readers.append(reader)

    def _read(self, path: Path) -> None:
        """What the TaskManager prints, a few milliseconds after it does."""
        rest = ""
        with path.open() as out:
            while not self._stopping.is_set():
                *lines, rest = (rest + out.read()).split("\n")
                found = [match.groups() for line in lines if (match := LINE.search(line))]
                if found:
                    values = np.array(found, dtype=np.int64)
                    self.received.take(values[:, 0], values[:, 1])
                time.sleep(0.005)


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    return port
