"""A copy that sleeps, takes checkpoints, wakes and sends its own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core.consistency import NodeState
from holdfast.core.detector import PeerState
from holdfast.core.effects import Append, ApplyCheckpoint, Effect, EndProcess, RunJob, Send
from holdfast.core.events import (
    Appended,
    CheckpointApplied,
    CheckpointNotSent,
    ConsumersKept,
    Event,
    JobDone,
    MessageArrived,
    OutputBlock,
    Started,
    TimerFired,
)
from holdfast.core.messages import (
    CheckpointRefused,
    CheckpointShipped,
    CheckpointTaken,
    CopyReply,
    CopyReport,
    CopyRequest,
    CopyState,
    FeedFrames,
    HeartbeatReply,
    HeartbeatRequest,
    JoinRequest,
    Message,
    NotServed,
    Refusal,
    StateRequest,
    StreamReport,
    StreamState,
    Subscribe,
    SubscribeRefused,
    Unsubscribe,
)
from holdfast.core.protected import ProtectedReplica
from holdfast.core.provider import Provider
from holdfast.core.records import Checkpoint, InLog, LoggedStream, RecoveryRecord
from holdfast.core.serving import ServedStream
from holdfast.core.settings import (
    Continuous,
    Input,
    Output,
    ReplicaSettings,
    StandbySettings,
    Timing,
)
from tests.core.frames_for_tests import boundary, kinds, stable

TIMING = Timing(bucket_us=100, delay_us=3_000_000, heartbeat_interval_us=100_000)
PAIR = StandbySettings(("a", "b"), heartbeat_interval_us=100_000)


def make(
    address: str, continuous: Continuous | None = None, begins_empty: bool = True
) -> ProtectedReplica:
    settings = ReplicaSettings(
        address,
        (Input("in", ("entry",)),),
        (Output("out", frozenset({"in"}), ("reader",)),),
        timing=TIMING,
        continuous=continuous,
        begins_empty=begins_empty,
    )
    return ProtectedReplica(settings, PAIR)


class Copy:
    """A driver with its clock; keeps what it orders."""

    def __init__(
        self, address: str, continuous: Continuous | None = None, begins_empty: bool = True
    ) -> None:
        self.driver = make(address, continuous, begins_empty)
        (self.other,) = PAIR.others_than(address)
        self.now = 1_000_000
        self.give(Started())

    def give(self, event: Event, after_us: int = 10) -> list[Effect]:
        self.now += after_us
        effects = self.driver.handle(event, self.now)
        self.driver.validate()
        return effects

    def hear(self, sender: str, message: Message, after_us: int = 10) -> list[Message]:
        effects = self.give(MessageArrived(sender, message), after_us)
        return [effect.message for effect in effects if isinstance(effect, Send)]

    def hear_primary(self, at: int) -> list[Message]:
        report = CopyReport(0, CopyState.PRIMARY, at, at, True)
        return self.hear(self.other, CopyReply(report))

    def silence(self) -> list[Effect]:
        """Let heartbeats go unanswered until this copy runs."""
        found: list[Effect] = []
        for _ in range(4):
            found += self.give(TimerFired(), 100_000)
        return found


def checkpoint(number: int, base: int | None, to: int, *frames: object) -> CheckpointShipped:
    record = RecoveryRecord(to, to, (("in", to // 10),), (("out", 2),))
    queue = LoggedStream("out", 0 if base is None else 1, tuple(frames))  # type: ignore[arg-type]
    return CheckpointShipped(Checkpoint(number, 0, base, record, (queue,), f"state {to}"))


WHOLE = checkpoint(7, None, 100, stable(0, 50), stable(1, 60), boundary(2, 100))
CHANGES = checkpoint(8, 7, 200, boundary(2, 200))


def take(copy: Copy, shipped: CheckpointShipped) -> list[Message]:
    effects = copy.give(MessageArrived(copy.other, shipped))
    (order,) = [one for one in effects if isinstance(one, ApplyCheckpoint)]
    number = order.checkpoint.number
    effects = copy.give(CheckpointApplied(number, order.checkpoint.state))
    return [effect.message for effect in effects if isinstance(effect, Send)]


def test_a_sleeping_copy_acknowledges_what_it_holds_and_no_more() -> None:
    copy = Copy("b")
    copy.hear_primary(100)
    before = copy.give(MessageArrived("a", WHOLE))
    assert not [e for e in before if isinstance(e, Send) and isinstance(e.message, CheckpointTaken)]
    asked = copy.give(TimerFired(), 100_000)
    (request,) = [e.message for e in asked if isinstance(e, Send) and e.to == "entry"]
    assert isinstance(request, HeartbeatRequest)
    assert request.acks == ()
    assert CheckpointTaken(7) in copy.hear("a", StateRequest(0)) + [
        e.message for e in copy.give(CheckpointApplied(7, "state 100")) if isinstance(e, Send)
    ]
    asked = copy.give(TimerFired(), 100_000)
    (request,) = [e.message for e in asked if isinstance(e, Send) and e.to == "entry"]
    assert isinstance(request, HeartbeatRequest)
    assert request.acks == (("in", 10),)


def test_a_state_of_another_query_is_never_taken() -> None:
    copy = Copy("b")
    copy.hear_primary(100)
    other = CheckpointShipped(replace(WHOLE.checkpoint, query="of an older plan"))
    assert copy.hear("a", other) == [CheckpointRefused(7, Refusal.OTHER_QUERY)]
    assert copy.driver.held is None


def test_what_cannot_be_taken_is_refused() -> None:
    copy = Copy("b")
    copy.hear_primary(100)
    assert CheckpointRefused(8, Refusal.WHOLE_NEEDED) in copy.hear("a", CHANGES)
    take(copy, WHOLE)
    assert CheckpointRefused(7, Refusal.NOT_NEWER) in copy.hear("a", WHOLE)
    assert CheckpointTaken(8) in take(copy, CHANGES)
    assert copy.driver.held is not None
    assert copy.driver.held[1] == "state 200"


def test_a_standing_feed_flows_when_the_copy_wakes() -> None:
    copy = Copy("b")
    copy.hear_primary(100)
    take(copy, WHOLE)
    assert copy.hear("reader", Subscribe("out", 5, 1, 0)) == []
    request = HeartbeatRequest(("out",), (("out", 1),), (5,), 5)
    (reply,) = copy.hear("reader", request)
    assert isinstance(reply, HeartbeatReply)
    assert [report.state for report in reply.reports] == [StreamState.SUSPENDED]
    effects = copy.silence()
    assert copy.driver.state is CopyState.AWAKE
    sent = [e.message for e in effects if isinstance(e, Send) and e.to == "reader"]
    (flows,) = sent
    assert isinstance(flows, FeedFrames)
    assert (flows.feed, flows.seq) == (5, 0)
    # From what the reader has not acknowledged on.
    assert kinds(flows.frames) == ["STABLE", "BOUNDARY"]
    assert flows.frames[0].header.first_id == 1


def test_a_checkpoint_that_could_not_be_sent_is_no_word_of_the_other_copy() -> None:
    copy = Copy("b")
    copy.hear_primary(100)
    take(copy, WHOLE)
    detector = copy.driver.others["a"].detector
    states = [detector.state]
    for _ in range(4):
        copy.give(TimerFired(), 100_000)
        copy.give(CheckpointNotSent(7, "nobody took it"))
    assert [*states, detector.state] == [PeerState.UP, PeerState.DOWN]
    assert copy.driver.state is CopyState.AWAKE, "it hears nothing, and stands in"


def run_one_job(copy: Copy, stop: int, more_us: int = 0) -> list[Effect]:
    """Give a running copy its input up to a time, and the result of the job that follows.

    ``more_us`` is how much further the input goes.
    """
    report = StreamReport("in", StreamState.STABLE, stop + more_us, stop + more_us)
    told = copy.hear("entry", HeartbeatReply((report,), ()))
    (subscribe,) = [one for one in told if isinstance(one, Subscribe)]
    frames = (stable(subscribe.next_id, stop - 50), boundary(subscribe.next_id + 1, stop))
    effects = copy.give(MessageArrived("entry", FeedFrames(subscribe.feed, 0, frames)))
    (job,) = [one for one in effects if isinstance(one, RunJob)]
    assert job.stop == stop
    out = OutputBlock("out", 1, 0, stop - 50, stop - 50, stop - 50, "block")
    return copy.give(JobDone(job.job, f"state {stop}", stop, (out,)))


def state_told(copy: Copy) -> StreamState:
    (reply,) = copy.hear("reader", HeartbeatRequest(("out",), (), (), 0))
    assert isinstance(reply, HeartbeatReply)
    (report,) = reply.reports
    return report.state


def test_a_primary_with_nothing_is_no_stable_one_before_it_has_computed_something() -> None:
    copy = Copy("a")
    assert state_told(copy) is StreamState.RECOVERING
    (refused,) = copy.hear("reader", Subscribe("out", 5, 0, 0))
    assert refused == SubscribeRefused(5, NotServed.RECOVERING)
    run_one_job(copy, 300, more_us=10_000_000)
    assert copy.driver.replica is not None
    assert copy.driver.replica.state is NodeState.RECOVERING, "it has not caught up"
    assert state_told(copy) is StreamState.STABLE
    (fed,) = copy.hear("reader", Subscribe("out", 6, 0, 0))
    assert isinstance(fed, FeedFrames)


def test_a_copy_that_holds_something_serves_at_once() -> None:
    copy = Copy("b")
    copy.hear_primary(100)
    take(copy, WHOLE)
    copy.silence()
    assert copy.driver.replica is not None
    assert copy.driver.replica.state is NodeState.RECOVERING
    assert state_told(copy) is StreamState.STABLE


def test_a_copy_that_holds_nothing_does_not_say_where_its_stream_begins() -> None:
    copy = Copy("b")
    copy.hear_primary(100)
    assert state_told(copy) is StreamState.RECOVERING
    take(copy, WHOLE)
    assert state_told(copy) is StreamState.SUSPENDED


def test_a_primary_that_never_had_anything_and_goes_to_sleep_holds_nothing() -> None:
    copy = Copy("a")
    copy.hear("b", CopyReply(CopyReport(1, CopyState.PRIMARY, 900, 900, True)))
    assert copy.driver.state is CopyState.SUSPENDED
    assert state_told(copy) is StreamState.RECOVERING


def test_a_woken_copy_goes_on_from_its_checkpoint_and_keeps_what_it_reached() -> None:
    copy = Copy("b")
    copy.hear_primary(100)
    take(copy, WHOLE)
    copy.silence()
    replica = copy.driver.replica
    assert replica is not None
    assert replica.versions.stable_position == 100
    run_one_job(copy, 300)
    told = copy.hear_primary(300)
    assert copy.driver.state is CopyState.SUSPENDED
    assert [type(one) for one in told if not isinstance(one, CopyRequest | HeartbeatRequest)] == [
        Unsubscribe
    ]
    assert copy.driver.held is not None
    assert (copy.driver.held[0].boundary, copy.driver.held[1]) == (300, "state 300")
    assert copy.driver.served["out"].next_id == 3
    # The changes of the primary still fit: their base is kept.
    assert CheckpointTaken(9) in take(copy, checkpoint(9, 7, 400, boundary(3, 400)))


def test_a_primary_sends_its_state_and_its_queue_and_then_only_what_changed() -> None:
    copy = Copy("a")
    suspended = CopyReport(0, CopyState.SUSPENDED, -1, -1, False)
    told = copy.hear("b", CopyRequest(suspended))
    (first,) = [one.checkpoint for one in told if isinstance(one, CheckpointShipped)]
    assert (first.base, first.record.boundary) == (None, 0)
    copy.hear("b", CheckpointTaken(first.number))
    run_one_job(copy, 300)
    holds = replace(suspended, boundary=0, live_boundary=0)
    told = copy.hear("b", CopyRequest(holds), 1_000_000)
    (second,) = [one.checkpoint for one in told if isinstance(one, CheckpointShipped)]
    assert (second.base, second.state) == (first.number, "state 300")
    (queue,) = second.queues
    assert kinds(queue.frames) == ["STABLE", "BOUNDARY"]


def test_one_that_holds_nothing_any_more_is_sent_the_state_though_it_is_what_it_had() -> None:
    copy = Copy("a")
    suspended = CopyReport(0, CopyState.SUSPENDED, -1, -1, False)
    (first,) = shipped_in(copy.hear("b", CopyRequest(suspended)))
    assert not shipped_in(copy.hear("b", CopyRequest(suspended), 1_000_000)), "one is on its way"
    copy.hear("b", CheckpointTaken(first.number))
    holds = replace(suspended, boundary=0, live_boundary=0)
    assert not shipped_in(copy.hear("b", CopyRequest(holds), 1_000_000))
    (again,) = shipped_in(copy.hear("b", CopyRequest(suspended), 1_000_000))
    assert (again.base, again.record) == (None, first.record)


def test_one_that_takes_a_place_is_sent_nothing_but_what_it_asks_for() -> None:
    copy = Copy("a")
    arrives = CopyReport(0, CopyState.JOINING, -1, -1, False, arrives=True)
    assert not shipped_in(copy.hear("b", CopyRequest(arrives)))
    run_one_job(copy, 300)
    assert not shipped_in(copy.hear("b", CopyRequest(arrives), 1_000_000))
    (asked,) = shipped_in(copy.hear("b", JoinRequest(9, 1)))
    assert asked.answers == (9, 1)
    stands_by = CopyReport(0, CopyState.SUSPENDED, 0, 0, False)
    (first,) = shipped_in(copy.hear("b", CopyRequest(stands_by)))
    assert first.answers is None


def shipped_in(messages: list[Message]) -> list[Checkpoint]:
    return [one.checkpoint for one in messages if isinstance(one, CheckpointShipped)]


def test_a_primary_that_asked_jumps_to_the_other_copys_state() -> None:
    copy = Copy("a")
    awake = CopyReport(0, CopyState.AWAKE, 9_000_000, 9_000_000, True)
    assert StateRequest(0) in copy.hear("b", CopyRequest(awake))
    record = RecoveryRecord(9_000_000, 9_000_000, (("in", 90),), (("out", 5),))
    queue = LoggedStream("out", 4, (stable(4, 8_000_000), boundary(5, 9_000_000)))
    state = Checkpoint(3, 0, None, record, (queue,), "newer", wanted=True)
    take(copy, CheckpointShipped(state))
    replica = copy.driver.replica
    assert replica is not None
    assert replica.versions.stable_position == 9_000_000
    assert replica.newest[1] == "newer"
    assert replica.soutputs["out"].next_id == 5


def windows_of(effects: list[Effect]) -> list[Append]:
    return [one for one in effects if isinstance(one, Append)]


def test_with_continuous_checkpoints_only_what_is_in_the_log_counts() -> None:
    copy = Copy("a", Continuous(extent=10))
    suspended = CopyReport(0, CopyState.SUSPENDED, -1, -1, False)
    told = copy.hear("b", CopyRequest(suspended))
    (first,) = [one.checkpoint for one in told if isinstance(one, CheckpointShipped)]
    assert (first.record.boundary, first.state) == (0, None)
    copy.hear("b", CheckpointTaken(first.number))
    (append,) = windows_of(run_one_job(copy, 300))
    assert append.record is not None
    # Not before it is on disk: the state is nowhere else.
    holds = replace(suspended, boundary=0, live_boundary=0)
    told = copy.hear("b", CopyRequest(holds), 1_000_000)
    assert not [one for one in told if isinstance(one, CheckpointShipped)]
    sent = [one.message for one in copy.give(Appended(append.append)) if isinstance(one, Send)]
    (second,) = [one.checkpoint for one in sent if isinstance(one, CheckpointShipped)]
    assert (second.record, second.state) == (append.record, InLog(append.record))


def test_a_copy_that_goes_to_sleep_leaves_what_it_emitted_in_its_log() -> None:
    copy = Copy("b", Continuous(extent=10))
    copy.hear_primary(100)
    take(copy, WHOLE)
    # What the checkpoint brought may not be on disk; it goes there again, and is written once.
    (queue,) = windows_of(copy.silence())
    assert dict(queue.begins) == {"out": 0}
    copy.give(Appended(queue.append))
    (append,) = windows_of(run_one_job(copy, 300))
    copy.hear("entry", HeartbeatReply((), ()))
    replica = copy.driver.replica
    assert replica is not None
    replica.appender.add("out", (stable(3, 260), boundary(4, 300)))
    effects = copy.give(
        MessageArrived("a", CopyReply(CopyReport(0, CopyState.PRIMARY, 300, 300, True)))
    )
    assert copy.driver.state is CopyState.SUSPENDED
    (rest,) = windows_of(effects)
    assert rest.append > append.append
    assert [(name, kinds(frames)) for name, frames in rest.frames] == [
        ("out", ["STABLE", "BOUNDARY"])
    ]
    # Its record was not on disk yet: what is held is the checkpoint it began with.
    assert copy.driver.held is not None
    assert copy.driver.held[0].boundary == 100


def beat_of(copy: Copy) -> HeartbeatRequest:
    """What a copy says to its producer next."""
    for _ in range(20):
        for effect in copy.give(TimerFired(), 50_000):
            if isinstance(effect, Send) and isinstance(effect.message, HeartbeatRequest):
                return effect.message
    raise AssertionError("it says nothing")


@pytest.mark.parametrize("awake", [False, True])
def test_a_copy_that_has_another_in_its_place_acknowledges_nothing_and_ends(awake: bool) -> None:
    """It is cut off from the other copy and from whoever replaced it, not from the producer."""
    served = ServedStream("in", ("a", "b"))
    served.publish((*(stable(at, 10 * at + 5) for at in range(20)), boundary(20, 200)))
    provider = Provider({"in": served}, lambda stream: StreamState.STABLE)
    old = Copy("b")
    take(old, WHOLE)
    if awake:
        old.hear_primary(100)
        old.silence()
    assert (old.driver.replica is not None) is awake
    provider.handle("b", beat_of(old), 0)
    provider.handle("a", HeartbeatRequest(("in",), (("in", 15),), (), 0), 0)
    assert served.first_id == 10, "it holds what goes on from there"

    new = Copy("b", begins_empty=False)
    arrival = beat_of(new)
    assert arrival.incarnation > 0
    provider.handle("b", arrival, 0)
    provider.consumers.handle(ConsumersKept(1))

    if not awake:
        take(old, CHANGES)
    (told,) = [one for one in provider.handle("b", beat_of(old), 0) if isinstance(one, Send)]
    assert served.first_id == 10, "what the new one is lent may need it"
    (end,) = [
        one
        for one in old.give(MessageArrived("entry", told.message))
        if isinstance(one, EndProcess)
    ]
    assert "was replaced" in end.reason
    (told,) = [one for one in provider.handle("b", beat_of(new), 0) if isinstance(one, Send)]
    assert not any(
        isinstance(one, EndProcess) for one in new.give(MessageArrived("entry", told.message))
    )


def test_one_that_has_nothing_takes_a_number_above_the_one_it_hears_of() -> None:
    copy = Copy("b")
    report = StreamReport("in", StreamState.STABLE, 100, 100, 0)
    effects = copy.give(MessageArrived("entry", HeartbeatReply((report,), (), 7)))
    assert not any(isinstance(one, EndProcess) for one in effects)
    assert beat_of(copy).incarnation > 7
