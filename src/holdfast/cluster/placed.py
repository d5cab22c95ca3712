"""Where the replicas of a submission are: what its tables ask for, what was filled in, who runs."""

from __future__ import annotations

from typing import Any

from holdfast.cluster.placing import wanted_replicas
from holdfast.deployment import Deployment, FragmentSpec


def wanted_places(tables: dict[str, Any]) -> tuple[dict[str, int], dict[str, list[str]]]:
    """How many replicas each fragment needs, and where those are that say so themselves."""
    wanted: dict[str, int] = {}
    fixed: dict[str, list[str]] = {}
    for name, table in tables.get("fragments", {}).items():
        count = wanted_replicas(table)
        if count is None:
            fixed[name] = [str(each).partition(":")[0] for each in table["replicas"]]
            count = len(fixed[name])
        wanted[name] = count
    return wanted, fixed


def with_places(tables: dict[str, Any], places: dict[str, list[str]]) -> dict[str, Any]:
    fragments = {
        name: table if wanted_replicas(table) is None else {**table, "replicas": places[name]}
        for name, table in tables.get("fragments", {}).items()
    }
    return {**tables, "fragments": fragments}


def fits(sent: dict[str, Any], placed: dict[str, Any]) -> bool:
    """Whether tables are those of a submission, but for what the cluster filled in."""
    own = ("servers", "security", "data", "network", "name")
    before = {key: value for key, value in placed.items() if key not in own}
    now = {key: value for key, value in sent.items() if key not in own}
    _, fixed = wanted_places(now)
    places = {
        name: table.get("replicas", []) for name, table in before.get("fragments", {}).items()
    }
    if now.get("fragments", {}).keys() != places.keys():
        return False
    counts = {name: wanted_replicas(table) for name, table in now.get("fragments", {}).items()}
    if any(count is not None and count != len(places[name]) for name, count in counts.items()):
        return False
    return with_places(now, {**places, **fixed}) == before


def running_of(deployment: Deployment, spec: FragmentSpec) -> dict[str, str]:
    """The replicas of a fragment that take part, and their servers."""
    return {
        replica: str(endpoint.server)
        for replica, endpoint in zip(spec.processes, spec.replicas, strict=True)
        if replica not in deployment.gone
    }


def places_of(deployment: Deployment) -> dict[str, list[str]]:
    """The servers of the replicas that take part, by fragment."""
    return {
        spec.name: list(running_of(deployment, spec).values())
        for spec in deployment.fragments.values()
    }
