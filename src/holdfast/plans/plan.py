"""The plan of a network: what processes that do not run Spark must know of it.

Building a network needs Spark, which takes seconds; an entry point or a client needs only the
schemas. So the first thing ``holdfast up`` does is to build the network once and write its plan
as JSON (``cluster.planning``). It is made anew when the network's file changes, or one that it
imports.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa

from holdfast.code_digest import is_library
from holdfast.core.provenance import Trail
from holdfast.deployment import Deployment, DeploymentError
from holdfast.deployment_checks import plain_name
from holdfast.durable import make_private, write_whole
from holdfast.plans.fragment_plans import FragmentPlan, FragmentStream
from holdfast.plans.sharding import shards_of, with_shards
from holdfast.slots import Routing

FORMAT = 6
# The exit code of planning when there is state of another query; the last line says so, as JSON.
REFUSED = 3
# The same when the network cannot be deployed as the file says.
NOT_DEPLOYABLE = 4
# What planning has to say besides begins like this.
SAYS = "holdfast: "
_SQL = "spark.sql."


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
class OperatorPlan:
    """One operator of the network: enough to draw it and to tell what changes.

    kind     source, stateless or stateful.
    inputs   the names of the operators it reads.
    columns  its output, as in SQL.
    order    "any" if the same tuples in another order give the same, "depends" if not.
    window   of an operator with time windows: microseconds of its size, and between two of them.
    """

    name: str
    label: str
    kind: str
    fragment: str
    inputs: tuple[str, ...]
    columns: str
    order: str = "any"
    window: tuple[int, ...] = ()


@dataclass(frozen=True)
class Plan:
    """A network as those know it who cannot run its operators.

    operators         to show them.
    output_operators  the operator whose stream each output is.
    """

    bucket_us: int
    sources: Mapping[str, SourcePlan]
    fragments: Mapping[str, FragmentPlan]
    outputs: tuple[str, ...]
    operators: tuple[OperatorPlan, ...] = ()
    output_operators: Mapping[str, str] = field(default_factory=dict)

    @property
    def streams(self) -> dict[str, FragmentStream]:
        """What fragments serve, for each other and for clients."""
        return {each.stream: each for one in self.fragments.values() for each in one.outputs}

    @property
    def made_by(self) -> dict[str, str]:
        """The fragment that serves each of these streams."""
        return {each.stream: name for name, one in self.fragments.items() for each in one.outputs}

    @property
    def above(self) -> dict[str, list[str]]:
        """The fragments that each fragment reads from."""
        made_by = self.made_by
        return {
            name: [made_by[stream] for stream in one.inputs if stream in made_by]
            for name, one in self.fragments.items()
        }

    @property
    def in_order(self) -> list[str]:
        """The fragments, each after those that it reads from."""
        return list(TopologicalSorter(self.above).static_order())


def deployed(deployment: Deployment, plan: Plan) -> Plan:
    """The plan with the shards that the deployment asks for; one that has them stays as it is."""
    return replace(plan, fragments=with_shards(deployment, plan.fragments, plan.sources))


def plan_path(deployment: Deployment) -> Path:
    return deployment.data / "plan.json"


def is_planned(deployment: Deployment) -> bool:
    """Whether the plan on disk is that of the network's files as they are now."""
    found = found_plan(deployment)
    if found is None or found.get("format") != FORMAT:
        return False
    base, files = deployment.network.parent, found["files"]
    same = all(_digest(base / name) == digest for name, digest in files.items())
    return (
        same
        and deployment.network.name in files
        and found["settings"] == sql_settings(deployment)
        and found.get("shards", {}) == shards_of(deployment)
    )


def write_plan(deployment: Deployment, plan: Plan) -> None:
    """Write the plan of a network that this process has loaded, as it is deployed."""
    plan = deployed(deployment, plan)
    # How fragments could be divided is of no use once it is known how they are.
    fragments = {name: replace(each, routes=None) for name, each in plan.fragments.items()}
    found = {
        "format": FORMAT,
        "files": _local_files(deployment.network),
        "settings": sql_settings(deployment),
        "shards": shards_of(deployment),
        **asdict(replace(plan, fragments=fragments)),
    }
    make_private(deployment.data)
    write_whole(plan_path(deployment), json.dumps(found, indent=1, default=_plain).encode())


def _plain(value: Any) -> Any:
    """What JSON does not know; the same plan is the same text, so sets are sorted."""
    if isinstance(value, pa.Schema):
        return value.serialize().to_pybytes().hex()
    if isinstance(value, frozenset):
        return sorted(
            (asdict(each) if isinstance(each, Trail) else each for each in value), key=str
        )
    assert isinstance(value, Routing)
    return value.value


def read_plan(deployment: Deployment) -> Plan:
    """The plan that ``holdfast up`` made."""
    found = json.loads(plan_path(deployment).read_text())
    plan = msgspec.convert(found, Plan, dec_hook=_schema)
    for fragment in plan.fragments.values():
        for name in (*fragment.inputs, *(each.stream for each in fragment.outputs)):
            if not plain_name(name):  # logs are named after streams
                raise DeploymentError(f"{plan_path(deployment)}: {name!r} cannot be a stream")
    return plan


def _schema(kind: type, text: Any) -> pa.Schema:
    assert kind is pa.Schema
    return pa.ipc.read_schema(pa.py_buffer(bytes.fromhex(text)))


# All types are made known by one thread, at import: see flight/wire.py.
_KNOWN = msgspec.json.Decoder(Plan)


def found_plan(deployment: Deployment) -> dict[str, Any] | None:
    """The plan on disk as it is written, of whatever format; None if there is none."""
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


def sql_settings(deployment: Deployment) -> dict[str, str]:
    """The settings that may change what expressions mean; memory and the like do not."""
    return {
        name: value
        for name, value in sorted(deployment.spark_config.items())
        if name.startswith(_SQL)
    }
