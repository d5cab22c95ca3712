"""Who does the work of each shard now, and whom that one knows, above, beside and below it.

A copy knows of its own shard which copy does the work: the primary of the newest term it has heard
of. Of its neighbours in the ring it knows their numbers only, as nothing it does depends on who
stands in for them. What all copies say, put together, tells of every neighbour who is there in its
place, which the paper on DADSTORM keeps in dictionaries at every replica.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.deployment import Deployment, FragmentSpec, ShardSpec

Names = Mapping[str, tuple[str, ...]]


@dataclass(frozen=True)
class ShardView:
    """A shard, or a part of one that is spread, as its copies say.

    work    (node, its process) of those that do the work: the primary, or all that run.
    term    by which the primary is; None without one.
    silent  of those that do the work, who gave no answer.
    above   who provides each input; below, who reads each stream.
    beside  the shards before and after it in the ring, and who does their work.
    only_at  the one of several servers that all of its copies are at, if it is one.
    """

    slots: tuple[int, int] | None
    work: tuple[tuple[str, str], ...]
    term: int | None
    silent: tuple[str, ...]
    above: Names
    beside: Names
    below: Names
    only_at: str | None


def shard_views(
    deployment: Deployment, status: Mapping[str, Mapping[str, Any]]
) -> dict[str, ShardView]:
    """One for each shard, from what each node says of itself."""
    from holdfast.deployment_shards import only_server_of  # with numpy, as below

    processes = {node: process for process, names in deployment.processes.items() for node in names}
    shards = {name: spec for name, spec in deployment.fragments.items() if spec.shard is not None}
    work = {name: _work(spec, status) for name, spec in shards.items()}
    views = {}
    for name, spec in shards.items():
        doing, term = work[name]
        known = _known(doing, spec, status)
        views[name] = ShardView(
            slots=tuple(known["slots"]) if known else None,
            work=tuple((node, processes[node]) for node in doing),
            term=term,
            silent=tuple(node for node in doing if not _answers(status.get(node, {}))),
            above=_names(known.get("above", {})),
            beside={near: work[near][0] for near in _beside(spec.shard, shards)},
            below=_names(known.get("below", {})),
            only_at=only_server_of(deployment, name),
        )
    return views


def _answers(said: Mapping[str, Any]) -> bool:
    return bool(said) and "error" not in said


def _work(
    spec: FragmentSpec, status: Mapping[str, Mapping[str, Any]]
) -> tuple[tuple[str, ...], int | None]:
    """Who does the work of a shard, and by which term."""
    said = {node: status.get(node, {}) for node in spec.processes}
    if spec.standby is None:
        return tuple(node for node, one in said.items() if _answers(one)), None
    # The newest term counts: whoever was replaced and has not heard of it is fenced by it.
    terms = [(one["term"], one["primary"]) for one in said.values() if "primary" in one]
    if not terms:
        return (), None
    term, primary = max(terms)
    return (primary,), term


def _known(
    doing: tuple[str, ...], spec: FragmentSpec, status: Mapping[str, Mapping[str, Any]]
) -> Mapping[str, Any]:
    """What is said of the shard, by who does its work if that one answers."""
    said = (status.get(node, {}).get("shard") for node in (*doing, *spec.processes))
    return next((one for one in said if one), {})


def _names(known: Mapping[str, Any]) -> Names:
    return {stream: tuple(names) for stream, names in known.items()}


def _beside(shard: ShardSpec | None, shards: Mapping[str, FragmentSpec]) -> list[str]:
    """The shards before and after one in its ring; where they are spread, all of their parts."""
    from holdfast.slots import shard_name  # with numpy, which few commands need

    assert shard is not None
    numbers = {(shard.number - 2) % shard.shards + 1, shard.number % shard.shards + 1}
    near = {
        shard_name(shard.fragment, shard.generation, number, part)
        for number in numbers - {shard.number}
        for part in ([None] if shard.parts == 1 else range(1, shard.parts + 1))
    }
    return [name for name in shards if name in near]


def shard_lines(views: Mapping[str, ShardView]) -> list[str]:
    """A line for each: who does its work, then its dictionaries."""
    return [_line(name, view) for name, view in views.items()]


def _line(name: str, view: ShardView) -> str:
    work = " and ".join(
        node if node == process else f"{node} in process {process}" for node, process in view.work
    )
    said = f"shard {name}: {work or 'nobody that answers'}"
    said += "" if view.term is None else f", term {view.term}"
    said += f", {' and '.join(view.silent)} does not answer" if view.silent else ""
    if view.slots is not None:
        first, end = view.slots
        said += f"; slots {first} to {end - 1}" if first < end else "; no slots"
    for word, names in (("above", view.above), ("beside", view.beside), ("below", view.below)):
        if names:
            said += f"; {word} " + ", ".join(
                f"{one} ({', '.join(who) or 'nobody'})" for one, who in names.items()
            )
    if view.only_at is not None:
        said += f"; all copies at {view.only_at}, to be lost together"
    return said


def shards_json(views: Mapping[str, ShardView]) -> dict[str, Any]:
    """The same for programs."""
    return {
        name: {
            "work": dict(view.work),
            "term": view.term,
            "silent": view.silent,
            "slots": view.slots,
            "above": view.above,
            "beside": view.beside,
            "below": view.below,
            "only_at": view.only_at,
        }
        for name, view in views.items()
    }
