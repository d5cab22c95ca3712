"""Fragments of simulated networks in shards, as a deployment makes them (``plans/sharding.py``)."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from holdfast.core.heirs import Heirs, parts_of
from holdfast.core.settings import Delivery, Protection, Reconcile
from holdfast.simulation.executor import Computation, Merge
from holdfast.simulation.networks import Fragment, NetworkSpec, build

# Such a share of the networks has shards.
_SHARE = 0.1
# And in such a share of these one shard does everything.
_PRIMARY = 0.2


def sharding(random: Random, spec: NetworkSpec) -> NetworkSpec:
    """The same network; of some, a fragment or two are in shards."""
    if random.random() >= _SHARE:
        return spec
    chosen = random.sample(range(len(spec.fragments)), min(len(spec.fragments), 2))
    shards = dict.fromkeys(chosen, random.choice([2, 2, 3]))
    return in_shards(spec, shards, primary=primary_at_times(random))


def primary_at_times(random: Random) -> bool:
    """Whether one shard does everything; nothing is drawn for it, so seeds stay what they are."""
    return Random(hash(random.getstate()[1])).random() < _PRIMARY


def in_shards(
    spec: NetworkSpec, shards: dict[int, int], heirs: Heirs = Heirs.NEXT, primary: bool = False
) -> NetworkSpec:
    """The same network with so many shards of these fragments."""
    fragments: list[Fragment] = []
    for number, fragment in enumerate(spec.fragments):
        in_parts = number in shards
        fragments += _parts(fragment, shards[number], heirs, primary) if in_parts else [fragment]
    return built_of(spec, tuple(fragments))


def built_of(spec: NetworkSpec, fragments: tuple[Fragment, ...]) -> NetworkSpec:
    """The same network of other fragments."""
    early = replace(spec, fragments=fragments).trails
    return build(
        spec.timing,
        tuple(one.stream for one in spec.entries),
        fragments,
        tuple(one.input.stream for one in spec.clients if not one.input.early),
        spec.job_us,
        frozenset(one.stream for one in spec.entries if one.own_time),
        tuple(
            one.input.stream
            for one in spec.clients
            if one.input.early and one.input.stream in early
        ),
    )


def _parts(fragment: Fragment, shards: int, heirs: Heirs, primary: bool) -> list[Fragment]:
    """The shards, or their parts, and what merges them under the fragment's name."""
    parts = []
    of_each = parts_of(heirs, shards)
    shards *= of_each
    for number in range(1, shards + 1):
        name = f"{fragment.name}.{number}"
        addresses = tuple(f"{name}{one[-1]}" for one in fragment.addresses)
        outputs = tuple((f"{stream}.{number}", one) for stream, one in fragment.plan.outputs)
        standby = fragment.standby
        parts.append(
            replace(
                fragment,
                name=name,
                plan=Computation(outputs, (number, shards), primary),
                addresses=addresses,
                standby=standby and replace(standby, copies=addresses),
                parts=of_each,
                heirs=heirs,
            )
        )
    merged = tuple(
        (stream, Merge(tuple(f"{stream}.{number}" for number in range(1, shards + 1))))
        for stream, _ in fragment.plan.outputs
    )
    lossy = fragment.delivery is Delivery.AT_MOST_ONCE
    alone = fragment.protection is Protection.NONE or lossy
    merging = replace(
        fragment,
        plan=Computation(merged),
        addresses=fragment.addresses[:1] if alone else fragment.addresses,
        reconcile=Reconcile.UNDO,
        standby=None,
        continuous=None,
        race=False,
        whole=replace(fragment.plan, shard=(1, 1)),
    )
    return [*parts, merging]
