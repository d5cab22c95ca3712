"""Runs a deployment, kills its processes at random, and compares what its client holds.

    with supervised(deployment) as supervisor:
        load = Load(deployment, "load", make)
        Killer(supervisor, seed).kill({"entry-load": 5, "worker": 2}, (0.1, 1.5))
        sent = load.stop()

The expected file of a client is computed by ``undisturbed`` from what the entry points logged.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa

from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor
from holdfast.connect.json_values import json_lines
from holdfast.deployment import Deployment
from holdfast.frames import SEQ, STIME
from holdfast.network import Network
from holdfast.producer import Producer
from holdfast.testing.undisturbed import logged_tuples, undisturbed

# A bound for when something is wrong: a dozen processes with Spark on a machine that is busy with
# other work as well were seen to take more than two minutes.
READY_SECONDS = 300.0

MakeRows = Callable[[int, int], pa.Table]


@contextmanager
def supervised(
    deployment: Deployment, tell: Callable[[str], None] = lambda text: None
) -> Iterator[Supervisor]:
    """The deployment, running and watched."""
    supervisor = Supervisor(deployment, tell)
    thread = threading.Thread(target=supervisor.run, daemon=True)
    try:
        supervisor.start()
        supervisor.wait_ready(READY_SECONDS)
        thread.start()
        yield supervisor
    finally:
        supervisor.request_stop()
        if thread.is_alive():
            thread.join(5.0)
        supervisor.stop()


class Load:
    """Sends tuples through a producer, steadily, until it is stopped."""

    def __init__(
        self,
        deployment: Deployment,
        source: str,
        make: MakeRows,
        tuples_per_second: int = 2_000,
        batches_per_second: int = 50,
    ) -> None:
        """``make(first, count)`` gives the rows from number ``first`` on."""
        self.producer = Producer.of(deployment.path, source, name="load")
        self.sent = 0
        self._make = make
        self._pause_s = 1 / batches_per_second
        self._count = max(1, tuples_per_second // batches_per_second)
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while not self._stopping.wait(max(0.0, due - time.monotonic())):
                # What making and sending take is no pause; what was missed is not made up for.
                due = max(due + self._pause_s, time.monotonic())
                self.producer.send(self._make(self.sent, self._count))
                self.sent += self._count
        except BaseException as error:
            self._failure = error

    def stop(self, timeout_s: float = 90.0) -> int:
        """Send no more, and wait until everything is durable; how many tuples there are."""
        self._stopping.set()
        self._thread.join(timeout_s)
        if self._failure is not None:
            raise self._failure
        self.producer.close(timeout_s)
        return self.sent


class Killer:
    """Kills processes with SIGKILL at random moments."""

    def __init__(self, supervisor: Supervisor, seed: int) -> None:
        self._supervisor = supervisor
        self._random = random.Random(seed)
        # One that dies slowly, on a busy machine, is there to be killed again: that is no kill.
        self._killed: dict[str, int] = {}

    def kill(self, times: Mapping[str, int], pause_s: tuple[float, float]) -> None:
        """Kill each process so many times, in a random order, waiting in between."""
        plan = [name for name, count in times.items() for _ in range(count)]
        self._random.shuffle(plan)
        for name in plan:
            time.sleep(self._random.uniform(*pause_s))
            # Some are killed while they start, most while they work.
            uptime_s = self._random.choice([0.5, 2.0, 2.5, 3.0])
            deadline = time.monotonic() + 60.0
            while self._supervisor.uptime(name) < uptime_s or not self._kill(name):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{name} does not come back")
                time.sleep(0.02)

    def _kill(self, name: str) -> bool:
        """Kill a process; whether it was one that was not killed before."""
        before = self._killed.get(name)
        pid = self._supervisor.signal(name, signal.SIGKILL)
        if pid is None or pid == before:
            return False
        self._killed[name] = pid
        return True

    def pause(
        self, times: Mapping[str, int], pause_s: tuple[float, float], length_s: tuple[float, float]
    ) -> None:
        """Stop each process so many times for a while, with SIGSTOP, and let it go on."""
        plan = [name for name, count in times.items() for _ in range(count)]
        self._random.shuffle(plan)
        for name in plan:
            time.sleep(self._random.uniform(*pause_s))
            if self._supervisor.signal(name, signal.SIGSTOP) is not None:
                time.sleep(self._random.uniform(*length_s))
                self._supervisor.signal(name, signal.SIGCONT)


def expected_file(network: Network, deployment: Deployment, output: str) -> str:
    """What a client that writes ``output`` as JSON lines must hold, to the byte."""
    return expected_files(network, deployment, [output])[output]


def expected_files(
    network: Network, deployment: Deployment, outputs: Iterable[str]
) -> dict[str, str]:
    """The same for several outputs, computed at once."""
    sources = {
        name: logged_tuples(deployment.data / "processes" / spec.process / "streams" / name)
        for name, spec in deployment.sources.items()
    }
    found = undisturbed(network, sources)
    return {output: _file_of(found[output]) for output in outputs}


def _file_of(table: pa.Table) -> str:
    ids = pa.array(np.arange(table.num_rows, dtype=np.int64))
    own = table.drop_columns(["stime", "tmax"])
    schema = pa.schema([SEQ, STIME, *own.schema])
    return json_lines(pa.table([ids, table["stime"], *own.columns], schema=schema))


def wait_for_lines(
    supervisor: Supervisor, path: Path, count: int, timeout_s: float, stalled_s: float = 45.0
) -> None:
    """Until the file has ``count`` lines; if it stalls, every process writes down why."""
    deadline = time.monotonic() + timeout_s
    have, grew = -1, time.monotonic()
    while True:
        lines = path.read_bytes().count(b"\n") if path.exists() else 0
        if lines >= count:
            return
        if lines > have:
            have, grew = lines, time.monotonic()
        if time.monotonic() > deadline or time.monotonic() - grew > stalled_s:
            raise TimeoutError(f"{lines} of {count} lines came\n{_look_into(supervisor)}")
        time.sleep(0.1)


def _look_into(supervisor: Supervisor) -> str:
    """What every node says, and, in the logs, what every thread does."""
    deployment = supervisor.deployment
    for name in deployment.hosted_by(None):
        pid = supervisor.pid(name)
        if pid is not None:
            os.kill(pid, signal.SIGUSR1)
    return json.dumps(node_status(deployment, list(deployment.endpoints)), indent=1)
