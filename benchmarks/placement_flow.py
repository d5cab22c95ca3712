"""Tuples through placed replicas: who is how early, what comes out how late, and what it costs.

Each link takes its latency, a little jitter, and now and then, for a while, several times as long.
A replica goes on with a tuple when the first of each of its inputs is there; so its delay is the
latest input's earliest feed. Ranks of the feeds give their weights, as ``core.ranks`` has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from holdfast.core.collection import FeedFacts, Running, StreamReplica
from holdfast.core.placement import Delays, Query

TUPLES = 400
_EPISODE = 40
_CONGESTED = 0.06
_LONGER = 3.0
_JITTER = 0.1

Times = npt.NDArray[np.float64]


class Flowing:
    """A query with its replicas, named fragment@server."""

    def __init__(
        self, query: Query, delays: Delays, places: Mapping[str, Sequence[str]], seed: int
    ) -> None:
        self._query = query
        self._rng = np.random.default_rng(seed)
        self.replicas = {
            name: [f"{name}@{server}" for server in servers] for name, servers in places.items()
        }
        self._server = {
            f"{name}@{server}": server for name, servers in places.items() for server in servers
        } | dict(query.pinned)
        self.feeds: dict[StreamReplica, tuple[float, Times]] = {}
        links: dict[tuple[str, str], Times] = {}
        for flow in query.flows:
            for producer in self._named(flow.producer):
                for consumer in self._named(flow.consumer):
                    link = (self._server[producer], self._server[consumer])
                    if link not in links:
                        links[link] = self._link(delays[link[0]][link[1]])
                    cost = flow.rate * delays[link[0]][link[1]]
                    self.feeds[StreamReplica(flow.producer, producer, consumer)] = (
                        cost,
                        links[link],
                    )

    def _named(self, name: str) -> Sequence[str]:
        return [name] if name in self._query.pinned else self.replicas[name]

    def _link(self, delay: float) -> Times:
        episodes = self._rng.random(TUPLES // _EPISODE) < _CONGESTED
        longer = np.where(np.repeat(episodes, _EPISODE), self._rng.uniform(1.0, _LONGER), 1.0)
        return delay * longer * (1 + _JITTER * self._rng.random(TUPLES))

    def run(
        self, kept: Iterable[StreamReplica] | None = None
    ) -> tuple[Times, dict[StreamReplica, float]]:
        """The delays of all tuples at all applications, and the weight of each feed."""
        used = set(self.feeds) if kept is None else set(kept)
        done: dict[str, Times] = {
            name: np.zeros(TUPLES) for name in self._query.pinned if self._is_source(name)
        }
        weights: dict[StreamReplica, float] = {}
        out: list[Times] = []
        for name in (*self._query.fragments, *self._applications()):
            for reader in self._named(name):
                arrivals = []
                for flow in self._query.flows:
                    if flow.consumer != name:
                        continue
                    feeds = [
                        feed
                        for feed in used
                        if feed.consumer == reader
                        and feed.stream == flow.producer
                        and feed.producer in done
                    ]
                    if not feeds:
                        break
                    feeds.sort(key=str)
                    times = np.stack([done[feed.producer] + self.feeds[feed][1] for feed in feeds])
                    ranks = times.argsort(axis=0).argsort(axis=0) + 1
                    for feed, rank in zip(feeds, ranks, strict=True):
                        weights[feed] = float(np.sum(1 / rank))
                    arrivals.append(times.min(axis=0))
                else:
                    done[reader] = np.max(arrivals, axis=0)
                    if name in self._query.pinned:
                        out.append(done[reader])
        return np.concatenate(out), weights

    def _is_source(self, name: str) -> bool:
        return not any(flow.consumer == name for flow in self._query.flows)

    def _applications(self) -> list[str]:
        return [name for name in self._query.pinned if not self._is_source(name)]

    def running(self, weights: Mapping[StreamReplica, float], zones: Mapping[str, str]) -> Running:
        """What collection is told."""
        return Running(
            self.replicas,
            {
                replica: zones[self._server[replica]]
                for names in self.replicas.values()
                for replica in names
            },
            dict.fromkeys(self._applications(), 1.0),
            {
                feed: FeedFacts(cost, weights.get(feed, 0.0))
                for feed, (cost, _) in self.feeds.items()
            },
        )

    def cost(self, kept: Iterable[StreamReplica] | None = None) -> float:
        return sum(self.feeds[feed][0] for feed in (self.feeds if kept is None else kept))
