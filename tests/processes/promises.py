"""A deployment of three entry points and two replicas, each a process, under one's thumb.

Its clients check with every event that nothing is lost, doubled, taken back or told twice, and
``check`` compares what they hold with the oracle.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.flight as flight

from holdfast.client import Client, ClientEvent, Tuples, View
from holdfast.cluster import chaos
from holdfast.cluster.networks import load_network
from holdfast.cluster.planning import plan_of
from holdfast.cluster.status import node_status
from holdfast.cluster.supervisor import Supervisor
from holdfast.core.messages import Subscribe
from holdfast.deployment import load_deployment
from holdfast.flight.peers import connect
from holdfast.flight.wire import decode_metadata, encode_message
from holdfast.network import Network
from holdfast.plans.addresses import Addresses
from holdfast.plans.plan import write_plan
from holdfast.producer import Producer
from holdfast.testing.deployed import supervised
from holdfast.testing.undisturbed import logged_tuples, undisturbed

NETWORK = Path(__file__).with_name("promises_network.py")
SOURCES, OUTPUTS, REPLICAS = ("a", "b", "c"), ("sums", "steady", "matched"), ("main-1", "main-2")
BUCKET_US, X_US = 200_000, 1_500_000
DEPLOYMENT = """
network = "network.py"
chaos = true

[timing]
delay = "1500 ms"
alpha = 0.9
heartbeat = "100 ms"
partner_timeout = "300 ms"
postpone_lease = "2 seconds"
record_interval = "500 ms"
redo_buckets = 10

[fragments.main]
replicas = 2
""" + "".join(
    [f"[sources.{name}]\nkeep = true\n" for name in SOURCES]
    + [f'[clients.{name}]\noutput = "{name}"\n' for name in OUTPUTS]
)


class Reader:
    """A client of one output that believes nothing."""

    def __init__(self, path: Path, output: str) -> None:
        self.view = View()
        self.tentative = 0
        # Of those, how many lacked each source.
        self.lacking: Counter[str] = Counter()
        self.stable_rows = 0
        self.told_until = 0
        self.broken: list[str] = []
        self.client = Client.of(path, output, name=output)
        self._output = output
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            for event in self.client:
                with self._lock:
                    self._check(event)
                    self.view.apply(event)
        except BaseException as error:
            self.broken.append(repr(error))

    def _check(self, event: ClientEvent) -> None:
        if not isinstance(event, Tuples):
            return
        stimes = event.table["stime"].cast(pa.int64()).to_numpy()
        oldest, newest = int(stimes.min()), int(stimes.max())
        if event.stable:
            if event.first_id != self.stable_rows:
                self.broken.append(f"id {event.first_id} came, {self.stable_rows} is next")
            if oldest < self.view.stable_until:
                self.broken.append(f"{oldest} came after the boundary {self.view.stable_until}")
            self.stable_rows += event.table.num_rows
        else:
            if oldest <= max(self.told_until, self.view.stable_until - 1):
                self.broken.append(f"tentative {oldest} was told before: {self.told_until}")
            self.told_until = newest
            self.tentative += event.table.num_rows
            for missing in event.why.missing if event.why is not None else ():
                self.lacking[missing.stream] += event.table.num_rows

    def stable(self, until: int) -> pa.Table:
        """The stable stream up to a time."""
        with self._lock:
            table = self.view.stable
        assert table is not None
        return table.filter(pa.array(table["stime"].cast(pa.int64()).to_numpy() < until))

    def close(self) -> None:
        self.client.close()
        self._thread.join(5.0)


class World:
    """The deployment, its load and its clients."""

    def __init__(self, supervisor: Supervisor, network: Network) -> None:
        self.supervisor = supervisor
        self.deployment = supervisor.deployment
        self.network = network
        self._stopping = threading.Event()
        path = self.deployment.path
        self.producers = {name: Producer.of(path, name, name="test") for name in SOURCES}
        self.readers = {name: Reader(path, name) for name in OUTPUTS}
        self._sender = threading.Thread(target=self._send, daemon=True)
        self._sender.start()

    def _send(self) -> None:
        random = np.random.default_rng(4)
        while not self._stopping.wait(0.05):
            for producer in self.producers.values():
                if producer.pending < 30:
                    rows = {"k": random.integers(0, 3, 5), "v": random.random(5)}
                    producer.send(pa.table(rows))

    # -- looking ------------------------------------------------------------------------

    def status(self, node: str) -> dict[str, Any]:
        return node_status(self.deployment, [node])[node]

    def answered(self, node: str) -> dict[str, Any]:
        """What a node says; a busy one may not have the time at once."""
        answers: list[dict[str, Any]] = []

        def asked() -> bool:
            answers.append(self.status(node))
            return "error" not in answers[-1]

        self.until(f"an answer of {node}", asked)
        return answers[-1]

    def state(self, node: str) -> str:
        return str(self.status(node).get("state", "silent"))

    def states(self, node: str) -> list[str]:
        """Every state the node has been in, in all its lives."""
        found = []
        for line in (self.deployment.data / "logs" / f"{node}.log").read_text().splitlines():
            said = json.loads(line) if line.startswith("{") else {}
            if said.get("event") == "state":
                found.append(str(said["state"]))
        return found

    def until(self, what: str, condition: Callable[[], bool], timeout_s: float = 100.0) -> None:
        """Wait for a condition; while waiting, nothing else may break."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            for name, reader in self.readers.items():
                assert not reader.broken, f"{name}: {reader.broken}"
            assert time.monotonic() < deadline, f"{what} did not come\n{self.story()}"
            time.sleep(0.02)

    def story(self) -> str:
        """What everybody says; what every thread does is in the logs."""
        for name in REPLICAS:
            pid = self.supervisor.pid(name)
            if pid is not None:
                os.kill(pid, signal.SIGUSR1)
        found = {name: self.status(name) for name in self.deployment.endpoints}
        readers = {
            name: (each.view.stable_until, each.tentative, each.client.following)
            for name, each in self.readers.items()
        }
        states = {name: self.states(name)[-12:] for name in REPLICAS}
        return json.dumps([time.time_ns() // 1000, found, readers, states], indent=1)

    def until_stable(self, *outputs: str) -> None:
        """Until everything that has been sent by now has its stable result."""
        now = time.time_ns() // 1000
        self.until(
            f"a stable {outputs or 'stream'} past {now}",
            lambda: all(
                self.readers[name].stable_rows and self.readers[name].view.stable_until > now
                for name in outputs or OUTPUTS
            ),
        )

    def until_tentative(self, output: str = "sums") -> None:
        """Until something that is sent only from now on has a tentative result."""
        now = time.time_ns() // 1000
        self.until(f"tentative {output} past {now}", lambda: self.readers[output].told_until > now)

    def tentative(self) -> dict[str, int]:
        """How many tentative tuples each client ever got."""
        return {name: each.tentative for name, each in self.readers.items()}

    def lacking(self, source: str) -> dict[str, int]:
        """How many tentative tuples each client ever got that lacked a source.

        A machine too slow for X makes tuples tentative that have nothing to do with a failure.
        """
        return {name: each.lacking[source] for name, each in self.readers.items()}

    def until_following(self, replica: str) -> None:
        self.until(
            f"everybody following {replica}",
            lambda: all(each.client.following == replica for each in self.readers.values()),
        )

    def until_nodes(self, state: str, *nodes: str) -> None:
        self.until(
            f"{nodes} {state}",
            lambda: all(self.state(n) == state for n in nodes or REPLICAS),
        )

    # -- doing --------------------------------------------------------------------------

    def cut(self, source: str) -> None:
        """The source goes on and is logged, but no replica hears of it."""
        for replica in REPLICAS:
            chaos.cut(self.deployment, f"entry-{source}", replica)

    def heal(self, source: str) -> None:
        for replica in REPLICAS:
            chaos.heal(self.deployment, f"entry-{source}", replica)

    def kill(self, process: str) -> None:
        assert self.supervisor.kill(process)

    def refusal(self, replica: str) -> str | None:
        """Why the replica gives a new client nothing; None if it is not there, or gives."""
        security = self.deployment.security.read()
        location = Addresses.read(self.deployment).book(security)[replica]
        ticket = flight.Ticket(encode_message(Subscribe("sums", 1, 0, 0)))
        options = flight.FlightCallOptions(timeout=2.0, headers=security.headers("stranger"))
        try:
            with connect(location, security) as client:
                chunk = client.do_get(ticket, options).read_chunk()
        except (flight.FlightError, pa.ArrowException, StopIteration):
            return None
        refused = decode_metadata(chunk.app_metadata.to_pybytes()).get("refused")
        return None if refused is None else str(refused)

    def check(self) -> None:
        """Everything heals, and every client holds what an undisturbed run gives, to the bit."""
        self.until_nodes("stable")
        self.until_stable()
        # A client may be ahead of the others, with its first row where they have not come to.
        self.until("a row of every output that all are past", self._have_rows)
        until = self._common()
        logs = self.deployment.data / "processes"
        sources = {
            name: logged_tuples(logs / f"entry-{name}" / "streams" / name) for name in SOURCES
        }
        expected = undisturbed(self.network, sources, until)
        for name, reader in self.readers.items():
            found = reader.stable(until)
            assert found.num_rows
            assert found.combine_chunks().equals(expected[name].combine_chunks()), name
            assert not reader.broken, reader.broken

    def _common(self) -> int:
        """Up to where all clients' streams are stable."""
        return min(reader.view.stable_until for reader in self.readers.values())

    def _have_rows(self) -> bool:
        until = self._common()
        return all(reader.stable(until).num_rows for reader in self.readers.values())

    def close(self) -> None:
        self._stopping.set()
        self._sender.join()
        for producer in self.producers.values():
            producer.close()
        for reader in self.readers.values():
            reader.close()


@contextmanager
def running_world(directory: Path) -> Iterator[World]:
    """Start it all; the network is planned here, where there is a SparkSession already."""
    shutil.copy(NETWORK, directory / "network.py")
    (directory / "deployment.toml").write_text(DEPLOYMENT)
    deployment = load_deployment(directory / "deployment.toml")
    network = load_network(deployment.network, "local[2]", {})
    write_plan(deployment, plan_of(network))
    with supervised(deployment) as supervisor, closing(World(supervisor, network)) as world:
        world.check()
        yield world
