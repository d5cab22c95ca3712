"""Who needs no order waits for none: each result once, all of them, and none for a missing input.

- *Each result once*: a client without an order never gets a row again, early or in order.
- *All of them*: in the end it has exactly the rows of the oracle up to its boundary; what it has
  beyond that, early, the oracle has, too.
- *None waits*: if processes and links have stood for a while between a source and the client, on
  any one of the ways, the client has what the source published a moment ago, whatever became of
  the other inputs of the unions in between. Of a window or a join, which is a source for what is
  behind it, that is what its own inputs' boundaries have passed, whatever else its fragment reads;
  of a join every pair both of whose halves are published.
- *Memory*: a duplicate filter remembers nothing that the order stands for already.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holdfast.core.consistency import NodeState
from holdfast.core.duplicates import DuplicateFilter
from holdfast.core.frame import Header
from holdfast.core.provenance import Trail
from holdfast.core.racing import RacingReplica
from holdfast.core.settings import SECOND_US
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.core.unordered import UnorderedClient
from holdfast.simulation.checkers import Violation
from holdfast.simulation.executor import Join, Operator, Row, Tagged, Union, mix, tagged

if TYPE_CHECKING:
    from holdfast.simulation.client_process import ClientProcess
    from holdfast.simulation.world import World


@dataclass(frozen=True)
class Way:
    """How rows of a source come to a stream: the inputs, operators and trails on the way."""

    source: str
    steps: tuple[tuple[str, Union, Trail], ...]

    def image(self, row: Row) -> Row | None:
        """What becomes of a row; None if an operator drops it."""
        stime, key, value, seq = row
        for stream, operator, trail in self.steps:
            if key == operator.dropped_key:
                return None
            value, seq = mix(len(stream), value), trail.seq(seq)
        return (stime, key, value, seq)


class Origin:
    """The rows that an operator with a memory owes as soon as its own sources have told enough."""

    def __init__(self, world: World, operator: Operator, entries: dict[str, str]) -> None:
        self.inputs = operator.inputs
        self.rows: list[Row] = []
        self._world, self._operator = world, operator
        self._entries = [entries[name] for name in operator.inputs]
        self._boundaries = dict.fromkeys(self._entries, 0)
        self._taken = dict.fromkeys(operator.inputs, 0)
        self._waiting: list[Tagged] = []
        self._position = 0
        self._state: object = None
        # Of a join: its pairs.
        self._found: set[Row] = set()

    def learn(self) -> None:
        """Take what the sources have published since."""
        world, bucket_us = self._world, self._world.spec.timing.bucket_us
        if isinstance(self._operator, Join):
            return self._pair(self._operator)
        for address in self._entries:
            process = world.entries[address]
            if process.running:
                told = process.driver.served.boundary
                self._boundaries[address] = max(self._boundaries[address], told)
        stop = min(self._boundaries.values())
        stop -= stop % bucket_us
        if stop <= self._position:
            return
        self._waiting += self._fresh()
        mine = sorted(row for row in self._waiting if row[0] < stop)
        self._waiting = [row for row in self._waiting if row[0] >= stop]
        start, self._position = self._position, stop
        self._state, made, _ = self._operator.advance(self._state, mine, start, stop)
        self.rows += made

    def _fresh(self) -> list[Tagged]:
        """What was published since this was last asked."""
        found = []
        for name, taken in self._taken.items():
            rows = self._world.truth.rows.get(name, [])
            found += [tagged(name, at, rows[at]) for at in range(taken, len(rows))]
            self._taken[name] = len(rows)
        return found

    def _pair(self, join: Join) -> None:
        """Every pair is owed once both halves are there."""
        fresh = self._fresh()
        if not fresh:
            return
        self._waiting = sorted([*self._waiting, *fresh])
        since = min(row[0] for row in fresh) - join.within_us
        near = [row for row in self._waiting if row[0] >= since]
        _, made, _ = join.advance(None, near, 0, FAR_FUTURE)
        self.rows += [row for row in made if row not in self._found]
        self._found.update(made)


class Early:
    """Knows the clients without an order, and the ways to them."""

    def __init__(self, world: World) -> None:
        self._world = world
        spec = world.spec
        self._unions = {
            stream: operator
            for fragment in spec.fragments
            for stream, operator in fragment.plan.outputs
            if stream in spec.trails and isinstance(operator, Union)
        }
        self._sources = {one.stream: one.address for one in spec.entries}
        # Of which it is known what they owe: those right behind sources.
        self._origins = {
            stream: Origin(world, operator, self._sources)
            for fragment in spec.fragments
            for stream, operator in fragment.plan.outputs
            if stream in spec.trails and stream not in self._unions
            if all(name in self._sources for name in operator.inputs)
        }
        self._clients = [one for one in world.clients.values() if one.unordered]
        self._ways = {one.stream: self._ways_to(one.stream) for one in self._clients}
        timing = spec.timing
        # A hop: what is before it, its own job, some that fail, and its messages.
        self._hop_us = 20 * spec.job_us + 8 * timing.retry_us + 1_500_000
        self._settle_us = (timing.misses_until_down + 4) * timing.heartbeat_interval_us
        self._settle_us += 3 * SECOND_US
        self._recovered_at: dict[str, int] = {}
        # Without the stable version's state nothing with a memory can go ahead of it.
        self._rebuilt_at: dict[str, int] = {}
        # How many rows each source had when.
        self._counts: dict[str, deque[tuple[int, int]]] = {
            one: deque() for one in (*self._sources, *self._origins)
        }
        self._checked: Counter[tuple[str, Way]] = Counter()

    def _ways_to(self, stream: str) -> list[Way]:
        if stream in self._sources or stream in self._origins:
            return [Way(stream, ())]
        operator = self._unions.get(stream)
        if operator is None:
            return []
        return [
            Way(way.source, (*way.steps, (name, operator, trail)))
            for name, trail in operator.ways
            for way in self._ways_to(name)
        ]

    def _rows_of(self, source: str) -> list[Row]:
        """The rows of a source or of an operator with a memory, with their seqs."""
        if source in self._origins:
            return self._origins[source].rows
        rows = self._world.truth.rows.get(source, ())
        return [(*row[:3], number) for number, row in enumerate(rows)]

    # -- what comes ---------------------------------------------------------------------

    def came(self, client: ClientProcess, header: Header, rows: list[Row]) -> None:
        """A client without an order is about to take rows."""
        twice = [row for row in rows if row in client.seen]
        if twice or len(set(rows)) < len(rows):
            raise Violation(
                "each result once",
                f"{client.address} gets {twice or rows} again, in a frame {header.kind.name}",
            )

    def sample(self) -> None:
        if not self._clients:
            return
        now = self._world.clock.now
        for origin in self._origins.values():
            origin.learn()
        for name, counts in self._counts.items():
            rows = self._origins[name].rows if name in self._origins else None
            known = self._world.truth.rows.get(name, ()) if rows is None else rows
            counts.append((now, len(known)))
        for address, process in self._world.replicas.items():
            replica = process.replica
            away = process.paused or process.slow or replica is None
            if away or replica is None or replica.state is NodeState.RECOVERING:
                self._recovered_at[address] = now
            if replica is None or not replica.versions.rebuilt:
                self._rebuilt_at[address] = now
            if isinstance(replica, RacingReplica):
                for stream, each in replica.lane.filters.items():
                    copy = replica.copies[stream]
                    self._check_memory(address, each, stream, min(copy.cut, copy.boundary))
                for stream, each in replica.pairs.filters.items():
                    self._check_memory(address, each, stream, replica.copies[stream].cut)
        for client in self._clients:
            if client.address in self._world.authority.gone:
                continue
            driver = client.driver
            assert isinstance(driver, UnorderedClient)
            self._check_memory(client.address, driver.filter, client.stream, driver.copy.cut)
            if client.running and not client.slow and not self._world.source_lost:
                for way in self._ways[client.stream]:
                    self._check_way(client, way, now)

    def _check_memory(self, address: str, filters: DuplicateFilter, stream: str, cut: int) -> None:
        old = [claim for claim in filters.passed if claim.stime_max < cut]
        if old:
            raise Violation(
                "bounded memory",
                f"{address} remembers {old[0]} of {stream}, though the order stands for "
                f"everything before {cut / 1e6:.3f} s",
            )

    # -- what does not wait -------------------------------------------------------------

    def _check_way(self, client: ClientProcess, way: Way, now: int) -> None:
        streams = [name for name, _, _ in way.steps] + [client.stream]
        since = self._stands_since(client.address, streams)
        if since is None:
            return
        within = (len(way.steps) + (way.source in self._origins)) * self._hop_us
        first = self._count_at(way.source, since + self._settle_us)
        last = self._count_at(way.source, now - within)
        first = max(first, self._checked[client.address, way])
        rows = self._rows_of(way.source) if first < last else []
        for tuple_id in range(first, last):
            row = way.image(rows[tuple_id])
            if row is not None and row not in client.seen:
                raise Violation(
                    "early",
                    f"{client.address} lacks {row}, which comes of tuple {tuple_id} of "
                    f"{way.source}, though {' and '.join(streams)} have stood since "
                    f"{since / 1e6:.3f} s; now {now / 1e6:.3f} s",
                )
        self._checked[client.address, way] = max(first, last)

    def _count_at(self, source: str, time: int) -> int:
        """How many rows a source had at a time."""
        count = 0
        for when, many in reversed(self._counts[source]):
            if when <= time:
                return many
            count = many
        return count

    def _stands_since(self, reader: str, streams: list[str]) -> int | None:
        """Since when one chain of processes has stood that brings a reader the last stream."""
        world, stream = self._world, streams[-1]
        consumer = world.processes[reader].consumer
        if consumer is None:
            return None
        best: int | None = None
        for feed in consumer.upstreams[stream].feeds():
            link = world.link_stands_since(feed.peer, reader)
            process = world.processes[feed.peer]
            if link is None or not process.running or process.slow or not feed.received:
                continue
            since = max(link, process.disturbed_at, feed.opened_at - process.ahead_us)
            since = max(since, world.processes[reader].disturbed_at)
            if len(streams) > 1:
                above = self._stands_since(feed.peer, streams[:-1])
                if above is None:
                    continue
                since = max(since, above, self._recovered_at.get(feed.peer, 0))
            elif stream in self._origins:
                own = [self._stands_since(feed.peer, [one]) for one in self._origins[stream].inputs]
                stood = [one for one in own if one is not None]
                if len(stood) < len(own):
                    continue
                built = self._rebuilt_at.get(feed.peer, 0)
                since = max(since, *stood, self._recovered_at.get(feed.peer, 0), built)
            best = since if best is None else min(best, since)
        return best


def check_all(client: ClientProcess, expected: list[Row]) -> None:
    """In the end, of a client without an order: the rows of the oracle, in whatever order."""
    known = set(expected)
    wrong = [row for row in client.stable if row not in known]
    lacking = [row for row in expected if row[0] < client.boundary and row not in client.seen]
    if wrong or lacking or len(client.seen) != len(client.stable):
        raise Violation(
            "eventual consistency",
            f"{client.address} lacks {lacking[:3]} ({len(lacking)}) of {len(expected)} and has "
            f"{wrong[:3]} ({len(wrong)}), which the oracle has not",
        )
