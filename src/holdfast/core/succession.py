"""Succession: a new shard takes over from those that had its slots before.

Theory of operation. Changing the number of shards makes a new generation of them, beside the one
that runs. A new shard reads what the old ones read and computes what they compute for its slots;
so from one boundary on the results of both generations, each merged, are the same, ids and bits.
Whoever reads them may change from one to the other at any moment, as between replicas: nothing has
to be agreed on by all, nobody stops, and a failure anywhere leaves the old generation as it is.

A new shard begins with the state of its slots, which several old ones have. It joins
(``core.joining``), but reads from each of them, and the states must be of one boundary. It names
one: a little ahead of everything its producers have said, so that no old shard is there yet. Each
ends a job there, lends its state and goes on (``core.lending``). One that has passed it already
says how far it is, and a later boundary is named, in a new round. When all have come, they are put
together (``Pieces``): the runtime takes the rows of the shard's slots out of them.

Of several replicas of an old shard one is asked, and the next if it is silent. All are asked for
the same boundary, so what any of them sends or says counts, also if another one is asked by then.

Its results are a stream of its own, which begins there; its ids begin with the boundary, so that
nobody takes it for a stream that is known from its beginning.

Where a shard has several replicas they must begin at the same boundary. So one of them, the first,
takes over, and only when each of the others has said that it has nothing either; they join it, and
so does the first, should it lose its disk later.

What merges the new shards takes over in the same way from what merges the old ones: it names a
boundary that all new shards have reached, goes on with the ids that the stream has there, and reads
the new shards' streams from their beginnings.

    HOLDING ──held──▶ READING ──nobody has anything──▶ TAKING ──came──▶ APPLYING ──▶ applied
                         ▲                                                 │
                         └──────────────────not applied────────────────────┘
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar

from holdfast.core.effects import Send
from holdfast.core.frame import Header, Kind, StreamFrame
from holdfast.core.joining import (
    MOST_DOUBLED,
    Apply,
    JoinEffect,
    Joining,
    JoinState,
    Trigger,
)
from holdfast.core.joining import TABLE as JOIN_TABLE
from holdfast.core.messages import HeartbeatReply, JoinReply, JoinRequest, StreamState
from holdfast.core.records import Checkpoint, LoggedStream, Membership, Pieces, RecoveryRecord
from holdfast.core.settings import Keeping, ReplicaSettings

# A boundary is named so many buckets ahead, beside the time of two heartbeats.
AHEAD_BUCKETS = 2


class Succession(Joining):
    """One attempt of the first replica of a new shard to take over."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = {
        **JOIN_TABLE,
        (JoinState.READING, Trigger.NOBODY): JoinState.TAKING,
        (JoinState.TAKING, Trigger.CAME): JoinState.APPLYING,
    }

    def __init__(self, settings: ReplicaSettings, incarnation: int, lacks: str, now: int) -> None:
        super().__init__(settings, incarnation, lacks, now)
        self._inputs = tuple(one.stream for one in settings.inputs)
        self._outputs = tuple(one.stream for one in settings.outputs)
        self._groups = settings.predecessors
        # The states that come are written into the log, as window states of the boundary.
        self._in_log = settings.keeping is Keeping.WINDOWS
        # (producer, stream): where it begins, and how far it was when it was heard last.
        self._heard_of: dict[tuple[str, str], tuple[int, int]] = {}
        # Of each predecessor: which replica is asked, when it was heard, what has come.
        self._turns = [0] * len(self._groups)
        self._heard_from = [now] * len(self._groups)
        self._pieces: dict[int, tuple[str, Checkpoint]] = {}
        self._at: int | None = None
        # How many boundaries were named: where they were passed, the next is twice as far ahead.
        self._named = 0
        # The furthest that any predecessor has been.
        self._furthest = 0

    @property
    def why(self) -> str:
        """What it waits for, for people."""
        if self.state is JoinState.APPLYING:
            lenders = ", ".join(name for name, _ in self.lent)
            return f"{self.lacks}; takes the state of {lenders}"
        if self.state is not JoinState.TAKING:
            return super().why
        if self._at is None:
            silent = self._streams - {stream for _, stream in self._heard_of}
            return f"{self.lacks}; waits for a word on {', '.join(sorted(silent))}"
        asked = [self._asked_of(group) for group in self._lacking()]
        return (
            f"{self.lacks}; waits for the state at {self._at} of {', '.join(asked)}"
            f"{self._of_another_query(*asked)}"
        )

    def _lacking(self) -> list[int]:
        return [group for group in range(len(self._groups)) if group not in self._pieces]

    def _asked_of(self, group: int) -> str:
        names = self._groups[group]
        return names[self._turns[group] % len(names)]

    # -- producers ----------------------------------------------------------------------

    def _heard(self, peer: str, reply: HeartbeatReply, now: int) -> list[JoinEffect]:
        effects = super()._heard(peer, reply, now)
        for report in reply.reports:
            if report.stream in self._streams and report.state is not StreamState.RECOVERING:
                self._heard_of[peer, report.stream] = (report.first_id, report.boundary)
        self._look_at_partners(now)
        return effects

    # -- the other replicas of the shard ------------------------------------------------

    def _answered(self, peer: str, reply: JoinReply, now: int) -> None:
        if self.state is JoinState.TAKING:
            self._predecessor_said(peer, reply, now)
            return
        super()._answered(peer, reply, now)
        self._look_at_partners(now)

    def _look_at_partners(self, now: int) -> None:
        if self.state is JoinState.READING and self._empty >= set(self._partners):
            self._empty.clear()
            self.move(Trigger.NOBODY, now)
            self._name(now)

    # -- those it takes over from -------------------------------------------------------

    def _name(self, now: int) -> None:
        """Name a boundary, if all producers were heard of, and begin a round for it."""
        if {stream for _, stream in self._heard_of} < self._streams:
            return
        bucket_us = self._timing.bucket_us
        ahead_us = AHEAD_BUCKETS * bucket_us + 2 * self._timing.heartbeat_interval_us
        heard = max(boundary for _, boundary in self._heard_of.values())
        at = max(heard, self._furthest) + (ahead_us << min(self._named, MOST_DOUBLED))
        self._named += 1
        self._at = at - at % bucket_us
        self._round += 1
        self._pieces.clear()
        self._heard_from = [now] * len(self._groups)
        self._ask_at = now

    def _predecessor_said(self, peer: str, reply: JoinReply, now: int) -> None:
        if (reply.incarnation, reply.round) != (self.incarnation, self._round):
            return
        for group in self._lacking():
            if peer not in self._groups[group]:
                continue
            asked = self._asked_of(group) == peer
            self._look_if_late(peer, reply, asked)
            if asked:
                self._heard_from[group] = now
            if reply.comes:
                continue
            self._furthest = max(self._furthest, reply.reached)
            if self._at is not None and reply.reached > self._at:
                self._name(now)
                return
            self._turns[group] += asked

    def _came(self, peer: str, checkpoint: Checkpoint, now: int) -> list[JoinEffect]:
        if self.state is not JoinState.TAKING:
            return super()._came(peer, checkpoint, now)
        mine = checkpoint.answers == (self.incarnation, self._round)
        group = next((one for one in self._lacking() if peer in self._groups[one]), None)
        if not mine or group is None or checkpoint.record.boundary != self._at:
            return []
        self._pieces[group] = (peer, checkpoint)
        if self._lacking():
            return []
        found = [self._pieces[one] for one in range(len(self._groups))]
        united = self._united([one for _, one in found], self._at, now)
        self._applying = united.number
        self.lent = tuple((lender, one.number) for lender, one in found)
        self.move(Trigger.CAME, now, f"{self._at} of {', '.join(one for one, _ in found)}")
        return [Apply(united)]

    def keeps(self, checkpoint: Checkpoint) -> bool:
        return any(checkpoint is one for _, one in self._pieces.values())

    def _united(self, pieces: list[Checkpoint], at: int, now: int) -> Checkpoint:
        """What it goes on from: several checkpoints of one boundary as one."""
        records = [one.record for one in pieces]
        own = self._outputs
        goes_on = own == tuple(name for name, _ in records[0].outputs)
        outputs = records[0].outputs if goes_on else tuple((name, at) for name in own)
        record = RecoveryRecord(
            at,
            min(one.marker for one in records),
            tuple((one, self._first_id(one, records)) for one in self._inputs),
            outputs,
            at if self._in_log else 0,
        )
        queues = pieces[0].queues if goes_on else tuple(_begun(name, at) for name in own)
        states = Pieces(tuple(one.state for one in pieces))
        number = max(now, *(one.number for one in pieces)) + 1
        answers = (self.incarnation, self._round)
        return Checkpoint(number, 0, None, record, queues, states, True, answers, self._query)

    def _first_id(self, stream: str, records: list[RecoveryRecord]) -> int:
        """Where to go on with an input: where its predecessors do, or at its beginning."""
        known = [dict(one.inputs)[stream] for one in records if stream in dict(one.inputs)]
        begins = [first for (_, name), (first, _) in self._heard_of.items() if name == stream]
        return min(known) if known else min(begins)

    # -- time ---------------------------------------------------------------------------

    def _tick(self, now: int) -> list[JoinEffect]:
        effects = super()._tick(now)
        self._look_at_partners(now)
        if self.state is not JoinState.TAKING:
            return effects
        if self._at is None:
            self._name(now)
        request = JoinRequest(self.incarnation, self._round, self._at, self._query)
        for group in self._lacking() if self._at is not None else ():
            if now - self._heard_from[group] > self._silence_us:
                self._given_up.add(self._asked_of(group))
                self._turns[group] += 1
                self._heard_from[group] = now
            effects.append(Send(self._asked_of(group), request))
        return effects

    def _not_applied(self, number: int, now: int) -> None:
        self._pieces.clear()
        self._at = None
        super()._not_applied(number, now)


def _begun(stream: str, at: int) -> LoggedStream:
    """A stream that begins at a boundary, with an id that says so."""
    mark = StreamFrame(Header(Kind.BOUNDARY, at, 0, at, at, at))
    return LoggedStream(stream, at, (mark,))


def joining_of(settings: ReplicaSettings, incarnation: int, lacks: str, now: int) -> Joining:
    """How a replica of these settings takes its place."""
    kind = Succession if settings.predecessors else Joining
    return kind(settings, incarnation, lacks, now)


def peers_of(settings: ReplicaSettings, membership: Membership) -> tuple[str, ...]:
    """Who speaks to a replica about states: partners, and those before and after it."""
    before = (name for names in settings.predecessors for name in names)
    after = (name for name, like in membership.taking if like == settings.address)
    return tuple(dict.fromkeys((*settings.partners, *before, *after)))
