from __future__ import annotations

from dataclasses import replace

from holdfast.core.effects import (
    AcceptTuples,
    Append,
    Effect,
    RefuseBatch,
    Send,
    SetTimer,
)
from holdfast.core.entry import EntryPoint, EntrySettings, EntryState
from holdfast.core.events import (
    Appended,
    AppendFailed,
    LoggedStream,
    MessageArrived,
    SourceBatch,
    SourceReached,
    Started,
    TimerFired,
)
from holdfast.core.frame import Kind
from holdfast.core.messages import FeedFrames, NotServed, Subscribe, SubscribeRefused
from tests.core.frames_for_tests import boundary, kinds, stable

SETTINGS = EntrySettings("e", "s", ("c",), boundary_interval_us=100, retry_us=50)


def started(
    logged: LoggedStream | None = None, now: int = 0, settings: EntrySettings = SETTINGS
) -> EntryPoint:
    entry = EntryPoint(settings, logged)
    (append,) = appends(entry.handle(Started(), now))
    entry.handle(Appended(append.append), now + 1)
    entry.validate()
    return entry


def test_who_has_more_than_the_log_is_told_that_it_was_lost() -> None:
    entry = started()
    (refused,) = entry.handle(MessageArrived("c", Subscribe("s", 7, 5, 0)), 2)
    assert refused == Send(
        "c", SubscribeRefused(7, NotServed.LOST, "asked for 5, but the log ends at 0")
    )
    (granted,) = entry.handle(MessageArrived("c", Subscribe("s", 8, 0, 0)), 3)
    assert isinstance(granted, Send)
    assert isinstance(granted.message, FeedFrames)


def appends(effects: list[Effect]) -> list[Append]:
    return [effect for effect in effects if isinstance(effect, Append)]


def batch(first_id: int, *stimes: int) -> SourceBatch:
    return SourceBatch(first_id, len(stimes), min(stimes), max(stimes), stimes)


def test_tuples_are_on_disk_before_anyone_sees_them() -> None:
    entry = started()
    entry.handle(MessageArrived("c", Subscribe("s", 1, 0, 0)), 5)
    effects = entry.handle(batch(0, 10, 11), 10)
    (append,) = appends(effects)
    assert not [effect for effect in effects if isinstance(effect, Send | AcceptTuples)]
    done = entry.handle(Appended(append.append), 12)
    assert AcceptTuples(2) in done
    assert any(isinstance(effect, Send) for effect in done)


def test_batches_that_come_while_writing_go_together() -> None:
    entry = started()
    (first,) = appends(entry.handle(batch(0, 10), 10))
    assert appends(entry.handle(batch(1, 11), 11)) == []
    assert appends(entry.handle(batch(2, 12), 12)) == []
    (second,) = appends(entry.handle(Appended(first.append), 13))
    assert kinds(second.frames[0][1]) == ["STABLE", "STABLE", "BOUNDARY"]


def test_a_batch_offered_twice_is_taken_once() -> None:
    entry = started()
    (append,) = appends(entry.handle(batch(0, 10, 11), 10))
    assert appends(entry.handle(batch(0, 10, 11), 11)) == []
    entry.handle(Appended(append.append), 12)
    assert AcceptTuples(2) in entry.handle(batch(0, 10, 11), 13)
    assert RefuseBatch(2, "tuple 2 is next, offered 5") in entry.handle(batch(5, 14), 14)


def test_late_tuples_are_refused() -> None:
    entry = started(now=1000)
    refused = entry.handle(batch(0, 10), 1001)
    assert RefuseBatch(0, "stime 10 is below the boundary 1000") in refused


def test_boundaries_go_out_even_when_the_source_is_silent() -> None:
    entry = started()
    effects = entry.handle(TimerFired(), 100)
    (append,) = appends(effects)
    assert kinds(append.frames[0][1]) == ["BOUNDARY"]
    assert SetTimer(200) in effects


def test_ids_of_a_failed_append_are_offered_again() -> None:
    entry = started()
    (append,) = appends(entry.handle(batch(0, 10, 11), 10))
    failed = entry.handle(AppendFailed(append.append, "full"), 12)
    assert RefuseBatch(0, "full") in failed
    assert entry.state is EntryState.PAUSED
    assert appends(entry.handle(batch(0, 13, 14), 13)) == []
    (again,) = appends(entry.handle(TimerFired(), 62))
    assert again.frames[0][1][0].header.first_id == 0
    entry.validate()


def test_the_boundary_of_a_failed_append_was_never_promised() -> None:
    entry = started(settings=replace(SETTINGS, own_time=True))
    offered = replace(batch(0, 5, 6), reached=6)
    (append,) = appends(entry.handle(offered, 20))
    entry.handle(AppendFailed(append.append, "full"), 21)
    assert entry.handle(offered, 22) == []
    (again,) = appends(entry.handle(TimerFired(), 71))
    assert kinds(again.frames[0][1]) == ["STABLE", "BOUNDARY"]
    assert again.frames[0][1][1].header.stime_min == 6
    entry.validate()


def test_a_source_with_its_own_time_says_how_far_it_is() -> None:
    entry = started(settings=replace(SETTINGS, own_time=True))
    (append,) = appends(entry.handle(replace(batch(0, 50, 60), reached=55), 1_000))
    assert append.frames[0][1][1].header.stime_min == 55
    entry.handle(Appended(append.append), 1_001)
    assert entry.handle(SourceReached(70), 1_002) == []
    (append,) = appends(entry.handle(TimerFired(), 1_100))
    assert append.frames[0][1][0].header.stime_min == 70
    entry.handle(Appended(append.append), 1_101)
    (late,) = [
        effect
        for effect in entry.handle(replace(batch(2, 69), reached=70), 1_102)
        if isinstance(effect, RefuseBatch)
    ]
    assert "stime 69 is below the boundary 70" in late.reason


def told(effects: list[Effect]) -> list[int]:
    """The boundaries that went out."""
    return [
        frame.header.stime_min
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, FeedFrames)
        for frame in effect.message.frames
        if frame.header.kind is Kind.BOUNDARY
    ]


def test_what_the_clock_decided_is_on_disk_before_anyone_sees_it() -> None:
    """That a source is idle, or a row late, shows in a boundary, and in nothing else."""
    entry = started(settings=replace(SETTINGS, own_time=True))
    entry.handle(MessageArrived("c", Subscribe("s", 1, 0, 0)), 5)
    assert told(entry.handle(SourceReached(70), 6)) == []
    decided = entry.handle(TimerFired(), 200)
    (append,) = appends(decided)
    assert append.frames[0][1][-1].header.stime_min == 70
    assert told(decided) == []
    assert entry.view().boundary == 0
    # It could not be written: nobody was told, and the source may say something else.
    assert told(entry.handle(AppendFailed(append.append, "full"), 201)) == []
    assert RefuseBatch not in map(type, entry.handle(replace(batch(0, 60), reached=60), 202))
    (again,) = appends(entry.handle(TimerFired(), 260))
    done = entry.handle(Appended(again.append), 261)
    assert told(done) == [60]
    # A new life goes on from the log, whatever its clock says.
    log = LoggedStream("s", 0, again.frames[0][1])
    later = EntryPoint(replace(SETTINGS, own_time=True), log)
    assert later.view().boundary == 60
    later.handle(Started(), 10**9)
    refused = later.handle(replace(batch(1, 59), reached=59), 10**9 + 1)
    assert any(isinstance(effect, RefuseBatch) for effect in refused)


def test_a_restart_continues_after_the_last_whole_group() -> None:
    log = LoggedStream("s", 0, (stable(0, 10), boundary(1, 11), stable(1, 12)))
    entry = EntryPoint(SETTINGS, log)
    entry.handle(Started(), 50)
    assert entry.served.next_id == 1


def test_a_batch_without_tuples_is_accepted_once_a_group_with_it_is_on_disk() -> None:
    entry = started()
    (first,) = appends(entry.handle(batch(0, 10), 10))
    nothing = SourceBatch(1, 0, 0, 0, None, 0)
    assert entry.handle(nothing, 11) == []
    done = entry.handle(Appended(first.append), 12)
    assert AcceptTuples(1) in done
    (second,) = appends(done)
    assert kinds(second.frames[0][1]) == ["BOUNDARY"]
    entry.handle(AppendFailed(second.append, "full"), 13)
    assert entry.handle(nothing, 14) == []
    (again,) = appends(entry.handle(TimerFired(), 64))
    assert AcceptTuples(1) in entry.handle(Appended(again.append), 65)
    entry.validate()
