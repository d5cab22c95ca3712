"""A deployment: which processes run a network, where, and with which knobs; read from TOML.

    name = "monitoring"
    network = "network.py"            # beside this file
    data = "data"                     # logs, states, addresses, tokens
    chaos = true                      # holdfast chaos may make parts of it fail

    [timing]
    delay = "3 seconds"               # X: every available tuple shows up within X per fragment
    alpha = 0.9                       # the share of it that tuples wait; without it, it adapts
    follow_clock = 0.05               # a machine's clock that was set is followed at this rate

    [sources.load]                    # without "from", producers push
    from = "rate:1000"

    [sources.readings]                # tuples bring their own time (stime=... in the network)
    lateness = "500 ms"               # a tuple may be so much older than the newest before it
    idle_after = "1 second"           # who is quiet for so long holds nobody back
    future_limit = "1 minute"         # tuples further ahead of the clock are dead letters; "off"
    late = "drop"                     # late ones are dead letters; "take": count them now

    [servers.east]                    # another machine, where ``holdfast server`` listens
    listen = "10.0.0.2:4700"
    at = "42.36, -71.06"              # its latitude and longitude, for the map of the page

    [servers.west]
    listen = "10.0.0.3:4700"
    spare = "1 minute"                # takes the place of a server that is gone for so long

    [fragments.main]
    replicas = ["10.0.0.1", "east"]   # hosts of this machine or servers; or just a number
    protection = "active"             # none, active, passive, hybrid
    checkpoint = "continuous"         # the state is in the output log, window by window
    recover_within = "2 seconds"      # or bounds: extent = 200_000, replay = 1_000_000

    [fragments.counts]
    shards = 4                        # so many divide its tuples; or a list of places
    routing = "key"                   # by the keys of its operators; random, primary
    heirs = "next"                    # who does a lost shard's work; spread: several survivors
    delivery = "exactly-once"         # at-least-once, at-most-once

    [fragments.main.standby]          # how the copies of a passive or hybrid fragment stand by
    send = "sweeping"                 # when checkpoints go out; individual, synchronous
    persist = true                    # checkpoints are on disk before they count

    [outputs.busy]
    delay = "5 seconds"               # X from the sources to this output; fragments share it
    divide = "equal"                  # or by what their jobs were "measured" to need

    [distances]                       # as if its nodes were far apart; needs chaos = true
    matrix = "latencies.txt"          # milliseconds between places (flight/distance.py)
    jitter = "5 ms"                   # up to so much longer, each message
    places = { entry-load = "kyoto", main-1 = "boston", main-2 = "kyoto" }

    [bounds]                          # what is kept for somebody who is away, of each stream
    bytes = "10 GB"
    age = "1 day"
    then = "retire"                   # or "block" the source, "drop" what is tentative

    [collection]                      # of what is submitted to a cluster: useless replicas go
    network_cost = 5000               # until all streams cost no more: tuples a second × ms
    least = 1                         # replicas of each fragment, and feeds of each input, stay
    every = "1 minute"

    [clients.screen]
    output = "busy"
    sink = "jsonl:busy.jsonl"         # without it the client runs elsewhere, under this name

Ports that are not given are chosen when the deployment first starts, and kept (ports.py). A
process runs on this machine unless the place where it listens is named by a server.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from holdfast.clock import FOLLOW
from holdfast.core.settings import (
    Bound,
    Continuous,
    Delivery,
    Policy,
    Protection,
    Reconcile,
    StandbySettings,
    Timing,
)
from holdfast.durable import check_format, read_document
from holdfast.errors import HoldfastError
from holdfast.flight.credentials import SecuritySpec as SecuritySpec
from holdfast.flight.distance import Distances
from holdfast.flight.roles import HERE
from holdfast.slots import Routing

LOOPBACK = "127.0.0.1"
# Of membership.json.
MEMBERSHIP_FORMAT = 1
# What ``holdfast rescale`` has made of a fragment is handed on in its table, by this name.
RESCALED = "rescaled"
# How many copies a passive or hybrid fragment was given beside its first two, in the same way.
ARRIVED = "arrived"
# What the jobs of each fragment were measured to need, in microseconds, beside the other tables.
MEASURED = "measured"
# The servers that have another machine in their place, in the same way.
MOVED = "moved"


class DeploymentError(HoldfastError):
    """A deployment file that cannot be right; the message names the place and the fix."""


@dataclass(frozen=True)
class Endpoint:
    """Where a process listens; port 0 lets the operating system choose.

    server  the server that runs it; None for the machine the deployment was started on.
    """

    host: str = LOOPBACK
    port: int = 0
    server: str | None = None


@dataclass(frozen=True)
class SourceSpec:
    """One entry point.

    reads  a source as ``--source`` has it, or None for producers.
    keep   keep every tuple in its log, though everybody has acknowledged it.
    times  what is said of its own time: lateness, idle_after, future_limit, late; see
           connect/source.py.
    """

    name: str
    endpoint: Endpoint
    reads: str | None = None
    keep: bool = False
    times: Mapping[str, Any] = field(default_factory=dict)

    @property
    def process(self) -> str:
        return f"entry-{self.name}"


@dataclass(frozen=True)
class ShardSpec:
    """Which shard a fragment is, from 1 to ``shards``, and of which fragment.

    routing  by what tuples are divided among the shards; None: by what fits the operators.
    generation  how many times there has been another number of shards, from 1.
    part     of a shard whose work several others inherit, which of its ``parts`` it is, from 1.
    ring     the shards whose processes its copies share, its own first; () if they have their own.
    """

    fragment: str
    number: int
    shards: int
    routing: Routing | None
    generation: int = 1
    part: int = 1
    parts: int = 1
    ring: tuple[int, ...] = ()


@dataclass(frozen=True)
class Generation:
    """The shards of a fragment since their number changed last, or from its beginning.

    number  how many times it has changed, and one.
    shards  how many there are; ``names`` are more where each is in parts.
    """

    number: int
    shards: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class FragmentSpec:
    """One fragment and its replicas.

    colocate    the process of each replica; those with the same share it. None: its own each.
    continuous  how windows are kept in the output log; None: the state is kept beside it.
    on_error    what happens to a row on which a function of ``process`` raises: "stop" waits for
                corrected code, "dead-letter" leaves the row out and writes it down.
    shard       which part of a fragment with shards it is, if it is one (deployment_shards.py).
    merges      the shards whose results it merges, if it does; of all generations that run.
    generations  each of these, oldest first; each has replicas of its own, ``merging`` of them,
                which merge it.
    between     the least and the most shards it has, where their number follows the load.
    delivery    how often its results count, whatever is lost.
    """

    name: str
    replicas: tuple[Endpoint, ...]
    while_failed: Policy = Policy.PROCESS
    while_stabilizing: Policy = Policy.PROCESS
    reconcile: Reconcile = Reconcile.RESTORE
    colocate: tuple[str, ...] | None = None
    standby: StandbySettings | None = None
    continuous: Continuous | None = None
    on_error: str = "stop"
    race: bool = False
    shard: ShardSpec | None = None
    merges: tuple[str, ...] = ()
    generations: tuple[Generation, ...] = ()
    merging: int = 0
    between: tuple[int, int] | None = None
    delivery: Delivery = Delivery.EXACTLY_ONCE

    def merged_by(self, process: str) -> Generation:
        """The generation of shards that a replica merges; without any, if it is gone."""
        number = self.processes.index(process) // self.merging + 1
        known = (one for one in self.generations if one.number == number)
        return next(known, Generation(number, 0, ()))

    @property
    def last_generation(self) -> int:
        """The number of the last generation that there ever was; none is used again."""
        return len(self.replicas) // self.merging

    @property
    def protection(self) -> Protection:
        """What stands in for a replica that is lost."""
        if self.standby is not None:
            return self.standby.protection
        if self.race:
            return Protection.RACE
        several = (self.merging or len(self.replicas)) > 1
        return Protection.ACTIVE if several else Protection.NONE

    @property
    def standing(self) -> bool:
        """Whether those who read it keep a feed at every replica."""
        return self.protection in (Protection.HYBRID, Protection.RACE)

    @property
    def processes(self) -> tuple[str, ...]:
        """The names of the replicas."""
        return tuple(f"{self.name}-{index + 1}" for index in range(len(self.replicas)))


@dataclass(frozen=True)
class ClientSpec:
    """A client the deployment knows: tuples are kept until it has acknowledged them."""

    name: str
    output: str
    sink: str | None = None
    endpoint: Endpoint = field(default_factory=Endpoint)
    # What its results are worth beside those of others, for collection.
    worth: float = 1.0


@dataclass(frozen=True)
class OutputSpec:
    """An output with a bound of its own (plans/budget.py).

    delay_us  X from the sources to it.
    measured  the fragments on the way share it by what their jobs need; else equally.
    """

    delay_us: int
    measured: bool = False


@dataclass(frozen=True)
class CollectionSpec:
    """What a cluster discards of a submission (core/collection.py).

    network_cost  θ: what all streams may cost together, in tuples a second × milliseconds.
    least         k_min: so many replicas of a fragment, and feeds of an input, stay.
    every_us      how often it is looked at.
    """

    network_cost: float
    least: int = 1
    every_us: int = 60_000_000


@dataclass(frozen=True)
class Deployment:
    """Everything ``holdfast up`` needs."""

    name: str
    path: Path
    network: Path
    data: Path
    timing: Timing
    sources: Mapping[str, SourceSpec]
    fragments: Mapping[str, FragmentSpec]
    clients: Mapping[str, ClientSpec]
    security: SecuritySpec = field(default_factory=SecuritySpec)
    spark_master: str = "local[2]"
    spark_config: Mapping[str, str] = field(default_factory=dict)
    # Where ``holdfast server`` listens, and what else it needs beside the network's file.
    servers: Mapping[str, Endpoint] = field(default_factory=dict)
    files: tuple[Path, ...] = ()
    # Servers that run nothing until another is gone, and for how many microseconds.
    spares: Mapping[str, int] = field(default_factory=dict)
    # Degrees of latitude and longitude of servers that say where they are.
    coordinates: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    # How much faster or slower nodes go to make up for a machine's clock that was set.
    follow_clock: float = FOLLOW
    # The outputs for which X from the sources was given.
    outputs: Mapping[str, OutputSpec] = field(default_factory=dict)
    # What the jobs of each fragment need, in microseconds, once ``holdfast divide`` has measured.
    measured: Mapping[str, int] = field(default_factory=dict)
    # Whether its parts may be made to fail on purpose: ``holdfast chaos``.
    chaos: bool = False
    # Where its nodes are, as if they were not on one machine.
    distances: Distances = field(default_factory=Distances)
    # Clients that were retired and replicas that were removed since the file was written.
    gone: frozenset[str] = frozenset()
    # Servers that are another machine now than the file says: a spare took their place.
    moved: frozenset[str] = frozenset()
    # How much of a stream is kept for somebody who is away; "" for those not named.
    bounds: Mapping[str, Bound] = field(default_factory=dict)
    # What a cluster discards of it; None: nothing.
    collection: CollectionSpec | None = None

    @property
    def endpoints(self) -> dict[str, Endpoint]:
        """Where each node that listens does so."""
        found = {spec.process: spec.endpoint for spec in self.sources.values()}
        for fragment in self.fragments.values():
            found |= dict(zip(fragment.processes, fragment.replicas, strict=True))
        found |= {
            client.name: client.endpoint
            for client in self.clients.values()
            if client.sink is not None
        }
        return {name: each for name, each in found.items() if name not in self.gone}

    @property
    def processes(self) -> dict[str, tuple[str, ...]]:
        """The processes to start, and the nodes each hosts."""
        found: dict[str, list[str]] = {}
        for source in self.sources.values():
            found[source.process] = [source.process]
        for fragment in self.fragments.values():
            names = fragment.processes
            for process, name in zip(fragment.colocate or names, names, strict=True):
                if name not in self.gone:
                    found.setdefault(process, []).append(name)
        for client in self.clients.values():
            if client.sink is not None and client.name not in self.gone:
                found[client.name] = [client.name]
        return {name: tuple(nodes) for name, nodes in found.items()}

    def hosted_by(self, server: str | None) -> tuple[str, ...]:
        """The processes a server runs; None for those of the machine it was started on."""
        endpoints = self.endpoints
        return tuple(
            process
            for process, nodes in self.processes.items()
            if endpoints[nodes[0]].server == server
        )

    def machines(self) -> dict[str, frozenset[str]]:
        """The nodes that may speak from each machine; a spare may have to speak for any."""
        found = {
            HERE if server is None else server: frozenset(
                name for name, each in self.endpoints.items() if each.server == server
            )
            for server in (None, *self.servers)
        }
        return found | dict.fromkeys(self.spares, frozenset(self.endpoints))

    def drivers_beside(self, process: str) -> int:
        """How many processes with replicas, each a Spark driver, share a machine with this one."""
        driven = (spec for spec in self.fragments.values() if not spec.merges)
        replicas = {name for spec in driven for name in spec.processes}
        beside = self.hosted_by(self.server_of(process))
        return sum(not replicas.isdisjoint(self.processes[each]) for each in beside)

    def fragment_of(self, node: str) -> FragmentSpec | None:
        """The fragment that a node is a replica of; None if it is none."""
        return next((one for one in self.fragments.values() if node in one.processes), None)

    def server_of(self, process: str) -> str | None:
        """Who runs a process; None for the machine the deployment was started on."""
        return self.endpoints[self.processes[process][0]].server


def load_deployment(path: str | os.PathLike[str]) -> Deployment:
    """Read and check a deployment file; also one that a server keeps as JSON."""
    from holdfast.deployment_file import DeploymentReader

    deployment = DeploymentReader(Path(path).resolve()).deployment(read_tables(path))
    kept = membership_document(deployment.data)
    if kept is None:
        return deployment
    return replace(deployment, gone=frozenset(name for name, _ in kept["membership"]["gone"]))


def membership_path(data: Path) -> Path:
    """Who takes part beyond what the file says (plans/membership_file.py)."""
    return data / "membership.json"


def membership_document(data: Path) -> dict[str, Any] | None:
    """What is in that file; None if there is none."""
    path = membership_path(data)
    if not path.is_file():
        return None
    found = read_document(path)
    otherwise = "use the version that wrote it, or a new data directory"
    check_format(path, found, MEMBERSHIP_FORMAT, otherwise)
    return found


def measured_path(data: Path) -> Path:
    """What the jobs of each fragment need, as the deployment goes by (plans/measured_file.py)."""
    return data / "measured.json"


def moved_path(data: Path) -> Path:
    """Which servers were replaced: {"east": {"was": "10.0.0.2:4700", "now": "10.0.0.3:4700"}}."""
    return data / "moved.json"


def read_tables(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The tables of a deployment file, not checked, with the servers where they are now."""
    file = Path(path).resolve()
    try:
        text = file.read_text()
        found: dict[str, Any] = json.loads(text) if file.suffix == ".json" else tomllib.loads(text)
    except OSError as error:
        raise DeploymentError(f"{path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise DeploymentError(f"{path}: {error}") from None
    if file.suffix != ".json":  # which is what servers are sent, with whatever has changed
        _refuse_handed_on(found, file)
    moved = moved_path(file.parent / str(found.get("data", "data")))
    if moved.is_file():
        for server, place in json.loads(moved.read_text()).items():
            table = found.get("servers", {}).get(server, {})
            if table.get("listen") == place["was"]:  # else the file has been changed since
                table["listen"] = place["now"]
                found.setdefault(MOVED, []).append(server)
    _add_replicas(found, file.parent / str(found.get("data", "data")))
    _change_shards(found, file.parent / str(found.get("data", "data")))
    measured = measured_path(file.parent / str(found.get("data", "data")))
    if measured.is_file():
        found[MEASURED] = read_document(measured)["needs_us"]
    return found


def _add_replicas(tables: dict[str, Any], data: Path) -> None:
    """The tables with the replicas that were added while the deployment ran."""
    kept = membership_document(data)
    for name, place in ({} if kept is None else kept["places"]).items():
        fragment = name.rpartition("-")[0]
        if fragment in tables.get("fragments", {}):
            add_replica_to(tables["fragments"][fragment], name, place)


def _change_shards(tables: dict[str, Any], data: Path) -> None:
    """The tables with the generations of shards that there are since ``holdfast rescale``."""
    kept = membership_document(data)
    for fragment, about in ({} if kept is None else kept["shards"]).items():
        if fragment in tables.get("fragments", {}):
            tables["fragments"][fragment][RESCALED] = about


def _refuse_handed_on(tables: dict[str, Any], file: Path) -> None:
    """What only servers are sent is not for the file that somebody writes."""
    if MEASURED in tables:
        raise DeploymentError(
            f"{file.name}: {MEASURED!r} means nothing here; what jobs need is measured by "
            f"holdfast divide"
        )
    if MOVED in tables:
        raise DeploymentError(
            f"{file.name}: {MOVED!r} means nothing here; where a server is now says its 'listen'"
        )
    fragments = tables.get("fragments")
    for name, table in fragments.items() if isinstance(fragments, dict) else ():
        if isinstance(table, dict) and ARRIVED in table:
            raise DeploymentError(
                f"{file.name}: fragments.{name}: {ARRIVED!r} means nothing here; another copy, "
                f"while it runs, is there with holdfast replica move"
            )
        if isinstance(table, dict) and RESCALED in table:
            raise DeploymentError(
                f"{file.name}: fragments.{name}: {RESCALED!r} means nothing here; another number "
                f"of shards, while it runs, is there with holdfast rescale"
            )


def add_replica_to(table: dict[str, Any], name: str, place: str) -> None:
    """Add a replica to the table of its fragment, unless it is there: a server is sent it so."""
    alone = table.get("protection", "none") == "none"
    listed = table.get("replicas", 1 if alone else 2)
    if isinstance(listed, int):
        listed = [LOOPBACK] * listed
    if len(listed) >= int(name.rpartition("-")[2]):
        return
    table["replicas"] = [*listed, place]
    if table.get("protection") in ("passive", "hybrid"):
        table[ARRIVED] = table.get(ARRIVED, 0) + 1
    if alone:
        table["protection"] = "active"
    if "colocate" in table:
        names = table["colocate"]
        shared = [names] * len(listed) if isinstance(names, str) else names
        table["colocate"] = [*shared, name]
