"""Worlds and queries for the benchmark of placement: servers in cities, and random networks."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.race_world import LOCAL_MS, Matrix, made, measured
from holdfast.core.placement import Flow, Query, Site


@dataclass(frozen=True)
class World:
    """Servers and the milliseconds between them, one way."""

    sites: list[Site]
    delays: Mapping[str, Mapping[str, float]]


def world_of(
    count: int, rng: random.Random, matrix: Path | None = None, room: int | None = None
) -> World:
    """So many servers in cities, often several in one, or of a file of round trips.

    Servers of one city fail together; of measured machines nothing of that kind is known.
    """
    names, found = made(rng) if matrix is None else measured(matrix)
    usable = [at for at in range(len(names)) if matrix is None or _is_measured(found, at)]
    chosen = (
        [rng.choice(usable) for _ in range(count)] if matrix is None else rng.sample(usable, count)
    )
    servers = [f"s{number}-{names[at]}" for number, at in enumerate(chosen)]
    sites = [
        Site(server, names[at] if matrix is None else "", 1 << 30 if room is None else room)
        for server, at in zip(servers, chosen, strict=True)
    ]
    delays = {
        here: {
            there: _between(found, at, other, here == there, matrix is None)
            for there, other in zip(servers, chosen, strict=True)
        }
        for here, at in zip(servers, chosen, strict=True)
    }
    return World(sites, delays)


def _is_measured(found: Matrix, at: int) -> bool:
    """Whether most links of a machine have been measured."""
    return bool(np.mean(found[at] > 0) > 0.7)


def _between(found: Matrix, at: int, other: int, same: bool, is_made: bool) -> float:
    if same:
        return LOCAL_MS
    if is_made and at == other:
        return 4 * LOCAL_MS  # two servers of a city
    there_and_back = (float(found[at, other]), float(found[other, at]))
    known = [each for each in there_and_back if each > 0]
    # A link that nobody could measure is taken for a long one.
    return sum(known) / len(known) if known else float(np.percentile(found[found > 0], 95))


def query_of(world: World, rng: random.Random, fragments: int, equal: bool = False) -> Query:
    """Some sources and applications at random servers, and fragments between them."""
    servers = [site.name for site in world.sites]
    sources = [f"source-{number}" for number in range(rng.randint(2, 4))]
    clients = [f"application-{number}" for number in range(rng.randint(1, 2))]
    pinned = {name: rng.choice(servers) for name in (*sources, *clients)}
    names = tuple(f"fragment-{number}" for number in range(fragments))
    rates = {name: rng.lognormvariate(0.0, 1.0) for name in sources}
    flows: list[Flow] = []
    unread = list(sources)
    for number, name in enumerate(names):
        upstream = [*sources, *names[:number]]
        reads = set(rng.sample(upstream, min(len(upstream), rng.randint(1, 3))))
        if number == len(names) - 1:
            reads |= set(unread)
        unread = [each for each in unread if each not in reads] + [name]
        flows += [Flow(each, name, rates[each]) for each in sorted(reads)]
        rates[name] = rng.uniform(0.1, 1.0) * sum(rates[each] for each in reads)
    flows += [Flow(names[-1], client, rates[names[-1]]) for client in clients]
    for name in unread[:-1]:
        flows.append(Flow(name, rng.choice(clients), rates[name]))
    if equal:
        flows = [Flow(flow.producer, flow.consumer) for flow in flows]
    return Query(pinned, names, tuple(flows))


def with_equal_rates(query: Query) -> Query:
    """As a query is before anything has flowed."""
    flows = tuple(Flow(flow.producer, flow.consumer) for flow in query.flows)
    return Query(query.pinned, query.fragments, flows)
