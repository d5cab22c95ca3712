"""The driver of a replica, with the test as its runtime."""

from __future__ import annotations

from typing import TypeVar

from holdfast.core.beginning import Beginning
from holdfast.core.consistency import NodeState
from holdfast.core.copy import Copy
from holdfast.core.effects import Append, Effect, GiveUp, RunJob, Send
from holdfast.core.events import (
    Appended,
    AppendFailed,
    Event,
    JobDone,
    JobFailed,
    Left,
    LoggedStream,
    MessageArrived,
    OutputBlock,
    RecoveryRecord,
    Started,
    TimerFired,
)
from holdfast.core.messages import (
    FeedFrames,
    HeartbeatReply,
    HeartbeatRequest,
    StreamFrame,
    StreamReport,
    StreamState,
    Subscribe,
)
from holdfast.core.records import Found
from holdfast.core.replica import Replica
from holdfast.core.settings import Input, Output, Reconcile, ReplicaSettings, Timing
from tests.core.frames_for_tests import boundary, kinds, stable

T = TypeVar("T")
TIMING = Timing(bucket_us=100, delay_us=1000, alpha=0.9, heartbeat_interval_us=10_000)


class Bench:
    """A replica of two inputs and two outputs; ``o`` reads both, ``p`` reads only ``x``."""

    def __init__(
        self,
        reconcile: Reconcile = Reconcile.RESTORE,
        record: RecoveryRecord | None = None,
        logged: tuple[LoggedStream, ...] = (),
    ) -> None:
        settings = ReplicaSettings(
            "r",
            (Input("x", ("ex",)), Input("y", ("ey",))),
            (
                Output("o", frozenset({"x", "y"}), ("c",)),
                Output("p", frozenset({"x"}), ("c",)),
            ),
            timing=TIMING,
            reconcile=reconcile,
        )
        self.now = 1
        found = Copy(settings, Found(record, None, logged))
        self.replica = Replica(settings, record, Beginning(served=found.served))
        self.effects: list[Effect] = []
        self.feeds: dict[str, int] = {}
        self.seqs: dict[str, int] = {"x": 0, "y": 0}
        self.give(Started())
        for stream in ("x", "y"):
            report = StreamReport(stream, StreamState.STABLE, 0, 0)
            self.give(MessageArrived(f"e{stream}", HeartbeatReply((report,), ())))

    def give(self, event: Event) -> list[Effect]:
        effects = self.replica.handle(event, self.now)
        self.replica.validate()
        for effect in effects:
            if isinstance(effect, Send) and isinstance(effect.message, Subscribe):
                self.feeds[effect.message.stream] = effect.message.feed
        self.effects = effects
        return effects

    def feed(self, stream: str, *frames: StreamFrame) -> list[Effect]:
        seq = self.seqs[stream]
        self.seqs[stream] += 1
        return self.give(MessageArrived(f"e{stream}", FeedFrames(self.feeds[stream], seq, frames)))

    def the(self, kind: type[T]) -> T:
        found = [effect for effect in self.effects if isinstance(effect, kind)]
        assert len(found) == 1, self.effects
        return found[0]

    def finish(self, job: RunJob, state: str, marker: int = 0, *blocks: OutputBlock) -> None:
        self.give(JobDone(job.job, state, marker, blocks))

    def subscribe(self) -> None:
        for number, stream in enumerate(("o", "p")):
            self.give(MessageArrived("c", Subscribe(stream, number, 0, 0)))

    def published(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for effect in self.effects:
            if isinstance(effect, Send) and isinstance(effect.message, FeedFrames):
                stream = ("o", "p")[effect.message.feed]
                found.setdefault(stream, []).extend(kinds(effect.message.frames))
        return found


def block(stream: str, *stimes: int, skipped: int = 0) -> OutputBlock:
    low, high = (min(stimes), max(stimes)) if stimes else (0, 0)
    return OutputBlock(stream, len(stimes), skipped, low, high, high, stimes)


def test_a_stable_bucket_goes_through() -> None:
    bench = Bench()
    bench.subscribe()
    assert bench.replica.state is NodeState.STABLE
    bench.feed("x", stable(0, 30), boundary(1, 100))
    bench.feed("y", boundary(0, 100))
    job = bench.the(RunJob)
    assert (job.start, job.stop) == (0, 100)
    bench.finish(job, "S1", 0, block("o", 30))
    assert bench.published() == {"o": ["STABLE", "BOUNDARY"], "p": ["BOUNDARY"]}
    append = bench.the(Append)
    assert append.record is not None
    assert append.record.boundary == 100


def fail_and_take_one_bucket(bench: Bench) -> None:
    bench.subscribe()
    bench.feed("x", stable(0, 30), boundary(1, 100))
    bench.now += 900
    bench.give(TimerFired())
    assert bench.replica.state is NodeState.UP_FAILURE
    bench.finish(bench.the(RunJob), "L1", 0, block("o", 30), block("p", 30))


def test_a_missing_input_makes_only_the_outputs_it_reaches_tentative() -> None:
    bench = Bench()
    fail_and_take_one_bucket(bench)
    assert bench.published() == {
        "o": ["TENTATIVE", "TENTATIVE_BOUNDARY"],
        "p": ["STABLE", "BOUNDARY"],
    }
    request = HeartbeatRequest(("o", "p"), (), (), 0)
    bench.give(MessageArrived("c", request))
    reply = bench.the(Send).message
    assert isinstance(reply, HeartbeatReply)
    assert [one.state for one in reply.reports] == [StreamState.UP_FAILURE, StreamState.STABLE]


def test_reconciliation_corrects_and_sends_nothing_twice() -> None:
    bench = Bench()
    fail_and_take_one_bucket(bench)
    bench.feed("y", stable(0, 40), boundary(1, 100))
    redo = bench.the(RunJob)
    assert (redo.state, redo.start, redo.stop) == (None, 0, 100)
    assert dict(redo.emit_from) == {"o": 0, "p": 100}
    bench.finish(redo, "S1", 0, block("o", 30, 40), block("p", skipped=1))
    assert bench.published() == {"o": ["UNDO", "STABLE", "BOUNDARY", "REC_DONE"]}
    assert bench.replica.state is NodeState.STABLE


def test_reconciliation_ends_though_new_buckets_keep_coming() -> None:
    """Where a job takes as long as a bucket, there is always one more to do."""
    bench = Bench()
    fail_and_take_one_bucket(bench)
    bench.feed("y", stable(0, 40), boundary(1, 100))
    redo = bench.the(RunJob)
    for stream, next_id in (("x", 1), ("y", 1)):
        bench.feed(stream, boundary(next_id, 200))
    bench.finish(redo, "S1", 0, block("o", 30, 40), block("p", skipped=1))
    assert bench.replica.state is NodeState.STABLE
    assert bench.the(RunJob).stop == 200


def test_undo_redo_rebuilds_first() -> None:
    bench = Bench(Reconcile.UNDO)
    bench.subscribe()
    bench.feed("x", stable(0, 30), boundary(1, 100))
    bench.feed("y", boundary(0, 100))
    bench.finish(bench.the(RunJob), "S1", 20, block("o", 30), block("p", 30))
    bench.feed("x", stable(1, 130), boundary(2, 200))
    bench.now += 900
    bench.give(TimerFired())
    live = bench.the(RunJob)
    assert live.gives_up == GiveUp("S1", 100, frozenset({"y"}))
    blocks = (block("o", 130), block("p", 130))
    bench.give(JobDone(live.job, "L1", 20, blocks, left=Left("of p", 25)))
    bench.feed("y", boundary(0, 200))
    rebuild = bench.the(RunJob)
    assert (rebuild.state, rebuild.start, rebuild.stop) == ("of p", 25, 100)
    assert all(each.stime_from == 25 for each in rebuild.slices)
    bench.finish(rebuild, "S1 again", 20, block("o", skipped=1))
    redo = bench.the(RunJob)
    assert (redo.state, redo.start, redo.stop) == ("S1 again", 100, 200)


def test_acknowledges_only_what_a_record_on_disk_no_longer_needs() -> None:
    bench = Bench()
    bench.feed("x", stable(0, 30), boundary(1, 100))
    bench.feed("y", boundary(0, 100))
    bench.finish(bench.the(RunJob), "S1", 100)
    append = bench.the(Append)
    acks = bench.replica.consumer.acks
    assert acks == {"x": 0, "y": 0}
    bench.give(AppendFailed(append.append, "full"))
    assert acks == {"x": 0, "y": 0}
    bench.now += TIMING.retry_us
    bench.give(TimerFired())
    again = bench.the(Append)
    assert again.frames == append.frames
    bench.give(Appended(again.append))
    assert acks == {"x": 1, "y": 0}


def test_a_failed_job_is_tried_again() -> None:
    bench = Bench()
    bench.feed("x", boundary(0, 100))
    bench.feed("y", boundary(0, 100))
    job = bench.the(RunJob)
    bench.give(JobFailed(job.job, "executor lost"))
    bench.now += TIMING.retry_us
    bench.give(TimerFired())
    assert bench.the(RunJob).stop == 100


def test_a_restarted_replica_rebuilds_refuses_and_then_serves() -> None:
    record = RecoveryRecord(200, 120, (("x", 5), ("y", 0)), (("o", 3), ("p", 1)))
    log = (
        LoggedStream("o", 3, (stable(3, 210), boundary(4, 300), stable(4, 310))),
        LoggedStream("p", 1, (boundary(1, 200),)),
    )
    bench = Bench(record=record, logged=log)
    assert bench.replica.state is NodeState.RECOVERING
    assert bench.replica.copies["x"].next_id == 5
    bench.give(MessageArrived("c", Subscribe("o", 0, 4, 0)))
    assert "recovering" in str(bench.the(Send).message)
    bench.feed("x", stable(5, 130, 210, 310), boundary(8, 400))
    assert not [effect for effect in bench.effects if isinstance(effect, RunJob)]
    bench.feed("y", boundary(0, 400))
    rebuild = bench.the(RunJob)
    assert (rebuild.state, rebuild.start, rebuild.stop) == (None, 120, 200)
    bench.finish(rebuild, "S", 130, block("o", skipped=2))
    redo = bench.the(RunJob)
    assert (redo.start, redo.stop) == (200, 400)
    assert dict(redo.emit_from) == {"o": 300, "p": 200}
    bench.finish(redo, "S2", 400, block("o", 310, skipped=1), block("p", 210, 310))
    assert bench.replica.state.name == "STABLE"
    assert bench.replica.soutputs["o"].next_id == 5
    bench.give(MessageArrived("c", Subscribe("o", 0, 4, 0)))
    assert isinstance(bench.the(Send).message, FeedFrames)
