"""Deliberate bugs of what is kept: on disks, in logs, in checkpoints; see ``mutations``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.core.continuous import CecState, Checkpointer
from holdfast.core.continuous_rounds import WindowRounds
from holdfast.core.copy import Copy
from holdfast.core.events import CheckpointNotSent, MessageArrived
from holdfast.core.laying import Bases, DiskEnd, Links
from holdfast.core.messages import CheckpointRefused, Refusal
from holdfast.core.protected import ProtectedReplica
from holdfast.simulation import disk
from holdfast.simulation.disk import Disk
from holdfast.simulation.planting import mutation


@mutation(disk, "replaces", shape="cut_short")
def let_an_older_record_replace_a_newer_one(original: Any) -> Any:
    # The primary has taken newer state back; its own older record was on its way to the disk.
    def broken(new: Any, kept: Any) -> bool:
        return True

    return broken


@mutation(Disk, "_skip", shape="cut_short")
def lose_what_the_held_record_needs_at_a_gap(original: Any) -> Any:
    def broken(self: Disk, stream: str, first_id: int) -> None:
        self._log(stream).clear()
        original(self, stream, first_id)

    return broken


@mutation(Disk, "piece", shape="cut_short")
def send_the_piece_of_another_record(original: Any) -> Any:
    def broken(self: Disk, stream: str, record: Any, after: Any) -> Any:
        newest = record if self.record is None else self.record
        return original(self, stream, newest, after)

    return broken


@mutation(Copy, "_windows_from", shape="cut_short")
def trim_window_states_by_the_newest_state(original: Any) -> Any:
    # Not by the oldest record that somebody may still go on from.
    def broken(self: Copy) -> int:
        replica = self.replica
        if replica is not None:
            self._trims_from = replica._newest[0].extent  # type: ignore[attr-defined]
        return int(getattr(self, "_trims_from", original(self)))

    return broken


@mutation(ProtectedReplica, "_take")
def count_a_failed_send_as_an_answer(original: Any) -> Any:
    def broken(self: ProtectedReplica, event: Any, now: int, effects: list[Any]) -> None:
        if isinstance(event, CheckpointNotSent):
            refused = CheckpointRefused(event.number, Refusal.FAILED)
            for other in self.others:
                original(self, MessageArrived(other, refused), now, effects)
            return
        original(self, event, now, effects)

    return broken


@mutation(Checkpointer, "_looked", shape="steady")
def let_one_generation_hold_up_the_others(original: Any) -> Any:
    def broken(self: Checkpointer, event: Any, now: int) -> Any:
        if not event.alive and (event.replayed or event.exact) and not event.unseen:
            at = self._generations[self._at]
            at.replayed, at.exact = event.replayed, event.exact
            at.members = event.rest
            return self._end(now)
        return original(self, event, now)

    return broken


@mutation(WindowRounds, "must_wait")
def let_a_state_overtake_the_round_before_it(original: Any) -> Any:
    def broken(self: WindowRounds, done: Any, running: Any) -> bool:
        self.machine.state = CecState.IDLE
        return False

    return broken


@mutation(ProtectedReplica, "_extend")
def forget_what_a_checkpoint_brought_for_the_queue(original: Any) -> Any:
    def broken(self: ProtectedReplica, checkpoint: Any, effects: list[Any]) -> None:
        for queue in checkpoint.queues:
            self.served[queue.stream].extend(type(queue)(queue.stream, queue.first_id, ()))

    return broken


@mutation(ProtectedReplica, "_usable_records", shape="cut_short")
def keep_window_states_for_nobody(original: Any) -> Any:
    def broken(self: ProtectedReplica) -> Iterator[Any]:
        for record in original(self):
            yield type(record)(
                record.boundary, record.marker, record.inputs, record.outputs, record.boundary
            )

    return broken


@mutation(Bases, "of", shape="bulky")
def forget_what_is_held_before_the_next_one_is(original: Any) -> Any:
    def broken(self: Bases[Any], checkpoint: Any) -> Any:
        found = original(self, checkpoint)
        self._made = {number: one for number, one in self._made.items() if one is found}
        return found

    return broken


@mutation(DiskEnd, "takes", shape="bulky")
def write_changes_of_whatever_was_sent_before(original: Any) -> Any:
    def broken(self: DiskEnd[Any], checkpoint: Any) -> bool:
        return checkpoint.base is not None

    return broken


@mutation(DiskEnd, "begin", shape="overtaken")
def write_changes_whatever_is_on_disk(original: Any) -> Any:
    def broken(self: DiskEnd[Any], state: Any) -> None:
        self._continues = self.state is not None

    return broken


@mutation(Links, "call_off", shape="bulky")
def count_links_whose_record_was_never_written(original: Any) -> Any:
    def broken(self: Links[Any]) -> None:
        pass

    return broken
