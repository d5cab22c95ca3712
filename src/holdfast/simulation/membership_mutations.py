"""Deliberate mistakes in membership: who is gone, who is told, and what is on disk by then."""

from __future__ import annotations

from typing import Any

from holdfast.core.acknowledgements import Acknowledgements
from holdfast.core.collection import Collection
from holdfast.core.consumer import Consumer
from holdfast.core.events import ConsumersKept, ConsumersNotKept
from holdfast.core.membership import Consumers, Word
from holdfast.core.messages import HeartbeatRequest
from holdfast.core.provider import Provider
from holdfast.core.records import Membership
from holdfast.core.revival import Revival
from holdfast.simulation.planting import mutation


@mutation(Consumers, "handle", shape="departures")
def obey_a_membership_that_is_not_on_disk(original: Any) -> Any:
    def broken(self: Consumers, event: ConsumersKept | ConsumersNotKept) -> Any:
        return original(self, ConsumersKept(event.number))

    return broken


@mutation(Acknowledgements, "leave", shape="departures")
def wait_for_acknowledgements_of_those_who_are_gone(original: Any) -> Any:
    def broken(self: Acknowledgements, consumer: str) -> list[Any]:
        return []

    return broken


@mutation(Provider, "_heartbeat", shape="departures")
def tell_nobody_that_it_is_behind(original: Any) -> Any:
    def broken(self: Provider, sender: str, request: HeartbeatRequest, now: int) -> Any:
        known, self.consumers.membership = self.consumers.membership, Membership()
        effects = original(self, sender, request, now)
        self.consumers.membership = known
        return effects

    return broken


@mutation(Word, "stamped", shape="departures")
def tell_producers_nothing(original: Any) -> Any:
    def broken(self: Word, effects: list[Any], membership: Membership) -> list[Any]:
        return effects

    return broken


@mutation(Consumer, "_leave", shape="departures")
def go_on_asking_those_who_are_gone(original: Any) -> Any:
    def broken(self: Consumer, peer: str, now: int) -> list[Any]:
        return []

    return broken


@mutation(Acknowledgements, "take_in", shape="arrivals")
def keep_nothing_for_one_that_is_added(original: Any) -> Any:
    def broken(self: Acknowledgements, consumer: str) -> None:
        pass

    return broken


@mutation(Provider, "_counts", shape="arrivals")
def trim_for_those_who_know_of_more_readers(original: Any) -> Any:
    def broken(self: Provider, sender: str, request: HeartbeatRequest) -> bool:
        return self.consumers.counts(sender, request.incarnation)

    return broken


@mutation(Consumer, "_take_in", shape="arrivals")
def never_ask_one_that_is_added(original: Any) -> Any:
    def broken(self: Consumer, peer: str, like: str) -> None:
        pass

    return broken


@mutation(Revival, "look", shape="collections")
def never_revive_what_was_collected(original: Any) -> Any:
    def broken(self: Revival, boundaries: Any, reached: int, now: int) -> None:
        pass

    return broken


@mutation(Revival, "told", shape="collections")
def keep_feeds_that_were_collected(original: Any) -> Any:
    def broken(self: Revival, collected: Any) -> bool:
        return False

    return broken


@mutation(Collection, "_feeds_that_may_go", shape="collections")
def collect_the_last_feed_of_a_reader(original: Any) -> Any:
    def broken(self: Collection) -> Any:
        return iter(list(self.kept.feeds))

    return broken


@mutation(Collection, "_replicas_that_may_go", shape="collections")
def collect_more_replicas_than_may_go(original: Any) -> Any:
    def broken(self: Collection) -> Any:
        return iter([name for names in self.kept.replicas.values() for name in names])

    return broken
