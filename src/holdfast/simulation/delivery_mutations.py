"""Deliberate bugs in what is kept and acknowledged for each kind of delivery."""

from __future__ import annotations

from typing import Any

from holdfast.core.consumer import Consumer
from holdfast.core.copy import Copy
from holdfast.core.delivery import ConfirmedKeeper, PatientKeeper
from holdfast.core.effects import Effect
from holdfast.core.protected import ProtectedReplica
from holdfast.core.provider import Provider
from holdfast.core.stream_copy import StreamCopy
from holdfast.core.upstream import Upstream
from holdfast.simulation.planting import mutation


@mutation(ConfirmedKeeper, "_is_confirmed", shape="deliveries")
def record_at_least_once_what_nobody_has_confirmed(original: Any) -> Any:
    return lambda self, record: True


@mutation(ConfirmedKeeper, "flush", shape="deliveries")
def acknowledge_at_least_once_what_only_came(original: Any) -> Any:
    def broken(self: ConfirmedKeeper, now: int) -> list[Effect]:
        consumer: Consumer = self._consumer
        for stream, one in consumer.upstreams.items():
            consumer.acks[stream] = one.copy.next_id
        return list(original(self, now))

    return broken


@mutation(StreamCopy, "forget_ids", shape="deliveries")
def go_on_at_most_once_by_the_ids_of_another_life(original: Any) -> Any:
    return lambda self: None


@mutation(StreamCopy, "_newer_than", shape="deliveries")
def take_at_most_once_what_is_older_than_what_is_here(original: Any) -> Any:
    return lambda self: 0


@mutation(ProtectedReplica, "_keep_connections", shape="deliveries")
def keep_for_a_copy_that_sleeps_what_it_never_asks_for(original: Any) -> Any:
    def broken(self: ProtectedReplica, now: int, effects: list[Effect]) -> None:
        lossy, self.lossy = self.lossy, False
        original(self, now, effects)
        self.lossy = lossy

    return broken


@mutation(Upstream, "_open", shape="rescaled_at_most_once")
def take_a_new_generation_for_a_stream_that_was_never_read(original: Any) -> Any:
    def broken(self: Upstream, peer: str, now: int, effects: list[Any]) -> Any:
        if self.main is not None and peer != self.main.peer:
            self.copy.cut = self.copy.boundary = 0
        return original(self, peer, now, effects)

    return broken


@mutation(Upstream, "_open", shape="rescaled_at_most_once")
def go_on_with_a_new_generation_by_the_ids_of_the_old_one(original: Any) -> Any:
    def broken(self: Upstream, peer: str, now: int, effects: list[Any]) -> Any:
        lossy, self.copy.lossy = self.copy.lossy, self.main is None or peer == self.main.peer
        feed = original(self, peer, now, effects)
        self.copy.lossy = lossy
        return feed

    return broken


@mutation(PatientKeeper, "_is_confirmed", shape="deliveries")
def record_exactly_once_what_nobody_has_confirmed(original: Any) -> Any:
    return lambda self, record: True


@mutation(PatientKeeper, "_write_held", shape="deliveries")
def forget_results_that_readers_do_not_confirm_in_time(original: Any) -> Any:
    def broken(self: PatientKeeper) -> None:
        for frames in self._held.values():
            frames.clear()
        original(self)

    return broken


@mutation(PatientKeeper, "_write_held", shape="deliveries")
def leave_out_of_the_log_what_waits_for_a_slow_disk(original: Any) -> Any:
    def broken(self: PatientKeeper) -> None:
        self._dropped |= set(self._held)
        original(self)

    return broken


@mutation(Copy, "_wake", shape="rescaled_at_most_once")
def forget_who_takes_part_where_streams_begin_anew(original: Any) -> Any:
    def broken(self: Copy, now: int, effects: list[Effect]) -> None:
        provider, self._provider = self._provider, Provider({}, self._state_at_rest)
        original(self, now, effects)
        self._provider = provider

    return broken
