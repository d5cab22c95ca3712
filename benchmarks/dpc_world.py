"""Real nodes for the DPC benchmarks, with a load, a link to cut and a client that measures.

    with Hosts() as hosts:
        with World(hosts, Setting(rate=4_500)) as world:
            world.settle()
            found = world.fail(15.0)

Entry points run in one process, replicas in another, on one SparkSession; the producers and the
client are here. Everything talks over Flight on loopback.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.dpc_arrivals import Arrivals, Failure, Figures, figures
from benchmarks.dpc_setting import CLIENT, FAILED, OUTPUT, SOURCES, Setting, describe_deployment
from holdfast.client import Client
from holdfast.producer import Producer

TURN_SECONDS = 0.02
ORDER_SECONDS = 180.0
_HOST = "from benchmarks.dpc_host import main; main()"


class HostError(Exception):
    """A host could not do what it was told."""


class HostProcess:
    """One process that hosts nodes."""

    def __init__(self, name: str, directory: Path) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self._lock = threading.Lock()
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _HOST, str(directory / name)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
            )

    def order(self, do: str, **options: Any) -> dict[str, Any]:
        """Give an order and wait for the answer."""
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with self._lock:
            try:
                process.stdin.write(json.dumps({"do": do, **options}) + "\n")
                process.stdin.flush()
                line = process.stdout.readline()
            except OSError:
                line = ""
        if not line:
            raise HostError(f"{self.name} ended with {process.poll()} at {do}:\n{self._tail()}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise HostError(f"{self.name}: {do}: {answer['error']}\n{self._tail()}")
        return answer

    def _tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-40:])

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20.0)
        except subprocess.TimeoutExpired:
            self._process.kill()


class Hosts:
    """The two processes, for as many experiments as wanted."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="holdfast-dpc-"))
        self.entries = HostProcess("entries", self.directory)
        self.replicas = HostProcess("replicas", self.directory)

    def schemas(self, setting: Setting) -> dict[str, str]:
        """Builds the network, and Spark the first time."""
        found: dict[str, str] = self.replicas.order("plan", setting=setting.as_json())["schemas"]
        return found

    def __enter__(self) -> Hosts:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.entries.close()
        self.replicas.close()
        if error is None:
            shutil.rmtree(self.directory, ignore_errors=True)
        else:
            print(f"see {self.directory}", file=sys.stderr)


class Load:
    """Sends every source its share of the rate, by the clock; numbers say the source."""

    def __init__(self, locations: dict[str, str], setting: Setting) -> None:
        self._producers = [
            Producer(name, locations[name], name="load", linger_s=0.002, pending_batches=4096)
            for name in SOURCES
        ]
        self._rate = setting.rate / len(SOURCES)
        self._own_time = setting.own_time
        self._lateness_us = setting.lateness_ms * 1000
        self._random = np.random.default_rng(1)
        # Sources that say nothing now, and what they have not said.
        self.quiet: set[int] = set(range(len(SOURCES))) if setting.quiet else set()
        self.unsaid = 0
        self.sent = 0
        self._stopping = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            start, turn = time.monotonic(), 0
            while not self._stopping.is_set():
                turn += 1
                self._send(int(turn * TURN_SECONDS * self._rate))
                time.sleep(max(0.0, start + turn * TURN_SECONDS - time.monotonic()))
        except BaseException as error:
            self._failure = error

    def _send(self, up_to: int) -> None:
        numbers = np.arange(self.sent, up_to, dtype=np.int64)
        for index, producer in enumerate(self._producers):
            if index in self.quiet:
                self.unsaid += len(numbers)
                continue
            made = np.full(len(numbers), time.time_ns() // 1000, dtype=np.int64)
            self.send(producer, numbers * len(SOURCES) + index, made)
        self.sent = up_to

    def send(self, producer: Producer, numbers: Any, made: Any) -> None:
        """Send tuples; with times of their own, these are out of order within the lateness."""
        columns = {"number": numbers, "made": made}
        if self._own_time:
            late = self._random.integers(0, self._lateness_us + 1, len(made))
            columns["at"] = pa.array(made - late).cast(pa.timestamp("us", "UTC"))
        producer.send(pa.table(columns))

    def send_stamped(self, index: int, year: int) -> None:
        """One row with a time that is not its own."""
        at = np.array([np.datetime64(f"{year}-01-01", "us").astype(np.int64)])
        columns = {"number": np.array([-1]), "made": at, "at": pa.array(at)}
        columns["at"] = columns["at"].cast(pa.timestamp("us", "UTC"))
        self._producers[index].send(pa.table(columns))

    def stop(self) -> int:
        """Send no more; how many tuples each source has sent."""
        self._stopping.set()
        self._thread.join(10.0)
        if self._failure is not None:
            raise self._failure
        for producer in self._producers:
            producer.close(30.0)
        return self.sent


class World:
    """One deployment, running."""

    def __init__(self, hosts: Hosts, setting: Setting) -> None:
        self.hosts = hosts
        self.setting = setting
        self._directory = Path(tempfile.mkdtemp(dir=hosts.directory))
        deployment = describe_deployment(setting, self._directory)
        ports = free_ports(len(deployment.endpoints))
        book = {
            name: f"grpc://127.0.0.1:{port}"
            for name, port in zip(deployment.endpoints, ports, strict=True)
        }
        told = {"setting": setting.as_json(), "directory": str(self._directory), "book": book}
        hosts.entries.order("entries", **told, schemas=hosts.schemas(setting))
        hosts.replicas.order("replicas", **told)
        last = deployment.fragments[setting.fragment_names[-1]]
        self.client = Client(
            OUTPUT,
            {name: book[name] for name in last.processes},
            name=CLIENT,
            timing=setting.timing(),
        )
        self.arrivals = Arrivals(self.client)
        self.load = Load({name: book[f"entry-{name}"] for name in SOURCES}, setting)

    def __enter__(self) -> World:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.load._stopping.set()
        self.arrivals._stopping.set()
        self.client.close()
        self.hosts.replicas.order("stop_all")
        self.hosts.entries.order("stop_all")
        shutil.rmtree(self._directory, ignore_errors=True)

    # -- waiting ------------------------------------------------------------------------

    def wait(self, until: Callable[[], bool], seconds: float, what: str) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{what}: not within {seconds:g} s; {self.states()}")
            time.sleep(0.02)

    def states(self) -> dict[str, str]:
        found = self.hosts.replicas.order("status")
        return {name: each["state"] for name, each in found.items()}

    def settle(self, seconds: float = 2.0) -> None:
        """Until results flow as they should, and a little longer."""
        self.wait(lambda: self.arrivals.stable_until > 0, 60.0, "the first stable results")
        self.wait(self._stable_and_current, 60.0, "all replicas stable")
        time.sleep(seconds)

    def _stable_and_current(self) -> bool:
        behind = time.time_ns() // 1000 - self.arrivals.stable_until
        return behind < 1_000_000 and set(self.states().values()) == {"stable"}

    # -- failing ------------------------------------------------------------------------

    def fail(self, seconds: float) -> tuple[Failure, Figures]:
        """Cut the link to one source for a while; wait until all is stable again."""
        cut = int(self.hosts.entries.order("cut")["at"] * 1e6)
        time.sleep(max(0.0, cut / 1e6 + seconds - time.time()))
        had = self._had_by_all(FAILED)
        healed = int(self.hosts.entries.order("heal")["at"] * 1e6)
        failure = Failure(cut, healed, had)
        time.sleep(0.5)
        limit = 60.0 + 2 * seconds
        self.wait(lambda: self.arrivals.stable_until > healed, limit, "corrections")
        self.wait(self._stable_and_current, limit, "all replicas stable again")
        until = time.time_ns() // 1000
        time.sleep(1.0)
        return failure, figures(self.arrivals.seen(cut - 2_000_000), failure, until)

    def _had_by_all(self, stream: str) -> int | None:
        """How many tuples of a source every replica has, where numbers and ids go together."""
        if self.setting.own_time or self.setting.quiet:
            return None
        found = self.hosts.replicas.order("status").values()
        inputs = [each["inputs"][stream] for each in found if stream in each["inputs"]]
        return min(int(each["next_id"]) for each in inputs)

    def finish(self) -> int:
        """Stop the load; the client must hold every tuple once. Returns how many there are."""
        total = self.load.stop() * len(SOURCES) - self.load.unsaid
        self.wait(lambda: self.client.next_id >= total, 60.0, f"{total} stable tuples")
        self.arrivals.stop()
        seen = self.arrivals.seen()
        stable = np.sort(seen.number[seen.stable])
        whole = self.load.unsaid > 0 or np.array_equal(stable, np.arange(total))
        if len(stable) != total or len(np.unique(stable)) != total or not whole:
            raise AssertionError(f"{total} tuples were sent, {len(stable)} stable ones came")
        return total

    def alpha(self) -> float:
        """The least share of X that a replica waits now."""
        found = self.hosts.replicas.order("status")
        return min(float(each["alpha"]) for each in found.values())

    def report(self) -> dict[str, Any]:
        return self.hosts.replicas.order("report")


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on."""
    made = [socket.socket() for _ in range(count)]
    for each in made:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in made]
    for each in made:
        each.close()
    return ports
