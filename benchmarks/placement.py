"""Where replicas live: cost against the proven optimum, latency, collection, elections.

    make bench BENCH=placement               200 networks, some minutes
    make bench BENCH=placement ARGS=--quick  20 networks
    make bench BENCH=placement ARGS='--matrix FILE'    with round trips that were measured

Worlds are made of cities (race_world.py) or read from a matrix; servers of one city fail together.

cost_over_optimum   the cost that ``core/placement.py`` reaches over the least there is, which a
                    mixed-integer programme proves (placement_optimum.py); ``unsolved`` were not
                    proven in time
cost_over_random    over that of the same number of replicas at random servers that may have them
latency_by_replicas the median delay with 1, 2, 3 replicas: three are deployed at equal rates, all
                    but one collected once it is known who is early, and further ones added one by
                    one; beside it replicas at arbitrary servers
collected           cost and latency with three replicas of each, and after collection (k_min 1) to
                    shares of that cost; ``half`` is what latency becomes at half the cost
election_s          how long simulated clusters that had lost their coordinator were without one
placed_1000_servers_s  the time to place two replicas of five fragments among 1,000 servers
moves_gap_over_control  on real servers (placement_moves.py): the longest time without a result
                    while a replica moves, over that while an unrelated Spark session starts
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.machine import describe_machine, machine_text
from benchmarks.placement_flow import Flowing
from benchmarks.placement_moves import moves
from benchmarks.placement_optimum import optimum
from benchmarks.placement_world import World, query_of, with_equal_rates, world_of
from benchmarks.record import record
from holdfast.core.collection import Collection, StreamReplica
from holdfast.core.placement import Placement, Query
from holdfast.simulation.cluster_run import run_cluster
from holdfast.simulation.cluster_world import ClusterFault, ClusterScenario

COMMAND = "make bench BENCH=placement ARGS=--record"
SERVERS, FRAGMENTS = 10, 5
SOLVE_SECONDS = 20.0
K_MAX = 3
SHARES = (1.0, 0.75, 0.5, 0.25, 0.0)
BARS = {
    "cost_over_optimum_median": 1.1,
    "cost_over_optimum_p95": 1.3,
    "cost_over_random": 0.5,
    "latency_at_half_cost": 1.1,
    "moves_gap_over_control": 1.2,
}
# Placing takes no time; only proofs do. So few networks need not stand for all of them.
RANDOM_NETWORKS = 200
MOVES = 5
QUICK_MOVES = 2


def random_places(world: World, query: Query, replicas: int, rng: random.Random) -> Any:
    """Replicas at arbitrary servers, each in a zone of its own."""
    found: dict[str, list[str]] = {}
    for name in query.fragments:
        sites = rng.sample(world.sites, len(world.sites))
        chosen: dict[str, str] = {}
        for site in sites:
            chosen.setdefault(site.fails_with, site.name)
        found[name] = list(chosen.values())[:replicas]
    return found


def cost_of(world: World, query: Query, places: Mapping[str, Sequence[str]]) -> float:
    return Placement(world.sites, world.delays, query, places).cost()


def against_optimum(networks: int, seed: int, matrix: Path | None) -> dict[str, Any]:
    over: list[float] = []
    to_random: list[float] = []
    unsolved = 0
    for number in range(max(networks, RANDOM_NETWORKS)):
        rng = random.Random(f"{seed} {number}")
        world = world_of(rng.randint(5, SERVERS), rng, matrix)
        query = query_of(world, rng, rng.randint(1, FRAGMENTS))
        zones = {site.fails_with for site in world.sites}
        replicas = rng.choice((1, 2)) if len(zones) > 1 else 1
        placed = Placement(world.sites, world.delays, query).place(replicas)
        costs = [
            cost_of(world, query, random_places(world, query, replicas, rng)) for _ in range(20)
        ]
        to_random.append(placed.cost / statistics.mean(costs))
        if number >= networks:
            continue
        least = optimum(world.sites, world.delays, query, replicas, SOLVE_SECONDS)
        if least is None:
            unsolved += 1
        else:
            over.append(placed.cost / least if least > 1e-9 else 1.0)
    return {
        "cost_over_optimum": {
            "median": round(statistics.median(over), 4),
            "p95": round(float(np.percentile(over, 95)), 4),
            "worst": round(max(over), 4),
            "proven": len(over),
            "unsolved": unsolved,
        },
        "cost_over_random": round(statistics.median(to_random), 4),
    }


def median_ms(flowing: Flowing, kept: set[StreamReplica] | None = None) -> float:
    return float(np.median(flowing.run(kept)[0]))


def good_single(world: World, query: Query, seed: int) -> dict[str, list[str]]:
    """Deployed with equal rates, collected to one replica each once it is known who is early."""
    equal = with_equal_rates(query)
    places = Placement(world.sites, world.delays, equal).place(K_MAX).places
    flowing = Flowing(query, world.delays, places, seed)
    zones = {site.name: site.fails_with for site in world.sites}
    _, weights = flowing.run()
    kept = Collection(flowing.running(weights, zones), 1).collect(0.0)
    return {name: [each.partition("@")[2] for each in kept.replicas[name]] for name in places}


def latency_by_replicas(networks: int, seed: int, matrix: Path | None) -> dict[str, Any]:
    chosen: dict[int, list[float]] = {k: [] for k in range(1, K_MAX + 1)}
    arbitrary: dict[int, list[float]] = {k: [] for k in range(1, K_MAX + 1)}
    for number in range(networks):
        rng = random.Random(f"{seed} latency {number}")
        world = world_of(SERVERS, rng, matrix)
        query = query_of(world, rng, rng.randint(2, FRAGMENTS))
        places: Mapping[str, Sequence[str]] = good_single(world, query, number)
        strange = random_places(world, query, K_MAX, rng)
        for k in chosen:
            if k > 1:
                places = Placement(world.sites, world.delays, query, places).place(k).places
            chosen[k].append(median_ms(Flowing(query, world.delays, places, number)))
            some = {name: found[:k] for name, found in strange.items()}
            arbitrary[k].append(median_ms(Flowing(query, world.delays, some, number)))
    return {
        "placed_ms": {k: round(statistics.mean(found), 1) for k, found in chosen.items()},
        "arbitrary_ms": {k: round(statistics.mean(found), 1) for k, found in arbitrary.items()},
    }


def collected(networks: int, seed: int, matrix: Path | None) -> dict[str, Any]:
    costs: dict[float, list[float]] = {share: [] for share in SHARES}
    delays: dict[float, list[float]] = {share: [] for share in SHARES}
    kinds: Counter[str] = Counter()
    streams = {"before": 0, "after": 0}
    for number in range(networks):
        rng = random.Random(f"{seed} collected {number}")
        world = world_of(SERVERS, rng, matrix)
        query = query_of(world, rng, rng.randint(2, FRAGMENTS))
        places = Placement(world.sites, world.delays, query).place(K_MAX).places
        flowing = Flowing(query, world.delays, places, number)
        zones = {site.name: site.fails_with for site in world.sites}
        times, weights = flowing.run()
        before, whole = float(np.median(times)), flowing.cost()
        for share in SHARES:
            kept = Collection(flowing.running(weights, zones), 1).collect(share * whole)
            costs[share].append(flowing.cost(kept.feeds) / whole)
            delays[share].append(median_ms(flowing, kept.feeds) / before)
        streams["before"] += len(flowing.feeds)
        streams["after"] += len(kept.feeds)
        for gone in kept.discarded:
            kinds[_kind(gone, query)] += 1
    return {
        "cost": {share: round(statistics.mean(found), 3) for share, found in costs.items()},
        "latency": {share: round(statistics.median(found), 3) for share, found in delays.items()},
        "half": round(statistics.median(delays[0.5]), 3),
        "streams_before": streams["before"],
        "streams_after": streams["after"],
        "discarded": dict(kinds.most_common()),
    }


def _kind(gone: StreamReplica | str, query: Query) -> str:
    """What was discarded: a replica of a fragment, or a stream by what is at its ends."""
    if isinstance(gone, str):
        return "replica of a fragment"
    if gone.stream in query.pinned:
        return "stream from a source"
    return "stream to an application" if gone.consumer in query.pinned else "stream between"


def elections(clusters: int) -> dict[str, Any]:
    """A coordinator is lost, once in each of so many clusters of three to thirty servers."""
    found: list[float] = []
    for seed in range(clusters):
        rng = random.Random(seed)
        servers = rng.choice((3, 5, 10, 30))
        lost_us = int(rng.uniform(20, 24) * 1e6)
        fault = ClusterFault(lost_us, 60_000_000, "crash", ("coordinator",))
        result = run_cluster(ClusterScenario(seed, servers, servers, 0, 80_000_000, (fault,)))
        assert not result.verdict, result.reason
        # The first time without one is the formation of the cluster.
        found += result.elections_s[1:2]
    return {"median": round(statistics.median(found), 2), "max": round(max(found), 2)}


def place_among(servers: int) -> float:
    """In a made world: no measured one has so many machines."""
    rng = random.Random(servers)
    world = world_of(servers, rng)
    query = query_of(world, rng, FRAGMENTS)
    began = time.monotonic()
    Placement(world.sites, world.delays, query).place(2)
    return round(time.monotonic() - began, 3)


def page(summary: dict[str, Any]) -> str:
    """What was measured, in words."""
    over, found = summary["cost_over_optimum"], summary["collected"]
    ways = summary["latency_by_replicas"]
    delays = "\n".join(
        f"| {k} | {ways['placed_ms'][k]} ms | {ways['arbitrary_ms'][k]} ms |"
        for k in ways["placed_ms"]
    )
    shares = "\n".join(
        f"| {share:.0%} | {found['cost'][share]:.0%} | {found['latency'][share]:.3f} |"
        for share in SHARES
    )
    gone = ", ".join(f"{count} × {kind}" for kind, count in found["discarded"].items())
    return f"""# Placement and collection

`{COMMAND}` on {machine_text(summary["machine"])}: {summary["networks"]} random networks in worlds
made of cities ([how it is done](../design/placement.md)).

**Cost.** Over the proven optimum: {over["median"]} in the middle, {over["p95"]} at the 95th
percentile, {over["worst"]} at worst; {over["proven"]} were proven, {over["unsolved"]} were not in
time. Over replicas at random servers: {summary["cost_over_random"]}.

**Latency.** The median delay of tuples, on the mean over the networks. *Placed*: three replicas of
each fragment deployed at equal rates, all but one collected, then further ones added one at a time.

| replicas | placed | at arbitrary servers |
|---|---|---|
{delays}

**Collection.** From three replicas of each (k_min is 1): θ as a share of the first cost, what was
reached, and the median latency over the first. Who is early and what it comes to are of the same
tuples, and slow ones are not in a median: this says what is lost of the usual delay, not the worst.

| θ | cost | latency |
|---|---|---|
{shares}

Of {found["streams_before"]} stream replicas {found["streams_after"]} are left at θ = 0; discarded
were {gone}.

**Time.** Simulated clusters of 3 to 30 servers, 1 to 10 ms from each other, that lost their
coordinator had another after
{summary["election_s"]["median"]} s in the middle, {summary["election_s"]["max"]} s at most. To
place two replicas of five fragments among 1,000 servers took
{summary["placed_1000_servers_s"]} s.

**Moves.** On {summary["moves"]["servers"]} real servers of this machine, with links as long as
those between cities, a reader was without a result for
{statistics.median(summary["moves"]["gap_ms"])} ms at most while a replica moved, and for
{statistics.median(summary["moves"]["control_gap_ms"])} ms while a Spark session that has nothing to
do with it started in its place: {summary["moves_gap_over_control"]} of that (the middle of
{len(summary["moves"]["gap_ms"])} each). Results that were lost or came twice:
{summary["moves"]["lost_or_doubled"]}.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="20 networks")
    parser.add_argument("--matrix", type=Path, help="round trips in milliseconds, a square matrix")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--record", action="store_true", help="write docs/results/placement.*")
    parser.add_argument("--no-moves", action="store_true", help="nothing on real servers")
    options = parser.parse_args()
    if options.record and (options.quick or options.no_moves or options.matrix is not None):
        parser.error("--record is of the full form, in made worlds and on real servers")
    networks = 20 if options.quick else 200
    began = time.monotonic()
    summary: dict[str, Any] = {"bench": "placement", "networks": networks}
    summary |= against_optimum(networks, options.seed, options.matrix)
    summary["latency_by_replicas"] = latency_by_replicas(networks, options.seed, options.matrix)
    summary["collected"] = collected(networks, options.seed, options.matrix)
    summary["election_s"] = elections(networks // 4)
    summary["placed_1000_servers_s"] = place_among(1_000)
    if not options.no_moves:
        summary |= moves(QUICK_MOVES if options.quick else MOVES)
    summary["bars"] = BARS
    summary["elapsed_s"] = round(time.monotonic() - began, 1)
    summary["machine"] = describe_machine()
    if options.record:
        record(summary, COMMAND, page=page(summary))
    print(json.dumps(summary))


if __name__ == "__main__":
    main()
