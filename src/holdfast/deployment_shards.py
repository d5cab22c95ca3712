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
from holdfast.deployment import LOOPBACK, RESCALED, Endpoint, FragmentSpec, ShardSpec
from holdfast.slots import SLOTS, Routing, shard_name

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
    routing = None if wanted is None else Routing(wanted)
    generations = _generations(table.get(RESCALED), len(places))
    found: dict[str, FragmentSpec] = {}
    for number, shards in generations:
        spread = tuple(places[at % len(places)] for at in range(shards))
        found |= _in_shards(spec, spread, routing, number)
    found[spec.name] = _merging(spec, places, found, generations)
    return found


def _generations(rescaled: dict[str, Any] | None, given: int) -> list[tuple[int, int]]:
    """(number, shards) of each generation; one, unless the number of shards was changed."""
    if rescaled is None:
        return [(1, given)]
    found = [(int(number), int(shards)) for number, shards in rescaled["generations"]]
    if given not in (rescaled["given"], found[-1][1]):
        raise KnobError(
            "shards",
            f"it has {found[-1][1]} since it was rescaled, and had {rescaled['given']} before; "
            f"got {given}. Write {found[-1][1]}, and change it with holdfast rescale",
        )
    return found


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
    spec: FragmentSpec, places: tuple[Endpoint, ...], routing: Routing | None, generation: int
) -> dict[str, FragmentSpec]:
    """The shards of one generation."""
    shards = len(places)
    copies = len(spec.replicas)
    found = {}
    for number in range(1, shards + 1):
        name = shard_name(spec.name, generation, number)
        # The ring: what follows a shard has its second copy, what follows that one its third.
        ring = [(number - 1 + copy) % shards for copy in range(copies)]
        standby = spec.standby
        shared = standby is not None and shards > 1
        found[name] = replace(
            spec,
            name=name,
            replicas=tuple(places[at] for at in ring),
            colocate=tuple(shard_name(spec.name, generation, at + 1) for at in ring)
            if shared
            else None,
            standby=standby and replace(standby, copies=(f"{name}-1", f"{name}-2")),
            shard=ShardSpec(spec.name, number, shards, routing, generation),
        )
    return found


def _merging(
    spec: FragmentSpec,
    places: tuple[Endpoint, ...],
    shards: dict[str, FragmentSpec],
    generations: list[tuple[int, int]],
) -> FragmentSpec:
    """Merging has no state to keep or to send: as many replicas as a shard has, all of them run.

    Each generation has its own; those of generations that are gone keep their names.
    """
    merging = 1 if spec.protection is Protection.NONE else len(spec.replicas)
    of: dict[int, list[str]] = {number: [] for number, _ in generations}
    for name, each in shards.items():
        assert each.shard is not None
        of[each.shard.generation].append(name)
    newest = generations[-1][0]
    return FragmentSpec(
        spec.name,
        tuple(places[at % merging % len(places)] for at in range(merging * newest)),
        spec.while_failed,
        spec.while_stabilizing,
        Reconcile.UNDO,
        merges=tuple(shards),
        generations=tuple((number, tuple(names)) for number, names in of.items()),
        merging=merging,
        delivery=spec.delivery,
    )
