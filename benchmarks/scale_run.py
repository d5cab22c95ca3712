"""One simulated deployment of any size: traffic, a crash, a partition, and how it heals.

Queries are trees: eight sources, four fragments that merge two streams each, two that compute
windows, one that merges the two, and a client. Fragments have several replicas, ten of them on
a server, partners on different ones; the entry points and the client of a query are at sites
of their own. Everything runs on `core/` unchanged. What is not modelled: that replicas of one
server share its processor.

    0 s to 10 s   all is well; traffic is counted in the last four seconds
    10 s          one server in a hundred crashes, for eight seconds
    24 s          half of all servers and sites are cut off from the other half, for twelve seconds
    36 s          the halves are one again; it ends when every replica is STABLE
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from random import Random
from typing import Any

from holdfast.core.consistency import NodeState
from holdfast.core.messages import HeartbeatReply, HeartbeatRequest, Message
from holdfast.core.settings import SECOND_US, Policy, Reconcile, Timing
from holdfast.core.upstream import Upstream
from holdfast.simulation import networks
from holdfast.simulation.checkers import consistency, progress, sources
from holdfast.simulation.conditions import Conditions
from holdfast.simulation.executor import Computation, Operator, Union, Window
from holdfast.simulation.faults import Fault, FaultKind, Schedule
from holdfast.simulation.main import collected_afterwards
from holdfast.simulation.networks import Fragment, NetworkSpec
from holdfast.simulation.world import World

REPLICAS_PER_SERVER = 10
CRASH_AT, BACK_AT, PART_AT, HEAL_AT = (second * SECOND_US for second in (10, 18, 24, 36))
LATEST_END = 120 * SECOND_US


@dataclass(frozen=True)
class Setup:
    """What is swept."""

    servers: int
    replicas: int = 2
    heartbeat_ms: int = 1_000
    misses: int = 3


def network_of(setup: Setup) -> NetworkSpec:
    """As many trees as fill the servers."""
    timing = Timing(
        bucket_us=SECOND_US,
        heartbeat_interval_us=setup.heartbeat_ms * 1_000,
        misses_until_down=setup.misses,
    )
    queries = max(1, REPLICAS_PER_SERVER * setup.servers // (7 * setup.replicas))
    fragments: list[Fragment] = []
    for query in range(queries):
        fragments += _tree(query, setup.replicas)
    streams = tuple(f"s{number}" for number in range(8 * queries))
    watched = tuple(f"q{query}f6.0" for query in range(queries))
    return networks.build(timing, streams, tuple(fragments), watched)


def _tree(query: int, replicas: int) -> Iterator[Fragment]:
    for number in range(7):
        name = f"q{query}f{number}"
        inputs = _inputs(query, number)
        operator: Operator = Union(inputs)
        if number in (4, 5):
            operator = Window(inputs, 2 * SECOND_US)
        yield Fragment(
            name,
            Computation(((f"{name}.0", operator),)),
            tuple(f"{name}{letter}" for letter in "abcdefgh"[:replicas]),
            Policy.PROCESS,
            Policy.PROCESS,
            Reconcile.RESTORE,
        )


def _inputs(query: int, number: int) -> tuple[str, str]:
    if number < 4:
        return f"s{8 * query + 2 * number}", f"s{8 * query + 2 * number + 1}"
    first = 2 * (number - 4)
    return f"q{query}f{first}.0", f"q{query}f{first + 1}.0"


def place(spec: NetworkSpec, setup: Setup, random: Random) -> dict[str, str]:
    """Replicas on random servers, partners apart; a site for the edges of each query."""
    servers = [f"m{number}" for number in range(setup.servers)]
    found: dict[str, str] = {}
    for fragment in spec.fragments:
        chosen = random.sample(servers, len(fragment.addresses))
        found |= dict(zip(fragment.addresses, chosen, strict=True))
    found |= {one.address: f"e{index // 8}" for index, one in enumerate(spec.entries)}
    found |= {one.address: f"c{index}" for index, one in enumerate(spec.clients)}
    return found


def run(setup: Setup, seed: int = 1) -> dict[str, Any]:
    """Everything that is measured in one deployment."""
    with collected_afterwards():
        return Measurement(setup, seed).run()


class Measurement:
    """A world, and what is counted in it."""

    def __init__(self, setup: Setup, seed: int) -> None:
        self._setup = setup
        self._began = time.process_time()
        random = Random(seed)
        spec = network_of(setup)
        server_of = place(spec, setup, random)
        everyone = sorted(set(server_of.values()))
        hosts = [one for one in everyone if one.startswith("m")]
        self._crashed = set(random.sample(hosts, max(1, setup.servers // 100)))
        half = tuple(random.sample(everyone, len(everyone) // 2))
        faults = [Fault(FaultKind.CRASH, CRASH_AT, BACK_AT, (one,)) for one in self._crashed]
        faults.append(Fault(FaultKind.PARTITION, PART_AT, HEAL_AT, half))
        conditions = Conditions(
            longest_append_us=10_000,
            skew_us=50_000,
            sample_us=10 * SECOND_US,
            start_us=2 * SECOND_US,
        )
        schedule = Schedule(tuple(faults), LATEST_END)
        self._world = World(spec, schedule, random, server_of, conditions=conditions)
        self._counts: Counter[bool] = Counter()
        self._deliver = self._world.network.deliver
        self._world.network.deliver = self._count

    def _count(self, source: str, target: str, message: Message) -> None:
        self._counts[isinstance(message, HeartbeatRequest | HeartbeatReply)] += 1
        self._deliver(source, target, message)

    def run(self) -> dict[str, Any]:
        world = self._world
        world.begin()
        until = world.clock.run_until
        until(6 * SECOND_US)
        self._counts.clear()
        until(CRASH_AT - 1)
        quiet_s = (CRASH_AT - 6 * SECOND_US) / SECOND_US
        beats, others = (self._counts[kind] / quiet_s for kind in (True, False))
        switch_s, resume_s = self._watch_the_crash()
        until(HEAL_AT - 1)
        unstable_at_heal = self._unstable()
        peak, curve = self._watch_the_healing()
        stable_s = curve[-1][0]
        until(world.clock.now + 5 * SECOND_US)
        sources.check(world)
        progress.check(world)
        consistency.check(world)
        servers = self._setup.servers
        return {
            **asdict(self._setup),
            "all_replicas": len(world.replicas),
            "processes": len(world.processes),
            "heartbeats_per_second_per_server": round(beats / servers, 1),
            "other_messages_per_second_per_server": round(others / servers, 1),
            "peak_messages_per_second_per_server": round(peak / servers, 1),
            "switches": len(switch_s),
            "switch_median_s": median(switch_s),
            "switch_longest_s": round(max(switch_s), 3),
            "news_median_s": median(resume_s),
            "news_longest_s": round(max(resume_s), 3),
            "not_stable_when_healed": round(unstable_at_heal / len(world.replicas), 3),
            "stable_after_s": stable_s,
            "healing": curve,
            "simulated_s": world.clock.now / SECOND_US,
            "cpu_s": round(time.process_time() - self._began, 1),
        }

    def _watch_the_crash(self) -> tuple[list[float], list[float]]:
        """How long until readers of the crashed replicas follow others, and hear news."""
        world = self._world
        gone = {name for name, server in world.server_of.items() if server in self._crashed}
        waiting = [
            one for one in self._readers(gone) if one.main is not None and one.main.peer in gone
        ]
        deaf = [(one, one.copy.live_boundary) for one in waiting]
        switch_s, resume_s = [], []
        while waiting or deaf:
            world.clock.run_until(world.clock.now + 20_000)
            after = (world.clock.now - CRASH_AT) / SECOND_US
            still = [one for one in waiting if one.main is None or one.main.peer in gone]
            switch_s += [after] * (len(waiting) - len(still))
            quiet = [(one, had) for one, had in deaf if one.copy.live_boundary <= had]
            resume_s += [after] * (len(deaf) - len(quiet))
            waiting, deaf = still, quiet
            if world.clock.now >= BACK_AT:
                raise SystemExit(f"{len(waiting)} readers have not changed within 8 s")
        return switch_s, resume_s

    def _readers(self, gone: set[str]) -> Iterator[Upstream]:
        for process in self._world.replicas.values():
            if process.address not in gone and process.replica is not None:
                yield from process.replica.consumer.upstreams.values()
        for client in self._world.clients.values():
            yield from client.driver.consumer.upstreams.values()

    def _unstable(self) -> int:
        replicas = [one.replica for one in self._world.replicas.values()]
        return sum(one is None or one.state is not NodeState.STABLE for one in replicas)

    def _watch_the_healing(self) -> tuple[float, list[tuple[float, float]]]:
        """The most messages in a second, and the share of replicas not STABLE over time."""
        world = self._world
        peak, counted = 0.0, 0
        curve = []
        step_us = SECOND_US // 4
        while True:
            self._counts.clear()
            world.clock.run_until(world.clock.now + step_us)
            counted = self._counts.total()
            peak = max(peak, counted * SECOND_US / step_us)
            unstable = self._unstable()
            after = round((world.clock.now - HEAL_AT) / SECOND_US, 2)
            curve.append((after, round(unstable / len(world.replicas), 4)))
            if not unstable:
                return peak, curve
            if world.clock.now >= LATEST_END:
                raise SystemExit(f"{unstable} replicas are not STABLE {after} s after healing")


def median(values: list[float]) -> float:
    return round(sorted(values)[len(values) // 2], 3)
