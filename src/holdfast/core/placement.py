"""Where replicas live: at the servers where the network pays least for them.

Theory of operation. A query is a graph: sources and applications have a place, the fragments
between them have none. A stream that flows at a rate over a link with a latency keeps rate ×
latency of data in the network all the time; that is its *cost*, and the cost of a placement is the
sum over all its streams. Every replica of a fragment is fed by every replica of the one before it,
so a stream between fragments with k and m replicas counts k × m times.

Replicas are placed in as many *phases* as there are to be replicas of each fragment; each phase
adds one replica of every fragment (all first ones before any second one, so that a cluster that
runs out of room gives everybody something). A phase rules out servers that are too busy, that have
a replica of the fragment already, or that share a *zone* with one: what fails together must not
hold two. Of the rest it takes the one where the streams to and from the new replica cost least.

What it costs depends on where its neighbours are, and some of those have no place yet. So a phase
begins with a first guess, taken from the sources down and from the applications up, and then moves
one replica after another, and pairs of neighbours together, as long as that makes it cheaper. After
the last phase all replicas are looked at once more. The result is a local optimum; how far from the
true one is measured (``make bench BENCH=placement``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

# How many of the best servers for each of two neighbours are tried together.
_PAIRED = 12
_SWEEPS = 20
_TINY = 1e-9

# server -> server -> latency, in any unit; a server is 0 from itself, or what it takes within it.
Delays = Mapping[str, Mapping[str, float]]
# fragment -> the servers of its replicas
Places = dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class Site:
    """A server that replicas may be placed on.

    zone  what is likely to be cut off, or to fail, together; "" for a zone of its own.
    room  how many more replicas it can take.
    """

    name: str
    zone: str = ""
    room: int = 1 << 30

    @property
    def fails_with(self) -> str:
        return self.zone or f"/{self.name}"


@dataclass(frozen=True, slots=True)
class Flow:
    """A stream from a source or fragment to a fragment or application, and its rate."""

    producer: str
    consumer: str
    rate: float = 1.0


@dataclass(frozen=True)
class Query:
    """What is to be placed.

    pinned     the servers of sources and applications.
    fragments  in the order of the streams.
    """

    pinned: Mapping[str, str]
    fragments: tuple[str, ...]
    flows: tuple[Flow, ...]


@dataclass(frozen=True)
class Placed:
    """Where replicas are, what that costs, and of which fragments there are too few."""

    places: Mapping[str, tuple[str, ...]]
    cost: float
    lacking: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Choice:
    """Why a replica is where it is.

    cost        of the streams to and from it.
    runner_up   the server it would be on otherwise, and what it would cost there; None: no other.
    ruled_out   servers that were not considered, and why.
    """

    fragment: str
    server: str
    cost: float
    runner_up: tuple[str, float] | None
    ruled_out: Mapping[str, str]


class Placement:
    """Finds places for the replicas of one query."""

    def __init__(
        self,
        sites: Sequence[Site],
        delays: Delays,
        query: Query,
        fixed: Mapping[str, Sequence[str]] | None = None,
    ) -> None:
        """``fixed``: replicas that are where they are; others are added to them."""
        self._sites = {site.name: site for site in sites}
        self._delays = delays
        self._query = query
        self._fixed = {name: len(found) for name, found in (fixed or {}).items()}
        self.places: Places = {name: list((fixed or {}).get(name, ())) for name in query.fragments}
        self._neighbours: dict[str, list[tuple[str, float, bool]]] = {}
        for flow in query.flows:
            self._neighbours.setdefault(flow.consumer, []).append((flow.producer, flow.rate, True))
            self._neighbours.setdefault(flow.producer, []).append((flow.consumer, flow.rate, False))

    def place(self, replicas: int | Mapping[str, int]) -> Placed:
        """Give every fragment so many replicas, if there are servers for them."""
        if isinstance(replicas, int):
            replicas = dict.fromkeys(self._query.fragments, replicas)
        for phase in range(1, max(replicas.values(), default=0) + 1):
            self._phase({name: min(phase, count) for name, count in replicas.items()})
        self._improve({name: self._movable(name) for name in self._query.fragments})
        lacking = {
            name: replicas[name] - len(found)
            for name, found in self.places.items()
            if len(found) < replicas[name]
        }
        places = {name: tuple(found) for name, found in self.places.items()}
        return Placed(places, self.cost(), lacking)

    def _movable(self, fragment: str) -> range:
        return range(self._fixed.get(fragment, 0), len(self.places[fragment]))

    # -- a phase -------------------------------------------------------------------------

    def _phase(self, wanted: Mapping[str, int]) -> None:
        before = {name: list(found) for name, found in self.places.items()}
        best: tuple[int, float, Places] | None = None
        orders = (self._query.fragments, tuple(reversed(self._query.fragments)))
        for order in orders:
            self.places = {name: list(found) for name, found in before.items()}
            for name in order:
                self._add(name, wanted[name])
            added = {
                name: range(len(before[name]), len(found)) for name, found in self.places.items()
            }
            self._improve(added)
            # More replicas first, then less cost.
            missing = -sum(len(found) for found in self.places.values())
            if best is None or (missing, self.cost() + _TINY) < best[:2]:
                best = (missing, self.cost(), self.places)
        assert best is not None
        self.places = best[2]

    def _add(self, fragment: str, wanted: int) -> None:
        if len(self.places[fragment]) >= wanted:
            return
        found = self._ranked(fragment, self.places[fragment])
        if found:
            self.places[fragment].append(found[0][1])

    def _improve(self, movable: Mapping[str, range]) -> None:
        """Move replicas, alone and in pairs, as long as that makes it cheaper."""
        for _ in range(_SWEEPS):
            moved = False
            for name in self._query.fragments:
                for index in movable[name]:
                    moved |= self._move_one(name, index)
            if not moved:
                for pair in self._pairs(movable):
                    moved |= self._move_two(*pair)
            if not moved:
                return

    def _move_one(self, fragment: str, index: int) -> bool:
        places = self.places[fragment]
        here = places.pop(index)
        found = self._ranked(fragment, places)
        better = found and found[0][0] < self._cost_at(fragment, here) - _TINY
        places.insert(index, found[0][1] if better else here)
        return bool(better)

    def _pairs(self, movable: Mapping[str, range]) -> Iterator[tuple[str, int, str, int]]:
        for flow in self._query.flows:
            if flow.producer in movable and flow.consumer in movable:
                for index in movable[flow.producer]:
                    for other in movable[flow.consumer]:
                        yield flow.producer, index, flow.consumer, other

    def _move_two(self, fragment: str, index: int, other: str, other_index: int) -> bool:
        """Two neighbours pull each other back; so they are also moved together."""
        one, two = self.places[fragment], self.places[other]
        best, was = self.cost(), (one[index], two[other_index])
        found: tuple[str, str] | None = None
        home = one.pop(index)
        two_home = two.pop(other_index)
        for _, here in self._ranked(fragment, one)[:_PAIRED]:
            one.insert(index, here)
            for _, there in self._ranked(other, two)[:_PAIRED]:
                two.insert(other_index, there)
                cost = self.cost()
                if cost < best - _TINY:
                    best, found = cost, (here, there)
                two.pop(other_index)
            one.pop(index)
        here, there = found or was
        assert (home, two_home) == was
        one.insert(index, here)
        two.insert(other_index, there)
        return found is not None

    # -- costs ---------------------------------------------------------------------------

    def _ranked(self, fragment: str, beside: Sequence[str]) -> list[tuple[float, str]]:
        """The servers that may have one more replica, the cheapest first."""
        zones = {self._zone(name) for name in beside}
        used = self._used()
        found = [
            (self._cost_at(fragment, site.name), site.name)
            for site in self._sites.values()
            if site.fails_with not in zones and used.get(site.name, 0) < site.room
        ]
        found.sort()
        return found

    def _used(self) -> dict[str, int]:
        """How many of the replicas that are placed here each server has got."""
        used: dict[str, int] = {}
        for name, places in self.places.items():
            for place in places[self._fixed.get(name, 0) :]:
                used[place] = used.get(place, 0) + 1
        return used

    def _zone(self, server: str) -> str:
        site = self._sites.get(server)
        return f"/{server}" if site is None else site.fails_with

    def _cost_at(self, fragment: str, server: str) -> float:
        """What the streams to and from a replica on a server cost."""
        cost = 0.0
        for neighbour, rate, is_input in self._neighbours.get(fragment, ()):
            for place in self._where(neighbour):
                here, there = (place, server) if is_input else (server, place)
                cost += rate * self._delays[here][there]
        return cost

    def _where(self, name: str) -> Sequence[str]:
        pinned = self._query.pinned.get(name)
        return self.places.get(name, ()) if pinned is None else (pinned,)

    def cost(self) -> float:
        """What all streams cost."""
        return sum(
            flow.rate * self._delays[here][there]
            for flow in self._query.flows
            for here in self._where(flow.producer)
            for there in self._where(flow.consumer)
        )

    # -- why -----------------------------------------------------------------------------

    def explain(self, fragment: str, server: str) -> Choice:
        """Why a replica is on this server."""
        beside = [place for place in self.places[fragment] if place != server]
        zones = {self._zone(place): place for place in beside}
        ruled_out: dict[str, str] = {}
        found: list[tuple[float, str]] = []
        for site in self._sites.values():
            if site.name == server:
                continue
            peer = zones.get(site.fails_with)
            if site.name in beside:
                ruled_out[site.name] = "has a replica of the fragment"
            elif peer is not None:
                ruled_out[site.name] = f"is in the zone of {peer}, which has one"
            elif site.room <= 0:
                ruled_out[site.name] = "is too busy"
            else:
                found.append((self._cost_at(fragment, site.name), site.name))
        cost, other = min(found, default=(0.0, ""))
        runner_up = (other, cost) if other else None
        return Choice(fragment, server, self._cost_at(fragment, server), runner_up, ruled_out)
