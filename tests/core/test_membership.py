"""Which life of a consumer counts, and what is kept for it."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core.effects import KeepConsumers, Send, TrimLog
from holdfast.core.entry import EntryPoint, EntrySettings
from holdfast.core.events import ConsumersKept, ConsumersNotKept, MessageArrived
from holdfast.core.membership import Consumers
from holdfast.core.messages import HeartbeatReply, HeartbeatRequest, StreamState
from holdfast.core.provider import Provider
from holdfast.core.records import ConsumersRecord, Membership
from holdfast.core.serving import ServedStream
from tests.core.frames_for_tests import boundary, stable


def make(kept: ConsumersRecord | None = None) -> tuple[Provider, ServedStream]:
    served = ServedStream("s", ("c", "d"))
    served.publish((stable(0, 10, 20, 30), boundary(3, 40)))
    return Provider({"s": served}, lambda stream: StreamState.STABLE, Consumers(kept)), served


def beat(ack: int, incarnation: int = 0) -> HeartbeatRequest:
    return HeartbeatRequest(("s",), (("s", ack),), (), 0, incarnation)


def reply_of(effects: list[object]) -> HeartbeatReply:
    (reply,) = [one.message for one in effects if isinstance(one, Send)]
    assert isinstance(reply, HeartbeatReply)
    return reply


def test_nothing_is_written_for_those_who_never_lost_anything() -> None:
    provider, served = make()
    assert not any(isinstance(one, KeepConsumers) for one in provider.handle("c", beat(2), 1))
    assert TrimLog("s", 1) in provider.handle("d", beat(1), 1)
    assert served.first_id == 1


def test_a_new_life_is_held_for_from_the_trim_point_and_told_once_that_is_on_disk() -> None:
    provider, served = make()
    provider.handle("c", beat(3), 1)
    provider.handle("d", beat(1), 1)
    effects = provider.handle("c", beat(0, incarnation=7), 2)
    assert KeepConsumers(ConsumersRecord(1, (("c", 7),))) in effects
    assert reply_of([*effects]).incarnation == 0, "not on disk yet"
    provider.handle("d", beat(3), 3)
    assert served.first_id == 1, "the earlier life had acknowledged all, this one nothing"
    provider.consumers.handle(ConsumersKept(1))
    assert reply_of([*provider.handle("c", beat(0, incarnation=7), 4)]).incarnation == 7
    assert TrimLog("s", 2) in provider.handle("c", beat(2, incarnation=7), 5)


def test_an_earlier_life_acknowledges_nothing_and_is_told() -> None:
    provider, served = make(ConsumersRecord(4, (("c", 7),)))
    provider.handle("d", beat(3), 1)
    effects = provider.handle("c", beat(3, incarnation=6), 2)
    assert served.first_id == 0
    assert reply_of([*effects]).incarnation == 7


def test_what_could_not_be_written_is_written_with_the_next_heartbeat() -> None:
    provider, _ = make()
    provider.handle("c", beat(0, incarnation=7), 1)
    assert provider.consumers.handle(ConsumersNotKept(1, "full")) == []
    effects = provider.handle("d", beat(0), 2)
    assert KeepConsumers(ConsumersRecord(2, (("c", 7),))) in effects


def test_two_changes_are_written_one_after_the_other() -> None:
    provider, _ = make()
    provider.handle("c", beat(0, incarnation=7), 1)
    assert not any(
        isinstance(one, KeepConsumers) for one in provider.handle("d", beat(0, incarnation=9), 1)
    )
    again = provider.consumers.handle(ConsumersKept(1))
    assert again == [KeepConsumers(ConsumersRecord(2, (("c", 7), ("d", 9))))]


def test_nothing_is_written_for_readers_the_deployment_does_not_name() -> None:
    provider, _ = make()
    effects = provider.handle("stranger", beat(0, incarnation=7), 1)
    assert not any(isinstance(one, KeepConsumers) for one in effects)


def test_an_entry_point_goes_on_with_what_was_written() -> None:
    entry = EntryPoint(EntrySettings("e", "s", ("c",)), None, ConsumersRecord(1, (("c", 7),)))
    effects = entry.handle(MessageArrived("c", beat(0, incarnation=6)), 1)
    assert reply_of([*effects]).incarnation == 7


def test_who_obeys_a_newer_membership_acknowledges_nothing_before_it_is_obeyed_here() -> None:
    """A replica was added while the provider was away; nobody has told it yet."""
    provider, served = make()
    membership = Membership().with_another("n", "c")
    newer = replace(beat(2), epoch=membership.epoch)
    provider.handle("d", newer, 1)
    effects = provider.handle("c", newer, 1)
    assert served.first_id == 0
    assert reply_of([*effects]).epoch == 0, "by which the asker knows what to send"
    provider.consumers.tell(membership)
    provider.handle("c", newer, 2)
    assert served.first_id == 0, "it is not on disk"
    provider.consumers.handle(ConsumersKept(1))
    provider.obey(membership)
    provider.handle("d", newer, 3)
    provider.handle("c", newer, 3)
    assert served.acknowledgements.needs() == {"c": 2, "d": 2, "n": 0}
    assert served.first_id == 0
