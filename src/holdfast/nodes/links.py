"""The links of a node, cut or long: kept on disk, so that a restart does not heal them; and their
control.

A cut is part of the world a process lives in, not of the process: one that is killed and comes
back finds its links as they were.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.flight as flight

from holdfast.durable import make_private, write_whole
from holdfast.flight.distance import Distance, DistanceError
from holdfast.flight.links import Links
from holdfast.flight.server import Control

NO_CHAOS = (
    "this deployment is not to be made to fail on purpose; if it is, write chaos = true at the top "
    "of its file and start it again"
)


def if_allowed(chaos: bool, control: Control) -> Control:
    """An action that makes something fail on purpose, or that says why it does not."""

    def refuse(options: dict[str, Any]) -> dict[str, Any]:
        raise flight.FlightServerError(NO_CHAOS)

    return control if chaos else refuse


def kept_links(directory: Path, distances: Mapping[str, Distance] | None = None) -> Links:
    """The links of the node that lives in ``directory``, with those distances by default."""
    path = directory / "links.json"

    def keep(found: dict[str, Any]) -> None:
        if any(found.values()):
            make_private(directory)
            write_whole(path, json.dumps(found).encode())
        else:
            path.unlink(missing_ok=True)

    return Links(json.loads(path.read_text()) if path.exists() else None, keep, distances)


def links_control(links: Links) -> Control:
    """The action "links": cut or heal, one direction or both, delay; answers what is cut.

    {"cut": ["main-1"], "incoming": true, "outgoing": false}
    {"heal": ["main-1"]}, or {"heal": null} for all of them
    {"delay": {"main-1": {"delay_ms": 80, "jitter_ms": 5, "bandwidth": 0, "lost_s": 0}}}: what is
    sent to it
    """

    def control(options: dict[str, Any]) -> dict[str, Any]:
        incoming = bool(options.get("incoming", True))
        outgoing = bool(options.get("outgoing", True))
        for peer in options.get("cut", ()):
            links.cut(str(peer), incoming=incoming, outgoing=outgoing)
        if "heal" in options:
            peers = options["heal"]
            for peer in [None] if peers is None else peers:
                links.heal(peer, incoming=incoming, outgoing=outgoing)
        try:
            for peer, distance in options.get("delay", {}).items():
                links.set_distance(str(peer), Distance.of(distance))
        except DistanceError as error:
            raise flight.FlightServerError(str(error)) from None
        return links.listed()

    return control


def told_distances(links: Links) -> dict[str, float]:
    """The milliseconds to those who are not beside this node, for its status."""
    return {peer: distance.delay_ms for peer, distance in links.distances.items()}
