"""Which replicas are worth what they cost: the useless ones are discarded.

Theory of operation. Where replicas race, everybody who reads a stream gets it from every replica of
the fragment before, and notes who is how early (``core.ranks``): a *stream replica* is one of these
feeds, and its weight is 1 for each tuple it brought first, 1/2 for each it brought second, and so
on. Applications have a utility of their own, 1 or what was given. From them it flows up: what a
reader is worth is shared among the stream replicas of each of its inputs by their weights, and a
fragment's replica is worth what the stream replicas that leave it are worth together.

Collecting discards what is worth least, one after another, until what is left costs no more than θ:
a stream replica, which costs rate × latency, or a replica of a fragment with all its streams. Of
two that are worth the same the dearer one goes. Below θ, streams that are not used are used again,
the cheapest first. Kept are

    at least k_min replicas of every fragment, and of each input of each reader k_min streams, if
    there are so many;
    unless k_min is 1, replicas in k_min zones, if there are so many: the last one on one side of a
    likely partition does not go.

A reader that is left with fewer streams because a fragment's replica goes gets others instead, the
cheapest of those that were discarded or are not used. The unit is the fragment, where the papers on
this have the operator: what is computed together lives together.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StreamReplica:
    """A stream replica: one reader's feed from one replica, or from a source."""

    stream: str
    producer: str
    consumer: str


@dataclass(frozen=True, slots=True)
class FeedFacts:
    """What is known of one: what it costs the network, and how early it was (``Ranks``)."""

    cost: float
    weight: float


@dataclass(frozen=True)
class Running:
    """What runs.

    replicas      fragment -> its replicas.
    zones         replica -> what it fails together with.
    applications  readers that nobody reads, and what each is worth.
    feeds         every feed that could be, used or not.
    used          those that are; None for all.
    stays         feeds and replicas that do not go, whatever they are worth.
    """

    replicas: Mapping[str, Sequence[str]]
    zones: Mapping[str, str]
    applications: Mapping[str, float]
    feeds: Mapping[StreamReplica, FeedFacts]
    used: frozenset[StreamReplica] | None = None
    stays: frozenset[StreamReplica | str] = frozenset()


@dataclass
class Collected:
    """What is kept, and what was discarded, in this order."""

    feeds: set[StreamReplica]
    replicas: dict[str, list[str]]
    discarded: list[StreamReplica | str] = field(default_factory=list)
    revived: list[StreamReplica] = field(default_factory=list)


class Collection:
    """Discards what is worth least."""

    def __init__(self, running: Running, k_min: int) -> None:
        if k_min < 1:
            raise ValueError(f"k_min is at least 1, got {k_min}")
        self._running = running
        self._k_min = k_min
        self._fragment_of = {
            name: fragment for fragment, names in running.replicas.items() for name in names
        }
        self.kept = Collected(
            set(running.feeds if running.used is None else running.used),
            {name: list(found) for name, found in running.replicas.items()},
        )

    @property
    def cost(self) -> float:
        """What the feeds that are kept cost together."""
        return sum(self._running.feeds[feed].cost for feed in self.kept.feeds)

    def collect(self, theta: float) -> Collected:
        """Discard until it costs no more than θ, or nothing more may go."""
        for consumer, stream in sorted({(one.consumer, one.stream) for one in self._running.feeds}):
            self._revive(consumer, stream)
        while self.cost > theta and self._discard_one():
            pass
        return self.kept

    def use_again(self, theta: float) -> list[StreamReplica]:
        """Use feeds again while that costs no more than θ; which."""
        running = {name for names in self.kept.replicas.values() for name in names}
        readers = running | set(self._running.applications)
        unused = [
            (facts.cost, str(feed), feed)
            for feed, facts in self._running.feeds.items()
            if feed not in self.kept.feeds and feed.producer in running and feed.consumer in readers
        ]
        fresh: list[StreamReplica] = []
        cost = self.cost
        for more, _, feed in sorted(unused, key=lambda one: one[:2]):
            cost += more
            if cost > theta:
                break
            fresh.append(feed)
        self.kept.feeds.update(fresh)
        self.kept.revived += fresh
        return fresh

    def _discard_one(self) -> bool:
        feeds, replicas = self.utilities()
        found: list[tuple[float, float, str, StreamReplica | str]] = [
            (feeds[feed], -self._running.feeds[feed].cost, str(feed), feed)
            for feed in self._feeds_that_may_go()
        ]
        found += [
            (replicas.get(name, 0.0), -self._cost_of(name), name, name)
            for name in self._replicas_that_may_go()
        ]
        if not found:
            return False
        gone = min(found, key=lambda one: one[:3])[3]
        if isinstance(gone, StreamReplica):
            self.kept.feeds.discard(gone)
        else:
            self._discard_replica(gone)
        self.kept.discarded.append(gone)
        return True

    # -- utilities -----------------------------------------------------------------------

    def utilities(self) -> tuple[dict[StreamReplica, float], dict[str, float]]:
        """What each feed and each replica that is kept is worth."""
        inputs: dict[str, dict[str, list[StreamReplica]]] = {}
        for feed in self.kept.feeds:
            inputs.setdefault(feed.consumer, {}).setdefault(feed.stream, []).append(feed)
        worth: dict[StreamReplica, float] = {}
        replicas = dict(self._running.applications)
        for reader in self._readers_first(inputs):
            for feeds in inputs.get(reader, {}).values():
                weights = [self._running.feeds[feed].weight for feed in feeds]
                whole = sum(weights)
                for feed, weight in zip(feeds, weights, strict=True):
                    # Before anything has come, all are worth the same.
                    share = weight / whole if whole else 1 / len(feeds)
                    worth[feed] = share * replicas.get(reader, 0.0)
                    replicas[feed.producer] = replicas.get(feed.producer, 0.0) + worth[feed]
        return worth, replicas

    def _readers_first(self, inputs: Mapping[str, Mapping[str, list[StreamReplica]]]) -> list[str]:
        """Everybody after all who read it: applications, then what feeds them, and so on."""
        readers: dict[str, set[str]] = {}
        for consumer, streams in inputs.items():
            for feeds in streams.values():
                for feed in feeds:
                    readers.setdefault(feed.producer, set()).add(consumer)
        order: list[str] = []
        seen: set[str] = set()

        def visit(name: str) -> None:
            if name not in seen:
                seen.add(name)
                for reader in sorted(readers.get(name, ())):
                    visit(reader)
                order.append(name)

        for name in sorted({*inputs, *readers}):
            visit(name)
        return order

    # -- what may go ---------------------------------------------------------------------

    def _feeds_that_may_go(self) -> Iterator[StreamReplica]:
        beside: dict[tuple[str, str], int] = {}
        for feed in self.kept.feeds:
            at = (feed.consumer, feed.stream)
            beside[at] = beside.get(at, 0) + 1
        for feed in self.kept.feeds:
            if beside[feed.consumer, feed.stream] > self._k_min and feed not in self._running.stays:
                yield feed

    def _replicas_that_may_go(self) -> Iterator[str]:
        for names in self.kept.replicas.values():
            if len(names) <= self._k_min:
                continue
            zones = {name: self._running.zones[name] for name in names}
            enough = min(self._k_min, len(set(zones.values())))
            for name in names:
                left = {zone for other, zone in zones.items() if other != name}
                if len(left) >= enough and name not in self._running.stays:
                    yield name

    def _cost_of(self, replica: str) -> float:
        return sum(
            self._running.feeds[feed].cost
            for feed in self.kept.feeds
            if replica in (feed.producer, feed.consumer)
        )

    def _discard_replica(self, replica: str) -> None:
        gone = {feed for feed in self.kept.feeds if replica in (feed.producer, feed.consumer)}
        self.kept.feeds -= gone
        self.kept.replicas[self._fragment_of[replica]].remove(replica)
        for feed in gone:
            if feed.producer == replica:
                self._revive(feed.consumer, feed.stream)

    def _revive(self, consumer: str, stream: str) -> None:
        """Give a reader that has too few streams left the cheapest there are."""
        running = {name for names in self.kept.replicas.values() for name in names}
        at = [
            feed
            for feed in self._running.feeds
            if (feed.consumer, feed.stream) == (consumer, stream) and feed.producer in running
        ]
        unused = sorted(
            (feed for feed in at if feed not in self.kept.feeds),
            key=lambda feed: (self._running.feeds[feed].cost, str(feed)),
        )
        lacking = self._k_min - (len(at) - len(unused))
        fresh = unused[: max(0, lacking)]
        self.kept.feeds.update(fresh)
        self.kept.revived += fresh
