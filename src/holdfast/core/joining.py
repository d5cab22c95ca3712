"""Joining: a replica that has nothing takes its place among those that run.

Theory of operation. A replica whose directory is lost, or that is new, finds that its producers
have trimmed what an empty state would need. Another replica of the fragment has the very state,
and where its output stands; what both compute from there is the same, ids and all. Four steps:

1. *Hold.* Every producer is told of a new incarnation (``core.membership``), with heartbeats as any
   other. It writes the number down, trims nothing from then on that this life has not acknowledged,
   and answers with the number. Only these answers count.
2. *Read.* Only then is a partner asked for its state. It takes the checkpoint when it is asked, so
   what the checkpoint needs of the input is no less than what the partner itself had acknowledged
   when the producers began to hold, and cannot have been trimmed. A checkpoint that answers an
   earlier life, or an earlier round, was taken before these holds and is refused.
3. *Go on* from the record, on disk, as after any restart: subscribe, catch up, and acknowledge
   under the new incarnation, which lets the holds go.
4. Readers have asked this replica all the time. It says that it recovers until it has caught up,
   and where its output begins: what is older is not here.

A producer that stays silent is not waited for longer than X: it may be gone for good. If it is
back, and has trimmed what the record needs, the replica joins anew. So the holds are what makes
one attempt enough, not what makes the result right.

A partner that is silent, or has nothing either, is followed by the next one; each is asked again
and again, because a partner may start later, or have something later. The one that said that a
checkpoint comes is waited for as long as it answers. Without a partner nobody has the state, and
the replica says so; should a producer turn up that has trimmed nothing, it begins there.

Each turn to the next partner, or to the same one where there is no other, is a new round, and has
that partner make its state ready once more. Were a round given up before its answer can come, on a
busy machine or over a long way, every answer would be one to a round that is over, for ever, and
all that partners do would be in vain. So an answer that comes after its partner was given up is no
use itself, but tells that answers take longer: from then on silence may last twice as long.

Who takes part may change meanwhile. One that is gone is asked no more, and one that has come is to
hold, too: the attempt is made anew with those who are there.

A producer that knows a later life than this one, of an attempt whose number came from a clock that
was ahead, says so; then the attempt is made anew, under a greater number.

    HOLDING ──held──▶ READING ──came──▶ APPLYING ──▶ applied: it has joined
                         ▲                 │
                         └───not applied───┘
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeAlias

from holdfast.core.effects import Send
from holdfast.core.machine import Machine
from holdfast.core.messages import (
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Refusal,
    StreamState,
)
from holdfast.core.records import Checkpoint
from holdfast.core.settings import ReplicaSettings

# How often silence may come to last twice as long before a partner is given up.
MOST_DOUBLED = 5


class JoinState(Enum):
    HOLDING = "holding"
    READING = "reading"
    TAKING = "taking over"
    APPLYING = "applying"


class Trigger(Enum):
    HELD = "producers hold"
    CAME = "checkpoint came"
    NOT_APPLIED = "checkpoint not applied"
    NOBODY = "no replica has anything"


_H, _R, _A = JoinState.HOLDING, JoinState.READING, JoinState.APPLYING

TABLE: Mapping[tuple[Enum, Enum], Enum] = {
    (_H, Trigger.HELD): _R,
    (_R, Trigger.CAME): _A,
    (_A, Trigger.NOT_APPLIED): _R,
}


@dataclass(frozen=True, slots=True)
class ProducerSaid:
    peer: str
    reply: HeartbeatReply


@dataclass(frozen=True, slots=True)
class PartnerSaid:
    peer: str
    reply: JoinReply


@dataclass(frozen=True, slots=True)
class CheckpointCame:
    peer: str
    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class NotApplied:
    """The checkpoint could not be made what the replica goes on from."""

    number: int


@dataclass(frozen=True, slots=True)
class TimePassed:
    pass


JoinEvent: TypeAlias = ProducerSaid | PartnerSaid | CheckpointCame | NotApplied | TimePassed


@dataclass(frozen=True, slots=True)
class Apply:
    """Make this checkpoint what the replica goes on from."""

    checkpoint: Checkpoint


@dataclass(frozen=True, slots=True)
class BeginEmpty:
    """Nothing is trimmed after all: begin with the empty state."""


@dataclass(frozen=True, slots=True)
class JoinAnew:
    """A producer knows a later life than this one: begin again, as one later than that."""

    known: int


JoinEffect: TypeAlias = Send | Apply | BeginEmpty | JoinAnew


class Joining(Machine[JoinState, Trigger]):
    """One attempt of a replica to take its place."""

    TABLE: ClassVar[Mapping[tuple[Enum, Enum], Enum]] = TABLE

    def __init__(self, settings: ReplicaSettings, incarnation: int, lacks: str, now: int) -> None:
        """``lacks`` says what cannot be had from the producers, for those who ask why."""
        super().__init__(f"{settings.address} joining", JoinState.HOLDING)
        self.incarnation = incarnation
        self.lacks = lacks
        self._timing = settings.timing
        self._query = settings.query
        # Those who compute something else, as far as they have said.
        self._strangers: set[str] = set()
        self._partners = settings.partners
        # Those that have said that they have nothing, since they have said anything else.
        self._empty: set[str] = set()
        self._streams_at = _streams_at(settings)
        self._streams = {one.stream for one in settings.inputs}
        self._begins_empty = settings.begins_empty
        self._held: set[str] = set()
        # (producer, stream) of those who still have the first tuple.
        self._whole: set[tuple[str, str]] = set()
        self._patience_at = now + settings.timing.delay_us
        self._round = 0
        self._partner = 0
        self._promised = False
        self._heard_at = now
        self._ask_at = now
        # Who was given up for silence and has not answered since; how often one did all the same.
        self._given_up: set[str] = set()
        self._late = 0
        self._applying: int | None = None
        # Who has lent what is applied, and under which number.
        self.lent: tuple[tuple[str, int], ...] = ()

    @property
    def deadline(self) -> int:
        """When to look again."""
        return self._ask_at

    def is_patient(self, now: int) -> bool:
        """Whether a producer that is silent is still waited for."""
        return now < self._patience_at

    @property
    def why(self) -> str:
        """What it waits for, for people."""
        match self.state:
            case JoinState.HOLDING:
                waits = ", ".join(sorted(set(self._streams_at) - self._held))
                return f"{self.lacks}; waits for {waits} to keep what comes"
            case JoinState.READING if self._empty >= set(self._partners):
                asked = f" ({', '.join(self._partners)} said so)" if self._partners else ""
                return (
                    f"{self.lacks}, and no other replica of the fragment has the state{asked}. Put "
                    f"back a copy of the lost directory, or start the deployment on a new data "
                    f"directory"
                )
            case JoinState.READING:
                partner = self._asked()
                what = "sends its state" if self._promised else "is asked for its state"
                return f"{self.lacks}; {partner} {what}{self._of_another_query(partner)}"
            case _:
                return f"{self.lacks}; takes the state of {self._asked()}"

    def asks(self, settings: ReplicaSettings) -> bool:
        """Whether it asks those whom these settings name."""
        same = set(self._partners) == set(settings.partners)
        return same and self._streams_at == _streams_at(settings)

    def handle(self, event: JoinEvent, now: int) -> list[JoinEffect]:
        match event:
            case ProducerSaid(peer, reply):
                return self._heard(peer, reply, now)
            case PartnerSaid(peer, reply):
                known = self._strangers
                (known.add if reply.refused is Refusal.OTHER_QUERY else known.discard)(peer)
                self._answered(peer, reply, now)
            case CheckpointCame(peer, checkpoint) if checkpoint.query != self._query:
                # As good as the answer that none comes.
                asked = checkpoint.answers or (0, 0)
                no = JoinReply(*asked, False, refused=Refusal.OTHER_QUERY)
                return self.handle(PartnerSaid(peer, no), now)
            case CheckpointCame(peer, checkpoint):
                return self._came(peer, checkpoint, now)
            case NotApplied(number):
                self._not_applied(number, now)
            case TimePassed() if now >= self._ask_at:
                return self._tick(now)
        return []

    def _of_another_query(self, *asked: str) -> str:
        strangers = sorted(self._strangers.intersection(asked))
        if not strangers:
            return ""
        who = " and ".join(strangers)
        return f"; {who} still computes another query, whose state is not taken"

    # -- producers ----------------------------------------------------------------------

    def _heard(self, peer: str, reply: HeartbeatReply, now: int) -> list[JoinEffect]:
        if peer not in self._streams_at:
            return []
        for report in reply.reports:
            whole = report.first_id == 0 and report.state is not StreamState.RECOVERING
            (self._whole.add if whole else self._whole.discard)((peer, report.stream))
        waiting = self.state is not JoinState.APPLYING
        whole = {stream for _, stream in self._whole} >= self._streams
        if waiting and whole and self._begins_empty:
            return [BeginEmpty()]
        if waiting and reply.incarnation > self.incarnation:
            return [JoinAnew(reply.incarnation)]
        if reply.incarnation == self.incarnation:
            self._held.add(peer)
            self._look_at_holds(now)
        return []

    def _look_at_holds(self, now: int) -> None:
        if self.state is not JoinState.HOLDING:
            return
        everybody = self._held == set(self._streams_at)
        if everybody or (self._held and not self.is_patient(now)):
            self._round += 1
            self._promised = False
            self._heard_at = self._ask_at = now
            self.move(Trigger.HELD, now, f"{len(self._held)} of {len(self._streams_at)} producers")

    # -- partners -----------------------------------------------------------------------

    def _asked(self) -> str:
        return self._partners[self._partner % len(self._partners)]

    def _answered(self, peer: str, reply: JoinReply, now: int) -> None:
        mine = (reply.incarnation, reply.round) == (self.incarnation, self._round)
        self._look_if_late(peer, reply, mine)
        told = reply.refused is None and reply.incarnation == self.incarnation
        if told and peer in self._partners:
            # Whatever round it answers: all that it could have since, it would have from here.
            (self._empty.discard if reply.comes else self._empty.add)(peer)
        if self.state is JoinState.READING and mine and peer == self._asked():
            self._heard_at = now
            self._promised = reply.comes
            if not reply.comes:
                self._next_partner(now)

    def _look_if_late(self, peer: str, reply: JoinReply, awaited: bool) -> None:
        """Whether one that was given up has answered what it was asked before, only later."""
        if peer in self._given_up and reply.incarnation == self.incarnation:
            self._given_up.discard(peer)
            self._late += not awaited

    @property
    def _silence_us(self) -> int:
        """How long one that is asked may be silent."""
        patience_us = self._timing.misses_until_down * self._timing.heartbeat_interval_us
        return patience_us << min(self._late, MOST_DOUBLED)

    def _next_partner(self, now: int) -> None:
        self._partner += 1
        self._round += 1
        self._promised = False
        self._heard_at = now

    def _came(self, peer: str, checkpoint: Checkpoint, now: int) -> list[JoinEffect]:
        mine = checkpoint.answers == (self.incarnation, self._round)
        if self.state is not JoinState.READING or not mine or peer != self._asked():
            return []
        self._applying = checkpoint.number
        self.lent = ((peer, checkpoint.number),)
        self.move(Trigger.CAME, now, f"{checkpoint.number} of {peer}")
        return [Apply(checkpoint)]

    def keeps(self, checkpoint: Checkpoint) -> bool:
        """Whether one that came waits here for others."""
        return False

    def _not_applied(self, number: int, now: int) -> None:
        if self.state is JoinState.APPLYING and number == self._applying:
            self.move(Trigger.NOT_APPLIED, now)
            self._next_partner(now)

    # -- time ---------------------------------------------------------------------------

    def _tick(self, now: int) -> list[JoinEffect]:
        interval_us = self._timing.heartbeat_interval_us
        self._ask_at = now + interval_us
        self._look_at_holds(now)
        effects: list[JoinEffect] = [
            Send(peer, HeartbeatRequest(streams, (), (), now, self.incarnation))
            for peer, streams in self._streams_at.items()
        ]
        if self.state is JoinState.READING and self._partners:
            if now - self._heard_at > self._silence_us:
                self._given_up.add(self._asked())
                self._next_partner(now)
            request = JoinRequest(self.incarnation, self._round, query=self._query)
            effects.append(Send(self._asked(), request))
        return effects

    def validate(self) -> None:
        self.require(self._held <= set(self._streams_at), "held by one that is no producer")
        applying = self.state is JoinState.APPLYING
        self.require(not applying or self._applying is not None, "applies nothing")


def _streams_at(settings: ReplicaSettings) -> dict[str, tuple[str, ...]]:
    """What is read at each producer."""
    return {
        peer: tuple(each.stream for each in settings.inputs if peer in each.producers)
        for one in settings.inputs
        for peer in one.producers
    }
