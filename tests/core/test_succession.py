"""A new shard takes over: a boundary that nobody has passed, the states of all at that boundary."""

from __future__ import annotations

import pytest

from holdfast.core.copy import Copy
from holdfast.core.effects import ApplyCheckpoint, BeginRunning, Effect, Send
from holdfast.core.events import CheckpointApplied, Event, MessageArrived, Started, TimerFired
from holdfast.core.lending import Lender
from holdfast.core.messages import (
    CheckpointRefused,
    CheckpointShipped,
    CheckpointTaken,
    HeartbeatReply,
    JoinReply,
    JoinRequest,
    Message,
    Refusal,
    StreamReport,
    StreamState,
)
from holdfast.core.records import Checkpoint, Membership, Pieces, RecoveryRecord
from holdfast.core.settings import Input, Output, ReplicaSettings, Timing
from holdfast.core.succession import peers_of

TIMING = Timing(bucket_us=100, delay_us=3_000_000, heartbeat_interval_us=100_000)
# What is named when the producers have said 5,000: two buckets and two heartbeats ahead.
NAMED = 205_200


class Bench:
    """The first replica of a new shard, which takes over from two."""

    def __init__(self, partners: tuple[str, ...] = (), outputs: tuple[str, ...] = ("new",)) -> None:
        self.now = 1_000_000
        self.copy = Copy(
            ReplicaSettings(
                "a",
                (Input("in", ("p",)),),
                tuple(Output(name, frozenset({"in"}), ("reader",)) for name in outputs),
                partners,
                TIMING,
                predecessors=(("x", "x2"), ("y",)),
                begins_empty=False,
            )
        )
        self.give(Started())

    def give(self, event: Event) -> list[Effect]:
        self.effects = self.copy.handle(event, self.now)
        self.copy.validate()
        return self.effects

    def hear(self, sender: str, message: Message) -> list[Effect]:
        return self.give(MessageArrived(sender, message))

    def wait(self, us: int = 100_000) -> list[Effect]:
        self.now += us
        return self.give(TimerFired())

    def producer_holds(self) -> None:
        report = StreamReport("in", StreamState.STABLE, 5_000, 5_000, 0)
        self.hear("p", HeartbeatReply((report,), (), self.copy.incarnation))

    def asked(self) -> dict[str, JoinRequest]:
        return {
            one.to: one.message
            for one in self.effects
            if isinstance(one, Send) and isinstance(one.message, JoinRequest)
        }

    def lend(self, lender: str, request: JoinRequest, boundary: int, number: int) -> list[Effect]:
        record = RecoveryRecord(boundary, boundary, (("in", 40 + number),), (("old", 7),))
        answers = (request.incarnation, request.round)
        lent = Checkpoint(number, 0, None, record, (), f"state of {lender}", answers=answers)
        return self.hear(lender, CheckpointShipped(lent))


def test_it_goes_on_from_the_states_of_all_at_one_boundary() -> None:
    bench = Bench()
    assert not any(isinstance(one, BeginRunning) for one in bench.effects), "it has nothing"
    bench.producer_holds()
    bench.wait()
    asked = bench.asked()
    assert {name: one.at for name, one in asked.items()} == {"x": NAMED, "y": NAMED}
    assert not bench.lend("x", asked["x"], NAMED, 1), "it waits for the other one"
    assert not any(isinstance(one, Send) for one in bench.wait() if one_of(one) == "x")
    (apply,) = applied(bench.lend("y", asked["y"], NAMED, 2))
    checkpoint = apply.checkpoint
    assert checkpoint.state == Pieces(("state of x", "state of y"))
    assert checkpoint.record.boundary == NAMED
    # The earlier of both is still kept; its own stream begins there, and its ids say so.
    assert checkpoint.record.inputs == (("in", 41),)
    assert checkpoint.record.outputs == (("new", NAMED),)
    assert bench.copy.glance().why.endswith("takes the state of x, y")
    effects = bench.give(CheckpointApplied(checkpoint.number, "united"))
    assert Send("x", CheckpointTaken(1)) in effects
    assert Send("y", CheckpointTaken(2)) in effects
    (begins,) = [one for one in effects if isinstance(one, BeginRunning)]
    assert begins.state == "united"
    assert bench.copy.served["new"].next_id == NAMED


def one_of(effect: Effect) -> str:
    is_request = isinstance(effect, Send) and isinstance(effect.message, JoinRequest)
    return effect.to if isinstance(effect, Send) and is_request else ""


def applied(effects: list[Effect]) -> list[ApplyCheckpoint]:
    return [one for one in effects if isinstance(one, ApplyCheckpoint)]


def test_what_merges_goes_on_with_the_ids_of_the_stream_it_serves() -> None:
    bench = Bench(outputs=("old",))
    bench.producer_holds()
    bench.wait()
    asked = bench.asked()
    bench.lend("x", asked["x"], NAMED, 1)
    (apply,) = applied(bench.lend("y", asked["y"], NAMED, 2))
    assert apply.checkpoint.record.outputs == (("old", 7),)


def test_who_has_passed_the_boundary_says_how_far_it_is_and_a_later_one_is_named() -> None:
    bench = Bench()
    bench.producer_holds()
    bench.wait()
    first = bench.asked()
    bench.lend("x", first["x"], NAMED, 1)
    bench.hear("y", JoinReply(first["y"].incarnation, first["y"].round, False, NAMED + 500))
    bench.wait()
    again = bench.asked()
    named = {name: one.at for name, one in again.items()}
    assert named == dict.fromkeys(("x", "y"), NAMED + 500 + 2 * 200_200)
    # What came for the first boundary is of no use, and is refused.
    refused = bench.lend("x", first["x"], NAMED, 3)
    assert Send("x", CheckpointRefused(3, Refusal.NOT_NEWER)) in refused


def test_another_replica_of_the_old_shard_is_asked_when_one_is_silent() -> None:
    bench = Bench()
    bench.producer_holds()
    bench.wait()
    assert "x" in bench.asked()
    for _ in range(TIMING.misses_until_down + 2):
        asked = bench.asked()
        if "y" in asked:
            bench.hear("y", JoinReply(asked["y"].incarnation, asked["y"].round, True, 100))
        bench.wait()
    assert set(bench.asked()) == {"x2", "y"}


def test_who_was_given_up_and_says_that_it_has_passed_the_boundary_is_heard() -> None:
    """Answers that take longer than silence may last come while another one is asked, always."""
    bench = Bench()
    bench.producer_holds()
    bench.wait()
    first = bench.asked()
    bench.hear("y", JoinReply(first["y"].incarnation, first["y"].round, True, 100))
    while "x2" not in bench.asked():
        bench.wait()
    bench.hear("x", JoinReply(first["x"].incarnation, first["x"].round, False, NAMED + 500))
    bench.wait()
    named = {one.at for one in bench.asked().values()}
    assert named == {NAMED + 500 + 2 * 200_200}


def test_it_takes_over_only_when_no_other_replica_of_it_has_anything() -> None:
    bench = Bench(partners=("b",))
    bench.producer_holds()
    bench.wait()
    asked = bench.asked()
    assert set(asked) == {"b"}, "first it asks the other replica of the shard"
    assert asked["b"].at is None
    for _ in range(5):
        assert set(bench.asked()) <= {"b"}, "one that says nothing may have something"
        bench.wait()
    asked = bench.asked()
    bench.hear("b", JoinReply(asked["b"].incarnation, asked["b"].round, False))
    bench.wait()
    assert set(bench.asked()) == {"x", "y"}


def test_another_replica_that_computes_another_query_is_not_one_that_has_nothing() -> None:
    bench = Bench(partners=("b",))
    bench.producer_holds()
    bench.wait()
    asked = bench.asked()["b"]
    bench.hear("b", JoinReply(asked.incarnation, asked.round, False, refused=Refusal.OTHER_QUERY))
    for _ in range(5):
        bench.wait()
        assert set(bench.asked()) <= {"b"}


@pytest.mark.parametrize(
    ("boundary", "reached", "comes", "lent"),
    [(300, 300, True, True), (200, 300, True, False), (200, 400, False, False)],
)
def test_the_state_is_lent_as_it_is_at_the_boundary(
    boundary: int, reached: int, comes: bool, lent: bool
) -> None:
    lender = Lender(10)
    newest = (RecoveryRecord(boundary, boundary, (), ()), "state")
    request = JoinRequest(5, 1, at=300)
    reply, *shipped = lender.asked("new", request, newest, {}, 0, reached)
    assert reply == Send("new", JoinReply(5, 1, comes, reached))
    assert bool(shipped) is lent
    assert lender.stops == ((300,) if comes and not lent else ())
    there = (RecoveryRecord(300, 300, (), ()), "later")
    later = lender.reached(there, {}, 0)
    assert len(later) == (1 if comes and not lent else 0)
    assert lender.stops == ()


def test_those_before_and_after_a_shard_speak_to_it() -> None:
    settings = ReplicaSettings(
        "a", (Input("in", ("p",)),), (), ("b",), TIMING, predecessors=(("x",), ("y",))
    )
    membership = Membership(taking=(("n", "a"), ("m", "other")))
    assert peers_of(settings, membership) == ("b", "x", "y", "n")
