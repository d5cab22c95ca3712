"""Fragments with shards, as a deployment file has them: each shard is a fragment of its own.

    [fragments.counts]
    shards = 3                        # or a place for each: ["east", "west", "10.0.0.1"]
    routing = "key"                   # random, primary; without it what fits the operators
    protection = "hybrid"             # of each shard

``counts.1`` to ``counts.3`` are the shards, ``counts`` merges what they compute. Shards form a
ring: the second copy of each is where the next shard is, so that a lost one's work goes on there.
Passive and hybrid copies share that shard's process, too: three shards are three drivers, and when
one is lost its neighbour does both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.continuous_knobs import KnobError
from holdfast.core.settings import Protection, Reconcile
from holdfast.deployment import LOOPBACK, Endpoint, FragmentSpec, ShardSpec
from holdfast.slots import SLOTS, Routing

SHARD_KNOBS = ("shards", "routing")


def read_shards(
    table: dict[str, Any], spec: FragmentSpec, endpoint: Callable[[str], Endpoint]
) -> dict[str, FragmentSpec]:
    """What a fragment becomes: itself, or its shards and what merges them."""
    if "shards" not in table:
        if "routing" in table:
            raise KnobError("routing", "it divides tuples among shards; give shards, too")
        return {spec.name: spec}
    places = tuple(endpoint(place) for place in _places(table["shards"]))
    if any(place.port for place in places):
        raise KnobError("shards", "several replicas run at each place; leave the ports away")
    if "colocate" in table or isinstance(table.get("replicas"), list):
        raise KnobError(
            "shards",
            'the ring says where replicas run: write shards = ["east", "west"] for the places, '
            "replicas as a number, and no colocate",
        )
    wanted = table.get("routing")
    known = [each.value for each in Routing]
    if wanted is not None and wanted not in known:
        raise KnobError("routing", f"it is one of {', '.join(known)}; got {wanted!r}")
    return _in_shards(spec, places, None if wanted is None else Routing(wanted))


def _places(given: Any) -> list[str]:
    """Where each shard is, or rather its first replica."""
    if isinstance(given, list):
        places = given
    elif isinstance(given, int) and not isinstance(given, bool):
        places = [LOOPBACK] * min(given, SLOTS + 1)
    else:
        raise KnobError("shards", f"a number, or a list of places, one for each; got {given!r}")
    if not 1 <= len(places) <= SLOTS:
        raise KnobError("shards", f"from 1 to {SLOTS}, as many as there are slots; got {given!r}")
    return places


def _in_shards(
    spec: FragmentSpec, places: tuple[Endpoint, ...], routing: Routing | None
) -> dict[str, FragmentSpec]:
    shards = len(places)
    copies = len(spec.replicas)
    found = {}
    for number in range(1, shards + 1):
        name = f"{spec.name}.{number}"
        # The ring: what follows a shard has its second copy, what follows that one its third.
        ring = [(number - 1 + copy) % shards for copy in range(copies)]
        standby = spec.standby
        shared = standby is not None and shards > 1
        found[name] = replace(
            spec,
            name=name,
            replicas=tuple(places[at] for at in ring),
            colocate=tuple(f"{spec.name}.{at + 1}" for at in ring) if shared else None,
            standby=standby and replace(standby, copies=(f"{name}-1", f"{name}-2")),
            shard=ShardSpec(spec.name, number, shards, routing),
        )
    found[spec.name] = _merging(spec, places, tuple(found))
    return found


def _merging(
    spec: FragmentSpec, places: tuple[Endpoint, ...], shards: tuple[str, ...]
) -> FragmentSpec:
    """Merging has no state to keep or to send: as many replicas as a shard has, all of them run."""
    merging = 1 if spec.protection is Protection.NONE else len(spec.replicas)
    return FragmentSpec(
        spec.name,
        tuple(places[at % len(places)] for at in range(merging)),
        spec.while_failed,
        spec.while_stabilizing,
        Reconcile.UNDO,
        merges=shards,
        delivery=spec.delivery,
    )
