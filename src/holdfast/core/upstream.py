"""The upstream monitor: from which replica does a consumer take one input stream.

Theory of operation. Every replica that can provide the stream is asked for heartbeats, and
says for the stream its state, how far it is stable and how far it goes at all. From that each
replica has a use:

- *current*: STABLE, and about as far as anyone;
- *live*: UP_FAILURE (rather), or STABILIZATION with a second version, about as far as anyone;
- *correcting*: STABILIZATION, or STABLE but far behind: good for stable tuples, not for news;
- none: silent, recovering, suspended. How far such a one is does not count: nothing comes from it.

A replica that joined begins later than what a reader that was away needs. It is of no use either,
as long as another one may have what is lacking: one that is silent, too. One that joins, or may
yet have to, does not know where its stream begins: what is out of reach is told by the others.

The consumer follows a current replica if there is one. Otherwise it follows a live replica
for news and, at the same time, a correcting one for corrections, if it is ahead of what the
live one has of the stable stream. It stays with what it has when that is as good: changing costs
a little and gains nothing. A replica that calls itself stable but falls behind another stable
one is left, because it is about to fail: its own αX and ours would end at the same moment.

A feed continues where the consumer is, by id and by time (see stream_copy.py). It loses nothing
unless its connection breaks, and the runtime reports that. Feed messages are counted all the same:
a gap means that messages were lost, and so does a heartbeat of a replica that does not serve the
feed, and the feed is opened anew. A feed of which nothing came at all may only be slow to be
opened, on a busy machine: the next one gets twice the time. A feed that breaks is opened at
another current replica at once, if there is one: a process that dies breaks its connections long
before it misses heartbeats. What a feed carries is itself news of its replica's state, faster than
heartbeats: tentative tuples, an UNDO, a REC_DONE.

Where the producer is a hybrid or a racing fragment the consumer keeps a *standing* feed at every
other replica too. From a standing feed only stable tuples and boundaries are taken: they are the
same whoever brings them, so each is taken from whoever is first. Early ones are stable, too.

- A copy that is suspended sends nothing. When it wakes, its tuples are here before any heartbeat
  has told of it, and before the lost copy is given up.
- Replicas that race all send. One that is lost, cut off or slow leaves no gap: nobody must notice
  before the others' tuples are taken. Who was how early is noted (ranks.py). Where a feed was
  collected none is kept, until it is needed (revival.py).

When no current replica is known the stream is *hopeless* for the moment, which SUnion uses
not to wait in vain.

The states say what is being followed; every change of source is a transition. One replica at a
time is heard of or lost, so two sources never come out of nothing, nor are both lost at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import Enum
from typing import ClassVar

from holdfast.core.effects import Send
from holdfast.core.feed import Feed, FeedIds
from holdfast.core.frame import Kind
from holdfast.core.machine import Machine, PeerError
from holdfast.core.messages import (
    FeedFrames,
    Part,
    StreamFrame,
    StreamReport,
    StreamState,
    Subscribe,
    Unsubscribe,
)
from holdfast.core.ranks import Ranks
from holdfast.core.revival import Revival
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.upstream_events import (
    FeedArrived,
    FeedBroken,
    JudgeSource,
    PeerReported,
    PeerSilent,
    TakeFrames,
    UpstreamEffect,
    UpstreamEvent,
)


class Following(Enum):
    NOTHING = "nothing"
    STABLE = "a stable replica"
    LIVE = "a live replica"
    LIVE_AND_CORRECTIONS = "a live replica and a correcting one"


class Trigger(Enum):
    FOUND_STABLE = "found stable"
    FOUND_LIVE = "found live"
    FOUND_LIVE_AND_CORRECTIONS = "found live and correcting"
    LOST_ALL = "lost all"


FOUND = {
    Following.STABLE: Trigger.FOUND_STABLE,
    Following.LIVE: Trigger.FOUND_LIVE,
    Following.LIVE_AND_CORRECTIONS: Trigger.FOUND_LIVE_AND_CORRECTIONS,
    Following.NOTHING: Trigger.LOST_ALL,
}

_N, _S, _L = Following.NOTHING, Following.STABLE, Following.LIVE
_B = Following.LIVE_AND_CORRECTIONS

_RECOVERING = StreamState.RECOVERING
_OF_USE = (StreamState.STABLE, StreamState.UP_FAILURE, StreamState.STABILIZATION)
FROM_STANDING = (Kind.STABLE, Kind.BOUNDARY, Kind.EARLY)
# However slow subscriptions are, one that is not served is tried again after so many replies.
_LONGEST_REPLIES = 8

TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (_N, Trigger.FOUND_STABLE): _S,
    (_N, Trigger.FOUND_LIVE): _L,
    (_S, Trigger.FOUND_STABLE): _S,  # another one
    (_S, Trigger.FOUND_LIVE): _L,
    (_S, Trigger.FOUND_LIVE_AND_CORRECTIONS): _B,
    (_S, Trigger.LOST_ALL): _N,
    (_L, Trigger.FOUND_STABLE): _S,
    (_L, Trigger.FOUND_LIVE): _L,
    (_L, Trigger.FOUND_LIVE_AND_CORRECTIONS): _B,
    (_L, Trigger.LOST_ALL): _N,
    (_B, Trigger.FOUND_STABLE): _S,
    (_B, Trigger.FOUND_LIVE): _L,
    (_B, Trigger.FOUND_LIVE_AND_CORRECTIONS): _B,
}


def _has_nothing(report: StreamReport) -> bool:
    """Whether a producer may yet join, and its stream begin anywhere, whatever it says now."""
    return report.state is _RECOVERING and report.first_id == report.boundary == 0


class Upstream(Machine[Following, Trigger]):
    """One input stream's sources."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(
        self,
        owner: str,
        producers: tuple[str, ...],
        copy: StreamCopy,
        feed_ids: FeedIds,
        behind_us: int,
        reply_us: int,
        stands: bool = False,
        part: Part | None = None,
        early: bool = False,
        collected: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(f"{owner} upstream of {copy.stream}", Following.NOTHING)
        self.copy = copy
        self.producers = producers
        self.main: Feed | None = None
        self.corrections: Feed | None = None
        self.standing: dict[str, Feed] = {}
        self.hopeless = False
        self._stands, self._part, self._early = stands, part, early
        self.ranks = Ranks()
        self._feed_ids = feed_ids
        self.reports: dict[str, StreamReport] = {}
        # The first id that each producer has, of those heard of last.
        self._first_ids: dict[str, int] = {}
        self._behind_us = behind_us
        self._reply_us = reply_us
        # How long a replica has to serve a feed it was asked for.
        self._grace_us = reply_us
        self.revival = Revival(reply_us, behind_us // 3)
        self.revival.told(collected or {})

    @property
    def newest_boundary(self) -> int:
        """How far the most advanced reachable replica is stable."""
        return max((report.boundary for report in self.reports.values()), default=0)

    @property
    def out_of_reach(self) -> int | None:
        """The first id there is, if all who can be heard, and know, begin after what is needed."""
        knows = [peer for peer, one in self.reports.items() if not _has_nothing(one)]
        heard = [self._first_ids[peer] for peer in knows]
        lacks = bool(heard) and not self.copy.lossy and min(heard) > self.copy.next_id >= 0
        return min(heard) if lacks and not any(self._comes(feed) for feed in self.feeds()) else None

    def _comes(self, feed: Feed) -> bool:
        """Whether what is needed comes on a feed; one who sleeps may have been moved beyond it."""
        report = self.reports.get(feed.peer)
        sleeps = report is not None and report.state is StreamState.SUSPENDED
        return feed.received > 0 and not sleeps

    def take_in(self, peer: str) -> None:
        """One more producer, which is heard of when it answers."""
        self.producers = (*self.producers, peer)

    def leave(self, peer: str, now: int) -> list[UpstreamEffect]:
        """A producer takes part no longer."""
        self.producers = tuple(one for one in self.producers if one != peer)
        self._first_ids.pop(peer, None)
        self.revival.left(peer)
        return self.handle(PeerSilent(peer), now)

    def collect(self, collected: Mapping[str, int], now: int) -> list[UpstreamEffect]:
        """Keep no feed at these producers, until one is needed; by the epochs that say so."""
        return self._choose(now) if self.revival.told(collected) else []

    def ask_early(self, wanted: bool, now: int) -> list[UpstreamEffect]:
        """Open the feeds anew, with early results or without, if that is not so already."""
        changes, self._early = wanted != self._early, wanted
        return [each for feed in self.feeds() if changes for each in self._reopen(feed, now)]

    def feeds_at(self, peer: str) -> tuple[int, ...]:
        return tuple([feed.id for feed in self.feeds() if feed.peer == peer])

    def handle(self, event: UpstreamEvent, now: int) -> list[UpstreamEffect]:
        match event:
            case PeerReported(peer, report, feeds):
                self._first_ids[peer] = report.first_id
                if self._lacks(peer):
                    report = replace(report, state=_RECOVERING)
                self.reports[peer] = report
                self._revive(now)
                return self._compare_feeds(peer, feeds, now) + self._choose(now)
            case PeerSilent(peer):
                self.reports.pop(peer, None)
                self._revive(now)
                return self._choose(now)
            case FeedArrived(peer, message):
                return self._arrived(peer, message, now)
            case FeedBroken(feed_id):
                return [
                    effect
                    for feed in self.feeds()
                    if feed.id == feed_id
                    for effect in self._broken(feed, now)
                ]

    def _revive(self, now: int) -> None:
        """Look whether a feed that was collected is needed."""
        of_use = {peer: one.boundary for peer, one in self.reports.items() if one.state in _OF_USE}
        self.revival.look(of_use, self.copy.boundary, now)

    def _lacks(self, peer: str) -> bool:
        """Whether a producer begins after what is needed, and another one may not."""
        next_id = self.copy.next_id
        if self.copy.lossy or self._first_ids[peer] <= next_id:
            return False  # of a lossy stream nothing is needed from before
        if any(feed.peer == peer and feed.received for feed in self.feeds()):
            return False
        return any(self._first_ids.get(one, 0) <= next_id for one in self.producers if one != peer)

    # -- feeds --------------------------------------------------------------------------

    def feeds(self) -> list[Feed]:
        """Every open feed, those followed first."""
        return [*self._followed(), *self.standing.values()]

    def _followed(self) -> list[Feed]:
        return [feed for feed in (self.main, self.corrections) if feed is not None]

    def _arrived(self, peer: str, message: FeedFrames, now: int) -> list[UpstreamEffect]:
        feed = self.main
        if feed is None or feed.id != message.feed:
            feed = next((one for one in self.feeds() if one.id == message.feed), None)
        if feed is None:
            return [Send(peer, Unsubscribe(message.feed))]
        if feed.peer != peer:
            raise PeerError(f"{self.name}: {peer} sent frames of a feed at {feed.peer}")
        if message.seq != feed.received:
            return self._reopen(feed, now)
        feed.received += 1
        self._grace_us = self._reply_us
        frames = message.frames
        for frame in frames:
            self._check(feed, frame)
        if feed.peer in self.standing:
            frames = tuple([frame for frame in frames if frame.header.kind in FROM_STANDING])
        effects: list[UpstreamEffect] = [TakeFrames(self.copy.stream, frames, feed.id)]
        return effects + self._learn(feed.peer, message.frames, now)

    def _check(self, feed: Feed, frame: StreamFrame) -> None:
        header = frame.header
        if header.kind is Kind.STABLE:
            feed.stable_next = header.next_id
            if self._stands:
                self.ranks.arrived(feed.peer, header.first_id, header.next_id)
        elif header.kind is Kind.EARLY:
            for claim in frame.claims:
                claim.check(feed.peer)
            if self._stands:
                self.ranks.arrived_early(feed.peer, frame.claims, header.count, self.copy.cut)
        elif header.kind is Kind.UNDO and header.first_id < feed.stable_next:
            raise PeerError(
                f"{self.name}: {feed.peer} undoes from {header.first_id}, "
                f"but sent stable tuples up to {feed.stable_next}\n{self.story()}"
            )

    def _learn(self, peer: str, frames: tuple[StreamFrame, ...], now: int) -> list[UpstreamEffect]:
        """The state of a replica shows in what it sends."""
        report = self.reports.get(peer)
        if report is None:
            return []
        state = report.state
        for frame in frames:
            kind = frame.header.kind
            if kind is Kind.BOUNDARY or kind is Kind.STABLE:
                continue
            if kind is Kind.TENTATIVE_BOUNDARY and state is StreamState.STABLE:
                state = StreamState.UP_FAILURE
            elif kind is Kind.UNDO and state is StreamState.UP_FAILURE:
                state = StreamState.STABILIZATION
            elif kind is Kind.REC_DONE and state is StreamState.STABILIZATION:
                state = StreamState.STABLE
        if state is report.state:
            return []
        self.reports[peer] = replace(report, state=state)
        return self._choose(now)

    def _compare_feeds(self, peer: str, served: tuple[int, ...], now: int) -> list[UpstreamEffect]:
        """Open feeds anew that ended without our noticing."""
        effects: list[UpstreamEffect] = []
        for feed in self.feeds():
            if feed.peer != peer or now - feed.opened_at < self._grace_us:
                continue
            if feed.id not in served:
                if not feed.received:
                    longest_us = _LONGEST_REPLIES * self._reply_us
                    self._grace_us = min(2 * self._grace_us, longest_us)
                effects += self._reopen(feed, now)
        return effects

    def _broken(self, feed: Feed, now: int) -> list[UpstreamEffect]:
        """Go on with another current replica, if there is one; else open the feed anew."""
        if feed is self.main and any(peer != feed.peer for peer in self._current()):
            # If it lives it is believed again with its next reply.
            self.reports.pop(feed.peer, None)
            return self._choose(now)
        return self._reopen(feed, now)

    def _reopen(self, feed: Feed, now: int) -> list[UpstreamEffect]:
        effects: list[UpstreamEffect] = [Send(feed.peer, Unsubscribe(feed.id))]
        fresh = self._open(feed.peer, now, effects)
        if feed is self.main:
            self.main = fresh
        elif feed.peer in self.standing:
            self.standing[feed.peer] = fresh
        else:
            self.corrections = fresh
        return effects

    def _open(self, peer: str, now: int, effects: list[UpstreamEffect]) -> Feed:
        if self.copy.lossy:
            # It may be another life of the producer.
            self.copy.forget_ids()
        feed = Feed(peer, self._feed_ids.issue(now), now, self.copy.next_id)
        position = (self.copy.next_id, self.copy.tentative_boundary)
        wanted = (*position, self._part, self._early)
        effects.append(Send(peer, Subscribe(self.copy.stream, feed.id, *wanted)))
        return feed

    # -- the choice ---------------------------------------------------------------------

    def _choose(self, now: int) -> list[UpstreamEffect]:
        effects: list[UpstreamEffect] = []
        if self._is_well_off():
            if self._stands:
                self._stand(now, effects)
            return effects
        current = self._current()
        main, corrections, following = self._best_sources(current)
        peers = (self._peer_of(self.main), self._peer_of(self.corrections))
        if (main, corrections) != peers or following is not self.state:
            by_peer = {feed.peer: feed for feed in self.feeds()}
            feeds = [
                None if peer is None else by_peer.pop(peer, None) or self._open(peer, now, effects)
                for peer in (main, corrections)
            ]
            self.main, self.corrections = feeds
            self.standing = by_peer
            self.move(FOUND[following], now, f"{main}, {corrections}")
        self._stand(now, effects)
        hopeless = not current
        if hopeless != self.hopeless:
            self.hopeless = hopeless
            effects.append(JudgeSource(self.copy.stream, hopeless))
        return effects

    def _is_well_off(self) -> bool:
        """Whether the stable replica we follow is about as far as anyone: the usual case."""
        if self.state is not Following.STABLE or self.main is None:
            return False
        if self.main.peer in self.revival.spared:
            return False
        mine = self.reports.get(self.main.peer)
        if mine is None or mine.state is not StreamState.STABLE:
            return False
        far = mine.boundary + self._behind_us // 3
        return max(report.live_boundary for report in self.reports.values()) <= far

    def _stand(self, now: int, effects: list[UpstreamEffect]) -> None:
        """Keep a feed at every replica that is not followed, where the producer has us do so."""
        unwanted = {*(feed.peer for feed in self._followed()), *self.revival.spared}
        wanted = [
            peer
            for peer, report in self.reports.items()
            if self._stands and peer not in unwanted and report.state is not _RECOVERING
        ]
        for peer in [peer for peer in self.standing if peer not in wanted]:
            effects.append(Send(peer, Unsubscribe(self.standing.pop(peer).id)))
        for peer in wanted:
            if peer not in self.standing:
                self.standing[peer] = self._open(peer, now, effects)

    @staticmethod
    def _peer_of(feed: Feed | None) -> str | None:
        return None if feed is None else feed.peer

    def _best_sources(self, current: list[str]) -> tuple[str | None, str | None, Following]:
        if current:
            return self._pick(self.main, current, stable=True), None, Following.STABLE
        recent = self._recent()
        live = [
            report_peer
            for report_peer, report in self.reports.items()
            if report.state in (StreamState.UP_FAILURE, StreamState.STABILIZATION)
            and report.live_boundary >= recent
        ]
        if not live:  # the furthest that is of use would be current or live
            return None, None, Following.NOTHING
        main = self._pick(self.main, self._undivided(live), stable=False)
        ahead = [
            peer
            for peer, report in self.reports.items()
            if report.state in (StreamState.STABLE, StreamState.STABILIZATION)
            and peer != main
            and report.boundary > self.reports[main].boundary
        ]
        if not ahead:
            return main, None, Following.LIVE
        corrections = self._pick(self.corrections, ahead, stable=True)
        return main, corrections, Following.LIVE_AND_CORRECTIONS

    def _undivided(self, live: list[str]) -> list[str]:
        """Without those that correct, where one that only answers is as far: they fall behind."""
        reached = {peer: self.reports[peer].live_boundary for peer in live}
        only = [one for one in live if self.reports[one].state is StreamState.UP_FAILURE]
        furthest = max((reached[one] for one in only), default=-1)
        return only if furthest >= max(reached.values()) else live

    def _current(self) -> list[str]:
        recent = self._recent()
        return [
            peer
            for peer, report in self.reports.items()
            if report.state is StreamState.STABLE and report.boundary >= recent
        ]

    def _recent(self) -> int:
        """A replica that goes at least this far is about as far as any that is of use."""
        newest = 0
        for report in self.reports.values():
            if report.state is StreamState.STABLE:
                newest = max(newest, report.boundary)
            elif report.state in _OF_USE:
                newest = max(newest, report.live_boundary)
        return newest - self._behind_us

    def _pick(self, feed: Feed | None, peers: list[str], stable: bool) -> str:
        """The one we have if it is about as far as the best; else the best."""

        def reached(peer: str) -> int:
            report = self.reports[peer]
            return report.boundary if stable else report.live_boundary

        least = max(reached(peer) for peer in peers) - self._behind_us // 3
        near = [peer for peer in peers if reached(peer) >= least]
        near = [peer for peer in near if peer not in self.revival.spared] or near
        found = min(near, key=self.producers.index)
        if feed is not None and feed.peer in near:
            found = feed.peer
        self.revival.revive(found)
        return found

    def validate(self) -> None:
        both = self.state is Following.LIVE_AND_CORRECTIONS
        self.require(both == (self.corrections is not None), "corrections feed and state differ")
        self.require(
            (self.state is Following.NOTHING) == (self.main is None), "main feed and state differ"
        )
        self.require(
            self.main is None
            or self.corrections is None
            or self.main.peer != self.corrections.peer,
            "two feeds from one replica",
        )
        followed = {feed.peer for feed in self._followed()}
        self.require(not followed & set(self.standing), "a standing feed where one is followed")
        useful = any(report.state in _OF_USE for report in self.reports.values())
        self.require(useful == (self.main is not None), "a replica is of use, or nothing followed")
