"""A simulated cluster that runs something: its coordinator places, replaces and moves replicas.

Elections and the register are as in ``cluster_world``; whoever coordinates decides by the product's
``core.managing`` on the ground of what it can reach, every second. Servers start and end replicas
as they are told. A replica that joins takes its time, and takes it only while another one that has
the state can be reached; what it has is on its server's disk, and survives. Servers lie in a plane,
their delays are as long as the ways between them, and some links jump.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from math import dist
from random import Random

from holdfast.core.adaptation import AdaptationSettings
from holdfast.core.cluster_messages import Answer, Offered, Version
from holdfast.core.ground import Ground
from holdfast.core.managing import AddReplica, Kept, Managing, Order, RemoveReplicas, Replicas, Seen
from holdfast.core.placement import Flow, Query, Site
from holdfast.core.settings import SECOND_US
from holdfast.simulation.cluster_server import SimulatedServer
from holdfast.simulation.cluster_world import ClusterScenario, ClusterWorld
from holdfast.simulation.managed_checkers import (
    Fragment,
    ManagedChecker,
    read_value,
    write_value,
)

_REPLACE_AFTER_US = 8 * SECOND_US
_STEP_US = SECOND_US // 2
_MOVING = AdaptationSettings(hold_us=15 * SECOND_US, rest_us=16 * SECOND_US)
# As long as the whole plane is wide.
_WIDE_MS = 100.0


@dataclass
class Hosted:
    """A replica on a server's disk.

    joins_us  how long it still has to take the state of another one; 0: it has it.
    well_at   when it has come up, in this life of its server.
    """

    fragment: str
    joins_us: int
    well_at: int


class ManagedWorld(ClusterWorld):
    """A cluster with one submission."""

    def __init__(self, scenario: ClusterScenario) -> None:
        super().__init__(scenario)
        random = Random(f"managed {scenario.seed}")
        self._chance = random
        self.managed = ManagedChecker(self._has_state)
        self.checker = self.managed
        # Servers of one zone are near each other.
        middles = [(random.random(), random.random()) for _ in range(max(1, len(self.names) // 2))]
        self.zones: dict[str, str] = {}
        self._at: dict[str, tuple[float, float]] = {}
        for index, name in enumerate(self.names):
            zone = index % len(middles)
            x, y = middles[zone]
            self._at[name] = (x + 0.05 * random.random(), y + 0.05 * random.random())
            self.zones[name] = f"z{zone}" if random.random() < 0.7 else f"/{name}"
        self._jumps = frozenset(random.sample(self.names, len(self.names) // 4))
        self._query = self._some_query(random)
        apart = len(set(self.zones.values()))
        self._wanted = {name: random.randint(1, min(3, apart)) for name in self._query.fragments}
        self.hosted: dict[str, dict[str, Hosted]] = {name: {} for name in self.names}
        self._managers: dict[str, Managing] = {}
        self._heard: dict[str, dict[str, int]] = {}
        # When each change of replicas was settled, for the first time that somebody obeyed it.
        self.changes: list[tuple[int, Version]] = []
        for name in self.names:
            after = int(random.random() * SECOND_US)
            self.clock.after(after, self._manage, self.servers[name])
        self.clock.after(_STEP_US, self._step)

    def _some_query(self, random: Random) -> Query:
        """A chain or a tree of fragments between some sources and an application."""
        fragments = tuple(f"f{index}" for index in range(random.randint(1, 4)))
        pinned = {f"source{index}": random.choice(self.names) for index in range(2)}
        pinned["application"] = random.choice(self.names)
        flows = [
            Flow(each, random.choice(fragments), 10.0) for each in pinned if each != "application"
        ]
        flows += [
            Flow(here, there, random.choice((1.0, 5.0))) for here, there in pairwise(fragments)
        ]
        return Query(pinned, fragments, (*flows, Flow(fragments[-1], "application", 1.0)))

    # -- what servers do ------------------------------------------------------------------

    def started(self, server: SimulatedServer) -> None:
        self._heard[server.name] = {}
        for each in self.hosted[server.name].values():
            each.well_at = self.clock.now + int(self._chance.uniform(1, 4) * SECOND_US)

    def obeyed(self, server: SimulatedServer) -> None:
        version, value = server.obeyed
        mine, here = self.hosted[server.name], set()
        for name, fragment in read_value(value).items():
            for replica, at in fragment.at.items():
                if at == server.name:
                    here.add(replica)
                    mine.setdefault(replica, self._begin_replica(name, replica))
        for replica in mine.keys() - here:
            del mine[replica]
        if value and (not self.changes or version > self.changes[-1][1]):
            self.changes.append((self.clock.now, version))

    def _begin_replica(self, fragment: str, replica: str) -> Hosted:
        # The first ones take everything from the beginning: nothing is trimmed without them.
        is_first = int(replica.rpartition("-")[2]) <= self._wanted[fragment]
        joins_us = 0 if is_first else int(self._chance.uniform(1, 8) * SECOND_US)
        return Hosted(fragment, joins_us, self.clock.now + SECOND_US)

    def _has_state(self, replica: str) -> bool:
        return any(mine[replica].joins_us == 0 for mine in self.hosted.values() if replica in mine)

    def _state(self, server: str, replica: str) -> str:
        each = self.hosted[server].get(replica)
        if each is None:
            return "absent"
        well = each.joins_us == 0 and each.well_at <= self.clock.now
        return "stable" if well else "joining"

    def _step(self) -> None:
        """Those that join get on, while they reach somebody who is stable."""
        self.clock.after(_STEP_US, self._step)
        for name, mine in self.hosted.items():
            for each in mine.values():
                if each.joins_us and self.servers[name].running and self._lender(name, each):
                    each.joins_us = max(0, each.joins_us - _STEP_US)

    def _lender(self, here: str, joining: Hosted) -> bool:
        return any(
            each.fragment == joining.fragment and self._state(there, replica) == "stable"
            for there, mine in self.hosted.items()
            if there != here and self._reaches(here, there)
            for replica, each in mine.items()
        )

    def _reaches(self, here: str, there: str) -> bool:
        return here == there or (self._hears(here, there) and self._hears(there, here))

    # -- what a coordinator does ----------------------------------------------------------

    def _submit(self) -> None:
        """As long as nothing is submitted, somebody submits."""
        self.clock.after(SECOND_US, self._submit)
        for server in self.servers.values():
            seat = server.seat
            if server.running and seat is not None and seat.election.is_coordinating:
                there = all(self._reaches(server.name, each) for each in self.names)
                if seat.register.value or not there:
                    return
                placed = self._ground(server.name).choose(self._wanted, {})
                if placed.lacking:
                    return
                value = {
                    name: Fragment(
                        len(found),
                        {f"{name}-{n}": each for n, each in enumerate(found, 1)},
                        len(found),
                    )
                    for name, found in placed.places.items()
                }
                self._offer(server, seat.register.version, write_value(value))

    def _offer(self, asked: SimulatedServer, version: Version, value: str) -> None:
        if asked.seat is None or asked.paused:
            return
        self._submitted += 1
        asked.on_answer[self._submitted] = self._answered
        asked.take(Offered(self._submitted, version, value))

    def _answered(self, answer: Answer) -> None:
        """Whether it was taken is looked at again in a second."""

    def _ground(self, here: str) -> Ground:
        there = [each for each in self.names if self._reaches(here, each)]
        delays = {one: {two: self._delay_ms(one, two) for two in there} for one in there}
        sites = [Site(name, self.zones[name], 4) for name in there]
        alone = [Site(name, "", 4) for name in there]
        return Ground(self._query, delays, (sites, alone))

    def _delay_ms(self, one: str, two: str) -> float:
        if one == two:
            return 0.1
        way = _WIDE_MS * dist(self._at[one], self._at[two])
        jumps = one in self._jumps or two in self._jumps
        # What is measured is never twice the same, and some links jump every second or two.
        leap = 3.0 if jumps and self._chance.random() < 0.5 else 1.0
        return 1.0 + way * self._chance.uniform(0.97, 1.03) * leap

    def _manage(self, server: SimulatedServer) -> None:
        self.clock.after(SECOND_US, self._manage, server)
        now, seat = self.clock.now, server.seat
        if seat is None or server.paused:
            return
        heard = self._heard[server.name]
        for each in self.names:
            if self._reaches(server.name, each) or each not in heard:
                heard[each] = now
        if not seat.election.is_coordinating:
            self._managers.pop(server.name, None)
            return
        fragments = read_value(seat.register.value)
        lost = frozenset(each for each, at in heard.items() if now - at >= _REPLACE_AFTER_US)
        order = self._decided(server, fragments, lost)
        if order is not None:
            fragments[order.fragment] = changed(order.fragment, fragments[order.fragment], order)
            thinking = self._chance.choice((0, 0, 100_000))
            read = seat.register.version
            self.clock.after(thinking, self._offer, server, read, write_value(fragments))

    def _decided(
        self, server: SimulatedServer, fragments: dict[str, Fragment], lost: frozenset[str]
    ) -> Order | None:
        managing = self._managers.setdefault(server.name, Managing(_MOVING))
        groups = [
            Replicas(name, each.at, each.wanted, each.moves) for name, each in fragments.items()
        ]
        at = {replica: place for each in fragments.values() for replica, place in each.at.items()}
        states = {
            replica: self._state(at[replica], replica)
            for replica in managing.asks(groups, lost)
            if self._reaches(server.name, at[replica])
        }
        if not fragments:
            return None
        kept = {replica: Kept(0, {}) for replica in states}  # nobody who reads is away
        seen = Seen(lost, states, self._ground(server.name), True, kept)
        return managing.look(groups, seen, self.clock.now).order

    # -- at the end -----------------------------------------------------------------------

    def run(self) -> None:
        scenario = self._scenario
        self.run_until(scenario.ends_us)
        values = {name: self.servers[name].record.value for name in self.names}
        self.checker.ends(values)
        fragments = read_value(values[self.names[0]])
        states = {
            replica: self._state(place, replica)
            for each in fragments.values()
            for replica, place in each.at.items()
        }
        self.managed.settles(fragments, states, self.zones)
        late = [at for at, _ in self.changes if at > scenario.ends_us - 20 * SECOND_US]
        self.managed.rests(len(late), "in the last 20 s of a world in which nothing happens")
        for server in self.servers.values():
            if server.seat is not None:
                self.collect(server.seat)


def changed(name: str, fragment: Fragment, order: Order) -> Fragment:
    """What the register has of a fragment after an order."""
    match order:
        case AddReplica(_, _, server, _, instead_of):
            added = f"{name}-{fragment.made + 1}"
            moves = dict(fragment.moves) | ({} if instead_of is None else {instead_of: added})
            at = {**fragment.at, added: server}
            return replace(fragment, at=at, made=fragment.made + 1, moves=moves)
        case RemoveReplicas(_, gone):
            at = {each: place for each, place in fragment.at.items() if each not in gone}
            moves = {
                here: there for here, there in fragment.moves.items() if {here, there} <= at.keys()
            }
            return replace(fragment, at=at, moves=moves)
