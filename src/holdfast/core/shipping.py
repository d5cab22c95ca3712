"""Checkpoints that one copy of a fragment takes from another.

What comes is refused if it is of another query, as that of a server that still runs an older plan
is, of an earlier term, not newer than what there is, or builds on one that is not held. What is
taken is the sender's record, state and output queues, under this copy's own incarnation.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace

from holdfast.core.copy import Copy
from holdfast.core.effects import ApplyCheckpoint, Effect, Send
from holdfast.core.lending import refusal
from holdfast.core.messages import (
    CheckpointRefused,
    CheckpointShipped,
    CheckpointTaken,
    CopyReport,
    JoinRequest,
    Message,
    Refusal,
)
from holdfast.core.records import Checkpoint, Found, RecoveryRecord
from holdfast.core.settings import ReplicaSettings
from holdfast.core.standby import StandbySwitch, StateHeld, SwitchEvent
from holdfast.core.stream_copy import FAR_FUTURE


class ShippingCopy(Copy, ABC):
    """A copy that takes the checkpoints of others."""

    switch: StandbySwitch

    def __init__(self, settings: ReplicaSettings, found: Found | None = None) -> None:
        super().__init__(settings, found)
        # The checkpoint that is held, on which the next may build.
        self.base: int | None = None
        # Whose checkpoint is being applied.
        self._sender = ""
        self._read_at = -FAR_FUTURE
        # When the producers are to hear of it next, while it sleeps.
        self._keep_at = 0

    @abstractmethod
    def report(self) -> CopyReport:
        """What the other copies are told."""

    @abstractmethod
    def _switch(self, event: SwitchEvent, now: int, effects: list[Effect]) -> None:
        """Let the switch take a fact, and do what it orders."""

    @abstractmethod
    def _sleep(self, now: int, effects: list[Effect]) -> None:
        """Stop running."""

    def _successor_says(
        self, sender: str, message: Message, now: int, effects: list[Effect]
    ) -> None:
        """One that is no copy of this fragment takes over from it, or has done so."""
        match message:
            case JoinRequest():
                super()._lend(sender, message, now, effects)
            case CheckpointTaken(number) | CheckpointRefused(number):
                self._lender.over(number)
            case CheckpointShipped(checkpoint):
                effects.append(Send(sender, refusal(checkpoint, self.settings.query)))

    def _shipped(self, sender: str, checkpoint: Checkpoint, effects: list[Effect]) -> None:
        reason = self._refusal(checkpoint)
        if reason is not None:
            effects.append(Send(sender, CheckpointRefused(checkpoint.number, reason)))
            return
        self._sender = sender
        checkpoint = replace(checkpoint, record=self._raised(checkpoint.record))
        self._applying = checkpoint
        if self.replica is None and self._continues(checkpoint):
            # Stable frames are right whoever has them, so they need not wait for the state.
            self._extend(checkpoint, effects)
        effects.append(ApplyCheckpoint(checkpoint, self.base))

    def _raised(self, record: RecoveryRecord) -> RecoveryRecord:
        """The record, asking for nothing that this copy has acknowledged already.

        Which id a time begins with is known only to the frame, and frames differ between copies:
        the other's later record may begin before what an earlier one of ours allowed to trim.
        """
        acks = self.acks if self.replica is None else self.replica.consumer.acks
        inputs = tuple((name, max(first, acks.get(name, 0))) for name, first in record.inputs)
        return replace(record, inputs=inputs, incarnation=self.incarnation)

    def _continues(self, checkpoint: Checkpoint) -> bool:
        """Whether its queues begin where the streams end here, or before."""
        return all(
            queue.first_id <= self.served[queue.stream].next_id for queue in checkpoint.queues
        )

    def _extend(self, checkpoint: Checkpoint, effects: list[Effect]) -> None:
        for queue in checkpoint.queues:
            effects += self.served[queue.stream].extend(queue)

    def _refusal(self, checkpoint: Checkpoint) -> Refusal | None:
        if checkpoint.query != self.settings.query:
            return Refusal.OTHER_QUERY
        if checkpoint.term < self.switch.term:
            return Refusal.OLD_TERM
        if self._applying is not None:
            return Refusal.BUSY
        if checkpoint.record.boundary <= self.report().boundary:
            return Refusal.NOT_NEWER
        if self.replica is not None and not checkpoint.wanted:
            return Refusal.BUSY
        if checkpoint.base is not None and checkpoint.base != self.base:
            return Refusal.WHOLE_NEEDED
        return None

    def _applied(self, number: int, state: object, now: int, effects: list[Effect]) -> None:
        checkpoint = self._applying
        if checkpoint is None or checkpoint.number != number:
            return
        self._applying = None
        newer = checkpoint.record.boundary > self.report().boundary
        if self.replica is not None and not (checkpoint.wanted and newer):
            effects.append(Send(self._sender, CheckpointRefused(number, Refusal.BUSY)))
            return
        jumps = self.replica is not None
        if jumps:
            self._sleep(now, effects)
        self._extend(checkpoint, effects)
        if newer:
            self.held = (checkpoint.record, state)
            self.base = number
            for stream, first_needed in checkpoint.record.inputs:
                self.acks[stream] = max(first_needed, self.acks.get(stream, 0))
            self._keep_at = now  # the producers may trim, and the sooner the shorter their queues
        effects.append(Send(self._sender, CheckpointTaken(number)))
        self._read_at = -FAR_FUTURE
        if jumps:
            self._wake(now, effects)
        else:
            self._switch(StateHeld(), now, effects)
