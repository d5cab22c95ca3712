"""Fragments with shards, as a deployment file has them: each shard is a fragment of its own.

    [fragments.counts]
    shards = 3                        # or a place for each: ["east", "west", "10.0.0.1"]
    routing = "key"                   # random, primary; without it what fits the operators
    protection = "hybrid"             # of each shard
    heirs = "next"                    # who does a lost shard's work; spread, least-loaded
    copies = 1                        # how many others hold its state

    shards = "auto"                   # as many as there is to do, and no fewer or more than
    shards_between = [1, 4]

``counts.1`` to ``counts.3`` are the shards, ``counts`` merges what they compute. Shards form a
ring: the second copy of each is where the next shard is, so that a lost one's work goes on there,
and with ``copies = 2`` a third one is where the shard after that is; of several shards on one
server, the next one elsewhere. Passive and hybrid copies
share that shard's process, too: three shards are three drivers, and when one is lost its neighbour
does both. Fragments with the same ``colocate`` share processes, shard by shard, until one of them
is rescaled: its new shards have their own.
With ``heirs = "spread"`` each shard is in parts, like ``counts.1.1``, whose second
copies are at different shards (``core/heirs.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

from holdfast.continuous_knobs import KnobError
from holdfast.core.heirs import Heirs, parts_of, places_of
from holdfast.core.settings import Delivery, Protection, Reconcile
from holdfast.deployment import (
    LOOPBACK,
    RESCALED,
    Deployment,
    Endpoint,
    FragmentSpec,
    Generation,
    ShardSpec,
)
from holdfast.slots import SLOTS, Routing, shard_name

SHARD_KNOBS = ("shards", "routing", "shards_between", "heirs", "copies")
# The number of shards follows the load, within bounds.
AUTO = "auto"
BETWEEN = (1, 4)


def read_shards(
    table: dict[str, Any], spec: FragmentSpec, endpoint: Callable[[str], Endpoint]
) -> dict[str, FragmentSpec]:
    """What a fragment becomes: itself, or its shards and what merges them."""
    if "shards" not in table:
        for knob in SHARD_KNOBS:
            if knob in table:
                raise KnobError(knob, "it divides tuples among shards; give shards, too")
        return {spec.name: spec}
    between = _between(table, spec)
    given = table["shards"] if between is None else between[0]
    places = tuple(endpoint(place) for place in _places(given))
    if any(place.port for place in places):
        raise KnobError("shards", "several replicas run at each place; leave the ports away")
    if isinstance(table.get("colocate"), list) or isinstance(table.get("replicas"), list):
        raise KnobError(
            "shards",
            'the ring says where replicas run: write shards = ["east", "west"] for the places, '
            "replicas as a number, and one name as colocate",
        )
    wanted = table.get("routing")
    known = [each.value for each in Routing]
    if wanted is not None and wanted not in known:
        raise KnobError("routing", f"it is one of {', '.join(known)}; got {wanted!r}")
    routing = None if wanted is None else Routing(wanted)
    spec = _with_copies(table, spec, len(places))
    heirs = _heirs(table, spec)
    if spec.standby is not None:
        by_load = heirs is Heirs.LEAST_LOADED
        spec = replace(spec, standby=replace(spec.standby, by_load=by_load, returns=True))
    rescaled = table.get(RESCALED)
    generations = _generations(rescaled, None if between else len(places), len(places))
    used = max(generations[-1][0], (rescaled or {}).get("used", 1))
    found: dict[str, FragmentSpec] = {}
    for number, shards in generations:
        _check_ring(spec, shards, heirs)
        found |= _in_shards(spec, places, shards, routing, number, heirs)
    merging = _merging(spec, places, found, generations, used)
    found[spec.name] = replace(merging, between=between)
    return found


def _heirs(table: dict[str, Any], spec: FragmentSpec) -> Heirs:
    """Who does a lost shard's work."""
    given = table.get("heirs", Heirs.NEXT.value)
    known = [each.value for each in Heirs]
    if given not in known:
        raise KnobError("heirs", f"it is one of {', '.join(known)}; got {given!r}")
    if "heirs" in table and spec.standby is None:
        raise KnobError(
            "heirs",
            f"they do a lost shard's work where its copies stand by: with protection passive or "
            f"hybrid, not {spec.protection.value}; leave it out",
        )
    heirs = Heirs(given)
    if heirs is Heirs.LEAST_LOADED and len(spec.replicas) < 3:
        raise KnobError(
            "heirs",
            "the least loaded is one of several that hold a shard's state: write copies = 2 or "
            "more, or heirs = next",
        )
    return heirs


def _check_ring(spec: FragmentSpec, shards: int, heirs: Heirs) -> None:
    """Raise if so many shards cannot hold each other's state."""
    others, whole = len(spec.replicas) - 1, shards * parts_of(heirs, shards)
    if spec.standby is not None and others > max(1, shards - 1):
        raise KnobError(
            "copies",
            f"{others} others hold a shard's checkpoints: that needs {others + 1} shards or more; "
            f"got {shards}",
        )
    if whole > SLOTS:
        raise KnobError(
            "heirs",
            f"the parts of all shards are no more than the {SLOTS} slots; got {whole}: write next",
        )


def _with_copies(table: dict[str, Any], spec: FragmentSpec, shards: int) -> FragmentSpec:
    """The same with as many copies of each shard as are asked for, and its own."""
    given = table.get("copies", 1)
    if "copies" in table and spec.standby is None:
        raise KnobError(
            "copies",
            f"they hold a shard's checkpoints and stand by: with protection passive or hybrid, not "
            f"{spec.protection.value}; leave it out",
        )
    if spec.standby is None:
        return spec
    most = max(1, shards - 1)
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= most:
        raise KnobError(
            "copies",
            f"how many other shards hold a shard's checkpoints: from 1 to {most}, as there are "
            f"{shards} shards; got {given!r}",
        )
    return replace(spec, replicas=tuple(Endpoint() for _ in range(1 + given)))


def _between(table: dict[str, Any], spec: FragmentSpec) -> tuple[int, int] | None:
    """The least and the most shards, if their number follows the load."""
    given = table.get("shards_between")
    if table["shards"] != AUTO:
        if given is not None:
            raise KnobError("shards_between", 'it bounds shards = "auto"; leave it out')
        return None
    least, most = BETWEEN if given is None else _pair(given)
    if not 1 <= least <= most <= SLOTS:
        raise KnobError(
            "shards_between", f"the least and the most shards, from 1 to {SLOTS}; got {given!r}"
        )
    if table.get("routing") == Routing.PRIMARY.value:
        raise KnobError(
            "shards",
            f'"auto" is not for routing = {Routing.PRIMARY.value!r}: one shard does everything, so '
            f"more could never help; write a number",
        )
    if spec.delivery is Delivery.AT_MOST_ONCE:
        raise KnobError(
            "shards",
            f'"auto" is not for delivery = {spec.delivery.value!r}: new shards begin with nothing, '
            f"so every change would lose what open windows have; write a number, and change it "
            f"with holdfast rescale when that does not matter",
        )
    return least, most


def _pair(given: Any) -> tuple[int, int]:
    numbers = isinstance(given, list) and [type(each) for each in given] == [int, int]
    if not numbers:
        raise KnobError("shards_between", f"two numbers, like [1, 4]; got {given!r}")
    return given[0], given[1]


def _generations(
    rescaled: dict[str, Any] | None, given: int | None, first: int
) -> list[tuple[int, int]]:
    """(number, shards) of each generation; one, unless the number of shards was changed."""
    if rescaled is None:
        return [(1, first)]
    found = [(int(number), int(shards)) for number, shards in rescaled["generations"]]
    if given is not None and given not in (rescaled["given"], found[-1][1]):
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
        raise KnobError(
            "shards", f'a number, "auto", or a list of places, one for each; got {given!r}'
        )
    if not 1 <= len(places) <= SLOTS:
        raise KnobError("shards", f"from 1 to {SLOTS}, as many as there are slots; got {given!r}")
    return places


def _in_shards(
    spec: FragmentSpec,
    places: tuple[Endpoint, ...],
    shards: int,
    routing: Routing | None,
    generation: int,
    heirs: Heirs,
) -> dict[str, FragmentSpec]:
    """The shards of one generation, or their parts."""
    parts = parts_of(heirs, shards)
    # A process that runs takes in nobody: shards that come later have their own.
    colocate = spec.colocate if generation == 1 else None
    holding = spec.standby is not None and shards > 1
    shared = colocate is not None or holding
    driver = spec.name if colocate is None else colocate[0]
    # Copies with processes of their own may also be where there is no shard.
    seats = shards if shared else max(shards, len(places))
    seated = [places[at % len(places)] for at in range(seats)]
    servers = [each.server for each in seated]
    found = {}
    for number, part in product(range(1, shards + 1), range(1, parts + 1)):
        name = shard_name(spec.name, generation, number, part if parts > 1 else None)
        ring = places_of(number, part, seats, len(spec.replicas), servers)
        standby = spec.standby
        names = tuple(f"{name}-{copy}" for copy in range(1, len(ring) + 1))
        found[name] = replace(
            spec,
            name=name,
            replicas=tuple(seated[at - 1] for at in ring),
            colocate=tuple(shard_name(driver, generation, at) for at in ring) if shared else None,
            standby=standby and replace(standby, copies=names),
            shard=ShardSpec(
                spec.name, number, shards, routing, generation, part, parts, ring if holding else ()
            ),
        )
    return found


def _merging(
    spec: FragmentSpec,
    places: tuple[Endpoint, ...],
    shards: dict[str, FragmentSpec],
    generations: list[tuple[int, int]],
    used: int,
) -> FragmentSpec:
    """Merging has no state to keep or to send: as many replicas as a shard has, all of them run.

    One of what is delivered at most once: of several, each would lose something else. Each
    generation has its own; those of generations that are gone keep their names.

    used  the number of the last generation that there ever was.
    """
    alone = spec.protection is Protection.NONE or spec.delivery is Delivery.AT_MOST_ONCE
    merging = 1 if alone else len(spec.replicas)
    of: dict[int, list[str]] = {number: [] for number, _ in generations}
    for name, each in shards.items():
        assert each.shard is not None
        of[each.shard.generation].append(name)
    listed = [Generation(number, count, tuple(of[number])) for number, count in generations]
    return FragmentSpec(
        spec.name,
        _apart(places, merging) * used,
        spec.while_failed,
        spec.while_stabilizing,
        Reconcile.UNDO,
        merges=tuple(shards),
        generations=tuple(listed),
        merging=merging,
        delivery=spec.delivery,
    )


def only_server_of(deployment: Deployment, fragment: str) -> str | None:
    """Where all replicas of a fragment are, to be lost together, though there are other servers."""
    nodes = [one for one in deployment.fragments[fragment].processes if one not in deployment.gone]
    servers = {deployment.endpoints[one].server for one in nodes}
    if not deployment.servers or len(nodes) < 2 or len(servers) > 1:
        return None
    return servers.pop() or "this machine"


def _apart(places: tuple[Endpoint, ...], count: int) -> tuple[Endpoint, ...]:
    """So many of the places, in their order, and on as many servers as there are."""
    found: list[Endpoint] = []
    for _ in range(count):
        servers = [one.server for one in found]
        taken = [(servers.count(one.server), found.count(one)) for one in places]
        found.append(places[taken.index(min(taken))])
    return tuple(found)
