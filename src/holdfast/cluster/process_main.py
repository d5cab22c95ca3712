"""The main function of every process of a deployment:

    python -m holdfast.cluster.process_main deployment.toml NAME

It hosts the nodes the deployment puts into the process NAME: an entry point, a client, or one
or several replicas on one SparkSession. It ends when it is told to (SIGTERM), when its
supervisor is gone, when all its nodes were removed, or when a driver breaks one of its own rules,
with the story of how.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from holdfast.clock import Clock
from holdfast.cluster.children import PORT_TAKEN_CODE, REMOVED_CODE
from holdfast.core.settings import Protection, StandbySettings
from holdfast.deployment import Deployment, load_deployment
from holdfast.errors import Removed
from holdfast.flight.security import Security
from holdfast.kept.quiet import Quiet
from holdfast.nodes.hosted import Hosted, Place
from holdfast.nodes.http_server import serve_http
from holdfast.nodes.journal import Journal, adopt_logging
from holdfast.nodes.pace import Busy
from holdfast.nodes.thread_watch import watch_threads
from holdfast.plans.addresses import Addresses, Book
from holdfast.plans.lags import source_of
from holdfast.plans.membership_file import MembershipFile
from holdfast.plans.plan import Plan, read_plan
from holdfast.plans.topology import Topology
from holdfast.ports import PortTaken

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from holdfast.network import Network
    from holdfast.nodes.engine_watch import EngineWatch
    from holdfast.spark.merging import Merge

# A process says that it is ready after so many seconds, although its replicas are not warm yet.
WARM_SECONDS = 60.0


# How long stopping may take.
STOP_SECONDS = 12.0


class ProcessHost:
    """The nodes of one process."""

    def __init__(self, deployment: Deployment, name: str) -> None:
        self._deployment = deployment
        self._name = name
        self.journal = Journal(name, "process")
        self._plan: Plan = read_plan(deployment)
        self._topology = Topology(deployment, self._plan)
        deployment.security.make()
        self._security: Security = deployment.security.read()
        self._addresses = Addresses.read(deployment)
        self._at_work = Busy(time.monotonic())
        self._quiet = Quiet()
        self._book = Book(deployment, self._security)
        self._membership = MembershipFile(deployment.data)
        self.stopping = threading.Event()
        self.nodes: list[Hosted] = []
        # Nodes that take part no longer, while others of this process do.
        self._removed: set[str] = set()
        self._leaving = threading.Lock()
        self._warm: list[threading.Event] = []
        self._loading = threading.Lock()
        self._loaded: Network | None = None
        self._engine_watch: EngineWatch | None = None

    def start(self) -> None:
        replicas = []
        for node in self._deployment.processes[self._name]:
            if node in self._deployment.clients:
                self.nodes.append(self._client(node))
            elif any(node == spec.process for spec in self._deployment.sources.values()):
                self.nodes.append(self._entry(node))
            else:
                replicas.append(node)
        if replicas:
            self.nodes += self._replicas(replicas)
        for each in self.nodes:
            each.start()
        host, port = self._addresses.metrics(self._name)
        health = lambda: {node.name: node.health() for node in self.nodes}  # noqa: E731
        served = serve_http(host, port, health)
        # Not in this thread, which must hear that it is to end.
        threading.Thread(target=self._say_ready, args=(served,), daemon=True).start()

    def _say_ready(self, port: int) -> None:
        """When every replica has run a job: the first tuples are not to wait for a first job."""
        for warm in self._warm:
            warm.wait(WARM_SECONDS)
        self.journal.write("ready", metrics_port=port)

    def stop(self) -> None:
        self.stopping.set()
        if self._engine_watch is not None:
            self._engine_watch.stop()
        for node in self.nodes:
            node.stop()

    def _place(self, node: str) -> Place:
        endpoint = self._addresses.of(node)
        clock = Clock(self._deployment.follow_clock)
        return Place(
            endpoint.host,
            endpoint.port,
            self._book,
            self._security,
            clock,
            self._deployment.chaos,
            self._deployment.distances.of(node),
            self._membership,
            self._at_work,
            self._quiet,
        )

    def _directory(self, node: str) -> Path:
        return self._deployment.data / "processes" / node

    def _entry(self, node: str) -> Hosted:
        from holdfast.nodes.entry_node import EntryNode
        from holdfast.operators import Declaration

        spec = next(each for each in self._deployment.sources.values() if each.process == node)
        plan = self._plan.sources[spec.name]
        return EntryNode(
            self._topology.entry(spec.name),
            Declaration(spec.name, plan.stime, plan.keys),
            plan.schema,
            source_of(spec),
            self._plan.bucket_us,
            self._directory(node),
            self._place(node),
            self.fatal,
            spec.keep,
        )

    def _client(self, node: str) -> Hosted:
        from holdfast.connect.specs import parse_sink
        from holdfast.nodes.client_node import ClientNode

        spec = self._deployment.clients[node]
        assert spec.sink is not None
        names = self._topology.producers[spec.output]
        producers = Book(self._deployment, self._security, names)
        return ClientNode(
            node,
            spec.output,
            self._plan.streams[spec.output].schema,
            parse_sink(f"{spec.output}={spec.sink}")[1],
            self._directory(node),
            producers,
            self._place(node),
            self._topology.timing,
            self.fatal,
            spec.output in self._topology.standing,
            spec.output in self._topology.lossy,
        )

    def _replicas(self, nodes: list[str]) -> list[Hosted]:
        standby = {node: self._topology.standby(node) for node in nodes}
        needs_spark = [
            pair is None or pair.protection is Protection.HYBRID
            for node, pair in standby.items()
            if not self._topology.fragment_plan(node).merges
        ]
        if any(needs_spark):
            self._network()
        return [self._replica(node, pair) for node, pair in standby.items()]

    def _replica(self, node: str, pair: StandbySettings | None) -> Hosted:
        from holdfast.nodes.replica_node import ReplicaNode

        replica = ReplicaNode(
            self._topology.replica(node),
            pair,
            self._topology.fragment_plan(node),
            lambda: self._part(node),
            self._directory(node),
            self._place(node),
            lambda error: self._ended(node, error),
            on_error=self._deployment.fragments[self._topology.fragment_of(node)].on_error,
        )
        self._warm.append(replica.warm)
        return replica

    def _part(self, node: str) -> Network | Merge:
        """The network of a node's fragment; or what it merges, if it does that."""
        from holdfast.fragments import fragment_network
        from holdfast.spark.merging import Merge

        plan = self._topology.fragment_plan(node)
        if plan.merges:
            return Merge(plan.inputs, plan.merges)
        return fragment_network(self._network(), plan.name, plan.shard)

    def _network(self) -> Network:
        """The whole network; starts Spark the first time it is asked for."""
        from holdfast.cluster.networks import load_network

        deployment = self._deployment
        with self._loading:
            if self._loaded is None:
                self.journal.write("starting Spark", master=deployment.spark_master)
                self._loaded = load_network(
                    deployment.network,
                    deployment.spark_master,
                    deployment.spark_config,
                    self._directory(deployment.processes[self._name][0]),
                    deployment.drivers_beside(self._name),
                )
                self._watch_engine(self._loaded.spark)
                self.journal.write("Spark is up")
            return self._loaded

    def _watch_engine(self, spark: SparkSession) -> None:
        from holdfast.nodes.engine_watch import EngineWatch

        jvm = spark._jvm
        assert jvm is not None
        gateway = spark.sparkContext._gateway
        process = None if gateway is None else gateway.proc
        self._engine_watch = EngineWatch(process, jvm.java.lang.System.nanoTime, self.fatal)
        self._engine_watch.start()

    def _ended(self, node: str, error: BaseException) -> None:
        """A replica cannot go on. One that was removed lets the others of its process go on."""
        removed = isinstance(error, Removed)
        with self._leaving:
            if removed and node in self._removed:
                return
            self._removed |= {node} if removed else set()
            leaving = [one for one in self.nodes if one.name == node]
            left = [one for one in self.nodes if one.name not in self._removed]
            if not removed or not left or self.stopping.is_set():
                self.fatal(error)
                return
            self.nodes = left
        self.journal.write("removed", node=node, problem=str(error))
        # Not in this thread, which is the node's own and would wait for itself.
        for one in leaving:
            threading.Thread(target=one.stop, name=f"{node} stops", daemon=True).start()

    def foreign(self, thread: str, error: BaseException) -> None:
        """A thread of a library has ended with an error."""
        self.journal.write("thread ended", level="warning", thread=thread, problem=repr(error))

    def fatal(self, error: BaseException) -> None:
        """A driver or a thread it relies on is broken: better no process than a wrong one."""
        if self.stopping.is_set():
            self.journal.write("problem while stopping", level="warning", problem=repr(error))
            return
        story = "".join(traceback.format_exception(error))
        self.journal.write("fatal", level="error", problem=str(error), story=story)
        os._exit(REMOVED_CODE if isinstance(error, Removed) else 70)


def main(arguments: list[str]) -> int:
    deployment = load_deployment(arguments[0])
    name = arguments[1]
    if name not in deployment.processes:
        # It was removed while it was down, so nobody could tell it.
        Journal(name, "process").write(
            "removed", problem=f"{deployment.name} has no process {name} any more"
        )
        return REMOVED_CODE
    if not set(deployment.processes[name]) & set(deployment.clients):
        # What it writes are logs and states, for nobody else; a client writes its user's files.
        os.umask(0o077)
    adopt_logging(name)
    host = ProcessHost(deployment, name)
    pa.enable_signal_handlers(False)  # Arrow would cancel what it is reading
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: host.stopping.set())
    # kill -USR1 writes what every thread is doing into the log.
    faulthandler.register(signal.SIGUSR1)
    watch_threads(host.fatal, host.foreign)
    parent = os.getppid()
    try:
        host.start()
    except Exception as error:
        host.journal.write(
            "cannot start", level="error", problem=str(error), story=traceback.format_exc()
        )
        os._exit(PORT_TAKEN_CODE if isinstance(error, PortTaken) else 1)
    while not host.stopping.wait(1.0):
        if os.getppid() != parent:
            host.journal.write("the supervisor is gone", level="warning")
            break
    # A JVM that is stopped would be waited for without end.
    threading.Timer(STOP_SECONDS, os._exit, (0,)).start()
    host.stop()
    # Threads of Flight and Spark may still be in calls that nobody waits for.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
