"""Deliberate bugs of rings of shards: who holds a shard's state, who stands in, who goes home."""

from __future__ import annotations

from typing import Any

from holdfast.core.messages import CopyReport
from holdfast.core.protected import ProtectedReplica
from holdfast.core.standby import StandbySwitch
from holdfast.core.stream_copy import FAR_FUTURE
from holdfast.simulation import layout, rescaling
from holdfast.simulation.planting import mutation


@mutation(layout, "places_of", shape="around")
def give_all_parts_of_a_shard_to_the_next(original: Any) -> Any:
    def broken(shard: int, part: int, shards: int, copies: int) -> tuple[int, ...]:
        return original(shard, 1, shards, copies)  # type: ignore[no-any-return]

    return broken


@mutation(layout, "places_of", shape="around")
def hold_the_last_part_of_a_shard_where_the_shard_is(original: Any) -> Any:
    def broken(shard: int, part: int, shards: int, copies: int) -> tuple[int, ...]:
        places = original(shard, part, shards, copies)
        return places if part < shards - 1 else (shard,) * copies

    return broken


@mutation(rescaling, "places_of", shape="rescaled_copies")
def hold_a_new_shards_state_at_the_next_one_wherever_that_is(original: Any) -> Any:
    def broken(
        shard: int, part: int, shards: int, copies: int, servers: list[str]
    ) -> tuple[int, ...]:
        return original(shard, part, shards, copies)  # type: ignore[no-any-return]

    return broken


@mutation(ProtectedReplica, "_checkpoint", shape="losses")
def send_checkpoints_to_the_next_shard_only(original: Any) -> Any:
    def broken(self: ProtectedReplica, replica: Any, now: int, effects: list[Any]) -> None:
        others = self.others
        order = self.pair.order_of(self.switch.term)
        self.others = {order[1]: others[order[1]]}
        original(self, replica, now, effects)
        self.others = others

    return broken


@mutation(StandbySwitch, "_stands_in_at", shape="losses")
def leave_it_to_the_first_copy_to_stand_in(original: Any) -> Any:
    def broken(self: StandbySwitch) -> int:
        order = self._settings.order_of(self.term)
        return int(original(self)) if order[1] == self.address else FAR_FUTURE

    return broken


@mutation(StandbySwitch, "_stands_in_at", shape="losses")
def wait_for_ever_for_those_with_less_to_do(original: Any) -> Any:
    def broken(self: StandbySwitch) -> int:
        return FAR_FUTURE if self._before() else int(original(self))

    return broken


@mutation(StandbySwitch, "_go_home", shape="losses")
def never_take_the_work_back(original: Any) -> Any:
    def broken(self: StandbySwitch, report: CopyReport, mine: CopyReport, now: int) -> list[Any]:
        return []

    return broken
