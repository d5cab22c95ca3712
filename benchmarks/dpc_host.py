"""A process that hosts nodes of the DPC benchmarks and does what it is told over a pipe.

One hosts the entry points, one of which is cut off by the links of the product. One hosts the
replicas, all on one SparkSession, which is started once and serves every experiment. Orders and
answers are JSON lines. The nodes are the product's; here they are only watched.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.dpc_setting import FAILED, SOURCES, Setting, build_network, describe_deployment
from holdfast.cluster.planning import plan_of
from holdfast.connect.push_source import PushSource
from holdfast.connect.source import FUTURE_LIMIT
from holdfast.core.effects import Effect, RunJob, Send
from holdfast.core.entry import EntrySettings
from holdfast.core.events import Event, JobDone, MessageArrived
from holdfast.core.messages import FeedFrames, Subscribe
from holdfast.flight.security import Security
from holdfast.fragments import fragment_network
from holdfast.frames import TIME
from holdfast.network import Network
from holdfast.nodes.entry_node import EntryNode
from holdfast.nodes.hosted import Place
from holdfast.nodes.jobs import JobReport
from holdfast.nodes.node import Node
from holdfast.nodes.replica_node import ReplicaNode
from holdfast.operators import Declaration
from holdfast.plans.topology import Topology
from holdfast.spark.engine import Bucket, Engine
from holdfast.spark.session import get_session
from holdfast.spark.state import EMPTY

Answer = dict[str, Any]


def fatal(error: BaseException) -> None:
    """A node broke one of its own rules: no figure from here on would mean anything."""
    traceback.print_exception(error)
    sys.stderr.flush()
    os._exit(70)


class WatchedReplica(ReplicaNode):
    """A replica that notes its states, its jobs and how long changing its source takes."""

    def __init__(self, *arguments: Any) -> None:
        self.states: list[tuple[float, str]] = []
        self.jobs_done: list[dict[str, Any]] = []
        self.switches: list[dict[str, Any]] = []
        self._submitted: dict[int, tuple[float, str]] = {}
        self._subscribed: dict[int, tuple[float, str, str]] = {}
        self._last_report: JobReport | None = None
        super().__init__(*arguments)

    def in_state(self, state: str) -> None:
        if not self.states or self.states[-1][1] != state:
            self.states.append((time.time(), state))
        super().in_state(state)

    def carry_out(self, effect: Effect) -> None:
        if isinstance(effect, RunJob):
            self._submitted[effect.job] = (time.time(), effect.line.value)
        elif isinstance(effect, Send) and isinstance(effect.message, Subscribe):
            said = (time.time(), effect.message.stream, effect.to)
            self._subscribed[effect.message.feed] = said
        super().carry_out(effect)

    def _post(self, event: Event) -> None:
        if isinstance(event, MessageArrived) and isinstance(event.message, FeedFrames):
            asked = self._subscribed.pop(event.message.feed, None)
            if asked is not None:
                self.switches.append(
                    {
                        "at": asked[0],
                        "stream": asked[1],
                        "to": asked[2],
                        "ms": (time.time() - asked[0]) * 1000,
                    }
                )
        super()._post(event)

    def _report(self, report: JobReport) -> None:
        self._last_report = report
        super()._report(report)

    def before(self, event: Event) -> None:
        super().before(event)
        if isinstance(event, JobDone):
            submitted, line = self._submitted.pop(event.job, (0.0, ""))
            report = self._last_report
            if report is not None:
                self.jobs_done.append(
                    {
                        "line": line,
                        "submitted": submitted,
                        "done": time.time(),
                        "seconds": report.seconds,
                        "tuples": report.tuples_in,
                        "start": report.start,
                        "stop": report.stop,
                        "alpha": round(self.copy.view().alpha, 3),
                    }
                )


class Host:
    """The nodes of one process."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._nodes: dict[str, Node] = {}
        self._makers: dict[str, Callable[[], Node]] = {}
        self._readers: tuple[str, ...] = ()
        self._networks: dict[tuple[Any, ...], Network] = {}

    def handle(self, order: dict[str, Any]) -> Answer:
        found: Answer = getattr(self, f"do_{order.pop('do')}")(**order) or {}
        return found

    # -- replicas -----------------------------------------------------------------------

    def do_plan(self, setting: dict[str, Any]) -> Answer:
        """Build the network; the schemas of its sources."""
        found = Setting(**setting)
        plan = plan_of(self._network(found))
        return {
            "schemas": {
                name: each.schema.serialize().to_pybytes().hex()
                for name, each in plan.sources.items()
            }
        }

    def do_replicas(self, setting: dict[str, Any], directory: str, book: dict[str, str]) -> None:
        found = Setting(**setting)
        network = self._network(found)
        deployment = describe_deployment(found, Path(directory))
        topology = Topology(deployment, plan_of(network))
        for fragment, spec in deployment.fragments.items():
            part = fragment_network(network, fragment)
            for name in spec.processes:
                place = _place(name, book)
                make = _replica_maker(topology, name, part, Path(directory) / name, place)
                self._makers[name] = make
                self._start(name)
        for node in self._nodes.values():
            if isinstance(node, WatchedReplica) and not node.warm.wait(60.0):
                raise TimeoutError(f"{node.name} is not ready after a minute")

    def _network(self, setting: Setting) -> Network:
        key = setting.same_network()
        if key not in self._networks:
            # One task more than there are cores: a redo must not keep the other replica, which
            # would be on a machine of its own, waiting for a place to run.
            network = build_network(get_session("local[3]"), setting)
            warm(network, setting, cold=not self._networks)
            self._networks[key] = network
        return self._networks[key]

    def do_report(self) -> Answer:
        """What every replica has noted so far, and forget it."""
        found: Answer = {}
        for name, node in self._nodes.items():
            if isinstance(node, WatchedReplica):
                found[name] = {
                    "states": list(node.states),
                    "jobs": list(node.jobs_done),
                    "switches": list(node.switches),
                }
        return found

    def do_status(self) -> Answer:
        return {name: node.status() for name, node in self._nodes.items()}

    # -- entry points -------------------------------------------------------------------

    def do_entries(
        self,
        setting: dict[str, Any],
        directory: str,
        book: dict[str, str],
        schemas: dict[str, str],
    ) -> None:
        found = Setting(**setting)
        deployment = describe_deployment(found, Path(directory))
        self._readers = deployment.fragments[found.fragment_names[0]].processes
        stime = "at" if found.own_time else None
        for name in SOURCES:
            process = deployment.sources[name].process
            self._nodes[process] = EntryNode(
                EntrySettings(process, name, self._readers, _boundary_interval(found)),
                Declaration(name, stime, ()),
                pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(schemas[name]))),
                _source(found) if found.own_time else None,
                found.bucket_ms * 1000,
                Path(directory) / process,
                _place(process, book),
                fatal,
            )
            self._nodes[process].start()

    def do_cut(self) -> Answer:
        """Cut the links between the failing source and everybody who reads it."""
        at = time.time()
        for reader in self._readers:
            self._nodes[f"entry-{FAILED}"].links.cut(reader)
        return {"at": at}

    def do_heal(self) -> Answer:
        self._nodes[f"entry-{FAILED}"].links.heal()
        return {"at": time.time()}

    # -- both ---------------------------------------------------------------------------

    def _start(self, name: str) -> None:
        self._nodes[name] = self._makers[name]()
        self._nodes[name].start()

    def do_start(self, name: str) -> None:
        self._start(name)

    def do_stop(self, name: str) -> Answer:
        at = time.time()
        self._nodes.pop(name).stop()
        return {"at": at}

    def do_stop_all(self) -> None:
        threads = [threading.Thread(target=node.stop) for node in self._nodes.values()]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30.0)
        self._nodes.clear()
        self._makers.clear()


def _source(setting: Setting) -> PushSource:
    """Producers whose tuples bring their own time."""
    return PushSource(
        lateness=setting.lateness_ms * 1000,
        idle_after=setting.idle_after_ms * 1000 or None,
        future_limit=FUTURE_LIMIT,
    )


def _boundary_interval(setting: Setting) -> int:
    """As the product chooses it."""
    return max(10_000, min(100_000, setting.bucket_ms * 500))


def _replica_maker(
    topology: Topology, name: str, network: Network, directory: Path, place: Place
) -> Callable[[], Node]:
    plan = topology.fragment_plan(name)
    return lambda: WatchedReplica(
        topology.replica(name), None, plan, lambda: network, directory, place, fatal
    )


def _place(name: str, book: dict[str, str]) -> Place:
    return Place("127.0.0.1", _port(book[name]), book, Security())


def _port(location: str) -> int:
    return int(location.rpartition(":")[2])


def warm(network: Network, setting: Setting, cold: bool) -> None:
    """Let the JVM compile what every bucket runs, so that the first one is as fast as others."""
    bucket_us = setting.bucket_ms * 1000
    count = max(1, setting.rate * setting.bucket_ms // 1000 // len(SOURCES))
    redo = max(2, min(60, 15_000 // count))
    engine = Engine(fragment_network(network, "main"))
    state, start = EMPTY, bucket_us
    for size in ((1,) * 15 if cold else (1, 1)) + (15, redo, 1):
        tables = {
            name: _rows(schema, start, count * size)
            for name, schema in engine.input_schemas.items()
        }
        stop = start + size * bucket_us
        state = engine.advance(state, [Bucket(start, stop, tables)], stop).state
        start = stop
    engine.close()


def _rows(schema: pa.Schema, start: int, count: int) -> pa.Table:
    numbers = pa.array(range(count), pa.int64())
    times = pa.array([start] * count, pa.int64()).cast(TIME)
    columns = {"stime": times, "tmax": times}
    rows = [columns.get(field.name, numbers.cast(field.type)) for field in schema]
    return pa.table(rows, schema=schema)


def main() -> None:
    """Orders on standard input until it ends."""
    directory = Path(sys.argv[1])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever else prints must not look like an answer
    host = Host(directory)
    for line in sys.stdin:
        try:
            answer = host.handle(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
    shutil.rmtree(directory, ignore_errors=True)
    os._exit(0)
