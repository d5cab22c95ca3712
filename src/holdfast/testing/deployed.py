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
from typing import Any

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
# After so long without a new line the nodes are asked how they are, and so often.
_LOOK_SECONDS = 5.0

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


class ComingUp:
    """Which states nodes have come to, as far as anybody has asked.

    A process that was killed starts Spark, and its nodes compute what they have missed, one after
    the other: on a busy machine that takes minutes in which nobody who reads gets anything. Each
    state of each node is new once, so that one that falls back again and again is no news.
    """

    def __init__(self) -> None:
        self._seen: set[tuple[str, str]] = set()

    def news(self, status: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether a node is in a state now in which it was not seen before."""
        there = {name: said for name, said in status.items() if "error" not in said}
        now = {(name, str(said.get("state"))) for name, said in there.items()}
        fresh = now - self._seen
        self._seen |= fresh
        return bool(fresh)


def wait_for_lines(
    supervisor: Supervisor, path: Path, count: int, timeout_s: float, stalled_s: float = 45.0
) -> None:
    """Until the file has ``count`` lines; if it stalls, every process writes down why.

    Both bounds count from when a node was last seen to come up, if one does: that the network goes
    on slowly is no fault, that it stands is.
    """
    coming, have = ComingUp(), -1
    began = moved = looked = time.monotonic()
    while (lines := _lines_in(path)) < count:
        now = time.monotonic()
        if lines > have:
            have, moved = lines, now
        if now - max(moved, looked) > _LOOK_SECONDS:
            nodes = list(supervisor.deployment.endpoints)
            news = coming.news(node_status(supervisor.deployment, nodes))
            # To ask takes as long as a node takes that does not answer.
            looked = now = time.monotonic()
            if news:
                began = moved = now
        if now - began > timeout_s or now - moved > stalled_s:
            raise TimeoutError(f"{lines} of {count} lines came\n{_look_into(supervisor)}")
        time.sleep(0.1)


def _lines_in(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def _look_into(supervisor: Supervisor) -> str:
    """What every node says, and, in the logs, what every thread does."""
    deployment = supervisor.deployment
    for name in deployment.hosted_by(None):
        pid = supervisor.pid(name)
        if pid is not None:
            os.kill(pid, signal.SIGUSR1)
    return json.dumps(node_status(deployment, list(deployment.endpoints)), indent=1)
