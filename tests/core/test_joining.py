"""A replica with nothing takes its place: holds first, then a partner's state."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

import pytest

from holdfast.core.copy import Copy
from holdfast.core.effects import (
    ApplyCheckpoint,
    BeginRunning,
    Effect,
    EndProcess,
    Send,
    StartOver,
    StopRunning,
)
from holdfast.core.events import (
    CheckpointApplied,
    CheckpointFailed,
    CheckpointNotSent,
    Event,
    MessageArrived,
    Started,
    TimerFired,
)
from holdfast.core.lending import FIRST_PAUSE_US, LONGEST_PAUSE_US
from holdfast.core.messages import (
    CheckpointRefused,
    CheckpointShipped,
    CheckpointTaken,
    CopyState,
    HeartbeatReply,
    HeartbeatRequest,
    JoinReply,
    JoinRequest,
    Message,
    Refusal,
    StreamReport,
    StreamState,
    Subscribe,
)
from holdfast.core.records import Checkpoint, Found, LoggedStream, RecoveryRecord
from holdfast.core.settings import Input, Output, ReplicaSettings, Timing
from tests.core.frames_for_tests import boundary, stable

TIMING = Timing(bucket_us=100, delay_us=3_000_000, heartbeat_interval_us=100_000)
NOW = 1_000_000
T = TypeVar("T", bound=Message)


class Bench:
    """A replica that reads ``in`` from two entry points' worth of producers."""

    def __init__(self, found: Found | None = None, partners: tuple[str, ...] = ("b", "c")) -> None:
        self.now = NOW
        self.copy = Copy(
            ReplicaSettings(
                "a",
                (Input("in", ("p", "q")),),
                (Output("out", frozenset({"in"}), ("reader",)),),
                partners,
                TIMING,
            ),
            found,
        )
        self.give(Started())

    def give(self, event: Event) -> list[Effect]:
        self.effects = self.copy.handle(event, self.now)
        self.copy.validate()
        return self.effects

    def hear(self, sender: str, message: Message) -> list[Effect]:
        return self.give(MessageArrived(sender, message))

    def wait(self, us: int) -> list[Effect]:
        self.now += us
        return self.give(TimerFired())

    def recovers(self, peer: str, boundary: int) -> list[Effect]:
        report = StreamReport("in", StreamState.RECOVERING, boundary, boundary, 0)
        return self.hear(peer, HeartbeatReply((report,), ()))

    def says(self, peer: str, first_id: int, incarnation: int = 0) -> list[Effect]:
        report = StreamReport("in", StreamState.STABLE, 5_000, 5_000, first_id)
        return self.hear(peer, HeartbeatReply((report,), (), incarnation))

    def sent(self, kind: type[T]) -> list[tuple[str, T]]:
        found = [one for one in self.effects if isinstance(one, Send)]
        return [(one.to, one.message) for one in found if isinstance(one.message, kind)]

    def lose(self) -> int:
        """Both producers say that the beginning is gone; the number it joins under."""
        self.says("p", 40)
        self.says("q", 30)
        assert self.copy.state is CopyState.JOINING
        self.wait(1)
        return self.copy.incarnation

    def hold(self) -> JoinRequest:
        """Both producers hold; what a partner is asked."""
        incarnation = self.lose()
        self.says("p", 40, incarnation)
        self.says("q", 30, incarnation)
        self.wait(1)
        ((partner, request),) = self.sent(JoinRequest)
        assert partner == "b"
        return request


def checkpoint(request: JoinRequest, round: int | None = None) -> Checkpoint:
    queue = LoggedStream("out", 6, (stable(6, 10, 20), boundary(8, 4_000)))
    record = RecoveryRecord(4_000, 4_000, (("in", 50),), (("out", 8),))
    answers = (request.incarnation, request.round if round is None else round)
    return Checkpoint(77, 0, None, record, (queue,), "packed", True, answers)


def test_who_finds_nothing_begins_empty_where_nothing_was_trimmed() -> None:
    bench = Bench()
    bench.says("p", 0)
    assert bench.copy.state is CopyState.PRIMARY
    assert [one.next_id for _, one in bench.sent(Subscribe)] == [0]


def test_who_has_nothing_joins_though_a_producer_recovers_that_has_nothing_either() -> None:
    bench = Bench()
    bench.recovers("p", 0)
    assert not bench.copy.glance().joining, "at the first start it is so of everybody"
    bench.says("q", 30)
    assert bench.copy.state is CopyState.JOINING


def test_a_producer_that_recovers_from_its_beginning_is_waited_for() -> None:
    bench = Bench()
    bench.recovers("p", 4_000)
    bench.says("q", 30)
    assert bench.copy.state is CopyState.PRIMARY


def test_producers_hold_before_a_partner_is_asked() -> None:
    bench = Bench()
    incarnation = bench.lose()
    asked = bench.sent(HeartbeatRequest)
    assert {to for to, _ in asked} == {"p", "q"}
    assert all(one.incarnation == incarnation and one.acks == () for _, one in asked)
    bench.says("p", 40, incarnation)
    bench.wait(100_000)
    assert bench.sent(JoinRequest) == [], "one of two holds"
    bench.says("q", 30, incarnation)
    bench.wait(1)
    assert bench.sent(JoinRequest) == [("b", JoinRequest(incarnation, 1))]


def test_a_producer_that_stays_silent_is_not_waited_for_for_ever() -> None:
    bench = Bench()
    incarnation = bench.lose()
    bench.says("p", 40, incarnation)
    bench.wait(TIMING.delay_us + 100_000)
    assert bench.sent(JoinRequest) == [("b", JoinRequest(incarnation, 1))]


def test_it_goes_on_from_the_partners_state_as_a_new_life() -> None:
    bench = Bench()
    request = bench.hold()
    bench.hear("b", JoinReply(request.incarnation, request.round, True))
    bench.hear("b", CheckpointShipped(checkpoint(request)))
    (order,) = [one for one in bench.effects if isinstance(one, ApplyCheckpoint)]
    assert order.checkpoint.record.incarnation == request.incarnation
    bench.give(CheckpointApplied(77, "state"))
    assert bench.copy.state is CopyState.PRIMARY
    assert ("b", CheckpointTaken(77)) in bench.sent(CheckpointTaken)
    (begin,) = [one for one in bench.effects if isinstance(one, BeginRunning)]
    assert (begin.record.boundary, begin.state) == (4_000, "state")
    assert {one.acks for _, one in bench.sent(HeartbeatRequest)} == {(("in", 50),)}
    assert {one.incarnation for _, one in bench.sent(HeartbeatRequest)} == {request.incarnation}
    bench.says("p", 40, request.incarnation)
    assert [one.next_id for _, one in bench.sent(Subscribe)] == [50]
    served = bench.copy.served["out"]
    assert (served.first_id, served.next_id) == (6, 8)


@pytest.mark.parametrize("change", [{"round": 7}, {"incarnation": 3}])
def test_a_checkpoint_taken_for_another_round_or_life_is_refused(change: dict[str, int]) -> None:
    bench = Bench()
    request = bench.hold()
    other = JoinRequest(
        change.get("incarnation", request.incarnation), change.get("round", request.round)
    )
    bench.hear("b", CheckpointShipped(checkpoint(other)))
    assert not any(isinstance(one, ApplyCheckpoint) for one in bench.effects)
    assert bench.copy.state is CopyState.JOINING


def test_a_partner_that_has_nothing_or_is_silent_is_followed_by_the_next() -> None:
    bench = Bench()
    request = bench.hold()
    bench.hear("b", JoinReply(request.incarnation, request.round, False))
    bench.wait(100_000)
    assert bench.sent(JoinRequest) == [("c", JoinRequest(request.incarnation, 2))]
    for _ in range(5):
        bench.wait(100_000)
    assert [to for to, _ in bench.sent(JoinRequest)] == ["b"]


def test_a_state_of_another_query_is_neither_taken_nor_waited_for() -> None:
    bench = Bench()
    request = bench.hold()
    other = replace(checkpoint(request), query="of an older plan")
    bench.hear("b", CheckpointShipped(other))
    assert not any(isinstance(one, ApplyCheckpoint) for one in bench.effects)
    assert ("b", CheckpointRefused(77, Refusal.OTHER_QUERY)) in bench.sent(CheckpointRefused)
    bench.wait(100_000)
    assert bench.sent(JoinRequest) == [("c", JoinRequest(request.incarnation, 2))]
    no = JoinReply(request.incarnation, 2, False, refused=Refusal.OTHER_QUERY)
    bench.hear("c", no)
    assert "b still computes another query" in bench.copy.glance().why


def test_nothing_is_lent_to_one_that_computes_another_query() -> None:
    bench = lender()
    bench.hear("b", JoinRequest(9, 1, query="of a newer plan"))
    refused = JoinReply(9, 1, False, refused=Refusal.OTHER_QUERY)
    assert bench.effects == [Send("b", refused)]


def test_a_partner_that_answers_is_waited_for() -> None:
    bench = Bench()
    request = bench.hold()
    for _ in range(50):
        bench.hear("b", JoinReply(request.incarnation, request.round, True))
        bench.wait(100_000)
        assert bench.sent(JoinRequest) == [("b", request)]


def test_an_answer_that_comes_after_its_partner_was_given_up_makes_silence_last_longer() -> None:
    bench = Bench(partners=("b",))
    request = bench.hold()

    def silent_for() -> int:
        """How many heartbeats go out before it asks anew, though nobody answers."""
        asked, waited = bench.sent(JoinRequest), 0
        while bench.sent(JoinRequest) == asked:
            bench.wait(100_000)
            waited += 1
        return waited

    assert silent_for() == 3
    bench.hear("b", JoinReply(request.incarnation, request.round, True))
    bench.hear("b", JoinReply(request.incarnation, request.round, True))
    bench.wait(100_000)
    ((_, again),) = bench.sent(JoinRequest)
    assert again.round == request.round + 1, "what it has made ready is not for this round"
    assert silent_for() == 6
    assert silent_for() == 7, "one that is gone says nothing, and tells nothing"


def test_what_could_not_be_applied_is_asked_for_again() -> None:
    bench = Bench()
    request = bench.hold()
    bench.hear("b", CheckpointShipped(checkpoint(request)))
    bench.give(CheckpointFailed(77, "no room"))
    bench.wait(100_000)
    assert bench.sent(JoinRequest) == [("c", JoinRequest(request.incarnation, 2))]


def test_a_producer_that_knows_a_later_life_makes_it_begin_again_as_a_later_one() -> None:
    bench = Bench()
    incarnation = bench.lose()
    bench.says("p", 40, incarnation + 500)
    assert bench.copy.incarnation == incarnation + 501
    assert bench.copy.state is CopyState.JOINING


def test_who_has_nothing_takes_a_number_above_the_one_it_hears_of() -> None:
    bench = Bench()
    bench.says("p", 0, incarnation=NOW + 5)
    assert bench.copy.incarnation == NOW + 6
    assert not any(isinstance(one, EndProcess) for one in bench.effects)


def test_who_was_replaced_and_comes_back_is_told_and_ends() -> None:
    record = RecoveryRecord(4_000, 4_000, (("in", 50),), (("out", 0),), incarnation=5)
    bench = Bench(Found(record, "state"))
    bench.says("p", 40, incarnation=6)
    (end,) = [one for one in bench.effects if isinstance(one, EndProcess)]
    assert "incarnation 5 was replaced" in end.reason


def test_who_has_a_state_that_nobody_can_feed_starts_over() -> None:
    record = RecoveryRecord(4_000, 4_000, (("in", 50),), (("out", 0),))
    bench = Bench(Found(record, "state"))
    bench.says("p", 90)
    bench.says("q", 70)
    assert not any(isinstance(one, StartOver) for one in bench.effects), "it may pass"
    bench.now += TIMING.delay_us + 1
    bench.says("p", 90)
    (order,) = [one for one in bench.effects if isinstance(one, StartOver)]
    assert "in is needed from 50 on and begins at 70" in order.reason


def test_alone_it_says_what_to_do() -> None:
    bench = Bench(partners=())
    incarnation = bench.lose()
    bench.says("p", 40, incarnation)
    bench.says("q", 30, incarnation)
    bench.wait(100_000)
    assert bench.sent(JoinRequest) == []
    assert "in cannot be had from before 40, and no other replica" in bench.copy.glance().why


def test_it_begins_empty_if_a_producer_turns_up_that_has_everything() -> None:
    bench = Bench(partners=())
    incarnation = bench.lose()
    bench.says("q", 0, incarnation)
    assert bench.copy.state is CopyState.PRIMARY
    assert any(isinstance(one, BeginRunning) for one in bench.effects)


def test_readers_are_told_that_it_recovers() -> None:
    bench = Bench()
    bench.lose()
    bench.hear("reader", HeartbeatRequest(("out",), (), (), 0))
    ((_, reply),) = bench.sent(HeartbeatReply)
    assert [one.state for one in reply.reports] == [StreamState.RECOVERING]


def lender() -> Bench:
    record = RecoveryRecord(4_000, 4_000, (("in", 50),), (("out", 8),))
    queue = LoggedStream("out", 6, (stable(6, 10, 20), boundary(8, 4_000)))
    return Bench(Found(record, "state", (queue,)))


def test_a_partner_lends_its_newest_state_once_for_each_round() -> None:
    bench = lender()
    bench.hear("b", JoinRequest(9, 1))
    assert bench.sent(JoinReply) == [("b", JoinReply(9, 1, True))]
    ((_, shipped),) = bench.sent(CheckpointShipped)
    assert shipped.checkpoint.answers == (9, 1)
    assert shipped.checkpoint.record.inputs == (("in", 50),)
    assert [one.first_id for one in shipped.checkpoint.queues] == [6]
    bench.hear("b", JoinRequest(9, 1))
    assert bench.sent(CheckpointShipped) == [], "it is on its way"
    bench.give(CheckpointNotSent(shipped.checkpoint.number, "cut off"))
    bench.now += FIRST_PAUSE_US
    bench.hear("b", JoinRequest(9, 1))
    assert len(bench.sent(CheckpointShipped)) == 1


def test_after_what_could_not_be_sent_nothing_is_made_ready_for_longer_and_longer() -> None:
    bench, pauses = lender(), []
    bench.hear("b", JoinRequest(9, 1))
    for round in range(2, 12):
        ((_, shipped),) = bench.sent(CheckpointShipped)
        bench.give(CheckpointNotSent(shipped.checkpoint.number, "cut off"))
        failed_at = bench.now
        bench.hear("b", JoinRequest(9, round))
        while not bench.sent(CheckpointShipped):
            assert not bench.sent(JoinReply), "it is silent: its asker turns to the next"
            bench.now += 50_000
            bench.hear("b", JoinRequest(9, round))
        pauses.append(bench.now - failed_at)
    assert pauses[:3] == [FIRST_PAUSE_US, 2 * FIRST_PAUSE_US, 4 * FIRST_PAUSE_US]
    assert max(pauses) == pauses[-1] == LONGEST_PAUSE_US
    ((_, shipped),) = bench.sent(CheckpointShipped)
    bench.give(CheckpointNotSent(shipped.checkpoint.number, "cut off"))
    bench.hear("c", JoinRequest(9, 1))
    assert len(bench.sent(CheckpointShipped)) == 1, "another one is not to blame"
    bench.hear("b", JoinRequest(10, 1))
    ((_, shipped),) = bench.sent(CheckpointShipped)
    assert shipped.checkpoint.answers == (10, 1), "nor is the next life"


def test_nothing_is_made_ready_for_a_round_that_is_over() -> None:
    bench = lender()
    bench.hear("b", JoinRequest(9, 2))
    assert len(bench.sent(CheckpointShipped)) == 1
    bench.hear("b", JoinRequest(9, 1))
    assert bench.effects == [], "it was on its way for longer than its asker waited"
    bench.hear("b", JoinRequest(8, 5))
    assert len(bench.sent(CheckpointShipped)) == 1, "numbers of lives come from clocks"


def test_who_has_nothing_itself_lends_nothing() -> None:
    bench = Bench()
    bench.hear("b", JoinRequest(9, 1))
    assert bench.sent(JoinReply) == [("b", JoinReply(9, 1, False))]
    assert bench.sent(CheckpointShipped) == []


def test_only_partners_are_lent_to() -> None:
    bench = lender()
    assert bench.hear("stranger", JoinRequest(9, 1)) == []


def test_putting_down_ends_what_was_begun() -> None:
    bench = Bench()
    bench.says("p", 40)
    assert any(isinstance(one, StopRunning) for one in bench.effects)
