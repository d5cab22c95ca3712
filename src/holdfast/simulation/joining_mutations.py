"""Deliberate mistakes in joining: holds, lives of consumers, and what is taken from a partner."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from holdfast.core import upstream
from holdfast.core.acknowledgements import Acknowledgements
from holdfast.core.copy import Copy
from holdfast.core.joining import Joining
from holdfast.core.membership import Consumers
from holdfast.core.protected import ProtectedReplica
from holdfast.core.upstream import Upstream
from holdfast.simulation.planting import mutation


@mutation(Joining, "_look_at_holds", shape="rejoin")
def ask_for_the_state_before_producers_hold(original: Any) -> Any:
    def broken(self: Joining, now: int) -> None:
        self._held = set(self._streams_at)
        original(self, now)

    return broken


@mutation(Consumers, "told", shape="rejoin")
def promise_a_hold_before_it_is_on_disk(original: Any) -> Any:
    def broken(self: Consumers, name: str) -> int:
        return self._newest.get(name, 0)

    return broken


@mutation(Acknowledgements, "hold", shape="rejoin")
def hold_what_the_earlier_life_had_acknowledged(original: Any) -> Any:
    def broken(self: Acknowledgements, consumer: str) -> None:
        pass

    return broken


@mutation(Consumers, "counts", shape="rejoin")
def take_acknowledgements_of_an_earlier_life(original: Any) -> Any:
    def broken(self: Consumers, name: str, incarnation: int) -> bool:
        return True

    return broken


@mutation(Copy, "_wake", shape="rejoin")
def acknowledge_as_the_earlier_life(original: Any) -> Any:
    def broken(self: Copy, now: int, effects: list[Any]) -> None:
        original(self, now, effects)
        assert self.replica is not None
        self.replica.consumer.incarnation = 0

    return broken


@mutation(Copy, "_joined", shape="rejoin")
def forget_where_the_output_of_the_partner_stands(original: Any) -> Any:
    def broken(self: Copy, machine: Any, number: int, *rest: Any) -> None:
        if self._applying is not None:
            self._applying = replace(self._applying, queues=())
        original(self, machine, number, *rest)

    return broken


@mutation(Upstream, "out_of_reach", shape="rejoin")
def wait_for_ever_for_what_was_trimmed(original: Any) -> Any:
    return property(lambda self: None)


@mutation(upstream, "_has_nothing", shape="stranded")
def wait_for_one_that_knows_nothing_yet(original: Any) -> Any:
    return lambda report: False


@mutation(Joining, "_look_if_late", shape="remote")
def learn_nothing_from_answers_that_come_too_late(original: Any) -> Any:
    return lambda self, peer, reply, awaited: None


@mutation(ProtectedReplica, "_take", shape="spared")
def begin_on_a_spare_as_one_that_has_lost_its_state(original: Any) -> Any:
    def broken(self: ProtectedReplica, event: Any, now: int, effects: list[Any]) -> None:
        self.settings = replace(self.settings, begins_empty=True)
        original(self, event, now, effects)

    return broken
