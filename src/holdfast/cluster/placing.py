"""Where the fragments of a submission go: its query as ``core.placement`` sees it.

A source and a client with a sink have a place: ``listen`` names a server. A fragment whose
``replicas`` is a number, or is not there, is placed; one with a list stays where it says. A server
is too busy if its processors or its memory are, and is then ruled out while others are enough; of
one submission it takes so many replicas as it has processors twice over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holdfast.cluster.neighbours import Card
from holdfast.core.ground import Ground
from holdfast.core.placement import Flow, Placed, Query, Site
from holdfast.core.settings import Protection
from holdfast.deployment import Deployment
from holdfast.errors import HoldfastError
from holdfast.plans.plan import Plan

BUSY_CPU = 0.95
BUSY_MEMORY = 0.95
# Of a link that nobody has measured yet: long, so that measured ones are preferred.
_UNKNOWN_MS = 200.0
# Within a server.
_LOCAL_MS = 0.1


class NotPlaced(HoldfastError):
    """A submission cannot be placed on the servers there are."""


@dataclass(frozen=True)
class Servers:
    """The servers that are there now, by name, with what each says of itself.

    seen  the zones, with what was seen to fail together (``core.together``).
    """

    cards: Mapping[str, Card]
    seen: Mapping[str, str] = field(default_factory=dict)

    def zone(self, name: str, told_only: bool = False) -> str:
        """What a server fails together with; "" for itself."""
        told = str(self.cards[name]["zone"]) if name in self.cards else ""
        return told if told_only else self.seen.get(name, told)

    def delays(self) -> dict[str, dict[str, float]]:
        """Milliseconds, one way: the mean of what both ends have measured."""
        at = {card["address"]: name for name, card in self.cards.items()}
        found: dict[tuple[str, str], list[float]] = {}
        for name, card in self.cards.items():
            for address, delay in card["delays_ms"].items():
                if address in at and delay is not None:
                    found.setdefault((name, at[address]), []).append(delay)
                    found.setdefault((at[address], name), []).append(delay)
        return {
            here: {
                there: _LOCAL_MS if here == there else _mean(found.get((here, there)))
                for there in self.cards
            }
            for here in self.cards
        }

    def sites(self, any_load: bool = False, told_only: bool = False) -> list[Site]:
        """``any_load``: with those that are too busy. ``told_only``: whatever was seen."""
        return [
            Site(
                name,
                self.zone(name, told_only),
                0 if is_busy(card) and not any_load else max(1, 2 * card["cores"]),
            )
            for name, card in self.cards.items()
        ]

    def ground(self, query: Query) -> Ground:
        """What a query stands on; those that were seen to fail together, or are busy, come last."""
        sites = (
            self.sites(),
            self.sites(told_only=True),
            self.sites(any_load=True, told_only=True),
        )
        return Ground(query, self.delays(), sites)


def is_busy(card: Card) -> bool:
    return bool(card["cpu"] > BUSY_CPU or card["memory"] > BUSY_MEMORY)


def wanted_replicas(table: Mapping[str, Any]) -> int | None:
    """How many replicas of a fragment are to be placed; None if its file says where they are."""
    alone = table.get("protection", Protection.NONE.value) == Protection.NONE.value
    found = table.get("replicas", 1 if alone else 2)
    return found if isinstance(found, int) else None


def query_of(deployment: Deployment, plan: Plan, rates: Mapping[str, float] | None = None) -> Query:
    """The query: who feeds whom, and where sources and clients are.

    A stream of which no rate is known is taken for an ordinary one; if none is, all are equal.
    """
    known = rates or {}
    usual = sum(known.values()) / len(known) if known else 1.0
    pinned = {name: _server_of(spec.endpoint.server) for name, spec in deployment.sources.items()}
    made_by = plan.made_by | {name: name for name in deployment.sources}
    flows = [
        Flow(made_by[stream], name, known.get(stream, usual))
        for name in plan.in_order
        for stream in plan.fragments[name].inputs
    ]
    for client in deployment.clients.values():
        if client.endpoint.server is not None:
            pinned[f"client {client.name}"] = client.endpoint.server
            rate = known.get(client.output, usual)
            flows.append(Flow(made_by[client.output], f"client {client.name}", rate))
    return Query(pinned, tuple(plan.in_order), tuple(flows))


def check_places(tables: Mapping[str, Any], servers: Mapping[str, Any]) -> None:
    """Raise unless every source and every client with a sink is at a server."""
    known = ", ".join(sorted(servers)) or "none"
    for kind in ("sources", "clients"):
        for name, table in tables.get(kind, {}).items():
            place = table.get("listen")
            # A client without a sink runs wherever its program does.
            runs = kind == "sources" or "sink" in table
            if runs and str(place).partition(":")[0] not in servers:
                raise NotPlaced(
                    f"{kind}.{name}.listen: write the server it runs on; servers are {known}; "
                    f"got {place!r}"
                )
    for name, table in tables.get("fragments", {}).items():
        if "shards" in table:
            raise NotPlaced(
                f"fragments.{name}: fragments with shards are not placed by a cluster; run it "
                f"with holdfast up, which has them where shards says"
            )
        listed = table.get("replicas")
        for place in listed if isinstance(listed, list) else ():
            if str(place).partition(":")[0] not in servers:
                raise NotPlaced(
                    f"fragments.{name}.replicas: {place!r} is no server; servers are {known}"
                )


def choose_places(
    query: Query,
    servers: Servers,
    wanted: Mapping[str, int],
    fixed: Mapping[str, Sequence[str]],
) -> Placed:
    """Places for so many replicas of each fragment; NotPlaced if a fragment gets none."""
    ground = servers.ground(query)
    _check_reached(query, ground.delays)
    placed = ground.choose(wanted, fixed)
    for name, count in wanted.items():
        if name in placed.lacking:
            raise NotPlaced(f"fragment {name} needs {count} replicas on {_why_few(ground)}")
    return placed


def _check_reached(query: Query, delays: Mapping[str, object]) -> None:
    for name, server in query.pinned.items():
        if server not in delays:
            raise NotPlaced(f"{name} is to run on {server}, which does not answer now")


def _why_few(ground: Ground) -> str:
    sites = ground.sites[-1]
    zones = len({site.fails_with for site in sites})
    return (
        f"servers that do not fail together; of {len(sites)} servers in {zones} zones, none has "
        f"room for more"
    )


def _server_of(server: str | None) -> str:
    assert server is not None, "a submission's sources are at servers"
    return server


def _mean(found: list[float] | None) -> float:
    return sum(found) / len(found) if found else _UNKNOWN_MS
