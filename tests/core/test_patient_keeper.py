"""Exactly once: what readers confirm in time is not written; what they do not, is."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest

from holdfast.core import delivery
from holdfast.core.appender import Appender
from holdfast.core.consumer import Consumer
from holdfast.core.delivery import Keeper, PatientKeeper, keeper_of
from holdfast.core.effects import Append
from holdfast.core.events import Appended, AppendFailed
from holdfast.core.keeping import LogGap, lacking
from holdfast.core.messages import StreamFrame
from holdfast.core.records import LoggedStream, RecoveryRecord
from holdfast.core.serving import ServedStream
from holdfast.core.settings import Continuous, Delivery, Input, Output, ReplicaSettings, Timing
from holdfast.core.stream_copy import StreamCopy
from tests.core.frames_for_tests import boundary, kinds, stable

PATIENCE_US = 300
INTERVAL_US = 100


@dataclass(frozen=True)
class Sized:
    nbytes: int


class World:
    """A keeper, its streams, and a disk that checks that logs have no holes."""

    def __init__(self, *streams: str) -> None:
        self.served = {name: ServedStream(name, ("c", "d"), 0) for name in streams}
        consumer = Consumer("r", (Input("x", ("e",)),), {"x": StreamCopy("x")}, Timing())
        self.appender = Appender(10, INTERVAL_US)
        self.keeper = PatientKeeper(self.appender, self.served, consumer, PATIENCE_US)
        self.next_ids = dict.fromkeys(streams, 0)
        self.record: RecoveryRecord | None = None

    def emit(self, stream: str, *frames: StreamFrame) -> None:
        self.served[stream].publish(frames)
        self.keeper.emitted(stream, frames)

    def describe(self, stime: int) -> None:
        outputs = tuple((name, one.next_id) for name, one in self.served.items())
        self.keeper.describe(RecoveryRecord(stime, stime, (("x", stime),), outputs), stime)

    def confirm(self, stream: str, next_id: int, now: int) -> None:
        for reader in ("c", "d"):
            self.served[stream].acknowledge(reader, next_id, now)

    def flush(self, now: int) -> Append | None:
        """What is written; it succeeds at once."""
        found = self.keeper.flush(now)
        if not found:
            return None
        (append,) = found
        assert isinstance(append, Append)
        self.write(append)
        self.appender.handle(Appended(append.append), now)
        return append

    def write(self, append: Append) -> None:
        begins = dict(append.begins)
        for stream, frames in append.frames:
            next_id = self.next_ids[stream]
            if begins.get(stream, 0) > next_id:
                next_id = begins[stream]
                assert self.served[stream].first_id >= next_id, "a gap of what somebody needs"
            for frame, _ in lacking(frames, next_id):
                next_id = frame.header.next_id
            self.next_ids[stream] = next_id
        if append.record is not None:
            self.record = append.record
            # What a restart checks: a record is never ahead of its logs.
            for stream, next_id in append.record.outputs:
                assert self.next_ids[stream] >= next_id, stream


def written(append: Append | None) -> list[str]:
    assert append is not None
    return [kind for _, frames in append.frames for kind in kinds(frames)]


def test_what_everybody_confirms_in_time_is_not_written() -> None:
    world = World("o")
    world.emit("o", stable(0, 10, 20, 30), boundary(3, 100))
    world.describe(100)
    assert world.flush(1) is None
    world.served["o"].acknowledge("c", 3, 2)
    assert world.flush(2) is None
    world.served["o"].acknowledge("d", 3, 3)
    append = world.flush(3)
    # The record, and where the log goes on.
    assert written(append) == ["BOUNDARY"]
    assert append is not None
    assert append.begins == (("o", 3),)
    assert world.record is not None
    assert (world.record.boundary, world.next_ids["o"]) == (100, 3)


@pytest.mark.parametrize("has_room", [True, False], ids=["slow", "full"])
def test_a_disk_that_is_slower_than_results_gets_all_of_them(has_room: bool) -> None:
    world = World("o")
    world.emit("o", stable(0, 10), boundary(1, 100))
    world.describe(100)
    assert world.flush(1) is None
    (first,) = world.keeper.flush(1 + PATIENCE_US)
    assert isinstance(first, Append)
    # Two results come while it is being written, and wait for it.
    for number in (1, 2):
        at = 1 + PATIENCE_US + number
        world.emit("o", stable(number, 100 * number + 10), boundary(number + 1, 100 * number + 100))
        world.describe(100 * number + 100)
        assert world.keeper.flush(at) == []
    if has_room:
        world.write(first)
        world.appender.handle(Appended(first.append), 2 * PATIENCE_US)
    else:
        world.appender.handle(AppendFailed(first.append, "no room"), 2 * PATIENCE_US)
    append = world.flush(3 * PATIENCE_US)
    assert written(append).count("STABLE") == (2 if has_room else 3)
    assert world.next_ids["o"] == 3


def test_records_are_no_more_frequent_than_they_were() -> None:
    world = World("o")
    for number in range(10):
        at = 10 * number
        world.emit("o", stable(number, at), boundary(number + 1, at + 1))
        world.describe(at + 1)
        world.confirm("o", number + 1, at)
        append = world.flush(at)
        assert (append is None) == (number > 0)
    append = world.flush(INTERVAL_US)
    # The newest of those that were confirmed meanwhile.
    assert append is not None
    assert append.record is not None
    assert append.record.boundary == 91


def test_what_is_not_confirmed_in_time_is_written_and_the_rest_at_once() -> None:
    world = World("o")
    world.emit("o", stable(0, 10), boundary(1, 100))
    world.describe(100)
    world.flush(0)
    world.confirm("o", 1, 1)
    world.flush(1)
    world.emit("o", stable(1, 110, 120), boundary(3, 200))
    world.describe(200)
    assert world.flush(2) is None
    assert world.flush(1 + PATIENCE_US) is None
    append = world.flush(2 + PATIENCE_US)
    assert written(append) == ["STABLE", "BOUNDARY"]
    assert world.record is not None
    assert world.record.boundary == 200
    # The reader is away: nothing waits for it any more.
    world.emit("o", stable(3, 210), boundary(4, 300))
    world.describe(300)
    assert written(world.flush(3 + PATIENCE_US)) == ["STABLE", "BOUNDARY"]
    # It is back, and has all that the log has.
    world.confirm("o", 4, 4 + PATIENCE_US)
    world.emit("o", stable(4, 310), boundary(5, 400))
    world.describe(400)
    assert world.flush(5 + PATIENCE_US) is None
    world.confirm("o", 5, 6 + PATIENCE_US)
    assert written(world.flush(3 * PATIENCE_US)) == ["BOUNDARY"]


def test_of_what_is_confirmed_in_part_the_rest_is_written() -> None:
    world = World("o")
    world.emit("o", stable(0, 10), boundary(1, 100))
    world.describe(100)
    world.emit("o", stable(1, 110), boundary(2, 200))
    world.describe(200)
    world.flush(0)
    world.confirm("o", 1, 1)
    world.flush(1)
    append = world.flush(1 + PATIENCE_US)
    assert append is not None
    assert written(append) == ["STABLE", "BOUNDARY"]
    assert world.next_ids["o"] == 2


def test_a_record_is_not_ahead_of_the_log_of_a_stream_that_was_confirmed() -> None:
    world = World("o", "p")
    world.emit("o", stable(0, 10, 20), boundary(2, 100))
    world.emit("p", stable(0, 10), boundary(1, 100))
    world.describe(100)
    world.flush(0)
    world.confirm("o", 2, 1)
    world.flush(1)
    append = world.flush(PATIENCE_US)
    assert append is not None
    assert world.record is not None
    assert dict(world.record.outputs) == {"o": 2, "p": 1}
    assert world.next_ids == {"o": 2, "p": 1}


def test_no_more_than_so_many_bytes_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delivery, "HELD_BYTES", 100)
    world = World("o")
    for number in range(3):
        frame = replace(stable(number, 10 + number), block=Sized(40))
        world.emit("o", frame, boundary(number + 1, 100 + number))
        world.describe(100 + number)
        append = world.flush(number)
        assert (append is None) == (number < 2)


def test_whoever_goes_leaves_what_has_gone_out_in_its_log() -> None:
    world = World("o")
    world.emit("o", stable(0, 10), boundary(1, 100))
    world.describe(100)
    world.flush(0)
    world.confirm("o", 1, 1)
    world.keeper.flush(1)  # under way
    world.emit("o", stable(1, 110), boundary(2, 200))
    world.describe(200)
    assert world.keeper.unwritten is not None
    assert world.keeper.unwritten[0].boundary == 200
    (append,) = world.keeper.last()
    assert dict(append.begins) == {"o": 1}
    assert written(append) == ["STABLE", "BOUNDARY"]


def test_an_append_that_failed_goes_on_where_readers_are_by_now() -> None:
    world = World("o")
    world.emit("o", stable(0, 10), boundary(1, 100))
    world.describe(100)
    world.flush(0)
    (failed,) = world.keeper.flush(PATIENCE_US)
    assert isinstance(failed, Append)
    world.appender.handle(AppendFailed(failed.append, "the disk is full", ()), PATIENCE_US)
    world.confirm("o", 1, PATIENCE_US)
    world.emit("o", stable(1, 110), boundary(2, 200))
    world.describe(200)
    world.flush(PATIENCE_US + 1)
    world.confirm("o", 2, PATIENCE_US + 2)
    world.emit("o", stable(2, 210), boundary(3, 300))
    world.describe(300)
    for now in range(PATIENCE_US + 10, 4 * PATIENCE_US, 50):
        world.flush(now)
    assert world.next_ids["o"] == 3
    assert world.record is not None
    assert world.record.boundary == 300


def test_what_was_found_in_the_log_must_be_confirmed_before_anything_is_held() -> None:
    world = World("o")
    world.served["o"].publish((stable(0, 10), boundary(1, 100)))
    world.keeper.begin(LoggedStream("o", 0, (stable(0, 10), boundary(1, 100))))
    assert written(world.flush(0)) == ["STABLE", "BOUNDARY"]
    world.emit("o", stable(1, 110), boundary(2, 200))
    world.describe(200)
    assert written(world.flush(1)) == ["STABLE", "BOUNDARY"]


def test_the_disk_of_these_tests_finds_holes() -> None:
    world = World("o")
    with pytest.raises(LogGap):
        world.write(Append(1, (("o", (stable(4, 10),)),)))


def test_who_is_patient() -> None:
    output = Output("o", frozenset({"x"}), ("c",))
    one = ReplicaSettings("r", (Input("x", ("e",)),), (output,))
    consumer = Consumer("r", one.inputs, {"x": StreamCopy("x")}, Timing())

    def kept(settings: ReplicaSettings, patient: bool) -> type[Keeper]:
        return type(keeper_of(settings, Appender(1, 1), {}, consumer, patient))

    assert kept(one, True) is PatientKeeper
    assert kept(one, False) is Keeper
    # Window states are in the log whoever reads, and so are the results they belong to.
    assert kept(replace(one, continuous=Continuous()), True) is Keeper
    assert kept(replace(one, delivery=Delivery.AT_LEAST_ONCE), True) is delivery.ConfirmedKeeper
