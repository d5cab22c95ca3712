"""Deliberate bugs in how a fragment's work is divided among shards, put together again, and handed
over when the number of shards changes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast import slots
from holdfast.core import copy
from holdfast.core.copy import Copy
from holdfast.core.effects import ApplyCheckpoint, Effect
from holdfast.core.events import Event, MessageArrived
from holdfast.core.joining import Joining
from holdfast.core.lending import Lender
from holdfast.core.messages import JoinRequest, StreamState
from holdfast.core.protected import ProtectedReplica
from holdfast.core.provider import Provider
from holdfast.core.records import Checkpoint, LoggedStream, Membership, RecoveryRecord
from holdfast.core.shipping import ShippingCopy
from holdfast.core.succession import Succession
from holdfast.core.sunion import SUnion
from holdfast.simulation import executor
from holdfast.simulation.executor import Computation, Merge, Row, Tagged
from holdfast.simulation.planting import mutation
from holdfast.slots import SLOTS, Routing


@mutation(slots, "slot_range", shape="around")
def give_the_last_slots_to_nobody(original: Any) -> Any:
    def broken(shard: int, shards: int, routing: Routing) -> tuple[int, int]:
        width = SLOTS // shards - SLOTS // 8
        return (shard - 1) * width, shard * width

    return broken


@mutation(slots, "slot_range", shape="around")
def let_ranges_of_slots_overlap(original: Any) -> Any:
    def broken(shard: int, shards: int, routing: Routing) -> tuple[int, int]:
        first, end = original(shard, shards, routing)
        return first, end + SLOTS // 4

    return broken


@mutation(Computation, "read", shape="around")
def divide_by_something_else_than_the_key(original: Any) -> Any:
    def broken(self: Computation, slices: Any) -> list[Tagged]:
        rows = [row for piece in slices for row in executor.read_slice(piece)]
        return [row for row in rows if self.shard is None or self.takes(row[4])]

    return broken


@mutation(Merge, "advance", shape="around")
def merge_in_the_order_of_the_shards(original: Any) -> Any:
    def broken(
        self: Merge, state: object, rows: list[Tagged], start: int, stop: int
    ) -> tuple[object, list[Row], int]:
        return None, [(stime, key, value, seq) for stime, _, _, key, value, seq in rows], stop

    return broken


@mutation(SUnion, "stable_target", shape="around")
def merge_up_to_the_shard_that_is_furthest(original: Any) -> Any:
    def broken(self: SUnion) -> int:
        if not all(name.count(".") == 2 for name in self.copies):
            return int(original(self))
        return self._floor(max(copy.boundary for copy in self.copies.values()))

    return broken


@mutation(Lender, "asked", shape="rescalings")
def lend_the_newest_state_as_that_of_the_boundary(original: Any) -> Any:
    def broken(
        self: Lender, sender: str, request: JoinRequest, newest: Any, served: Any, now: int, at: int
    ) -> Any:
        if request.at is not None and newest is not None:
            newest, at = (replace(newest[0], boundary=request.at), newest[1]), request.at
        return original(self, sender, request, newest, served, now, at)

    return broken


@mutation(Succession, "_united", shape="rescalings")
def take_over_from_the_first_shard_only(original: Any) -> Any:
    def broken(self: Succession, pieces: list[Checkpoint], at: int, now: int) -> Checkpoint:
        return original(self, pieces[:1], at, now)  # type: ignore[no-any-return]

    return broken


@mutation(Computation, "united", shape="rescalings")
def take_over_slots_of_others_as_well(original: Any) -> Any:
    def broken(self: Computation, states: list[object]) -> object:
        return original(replace(self, shard=(1, 1)), states)

    return broken


@mutation(Provider, "obey", shape="rescalings")
def keep_nothing_for_new_shards(original: Any) -> Any:
    def broken(self: Provider, membership: Membership) -> Any:
        return original(self, replace(membership, taking=()))

    return broken


@mutation(Provider, "obey", shape="called_off")
def go_on_keeping_for_new_shards_that_are_gone(original: Any) -> Any:
    def broken(self: Provider, membership: Membership) -> Any:
        new = {name for name, _ in membership.taking}
        gone = tuple(one for one in membership.gone if one[0] not in new)
        return original(self, replace(membership, gone=gone))

    return broken


@mutation(ProtectedReplica, "_state_at_rest", shape="rescaled_copies")
def say_that_a_copy_sleeps_which_has_yet_to_arrive(original: Any) -> Any:
    return lambda self, stream: StreamState.SUSPENDED


@mutation(ProtectedReplica, "_arrive", shape="rescaled_copies")
def let_copies_of_a_new_shard_wait_for_each_other(original: Any) -> Any:
    def broken(
        self: ProtectedReplica, machine: Joining, event: Event, now: int, effects: list[Effect]
    ) -> None:
        if not (isinstance(event, MessageArrived) and isinstance(event.message, JoinRequest)):
            original(self, machine, event, now, effects)

    return broken


@mutation(ShippingCopy, "_successor_says", shape="rescaled_copies")
def lend_nothing_to_those_who_take_over_from_copies(original: Any) -> Any:
    return lambda self, sender, message, now, effects: None


@mutation(Succession, "_united", shape="rescaled_windows")
def replay_nothing_of_what_windows_were_handed_over_with(original: Any) -> Any:
    def broken(self: Succession, pieces: list[Checkpoint], at: int, now: int) -> Checkpoint:
        united: Checkpoint = original(self, pieces, at, now)
        return replace(united, record=replace(united.record, marker=at))

    return broken


@mutation(Lender, "reached", shape="rescaled_windows")
def lend_what_the_log_had_of_windows_long_ago(original: Any) -> Any:
    def broken(
        self: Lender, newest: tuple[RecoveryRecord, Any], served: Any, now: int
    ) -> list[Effect]:
        record, state = newest
        stale = self.__dict__.setdefault("_stale", state)
        return original(self, (record, stale), served, now)  # type: ignore[no-any-return]

    return broken


@mutation(Copy, "_join", shape="rescaled_deliveries")
def hand_over_what_nobody_has_confirmed_in_memory_only(original: Any) -> Any:
    def broken(self: Copy, machine: Joining, event: Event, now: int, effects: list[Effect]) -> None:
        mine: list[Effect] = []
        original(self, machine, event, now, mine)
        effects += [
            replace(one, checkpoint=replace(one.checkpoint, queues=()))
            if isinstance(one, ApplyCheckpoint)
            else one
            for one in mine
        ]

    return broken


@mutation(copy, "at_record", shape="rescaled_deliveries")
def begin_again_at_the_record_whatever_was_handed_over(original: Any) -> Any:
    def broken(logged: LoggedStream, record: RecoveryRecord | None) -> LoggedStream:
        return original(replace(logged, frames=()), record)  # type: ignore[no-any-return]

    return broken
