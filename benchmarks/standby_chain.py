"""The chain of benchmark standby: 8 operators in 4 fragments, each operator with 20 elements.

    elements ─▶ subjob-1 ─▶ subjob-2 ─▶ subjob-3 ─▶ the last fragment, once for each *branch*

The last fragment is deployed several times side by side, each time in another way, so that all
are measured on the same input, at the same moments and under the same failures. A *machine* is
one process with one Spark driver: ``rest`` holds what never fails, ``first`` the copy of every
branch that runs at first, ``second`` the one that stands by.

Of the two operators of a fragment the first computes, the second keeps a running total for each
of 20 keys; both pass every element on. So the selectivity is 1 and the state has 20 elements, as
in the paper.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.client import Client, Tuples
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.cluster.status import node_status
from holdfast.deployment import Deployment, load_deployment
from holdfast.flight.peers import act, connect
from holdfast.plans.addresses import Addresses
from holdfast.plans.plan import plan_path, write_plan
from holdfast.producer import Producer
from holdfast.testing.deployed import supervised

KEYS = 20
TURN_SECONDS = 0.02

NETWORK = '''
import numpy as np
import pyarrow as pa

from holdfast import Network

COLUMNS = "number bigint, made bigint, key bigint, value double"


def running_total(key, elements, total):
    """Every element with the total so far, modulo a million; the total is the state."""
    values = elements["value"].to_numpy()
    totals = np.cumsum(np.concatenate(([total or 0.0], values)))[1:] % 1e6
    place = elements.schema.get_field_index("value")
    return elements.set_column(place, "value", pa.array(totals)), float(totals[-1])


def subjob(stream, name, operators):
    stream = stream.fragment(name)
    for number in range(operators):
        if number % 2:
            stream = stream.groupBy("key").process(running_total, output=COLUMNS, state="double")
        else:
            stream = stream.withColumn("value", "abs(sin(value)) + pow(abs(value), 0.3)")
    return stream


network = Network("standby", bucket="{bucket_ms} ms", partitions=1)
stream = network.source("elements", COLUMNS)
for number in (1, 2, 3):
    stream = subjob(stream, f"subjob-{{number}}", 2)
for name, operators in {branches}.items():
    subjob(stream, name, operators).output(f"out-{{name}}")
'''

Times = npt.NDArray[np.int64]
# (from, to, label) -> tuples and bytes sent so far
Sent = dict[tuple[str, str, str], tuple[float, float]]


@dataclass(frozen=True)
class Plan:
    """A chain, and how each of its fragments is deployed.

    branches   the copies of the last fragment, and how many operators each has.
    fragments  the lines of a fragment's table in the deployment file.
    """

    branches: Mapping[str, int]
    fragments: Mapping[str, str]
    timing: Mapping[str, str] = field(default_factory=dict)
    bucket_ms: int = 500

    def write(self, directory: Path, name: str) -> Deployment:
        network = NETWORK.format(bucket_ms=self.bucket_ms, branches=dict(self.branches))
        (directory / f"{name}.py").write_text(network)
        timing = {"delay": "20 seconds", "heartbeat": "100 ms", **self.timing}
        lines = [f'network = "{name}.py"', "chaos = true", f'data = "{name}"', "[timing]"]
        lines += [f'{key} = "{value}"' for key, value in timing.items()]
        lines.append("[sources.elements]")
        for fragment in ("subjob-1", "subjob-2", "subjob-3", *self.branches):
            lines.append(f"[fragments.{fragment}]")
            table = self.fragments.get(fragment, 'colocate = "rest"')
            lines.append(table.replace("{name}", f"fragments.{fragment}"))
        for branch in self.branches:
            lines += [f"[clients.reader-{branch}]", f'output = "out-{branch}"']
        file = directory / f"{name}.toml"
        file.write_text("\n".join(lines) + "\n")
        return load_deployment(file)


class Workshop:
    """Where deployments are made; a network that is the same is planned once."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="holdfast-standby-"))
        self._plans: dict[bytes, Path] = {}
        self._count = 0

    def plan_ahead(self, plans: Iterable[Plan]) -> None:
        """Plan networks in one process: it starts Spark once for all of them."""
        ahead = [self.deployment(plan) for plan in plans]
        command = [sys.executable, "-m", "benchmarks.standby_chain"]
        command += [str(each.path) for each in ahead]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    def deployment(self, plan: Plan) -> Deployment:
        self._count += 1
        deployment = plan.write(self.path, f"chain-{self._count}")
        network = deployment.network.read_bytes()
        if network in self._plans:
            deployment.data.mkdir()
            shutil.copy(self._plans[network], plan_path(deployment))
        self._plans[network] = plan_path(deployment)
        return deployment

    def close(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)


class Elements:
    """Sends elements at a rate that can be changed."""

    def __init__(self, producer: Producer, rate: int) -> None:
        self.rate = rate
        self.sent = 0
        self._producer = producer
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            count = int(self.rate * TURN_SECONDS)
            numbers = np.arange(self.sent, self.sent + count)
            columns = {
                "number": numbers,
                "made": np.full(count, now_us()),
                "key": numbers % KEYS,
                "value": np.sqrt(numbers),
            }
            self._producer.send(pa.table(columns))
            self.sent += count
            due += TURN_SECONDS
            time.sleep(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(30.0)


class Arrived:
    """What came out of one branch: when each element was made, and when it came."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._changed = threading.Condition()
        self._parts: list[tuple[int, Times, Times]] = []
        self.count = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._stopping.is_set():
            event = self._client.read(0.2)
            if isinstance(event, Tuples) and event.stable:
                now = now_us()
                numbers = event.table["number"].to_numpy()
                with self._changed:
                    self._parts.append((now, numbers, event.table["made"].to_numpy()))
                    self.count += len(numbers)
                    self._changed.notify_all()

    def wait_made(self, made_after: int, timeout_s: float) -> int:
        """When the first element made after this time came."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while not (self._parts and self._parts[-1][2].max() > made_after):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError(f"nothing new from {self._client.stream} in {timeout_s} s")
                self._changed.wait(min(left, 0.5))
            return next(at for at, _, made in self._parts if made.max() > made_after)

    def delays_ms(self, start: int, end: int) -> npt.NDArray[np.float64]:
        """The delay of every element made in this time."""
        found = []
        with self._changed:
            for at, _, made in self._parts:
                wanted = made[(made >= start) & (made < end)]
                found.append((at - wanted) / 1000.0)
        return np.concatenate(found) if found else np.zeros(0)

    def longest_silence_ms(self, start: int, end: int) -> float:
        """The longest time in which nothing came."""
        with self._changed:
            times = [at for at, _, _ in self._parts if start <= at < end]
        return float(np.diff([start, *times, end]).max()) / 1000.0

    def wrong(self, sent: int) -> int:
        """How many elements are lost or doubled."""
        with self._changed:
            parts = [part for _, part, _ in self._parts]
        numbers = np.concatenate(parts) if parts else np.zeros(0, dtype=np.int64)
        once = np.unique(numbers)
        return int(len(numbers) - len(once) + sent - len(once))

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5.0)


class Chain:
    """A chain that runs, with its load and a client on every branch."""

    def __init__(self, deployment: Deployment, rate: int, on_one_core: str | None = None) -> None:
        """``on_one_core``: a process that has the first core, and no other, from its start."""
        self.deployment = deployment
        self._running = contextlib.ExitStack()
        self.supervisor = self._running.enter_context(supervised(deployment))
        if on_one_core is not None:
            pid = self.supervisor.pid(on_one_core)
            assert pid is not None
            os.sched_setaffinity(pid, {0})
        self._producer = Producer.of(deployment.path, "elements", name="standby")
        self.branches: dict[str, Arrived] = {}
        for client in deployment.clients.values():
            reader = Client.of(deployment.path, client.output, name=client.name)
            self._running.enter_context(reader)
            self.branches[client.output.removeprefix("out-")] = Arrived(reader)
        self.elements = Elements(self._producer, rate)

    def wait_flowing(self, timeout_s: float = 120.0) -> None:
        """Until every branch gives results about elements made now."""
        start = now_us()
        for branch in self.branches.values():
            branch.wait_made(start, timeout_s)

    def settle(self, timeout_s: float = 60.0) -> None:
        """Send nothing until everything that was sent has come out of every branch."""
        rate, self.elements.rate = self.elements.rate, 0
        time.sleep(2 * TURN_SECONDS)
        deadline = time.monotonic() + timeout_s
        while any(each.count < self.elements.sent for each in self.branches.values()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not everything came out within {timeout_s:g} s")
            time.sleep(0.02)
        self.elements.rate = rate

    def traffic(self) -> Sent:
        """What every process has sent so far."""
        return traffic_of(self.deployment)

    def status(self) -> dict[str, dict[str, Any]]:
        """What every node says of itself."""
        return node_status(self.deployment, list(self.deployment.endpoints))

    def status_of(self, node: str) -> dict[str, Any]:
        return node_status(self.deployment, [node])[node]

    @contextlib.contextmanager
    def cut_off(self, node: str) -> Iterator[None]:
        """Nothing that a node sends arrives, and nothing that is sent to it."""
        everyone = [*self.deployment.endpoints, *self.deployment.clients]
        security = self.deployment.security.read()
        location = Addresses.read(self.deployment).book(security)[node]
        with connect(location, security) as client:
            cut = {"cut": [name for name in everyone if name != node]}
            act(client, security, "holdfast", "links", cut)
            try:
                yield
            finally:
                act(client, security, "holdfast", "links", {"heal": None})

    def stop(self) -> dict[str, int]:
        """Send no more, let the rest come out; how many elements are wrong on each branch."""
        self.elements.stop()
        self._producer.flush()
        deadline = time.monotonic() + 30.0
        sent = self.elements.sent
        while time.monotonic() < deadline:
            wrong = {name: branch.wrong(sent) for name, branch in self.branches.items()}
            if not any(wrong.values()):
                break
            time.sleep(0.2)
        self._producer.close()
        for branch in self.branches.values():
            branch.stop()
        self._running.close()
        return wrong


def traffic_of(deployment: Deployment) -> Sent:
    """What every process of a deployment has sent so far."""
    found: Sent = {}
    addresses = Addresses.read(deployment)
    for process in deployment.processes:
        host, port = addresses.metrics(process)
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=10) as answer:
            for key, tuples, size in _sent(answer.read().decode()):
                before = found.get(key, (0.0, 0.0))
                found[key] = (before[0] + tuples, before[1] + size)
    return found


def _sent(text: str) -> Iterator[tuple[tuple[str, str, str], float, float]]:
    """The counters of what was sent, from a process's metrics."""
    for line in text.splitlines():
        name, brace, rest = line.partition("{")
        if brace and name in ("holdfast_tuples_sent_total", "holdfast_bytes_sent_total"):
            labels, _, value = rest.rpartition("} ")
            pairs = (pair.partition("=") for pair in labels.split(","))
            found = {key: text.strip('"') for key, _, text in pairs}
            key = (found["node"], found["to"], found["label"])
            number = float(value)
            yield (key, number, 0.0) if "tuples" in name else (key, 0.0, number)


def now_us() -> int:
    return time.time_ns() // 1000


def main(paths: list[str]) -> int:
    """Plan the networks of these deployments."""
    for path in paths:
        deployment = load_deployment(path)
        write_plan(deployment, plan_of(load_network(deployment.network, "local[2]", {})))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
