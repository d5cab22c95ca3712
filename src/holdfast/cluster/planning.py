"""What a network looks like to processes that do not run Spark, and who talks to whom.

Building a network needs Spark, which takes seconds; an entry point or a client needs only the
schemas. So the first thing ``holdfast up`` does is to build the network once and write its plan
as JSON (``python -m holdfast.cluster.planning deployment.toml``). It is made anew when the
network's file changes, or one that it imports, and refused when there is state of another query.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from holdfast.cluster.source_times import (
    boundary_interval_us,
    check_times,
    lane_idle_us,
    source_of,
)
from holdfast.code_digest import is_library
from holdfast.core.client import ClientSettings
from holdfast.core.entry import EntrySettings
from holdfast.core.settings import (
    Input,
    Output,
    Protection,
    ReplicaSettings,
    StandbySettings,
    Timing,
)
from holdfast.deployment import Deployment, DeploymentError, load_deployment
from holdfast.deployment_file import plain_name
from holdfast.durable import make_private, write_whole
from holdfast.errors import HoldfastError, StateError
from holdfast.flight.security import Security
from holdfast.fragment_plans import FragmentPlan, FragmentStream
from holdfast.identity import refuse_changed

if TYPE_CHECKING:
    from holdfast.network import Network

FORMAT = 3
_SQL = "spark.sql."
# The exit code of planning when there is state of another query; the last line says so, as JSON.
REFUSED = 3


@dataclass(frozen=True)
class SourcePlan:
    """A source: the engine's schema, the column of the tuple time, the key columns.

    late_refused  why late rows cannot take the boundary as their time; None if they can.
    """

    schema: pa.Schema
    stime: str | None
    keys: tuple[str, ...]
    late_refused: str | None = None


@dataclass(frozen=True)
class Plan:
    """A network without its operators."""

    bucket_us: int
    sources: Mapping[str, SourcePlan]
    fragments: Mapping[str, FragmentPlan]
    outputs: tuple[str, ...]


def plan_of(network: Network) -> Plan:
    """The plan of a network."""
    # Only who has a network has Spark already; the others read plans.
    from holdfast.fragments import plan_fragments
    from holdfast.late_rows import why_late_rows_are_not_taken
    from holdfast.spark.engine import input_schema

    return Plan(
        network.bucket,
        {
            name: SourcePlan(
                input_schema(operator),
                operator.stime,
                operator.keys,
                why_late_rows_are_not_taken(network, operator),
            )
            for name, operator in network.sources.items()
        },
        {plan.name: plan for plan in plan_fragments(network)},
        tuple(network.outputs),
    )


def plan_path(deployment: Deployment) -> Path:
    return deployment.data / "plan.json"


def is_planned(deployment: Deployment) -> bool:
    """Whether the plan on disk is that of the network's files as they are now."""
    found = _found(deployment)
    if found is None or found.get("format") != FORMAT:
        return False
    base, files = deployment.network.parent, found["files"]
    same = all(_digest(base / name) == digest for name, digest in files.items())
    return same and deployment.network.name in files and found["settings"] == _settings(deployment)


def write_plan(deployment: Deployment, plan: Plan) -> None:
    """Write the plan of a network that this process has loaded."""
    found = {
        "format": FORMAT,
        "files": _local_files(deployment.network),
        "settings": _settings(deployment),
        "bucket_us": plan.bucket_us,
        "sources": {
            name: {
                "schema": _hex(each.schema),
                "stime": each.stime,
                "keys": list(each.keys),
                "late_refused": each.late_refused,
            }
            for name, each in plan.sources.items()
        },
        "fragments": {
            name: {
                "inputs": {stream: _hex(schema) for stream, schema in each.inputs.items()},
                "outputs": [
                    {
                        "stream": output.stream,
                        "schema": _hex(output.schema),
                        "reached_by": sorted(output.reached_by),
                    }
                    for output in each.outputs
                ],
                "blocking": each.blocking,
                "description": list(each.description),
            }
            for name, each in plan.fragments.items()
        },
        "outputs": list(plan.outputs),
    }
    make_private(deployment.data)
    write_whole(plan_path(deployment), json.dumps(found, indent=1).encode())


def read_plan(deployment: Deployment) -> Plan:
    """The plan that ``holdfast up`` made."""
    found: dict[str, Any] = json.loads(plan_path(deployment).read_text())
    for fragment in found["fragments"].values():
        for name in (*fragment["inputs"], *(each["stream"] for each in fragment["outputs"])):
            if not plain_name(str(name)):  # logs are named after streams
                raise DeploymentError(f"{plan_path(deployment)}: {name!r} cannot be a stream")
    return Plan(
        int(found["bucket_us"]),
        {
            name: SourcePlan(
                _schema(each["schema"]), each["stime"], tuple(each["keys"]), each["late_refused"]
            )
            for name, each in found["sources"].items()
        },
        {
            name: FragmentPlan(
                name,
                {stream: _schema(text) for stream, text in each["inputs"].items()},
                tuple(
                    FragmentStream(
                        output["stream"], _schema(output["schema"]), frozenset(output["reached_by"])
                    )
                    for output in each["outputs"]
                ),
                bool(each["blocking"]),
                tuple(each["description"]),
            )
            for name, each in found["fragments"].items()
        },
        tuple(found["outputs"]),
    )


def refuse_other_query(deployment: Deployment, plan: Plan) -> None:
    """Raise StateError if nodes have kept state of another query than ``plan`` is of."""
    found = _found(deployment)
    if found is None or not _has_kept_state(deployment):
        return
    where = f"the data directory {str(deployment.data)!r}"
    if found.get("format") != FORMAT:
        raise StateError(
            f"{where} is that of another version of Holdfast: its plan has format "
            f"{found.get('format')}, this version reads {FORMAT}. Use the version that made it, or "
            f"a new data directory"
        )
    before = read_plan(deployment)
    for kind, kept, now in (
        ("source", before.sources, plan.sources),
        ("fragment", before.fragments, plan.fragments),
    ):
        for name in {**kept, **now}:
            were, are = _lines(kept.get(name)), _lines(now.get(name))
            refuse_changed(were, are, f"{kind} {name!r} in {where}")


def _lines(part: SourcePlan | FragmentPlan | None) -> tuple[str, ...]:
    if part is None:
        return ()
    if isinstance(part, FragmentPlan):
        return part.description
    columns = (f"column {field}" for field in part.schema)
    return (f"stime: {part.stime}", f"key: {', '.join(part.keys) or None}", *columns)


def _has_kept_state(deployment: Deployment) -> bool:
    """Whether a node has written anything, as far as this machine can tell."""
    if any(deployment.hosted_by(name) for name in deployment.servers):
        # What the servers have is theirs; they were asked as soon as there were addresses.
        return (deployment.data / "addresses.json").exists()
    nodes = deployment.data / "processes"
    for file in nodes.glob("*/**/*"):
        # Spark's own files are temporary.
        kept = file.name != "lock" and file.relative_to(nodes).parts[1] != "spark"
        if kept and file.is_file() and file.stat().st_size:
            return True
    return False


class Topology:
    """Who provides each stream and who reads it, in a deployment of a plan."""

    def __init__(self, deployment: Deployment, plan: Plan) -> None:
        self._deployment = deployment
        self._plan = plan
        self._check()
        self.producers: dict[str, tuple[str, ...]] = {
            name: (spec.process,) for name, spec in deployment.sources.items()
        }
        for name, fragment in plan.fragments.items():
            for output in fragment.outputs:
                self.producers[output.stream] = deployment.fragments[name].processes
        # The streams whose readers keep feeds at both copies.
        self.standing = {
            output.stream
            for name, fragment in plan.fragments.items()
            if deployment.fragments[name].protection is Protection.HYBRID
            for output in fragment.outputs
        }
        self.consumers: dict[str, tuple[str, ...]] = dict.fromkeys(self.producers, ())
        for name, fragment in plan.fragments.items():
            for stream in fragment.inputs:
                self.consumers[stream] += deployment.fragments[name].processes
        for client in deployment.clients.values():
            self.consumers[client.output] += (client.name,)

    @property
    def timing(self) -> Timing:
        try:
            return replace(self._deployment.timing, bucket_us=self._plan.bucket_us)
        except ValueError as error:
            raise DeploymentError(f"{self._deployment.path.name}: timing: {error}") from None

    def entry(self, source: str) -> EntrySettings:
        spec = self._deployment.sources[source]
        bucket_us = self._plan.bucket_us
        return EntrySettings(
            spec.process,
            source,
            self.consumers[source],
            boundary_interval_us=boundary_interval_us(bucket_us),
            lane_idle_us=lane_idle_us(self.timing, source_of(spec).time_settings(bucket_us)),
        )

    def replica(self, process: str) -> ReplicaSettings:
        fragment, index = self._find(process)
        spec, plan = self._deployment.fragments[fragment], self._plan.fragments[fragment]
        turned = spec.processes[index:] + spec.processes[:index]
        timing, partners = self.timing, turned[1:]
        if spec.standby is not None:
            # The other copy sleeps, and cannot be asked to go on while this one reconciles.
            partners = ()
            # In memory, a record costs nothing, and lets the producers trim.
            interval_us = spec.standby.checkpoint_interval_us if spec.standby.persist else 0
            timing = replace(timing, record_interval_us=interval_us)
        return ReplicaSettings(
            process,
            # Replicas start at different producers, to spread the load.
            tuple(
                Input(name, _rotated(self.producers[name], index), name in self.standing)
                for name in plan.inputs
            ),
            tuple(
                Output(output.stream, output.reached_by, self.consumers[output.stream])
                for output in plan.outputs
            ),
            partners,
            timing,
            spec.while_failed,
            spec.while_stabilizing,
            spec.reconcile,
            continuous=spec.continuous,
        )

    def client(self, name: str, next_id: int = 0) -> ClientSettings:
        output = self._deployment.clients[name].output
        standing = output in self.standing
        read = Input(output, self.producers[output], standing)
        return ClientSettings(name, read, next_id, self.timing)

    def standby(self, process: str) -> StandbySettings | None:
        """How a copy stands by, if it is one of a passive or hybrid fragment."""
        return self._deployment.fragments[self.fragment_of(process)].standby

    def fragment_of(self, process: str) -> str:
        return self._find(process)[0]

    def fragment_plan(self, process: str) -> FragmentPlan:
        """What the fragment of a replica reads and serves."""
        return self._plan.fragments[self.fragment_of(process)]

    def _find(self, process: str) -> tuple[str, int]:
        for name, spec in self._deployment.fragments.items():
            if process in spec.processes:
                return name, spec.processes.index(process)
        raise DeploymentError(f"{self._deployment.path.name}: there is no replica {process!r}")

    def _check(self) -> None:
        deployment, plan = self._deployment, self._plan
        for what, given, known in (
            ("sources", deployment.sources, plan.sources),
            ("fragments", deployment.fragments, plan.fragments),
        ):
            for name in given:
                if name not in known:
                    raise DeploymentError(
                        f"{deployment.path.name}: {what}.{name}: the network has no such "
                        f"{what[:-1]}; it has {sorted(known)}"
                    )
            for name in known:
                if name not in given:
                    raise DeploymentError(
                        f"{deployment.path.name}: the network's {what[:-1]} {name!r} is not "
                        f"deployed; add [{what}.{name}]"
                    )
        check_times(deployment, plan)
        for client in deployment.clients.values():
            if client.output not in plan.outputs:
                raise DeploymentError(
                    f"{deployment.path.name}: clients.{client.name}: the network has no output "
                    f"{client.output!r}; it has {sorted(plan.outputs)}"
                )


@dataclass(frozen=True)
class Reach:
    """What somebody outside a deployment needs to talk to it."""

    deployment: Deployment
    topology: Topology
    security: Security

    def book(self, *names: str) -> Mapping[str, str]:
        """Where nodes are; those with these names, if any is given."""
        from holdfast.cluster.addresses import Book

        return Book(self.deployment, self.security, names or None)


def reach(path: str | os.PathLike[str]) -> Reach:
    """How to reach a deployment that was started on this machine."""
    deployment = load_deployment(path)
    topology = Topology(deployment, read_plan(deployment))
    return Reach(deployment, topology, deployment.security.read())


def _rotated(names: tuple[str, ...], by: int) -> tuple[str, ...]:
    by %= len(names)
    return names[by:] + names[:by]


def _found(deployment: Deployment) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = json.loads(plan_path(deployment).read_text())
    except (OSError, ValueError):
        return None
    return found


def _digest(file: Path) -> str | None:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except OSError:
        return None


def _local_files(network: Path) -> dict[str, str | None]:
    """The network's file and those beside and below it that were imported, with their digests."""
    base = network.parent.resolve()
    loaded = (getattr(each, "__file__", None) for each in list(sys.modules.values()))
    paths = {Path(each).resolve() for each in loaded if each}
    own = {path for path in paths if path.is_relative_to(base) and not is_library(path)}
    names = {network.name, *(str(path.relative_to(base)) for path in own)}
    return {name: _digest(network.parent / name) for name in sorted(names)}


def _settings(deployment: Deployment) -> dict[str, str]:
    """The settings that may change what expressions mean; memory and the like do not."""
    return {
        name: value
        for name, value in sorted(deployment.spark_config.items())
        if name.startswith(_SQL)
    }


def _hex(schema: pa.Schema) -> str:
    text: str = schema.serialize().to_pybytes().hex()
    return text


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text)))


def main(arguments: list[str]) -> int:
    from holdfast.cluster.networks import load_network

    deployment = load_deployment(arguments[0])
    try:
        settings = _settings(deployment)
        plan = plan_of(load_network(deployment.network, deployment.spark_master, settings))
        refuse_other_query(deployment, plan)
    except StateError as error:
        print(json.dumps(str(error)), file=sys.stderr)
        return REFUSED
    except Exception as error:
        # The last line is what `holdfast up` shows.
        print(network_problem(error, deployment.network), file=sys.stderr)
        return 1
    write_plan(deployment, plan)
    return 0


def network_problem(error: BaseException, network: Path) -> str:
    """One line for a mistake in a network's file: where in it, and what."""
    trace = error.__traceback__
    line = None
    while trace is not None:
        if Path(trace.tb_frame.f_code.co_filename) == network:
            line = trace.tb_lineno
        trace = trace.tb_next
    what = str(error).strip().splitlines()[0] if str(error).strip() else ""
    kind = "" if isinstance(error, HoldfastError) else f"{type(error).__name__}: "
    where = "" if line is None else f"line {line}: "
    return f"{where}{kind}{what}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
