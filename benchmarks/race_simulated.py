"""The whole monitoring network in the simulator, over a wide area, for benchmark race.

    load of every server ─────▶ loads (union) ──────┐
    latencies every server sees ▶ latencies (union) ┴▶ pairs (join) ─▶ busy, far (those that match)
                                     └──▶ a watcher                 └▶ often (counted in windows)

Many servers in different cities report both kinds of readings. Each of the six fragments has three
replicas, each on a machine of its own in some city; operators read the three results. Everything
runs on ``core/`` unchanged, with every check of the simulator; jobs take as long as those that
were measured on this machine, links as long as light in fibre. What is not modelled: that replicas
of one machine share its processor.

    0 s to 10 s   everybody starts
    10 s to 30 s  all is well
    30 s on       all links of the replica that the first operator follows are cut without a word,
                  for four seconds, again and again
    then          one server's latencies are cut off for 20 s
"""

from __future__ import annotations

import multiprocessing
import random
import statistics
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np

from benchmarks.race_deployment import HEARTBEAT_MS, MISSES
from benchmarks.race_world import LOCAL_MS, Matrix, made
from holdfast.core.messages import FeedFrames, Message
from holdfast.core.provenance import Trail
from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.simulation import networks
from holdfast.simulation.client_process import ClientProcess
from holdfast.simulation.conditions import Conditions
from holdfast.simulation.executor import Computation, Join, Operator, Row, Union, Window
from holdfast.simulation.faults import Schedule
from holdfast.simulation.main import collected_afterwards
from holdfast.simulation.network import Quality
from holdfast.simulation.networks import Fragment, NetworkSpec
from holdfast.simulation.world import World

SERVERS, REPLICAS = 12, 3
BUCKET_US, WITHIN_US = 500_000, 100_000
CALM_FROM, CALM_TO = 10 * SECOND_US, 30 * SECOND_US
CUTS, CUT_US, BETWEEN_CUTS_US = 3, 4 * SECOND_US, 10 * SECOND_US
MISSING_US = 20 * SECOND_US
# Long enough for everybody to be well again.
LAST_US = 20 * SECOND_US
LOADS, LATENCIES, PAIRS = "f00.0", "f01.0", "f10.0"


def network_of(race: bool, job_us: int) -> NetworkSpec:
    """The monitoring network; the latencies' client needs no order where replicas race."""
    sources = tuple(f"s{number}" for number in range(2 * SERVERS))
    operators: dict[str, Operator] = {
        "f00": Union(sources[::2]),
        "f01": Union(sources[1::2]),
        "f10": Join((LATENCIES, LOADS), WITHIN_US),
        "f20": Union((PAIRS,), dropped_key=0),
        "f21": Union((PAIRS,), dropped_key=1),
        "f22": Window((PAIRS,), 2 * BUCKET_US),
    }
    fragments = tuple(
        Fragment(
            name,
            Computation(((f"{name}.0", operator),)),
            tuple(f"{name}{letter}" for letter in "abc"[:REPLICAS]),
            Policy.PROCESS,
            Policy.PROCESS,
            Reconcile.RESTORE,
            race=race,
        )
        for name, operator in operators.items()
    )
    timing = Timing(
        bucket_us=BUCKET_US,
        delay_us=20 * SECOND_US,
        heartbeat_interval_us=1_000 * HEARTBEAT_MS,
        misses_until_down=MISSES,
    )
    read = ("f20.0", "f21.0", "f22.0")
    if race:
        return networks.build(timing, sources, fragments, read, job_us, unordered=(LATENCIES,))
    return networks.build(timing, sources, fragments, (*read, LATENCIES), job_us)


def places_of(spec: NetworkSpec, cities: int, chance: random.Random) -> dict[str, int]:
    """A city for every process: replicas of a fragment are apart, applications are together."""
    servers = chance.sample(range(cities), SERVERS)
    found = {
        name: city
        for fragment in spec.fragments
        for name, city in zip(
            fragment.addresses, chance.sample(range(cities), REPLICAS), strict=True
        )
    }
    found |= {one.address: servers[int(one.stream[1:]) // 2] for one in spec.entries}
    here = chance.choice(servers)
    return found | {one.address: here for one in spec.clients}


def distances(city_of: Mapping[str, int], matrix: Matrix) -> dict[tuple[str, str], int]:
    """Microseconds from everybody to everybody else."""
    return {
        (one, other): int(1_000 * (LOCAL_MS if here == there else matrix[here, there]))
        for one, here in city_of.items()
        for other, there in city_of.items()
        if one != other
    }


@dataclass
class Came:
    """What came to a client and when: times of the tuples, and of their arrival."""

    rows: list[Row] = field(default_factory=list)
    at: list[int] = field(default_factory=list)

    def ages_ms(self, start: int, end: int, without: int | None = None) -> list[float]:
        """Of tuples of these times; ``without`` those that a union has from one of its inputs."""
        way = None if without is None else _way_of(without)
        return [
            (at - row[0]) / 1e3
            for row, at in zip(self.rows, self.at, strict=True)
            if start <= row[0] < end and (way is None or way.id_of(row[3]) is None)
        ]

    def gap_ms(self, start: int, end: int) -> float:
        """The longest time without a result, less the usual one before."""
        before = sorted({at for at in self.at if at < start})[-20:]
        times = [before[-1], *sorted({at for at in self.at if start <= at < end}), end]
        return max(0.0, float(np.diff(times).max() - np.median(np.diff(before))) / 1e3)


def _way_of(number: int) -> Trail:
    union = Union(tuple(f"s{each}" for each in range(1, 2 * SERVERS, 2)))
    return union.ways[number][1]


class Measured:
    """One world, in one mode, and what came of it."""

    def __init__(self, seed: int, race: bool, job_us: int) -> None:
        chance = random.Random(seed)
        names, matrix = made(chance)
        spec = network_of(race, job_us)
        cities = places_of(spec, len(names), random.Random(seed))
        missing_from = CALM_TO + CUTS * BETWEEN_CUTS_US
        self._missing = (missing_from, missing_from + MISSING_US)
        self._world = World(
            spec,
            Schedule((), self._missing[1] + LAST_US),
            random.Random(seed),
            {name: name for name in cities},
            conditions=Conditions(
                longest_append_us=1_000,
                skew_us=0,
                job_failure_rate=0.0,
                sample_us=2 * SECOND_US,
                quality=Quality(distance_us=distances(cities, matrix)),
            ),
        )
        self._sent = 0
        self._deliver = self._world.network.deliver
        self._world.network.deliver = self._count
        self._came = {name: Came() for name in self._world.clients}

    def _count(self, source: str, target: str, message: Message) -> None:
        if isinstance(message, FeedFrames):
            headers = (frame.header for frame in message.frames)
            self._sent += sum(one.count for one in headers if one.kind.is_data)
        self._deliver(source, target, message)
        client = self._world.clients.get(target)
        if client is not None:
            self._note(client)

    def _note(self, client: ClientProcess) -> None:
        came = self._came[client.address]
        fresh = client.stable[len(came.rows) :]
        came.rows += fresh
        came.at += [self._world.clock.now] * len(fresh)

    def run(self) -> dict[str, float]:
        world = self._world
        world.begin()
        world.clock.run_until(CALM_FROM)
        self._sent = 0
        world.clock.run_until(CALM_TO)
        rows_sent = self._sent
        first, watcher = (list(self._came.values())[at] for at in (0, -1))
        gaps = [self._cut_off(CALM_TO + number * BETWEEN_CUTS_US) for number in range(CUTS)]
        start, end = self._missing
        world.clock.run_until(start)
        self._part("entry1", MISSING_US)
        world.clock.run_until(world.schedule.end)
        world.finish()
        ages = first.ages_ms(CALM_FROM, CALM_TO - 5 * SECOND_US)
        missing = watcher.ages_ms(start, end, without=0)
        return {
            "p50_ms": float(np.percentile(ages, 50)),
            "p99_ms": float(np.percentile(ages, 99)),
            "gap_ms": statistics.median(gaps),
            "p99_missing_ms": float(np.percentile(missing, 99)),
            "rows_per_second": rows_sent * SECOND_US / (CALM_TO - CALM_FROM),
            "results": len(first.rows),
        }

    def _cut_off(self, start: int) -> float:
        """The gap after whom the first operator follows is cut off."""
        world = self._world
        world.clock.run_until(start)
        client = next(iter(world.clients.values()))
        upstream = client.consumer.upstreams[client.stream]
        assert upstream.main is not None, "it follows nobody after seconds of calm"
        self._part(upstream.main.peer, CUT_US)
        end = start + CUT_US + 5 * SECOND_US
        world.clock.run_until(end)
        return self._came[client.address].gap_ms(start, end)

    def _part(self, name: str, length_us: int) -> None:
        """Cut all links of one machine without a word, and let time pass."""
        world, island = self._world, frozenset([name])
        world.changes += 1
        world.network.part(island)
        world.clock.run_until(world.clock.now + length_us)
        world.changes += 1
        world.network.rejoin(island)


Modes: TypeAlias = tuple[dict[str, float], dict[str, float]]


def measure(seed: int, race: bool, job_us: int) -> dict[str, float]:
    """One world in one mode; raises what a check of the simulator finds."""
    with collected_afterwards():
        return Measured(seed, race, job_us).run()


def simulated(worlds: int, job_us: int) -> dict[str, Any]:
    """So many worlds, each in both modes, as many at a time as there are processors."""
    seeds = range(1, worlds + 1)
    # Not forked: this process may have threads of Spark's.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        race, active = (
            [pool.submit(measure, seed, mode, job_us) for seed in seeds] for mode in (True, False)
        )
        both = zip(race, active, strict=True)
        return compared([(one.result(), other.result()) for one, other in both], job_us)


def compared(found: Sequence[Modes], job_us: int) -> dict[str, Any]:
    """Race over active, the middle of all worlds."""

    def middle(name: str) -> float:
        return round(statistics.median([one[name] / max(two[name], 1.0) for one, two in found]), 3)

    return {
        "worlds": len(found),
        "servers": SERVERS,
        "replicas": 6 * REPLICAS,
        "job_ms": round(job_us / 1e3, 1),
        "p50_over_active": middle("p50_ms"),
        "p99_over_active": middle("p99_ms"),
        "gap_over_active": middle("gap_ms"),
        "unordered_over_active": middle("p99_missing_ms"),
        "traffic_over_active": middle("rows_per_second"),
        "modes": {
            mode: {
                name: round(statistics.median([each[at][name] for each in found]), 1)
                for name in found[0][at]
            }
            for at, mode in enumerate(("race", "active"))
        },
    }
