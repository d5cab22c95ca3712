"""The servers of a deployment as the page shows them: where they are, and how busy."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.cluster.placing import Servers
from holdfast.web.looking import Look
from holdfast.web.plane import Plane

# The machine that the deployment was started on.
HERE = ""


def servers(now: Look, used: Iterable[str], plane: Plane | None) -> dict[str, Any]:
    """Of each: its host; in a cluster zone, load and whether it answers; its place.

    at     latitude and longitude, of those that say so.
    plane  where it lies by the delays to the others, if these are measured: 0 to 1.
    """
    deployment = now.deployment
    found: dict[str, dict[str, Any]] = {HERE: {"host": "this machine"}} if HERE in used else {}
    for name, endpoint in deployment.servers.items():
        found[name] = {"host": endpoint.host, "spare": name in deployment.spares}
        if name in deployment.coordinates:
            found[name]["at"] = list(deployment.coordinates[name])
    if now.cluster is not None:
        _add_cluster(found, now.cluster, plane)
    return found


def _add_cluster(
    found: dict[str, dict[str, Any]], cluster: dict[str, Any], plane: Plane | None
) -> None:
    cards: dict[str, dict[str, Any]] = cluster["servers"]
    for name, card in cards.items():
        one = found.setdefault(name, {"host": str(card["address"]).rpartition(":")[0]})
        one |= {
            "there": True,
            "zone": card["zone"],
            "cpu": round(float(card["cpu"]), 2),
            "memory": round(float(card["memory"]), 2),
            "coordinates": card["address"] == cluster["coordinator"],
        }
        if card.get("at"):
            one["at"] = list(card["at"])
    for address, missing in cluster["missing"].items():
        one = found.setdefault(str(missing["name"]), {"host": str(address).rpartition(":")[0]})
        one |= {"there": False, "silent_s": _seconds(missing["silent_s"])}
    if plane is not None and len(cards) > 1:
        for name, place in plane.place(Servers(cards).delays()).items():
            found[name]["plane"] = list(place)
        # Those that do not answer now stay where they were.
        for name, one in found.items():
            if name in plane.places:
                one["plane"] = list(plane.places[name])


def _seconds(silent: float | None) -> int | None:
    return None if silent is None else int(silent)
