"""What a running replica lends to one that joins: its newest state and its output queue.

The checkpoint is taken when it is asked for, never before: its asker has seen to it that producers
keep what follows (``core.joining``). It is taken once for each round of each incarnation, however
often that is asked for, until its asker has it or it is known not to have come. A request that
comes after one of a later round is not what its asker waits for: nothing is made ready for it.

To make one ready is work. If it could not be sent, its asker hears nothing for a while, which is
twice as long after each more that fails, and asks somebody else meanwhile if there is one. It is
not told that there is nothing to lend: who takes over from others would go by that.

An output queue may be long, when a client stays away. Its newest part goes with the state, as much
as ``lent_tuples_max`` says; the rest is here and not there, and readers go where it is.

A new shard puts the states of several together (``core.succession``), so it asks for that of one
boundary. A stable job ends there, the checkpoint is taken, and the replica goes on: nobody waits.
It is lent the very state, also where checkpoints are continuous and the log has window states of
many ages: those of one boundary can be divided by slots, and need no input of other shards' slots.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from holdfast.core.effects import Effect, Send
from holdfast.core.messages import (
    CheckpointRefused,
    CheckpointShipped,
    JoinReply,
    JoinRequest,
    Refusal,
)
from holdfast.core.pauses import pause_after
from holdfast.core.records import Checkpoint, InLog, LoggedStream, RecoveryRecord
from holdfast.core.replica import Replica
from holdfast.core.serving import ServedStream

# Who does not ask for so long, and has not said that it has it, is gone.
PATIENCE_US = 10_000_000
# After one that could not be sent nothing is lent there for so long, at first and at most.
FIRST_PAUSE_US, LONGEST_PAUSE_US = 250_000, 30_000_000


@dataclass(slots=True)
class Loan:
    """A checkpoint on its way to one that joins."""

    request: JoinRequest
    number: int
    record: RecoveryRecord
    asked_at: int


@dataclass(frozen=True, slots=True)
class Failures:
    """How often in a row nothing could be sent to one life of one that joins."""

    incarnation: int
    count: int
    pause_until: int


class Lender:
    """The checkpoints that one replica has lent."""

    def __init__(self, queue_tuples: int, query: str = "") -> None:
        """``query``: what is computed here; a state is lent to nobody who computes another."""
        self._loans: dict[str, Loan] = {}
        # Those who wait for the state of a boundary that is ahead, and when they asked last.
        self._ahead: dict[str, tuple[JoinRequest, int]] = {}
        self._failures: dict[str, Failures] = {}
        self._number = 0
        self._queue_tuples = queue_tuples
        self._query = query

    def asked(
        self,
        sender: str,
        request: JoinRequest,
        newest: tuple[RecoveryRecord, object] | None,
        served: Mapping[str, ServedStream],
        now: int,
        reached: int = -1,
    ) -> list[Effect]:
        """Answer one that joins; ``newest`` is what there is to go on from, if anything.

        reached  how far the state is, or will be after the job that runs.
        """
        if request.query != self._query:
            no = JoinReply(request.incarnation, request.round, False, refused=Refusal.OTHER_QUERY)
            return [Send(sender, no)]
        loan = self._loans.get(sender)
        if loan is not None and _is_over(request, loan.request):
            return []
        if self._pauses(sender, request, now):
            return []
        is_lent = loan is not None and loan.request == request
        comes = newest is not None and newest[0].boundary > 0
        if request.at is not None and not is_lent:
            comes = newest is not None and reached <= request.at
        told = -1 if request.at is None else reached
        reply = JoinReply(request.incarnation, request.round, comes, told)
        effects: list[Effect] = [Send(sender, reply)]
        if loan is not None and is_lent:
            loan.asked_at = now
            return effects
        self._ahead.pop(sender, None)
        if newest is None or not comes:
            return effects
        if request.at is not None and newest[0].boundary < request.at:
            self._ahead[sender] = (request, now)
            return effects
        return [*effects, self._lend(sender, request, newest, served, now)]

    def reached(
        self, newest: tuple[RecoveryRecord, object], served: Mapping[str, ServedStream], now: int
    ) -> list[Effect]:
        """Lend to those who wait for the state as it is now; it is too late for some others."""
        boundary = newest[0].boundary
        effects: list[Effect] = []
        for sender, (request, _) in list(self._ahead.items()):
            assert request.at is not None, "only who waits for a boundary is here"
            if request.at <= boundary:
                del self._ahead[sender]
            if request.at == boundary:
                effects.append(self._lend(sender, request, newest, served, now))
        return effects

    @property
    def stops(self) -> tuple[int, ...]:
        """The boundaries at which somebody waits for the state."""
        if not self._ahead:
            return ()  # with nearly every event
        return tuple(request.at for request, _ in self._ahead.values() if request.at is not None)

    def _lend(
        self,
        sender: str,
        request: JoinRequest,
        newest: tuple[RecoveryRecord, object],
        served: Mapping[str, ServedStream],
        now: int,
    ) -> Send:
        record, state = newest
        self._number = max(self._number + 1, now)
        queues = tuple(self._newest_part(one.queue()) for one in served.values())
        answers = (request.incarnation, request.round)
        checkpoint = Checkpoint(
            self._number, 0, None, record, queues, state, True, answers, self._query
        )
        self._loans[sender] = Loan(request, self._number, record, now)
        return Send(sender, CheckpointShipped(checkpoint))

    def _newest_part(self, queue: LoggedStream) -> LoggedStream:
        left, at = self._queue_tuples, len(queue.frames)
        while at and queue.frames[at - 1].header.count <= left:
            at -= 1
            left -= queue.frames[at].header.count
        if not at:
            return queue
        frames = queue.frames[at:]
        return LoggedStream(queue.stream, frames[0].header.first_id, frames)

    def over(self, number: int) -> None:
        """A checkpoint has come: asked again, there is another."""
        for sender, _ in self._ended(number):
            self._failures.pop(sender, None)

    def not_sent(self, number: int, now: int) -> None:
        """A checkpoint will not come: asked again, there is another after a pause."""
        for sender, loan in self._ended(number):
            incarnation = loan.request.incarnation
            known = self._failures.get(sender)
            count = 1 if known is None or known.incarnation != incarnation else known.count + 1
            until = now + pause_after(count, FIRST_PAUSE_US, LONGEST_PAUSE_US)
            self._failures[sender] = Failures(incarnation, count, until)

    def _ended(self, number: int) -> list[tuple[str, Loan]]:
        found = [(sender, loan) for sender, loan in self._loans.items() if loan.number == number]
        for sender, _ in found:
            del self._loans[sender]
        return found

    def _pauses(self, sender: str, request: JoinRequest, now: int) -> bool:
        known = self._failures.get(sender)
        return (
            known is not None
            and known.incarnation == request.incarnation
            and now < known.pause_until
        )

    def records(self) -> Iterator[RecoveryRecord]:
        """What must stay readable until it has been sent."""
        for loan in self._loans.values():
            yield loan.record

    def look(self, now: int) -> None:
        """Forget those who have not asked for long."""
        if not self._loans and not self._ahead:
            return  # with nearly every event
        for sender, loan in list(self._loans.items()):
            if now - loan.asked_at > PATIENCE_US:
                del self._loans[sender]
        for sender, (_, asked_at) in list(self._ahead.items()):
            if now - asked_at > PATIENCE_US:
                del self._ahead[sender]


def _is_over(request: JoinRequest, known: JoinRequest) -> bool:
    """Whether its asker has begun another round since, as is known."""
    return request.incarnation == known.incarnation and request.round < known.round


def to_lend(
    replica: Replica | None, request: JoinRequest
) -> tuple[tuple[RecoveryRecord, object] | None, int]:
    """What a replica has for one that asks, if anything, and how far it is."""
    if replica is None:
        return None, -1
    reached = replica.versions.reached
    if request.at is None:
        return replica.newest, reached
    record, state = replica.computed
    # One that has just started, and is there already, has the state in its log only.
    in_log = isinstance(state, InLog) and record.boundary >= request.at
    return None if in_log else (record, state), reached


def refusal(checkpoint: Checkpoint, query: str) -> CheckpointRefused:
    """Of a checkpoint that answers nothing this copy has asked, or that is not of its query."""
    reason = Refusal.NOT_NEWER if checkpoint.query == query else Refusal.OTHER_QUERY
    return CheckpointRefused(checkpoint.number, reason)
