"""Deliberate bugs of copies that stand by; see ``mutations``."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core.effects import Send
from holdfast.core.messages import CheckpointTaken, CopyState, Refusal
from holdfast.core.protected import ProtectedReplica
from holdfast.core.serving import ServedStream
from holdfast.core.shipping import ShippingCopy
from holdfast.core.standby import StandbySwitch
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.core.sweeping import PATIENCE_US, SweepingCheckpointer, Taken
from holdfast.simulation.planting import mutation


@mutation(ProtectedReplica, "_shipped")
def acknowledge_a_checkpoint_before_it_is_held(original: Any) -> Any:
    def broken(self: ProtectedReplica, sender: str, checkpoint: Any, effects: list[Any]) -> None:
        original(self, sender, checkpoint, effects)
        applying: Any = self._applying
        if applying is not None and applying.number == checkpoint.number:
            effects.append(Send(sender, CheckpointTaken(checkpoint.number)))
            self.acks |= dict(checkpoint.record.inputs)

    return broken


@mutation(ProtectedReplica, "_wake")
def wake_with_the_state_before_the_last(original: Any) -> Any:
    def broken(self: ProtectedReplica, now: int, effects: list[Any]) -> None:
        older = getattr(self, "_older", self.held)
        self._older, self.held = self.held, older  # type: ignore[attr-defined]
        original(self, now, effects)

    return broken


@mutation(StandbySwitch, "_caught_up", shape="overtaken")
def sleep_before_the_primary_has_caught_up(original: Any) -> Any:
    def broken(self: StandbySwitch, report: Any, mine: Any) -> bool:
        return report.state is CopyState.PRIMARY and report.term == self.term

    return broken


@mutation(ServedStream, "queue")
def forget_the_output_queue_in_a_checkpoint(original: Any) -> Any:
    def broken(self: ServedStream, next_id: int = 0) -> Any:
        queue = original(self, next_id)
        return replace(queue, first_id=self.next_id, frames=queue.frames[-1:])

    return broken


@mutation(StandbySwitch, "_promote")
def promote_twice(original: Any) -> Any:
    def broken(self: StandbySwitch, now: int) -> list[Any]:
        effects: list[Any] = original(self, now)
        self.term += 1
        return effects

    return broken


@mutation(StandbySwitch, "_stands_in_at")
def sleep_through_the_missed_heartbeat(original: Any) -> Any:
    def broken(self: StandbySwitch) -> int:
        return FAR_FUTURE if self.hears or self.heard_at is not None else int(original(self))

    return broken


@mutation(StandbySwitch, "_later_term")
def stay_primary_in_a_later_term(original: Any) -> Any:
    def broken(self: StandbySwitch, report: Any, mine: Any, now: int) -> list[Any]:
        primary = self.state is CopyState.PRIMARY
        effects: list[Any] = [] if primary else original(self, report, mine, now)
        return effects

    return broken


@mutation(ProtectedReplica, "_keep_connections")
def never_acknowledge_while_asleep(original: Any) -> Any:
    def broken(self: ProtectedReplica, now: int, effects: list[Any]) -> None:
        acks, self.acks = self.acks, {}
        original(self, now, effects)
        self.acks = acks

    return broken


@mutation(StandbySwitch, "_usable")
def begin_empty_without_asking_the_other_copy(original: Any) -> Any:
    def broken(self: StandbySwitch, mine: Any) -> bool:
        return True

    return broken


@mutation(ProtectedReplica, "_refusal")
def lay_changes_on_whatever_is_held(original: Any) -> Any:
    def broken(self: ProtectedReplica, checkpoint: Any) -> Refusal | None:
        found: Refusal | None = original(self, checkpoint)
        return None if found is Refusal.WHOLE_NEEDED else found

    return broken


@mutation(ProtectedReplica, "_refusal")
def hold_an_older_record(original: Any) -> Any:
    # What is older is refused when it comes and again when it is there: both must go.
    def broken(self: ProtectedReplica, checkpoint: Any) -> Refusal | None:
        found: Refusal | None = original(self, checkpoint)
        fits = checkpoint.base in (None, self.base) and self.replica is None
        if found is Refusal.NOT_NEWER and fits:
            self.held = None
            return None
        return found

    return broken


@mutation(StandbySwitch, "_relieve", shape="moves")
def never_relieve_a_copy_that_is_about_to_go(original: Any) -> Any:
    def broken(self: StandbySwitch, mine: Any, now: int) -> list[Any]:
        return []

    return broken


@mutation(ProtectedReplica, "_turn_to", shape="moves")
def go_on_asking_the_copy_that_is_gone(original: Any) -> Any:
    def broken(self: ProtectedReplica, there: list[str], now: int) -> None:
        pass

    return broken


@mutation(ShippingCopy, "_raised", shape="moves")
def write_down_the_incarnation_of_the_other_copy(original: Any) -> Any:
    def broken(self: ShippingCopy, record: Any) -> Any:
        return replace(original(self, record), incarnation=record.incarnation)

    return broken


@mutation(SweepingCheckpointer, "handle", shape="bulky")
def count_only_the_checkpoint_that_went_out_last(original: Any) -> Any:
    def broken(self: SweepingCheckpointer, event: Any, now: int) -> Any:
        if isinstance(event, Taken) and event.number != self._awaited:
            return []
        orders = original(self, event, now)
        self._patience_us = dict.fromkeys(self._patience_us, PATIENCE_US)
        return orders

    return broken
