"""What of a submission is worth what it costs: what its nodes say, as ``core.collection`` has it.

Every reader of a racing fragment counts how early each replica is. The coordinator asks all nodes
once in a period, takes what was counted since the last time, and what each feed costs by the rates
and delays it knows. Above the network cost that was given the least useful go; well below it, feeds
are used again, and replicas that went are added where they shorten the way most.

Nothing is decided while somebody does not answer, is not stable, or has not yet obeyed what was
decided before, nor before every feed was watched for a whole period: what is new would seem
useless. A feed that its reader has revived is needed now and then: it stays for two periods, and
for twice as long each time it happens again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from holdfast.cluster.placed import running_of
from holdfast.cluster.placing import Servers
from holdfast.core.collection import Collected, Collection, FeedFacts, Running, StreamReplica
from holdfast.core.settings import Protection
from holdfast.deployment import CollectionSpec, Deployment
from holdfast.plans.plan import Plan

# What is added or used again must leave so much room below the cost, so that it is not collected
# as soon as rates are a little higher.
_ROOM = 0.8
# The longest a revived feed stays, in periods.
_LONGEST_PERIODS = 64
# What a tuple must be there sooner, in milliseconds, for a replica to be added.
_SOONER_MS = 1.0

Said = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class FeedCosts:
    """Where nodes are, how far that is, and how much flows."""

    at: Mapping[str, str]
    delays: Mapping[str, Mapping[str, float]]
    rates: Mapping[str, float]

    def known(self, feed: StreamReplica) -> bool:
        return {self.at.get(feed.producer), self.at.get(feed.consumer)} <= self.delays.keys()

    def delay_ms(self, feed: StreamReplica) -> float:
        """0 if it is not known where they are."""
        if not self.known(feed):
            return 0.0
        return self.delays[self.at[feed.producer]][self.at[feed.consumer]]

    def cost(self, feed: StreamReplica) -> float:
        """A stream of which no rate is known is taken for an ordinary one."""
        usual = sum(self.rates.values()) / len(self.rates) if self.rates else 1.0
        return self.rates.get(feed.stream, usual) * self.delay_ms(feed)


@dataclass(frozen=True)
class Watched:
    """The feeds of a submission, who uses which, and what was counted of each."""

    running: Running
    counted: Mapping[StreamReplica, float]
    revived: frozenset[StreamReplica]
    links: FeedCosts

    def one_more(self, like: str, server: str) -> tuple[float, float]:
        """What one more replica like another would cost at a server, and how many milliseconds
        sooner results would be there."""
        added = f"{like}+"
        links = replace(self.links, at={**self.links.at, added: server})
        fresh = {
            replace(
                feed,
                producer=added if feed.producer == like else feed.producer,
                consumer=added if feed.consumer == like else feed.consumer,
            )
            for feed in self.running.feeds
            if like in (feed.producer, feed.consumer)
        }
        more = replace(self.running, used=(self.running.used or frozenset()) | fresh)
        sooner = way_ms(self.running, self.links.delay_ms) - way_ms(more, links.delay_ms)
        return sum(links.cost(feed) for feed in fresh), sooner


@dataclass(frozen=True)
class Decision:
    """What is to change, and why."""

    gone: tuple[str, ...] = ()
    collected: tuple[StreamReplica, ...] = ()
    used: tuple[StreamReplica, ...] = ()
    added: str | None = None
    said: str = ""

    @property
    def changes(self) -> bool:
        return bool(self.gone or self.collected or self.used or self.added)


@dataclass
class Collecting:
    """Decides about one submission.

    cost    what its streams cost, at the last look; None before one.
    waits   why nothing could be decided at the last look.
    totals  how many feeds and replicas were collected, by this coordinator.
    """

    cost: float | None = None
    waits: str = ""
    totals: dict[str, int] = field(
        default_factory=lambda: {"feeds": 0, "replicas": 0, "revived": 0, "added": 0}
    )
    _looked_at: float | None = None
    _counted: dict[StreamReplica, float] = field(default_factory=dict)
    _revived: frozenset[StreamReplica] = frozenset()
    _stays: dict[StreamReplica, tuple[int, float]] = field(default_factory=dict)

    def is_due(self, spec: CollectionSpec, now: float) -> bool:
        """Whether a period has passed; ``now`` in seconds, of a clock that is never set."""
        due = self._looked_at is None or now - self._looked_at >= spec.every_us / 1e6
        if due:
            self._looked_at = now
        return due

    def look(
        self,
        watched: Watched,
        spec: CollectionSpec,
        now: float,
        way_with: Callable[[], tuple[str, float, float] | None],
    ) -> Decision:
        """What is to change. ``way_with``: a fragment of which one more may be added, what its
        streams would cost, and how much sooner results would be there."""
        self._note_revived(watched, spec, now)
        period, fresh = self._since_last(watched)
        staying = {feed for feed, (_, until) in self._stays.items() if until > now}
        needed = staying & (period.used or frozenset())
        running = replace(period, stays=period.stays | needed)
        collection = Collection(running, spec.least)
        self.cost = before = collection.cost
        # What is needed for a while is no reason to discard something else.
        theta = spec.network_cost + sum(period.feeds[feed].cost for feed in needed)
        if fresh:
            return Decision(said=f"{fresh} feeds are new and are watched first")
        if before > theta:
            return self._counting(decided(collection.collect(theta), running, before))
        room = _ROOM * spec.network_cost
        again = tuple(collection.use_again(room))
        if again:
            return self._counting(Decision(used=again, said=f"{len(again)} feeds are used again"))
        more = way_with()
        if more is not None and before + more[1] <= room and more[2] >= _SOONER_MS:
            said = f"one more of {more[0]} brings results {more[2]:.0f} ms sooner"
            return self._counting(Decision(added=more[0], said=said))
        return Decision()

    def _counting(self, decision: Decision) -> Decision:
        self.totals["feeds"] += len(decision.collected)
        self.totals["replicas"] += len(decision.gone)
        self.totals["added"] += decision.added is not None
        return decision

    def _since_last(self, watched: Watched) -> tuple[Running, int]:
        """What runs, with what was counted since the last look, and how many feeds are new."""
        before, self._counted = self._counted, dict(watched.counted)
        used = watched.running.used or frozenset()
        fresh = sum(feed not in before for feed in watched.counted if feed in used)
        feeds = {
            feed: replace(facts, weight=_since(before.get(feed), watched.counted.get(feed, 0.0)))
            for feed, facts in watched.running.feeds.items()
        }
        return replace(watched.running, feeds=feeds), fresh

    def _note_revived(self, watched: Watched, spec: CollectionSpec, now: float) -> None:
        for feed in watched.revived - self._revived:
            times = self._stays.get(feed, (0, 0.0))[0] + 1
            periods = min(2**times, _LONGEST_PERIODS)
            self._stays[feed] = (times, now + periods * spec.every_us / 1e6)
            self.totals["revived"] += 1
        self._revived = watched.revived


def _since(before: float | None, counted: float) -> float:
    """What was counted since; a reader that was started again counts from 0."""
    return counted if before is None or counted < before else counted - before


def counted_so_far(watched: Watched) -> Running:
    """What runs, with all that was ever counted."""
    feeds = {
        feed: replace(facts, weight=watched.counted.get(feed, 0.0))
        for feed, facts in watched.running.feeds.items()
    }
    return replace(watched.running, feeds=feeds)


def decided(kept: Collected, running: Running, before: float) -> Decision:
    """What a collection comes to, for the membership."""
    gone = tuple(one for one in kept.discarded if isinstance(one, str))
    used = running.used or frozenset()
    left = {feed for feed in running.feeds if not {feed.producer, feed.consumer} & set(gone)}
    collected = tuple(sorted((used - kept.feeds) & left, key=str))
    again = tuple(sorted(kept.feeds - used, key=str))
    cost = sum(running.feeds[feed].cost for feed in kept.feeds)
    what = [f"{len(collected)} feeds"] if collected else []
    what += [", ".join(gone)] if gone else []
    said = f"collected: {' and '.join(what)}; streams cost {cost:.0f} instead of {before:.0f}"
    return Decision(gone, collected, again, None, said if what or again else "")


def watch(
    deployment: Deployment, plan: Plan, rates: Mapping[str, float], servers: Servers, said: Said
) -> Watched:
    """The feeds of all racing fragments, and what else they cost to be fed."""
    at = {name: str(each.server) for name, each in deployment.endpoints.items() if each.server}
    links = FeedCosts(at, servers.delays(), rates)
    feeds: dict[StreamReplica, FeedFacts] = {}
    counted: dict[StreamReplica, float] = {}
    used: set[StreamReplica] = set()
    revived: set[StreamReplica] = set()
    stays: set[StreamReplica | str] = set()
    for reader, stream, producers, races in _inputs(deployment, plan):
        seen = said.get(reader, {}).get("inputs", {}).get(stream)
        if not races and len(producers) > 1:
            # One of them is followed.
            producers = [each for each in producers if seen and each == seen.get("from")]
        for producer in producers:
            feed = StreamReplica(stream, producer, reader)
            feeds[feed] = FeedFacts(links.cost(feed), 0.0)
            if not races or seen is None or not links.known(feed):
                # What is not known to cost anything, or cannot be counted, stays as it is.
                stays.add(feed)
                used.add(feed)
                continue
            counted[feed] = float(seen["weights"].get(producer, 0.0))
            if producer not in seen["collected"]:
                used.add(feed)
            if producer in seen["revived"]:
                revived.add(feed)
    replicas = {
        spec.name: list(running_of(deployment, spec))
        for spec in deployment.fragments.values()
        if spec.protection is Protection.RACE
    }
    zones = {
        name: servers.zone(at[name]) or f"/{at[name]}"
        for names in replicas.values()
        for name in names
    }
    stays |= {name for names in replicas.values() for name in _needed(names, said)}
    worth = {name: client.worth for name, client in deployment.clients.items()}
    running = Running(replicas, zones, worth, feeds, frozenset(used), frozenset(stays))
    return Watched(running, counted, frozenset(revived), links)


def _inputs(deployment: Deployment, plan: Plan) -> list[tuple[str, str, list[str], bool]]:
    """(reader, stream, who can provide it, whether those race)"""
    providers: dict[str, tuple[list[str], bool]] = {
        name: ([source.process], False) for name, source in deployment.sources.items()
    }
    for name, fragment in plan.fragments.items():
        spec = deployment.fragments[name]
        races = spec.protection is Protection.RACE
        for output in fragment.outputs:
            providers[output.stream] = (list(running_of(deployment, spec)), races)
    found = [
        (reader, stream, *providers[stream])
        for name in plan.in_order
        for reader in running_of(deployment, deployment.fragments[name])
        for stream in plan.fragments[name].inputs
    ]
    found += [
        (client.name, client.output, *providers[client.output])
        for client in deployment.clients.values()
        if client.name not in deployment.gone
    ]
    return found


def _needed(names: Sequence[str], said: Said) -> list[str]:
    """Replicas that have older tuples than another one that has joined: somebody may ask."""

    def has_all(other: str, name: str) -> bool:
        told = said.get(other, {})
        if not told.get("incarnation", 1) or "trimmed_below" not in told:
            return "trimmed_below" in told
        kept = said.get(name, {}).get("trimmed_below", {})
        return bool(kept) and all(
            told["trimmed_below"][stream] <= first for stream, first in kept.items()
        )

    return [
        name for name in names if not all(has_all(other, name) for other in names if other != name)
    ]


def way_ms(running: Running, delay: Callable[[StreamReplica], float]) -> float:
    """How long tuples are under way to the applications, by the feeds that are used, by worth.

    Who has several inputs waits for all; of each, for the first that brings it.
    """
    used = running.feeds if running.used is None else running.used
    inputs: dict[str, dict[str, list[StreamReplica]]] = {}
    for feed in used:
        inputs.setdefault(feed.consumer, {}).setdefault(feed.stream, []).append(feed)
    found: dict[str, float] = {}

    def arrival(name: str) -> float:
        if name not in found:
            found[name] = max(
                (
                    min(arrival(feed.producer) + delay(feed) for feed in feeds)
                    for feeds in inputs.get(name, {}).values()
                ),
                default=0.0,
            )
        return found[name]

    return sum(worth * arrival(name) for name, worth in running.applications.items())
