"""The plan of a network as it is deployed: a fragment with shards becomes several fragments.

``counts`` with three shards becomes ``counts.1`` to ``counts.3``, which compute what it computes
for their slots and serve the streams ``busy.1`` to ``busy.3``, and ``counts``, which merges these
into ``busy``. To everyone else they are fragments like all others, with replicas, protections and
feeds of their own; and whoever reads ``busy`` reads what it would without shards, bit for bit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.deployment import Deployment, DeploymentError, ShardSpec
from holdfast.plans.fragment_plans import (
    FragmentPlan,
    FragmentStream,
    Routes,
    ShardPlan,
    merged_from,
)
from holdfast.slots import ANY, SLOTS, Routing


def with_shards(
    deployment: Deployment, fragments: Mapping[str, FragmentPlan], sources: Iterable[str]
) -> dict[str, FragmentPlan]:
    """The fragments with the shards that the deployment asks for; those that have them stay."""
    found: dict[str, FragmentPlan] = {}
    for name, fragment in fragments.items():
        spec = deployment.fragments.get(name)
        if fragment.shard is not None and _is_rescaled(deployment, fragment.shard.fragment):
            continue  # it comes with what merges it, if it is of a generation that takes part
        divided = fragment.merges and not _is_rescaled(deployment, name)
        if spec is None or not spec.merges or divided:
            found[name] = fragment
            continue
        shards = [_shard(deployment, fragments, fragment, each) for each in spec.merges]
        found |= {each.name: each for each in shards}
        found[name] = merging(fragment, shards)
    _check_streams(deployment, found, sources)
    return found


def _is_rescaled(deployment: Deployment, fragment: str) -> bool:
    """Whether there are shards of later generations than were planned."""
    spec = deployment.fragments.get(fragment)
    return spec is not None and any(one.number > 1 for one in spec.generations)


def shards_of(deployment: Deployment) -> dict[str, list[Any]]:
    """How many shards each fragment has, how they are routed and divided, where it has any."""
    shards = (spec.shard for spec in deployment.fragments.values() if spec.shard is not None)
    return {
        each.fragment: [
            each.shards,
            None if each.routing is None else each.routing.value,
            *([each.parts] if each.parts > 1 else []),
        ]
        for each in shards
    }


def _shard(
    deployment: Deployment,
    fragments: Mapping[str, FragmentPlan],
    fragment: FragmentPlan,
    name: str,
) -> FragmentPlan:
    if name in fragments:
        return fragments[name]
    given = deployment.fragments[name].shard
    assert given is not None
    if fragment.routes is None and given.generation > 1:
        return _of_generation(deployment, fragments, fragment, given, name)
    if fragment.routes is None:
        raise DeploymentError(
            f"{deployment.path.name}: fragments.{fragment.name}.shards has changed since the "
            f"deployment was planned; holdfast up plans it anew"
        )
    routing = _routing(deployment, fragment, fragment.routes, given.routing)
    columns = {stream: fragment.routes.columns.get(stream, ANY) for stream in fragment.inputs}
    _check_parts(deployment, routing, given)
    shard = ShardPlan(
        fragment.name,
        given.number,
        given.shards,
        routing,
        columns,
        given.generation,
        given.part,
        given.parts,
    )
    # A shard has not all results of any tuples, and can claim none.
    outputs = tuple(
        replace(output, stream=shard.serves(output.stream), ways=(), memory=(), pairs=frozenset())
        for output in fragment.outputs
    )
    described = (*fragment.description, *_described(shard))
    return replace(
        fragment, name=name, outputs=outputs, description=described, routes=None, shard=shard
    )


def _check_parts(deployment: Deployment, routing: Routing | None, given: ShardSpec) -> None:
    if routing is Routing.PRIMARY and given.parts > 1:
        raise DeploymentError(
            f"{deployment.path.name}: fragments.{given.fragment}.heirs: with routing = "
            f'"primary" one shard does everything, in one piece; write next, or leave it out'
        )


def _of_generation(
    deployment: Deployment,
    fragments: Mapping[str, FragmentPlan],
    fragment: FragmentPlan,
    given: ShardSpec,
    name: str,
) -> FragmentPlan:
    """A shard of a later generation: it computes what the planned ones do, for other slots."""
    like = next(
        one for one in fragments.values() if one.shard and one.shard.fragment == fragment.name
    )
    assert like.shard is not None
    _check_parts(deployment, like.shard.routing, given)
    shard = replace(
        like.shard,
        number=given.number,
        shards=given.shards,
        generation=given.generation,
        part=given.part,
        parts=given.parts,
    )
    own = zip(like.outputs, fragment.outputs, strict=True)
    outputs = tuple(replace(one, stream=shard.serves(whole.stream)) for one, whole in own)
    query = like.description[: len(like.description) - len(_described(like.shard))]
    described = (*query, *_described(shard))
    return replace(like, name=name, outputs=outputs, description=described, shard=shard)


def _described(shard: ShardPlan) -> list[str]:
    lines = [shard.which]
    lines += [f"route {stream}: {', '.join(names)}" for stream, names in shard.columns.items()]
    return [*lines, f"slots: {SLOTS}"]


def _routing(
    deployment: Deployment, fragment: FragmentPlan, routes: Routes, wanted: Routing | None
) -> Routing:
    """The routing that was asked for, if it can be; or the one that fits."""
    where = f"{deployment.path.name}: fragments.{fragment.name}.routing"
    if wanted is None:
        wanted = Routing.RANDOM if routes.stateless else Routing.KEY
    if wanted is Routing.KEY and routes.refused is not None:
        raise DeploymentError(f"{where}: it cannot be divided by key: {routes.refused}")
    if wanted is Routing.KEY and routes.stateless:
        raise DeploymentError(f"{where}: no operator of it has a key; write random")
    if wanted is Routing.RANDOM and not routes.stateless:
        raise DeploymentError(
            f"{where}: random is for fragments without state; tuples of one key must meet: write "
            f"key"
        )
    return wanted


def merging(fragment: FragmentPlan, shards: list[FragmentPlan]) -> FragmentPlan:
    """What puts the shards' streams together again."""
    inputs = {output.stream: output.schema for shard in shards for output in shard.outputs}
    merges = {
        output.stream: tuple(shard.outputs[at].stream for shard in shards)
        for at, output in enumerate(fragment.outputs)
    }
    outputs = tuple(
        FragmentStream(output.stream, output.schema, frozenset(merges[output.stream]))
        for output in fragment.outputs
    )
    described = [merged_from(stream, parts) for stream, parts in merges.items()]
    for output in fragment.outputs:
        described += [f"column of {output.stream}: {field}" for field in output.schema]
    return FragmentPlan(fragment.name, inputs, outputs, False, tuple(described), merges=merges)


def _check_streams(
    deployment: Deployment, fragments: Mapping[str, FragmentPlan], sources: Iterable[str]
) -> None:
    streams = [*sources, *(out.stream for one in fragments.values() for out in one.outputs)]
    twice = [name for name in streams if streams.count(name) > 1]
    if twice:
        raise DeploymentError(
            f"{deployment.path.name}: two streams would be called {twice[0]!r}, one of them that "
            f"of a shard; rename the other in the network"
        )
