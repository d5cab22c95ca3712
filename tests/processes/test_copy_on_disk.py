"""What a copy has on disk, its own and the other's: never less than some record needs."""

from __future__ import annotations

import queue
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.blocks import Block
from holdfast.core.effects import Append, ApplyCheckpoint, TrimLog
from holdfast.core.events import Appended, CheckpointApplied, Event
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import StreamFrame
from holdfast.core.records import Checkpoint, InLog, LoggedStream, RecoveryRecord
from holdfast.core.settings import Keeping
from holdfast.errors import StateError
from holdfast.frames import TIME, data_frame, stream_schema
from holdfast.kept.continuous_recovery import read_extent
from holdfast.kept.packed_codec import decode_checkpoint, encode_checkpoint
from holdfast.kept.state import PackedStates, RecordOnly
from holdfast.kept.stream_store import StreamStore
from holdfast.log import LogError, LogOptions
from holdfast.packed import PackedState
from holdfast.spark.chains import Workshop

SCHEMA = stream_schema(pa.schema([("number", pa.int64())]))
SMALL = LogOptions(segment_bytes=4096, preallocate_bytes=0)


class Copy:
    """The disk of one copy with continuous checkpoints, and what it reports."""

    def __init__(self, directory: Path, network: str = "one") -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        schemas = {"out": SCHEMA, "other": SCHEMA}
        self.kept = RecordOnly(directory / "state", [network], Keeping.WINDOWS)
        self.record = self.kept.record
        self.store = StreamStore(directory / "streams", schemas, SMALL, self.events.put, self.kept)
        self.store.start()

    def compute(self, at: int, extent: int) -> None:
        """Ten results and the states of two windows, up to a time, and their record."""
        frames = (results(at), mark(at + 10, at), windows(at + 10, at, 2))
        append = Append(at, (("out", frames), ("other", (results(at),))), record(at, extent))
        self.store.put(append)
        assert self.events.get(timeout=10.0) == Appended(at)

    def take(self, number: int, piece: LoggedStream, about: RecoveryRecord, *frames: int) -> None:
        others = LoggedStream("other", frames[0], tuple(results(each) for each in frames))
        sent = Checkpoint(number, 0, None, about, (LoggedStream("out", 0, ()), others), None)
        came = decode_checkpoint(encode_checkpoint(sent, (), piece))
        self.store.put(ApplyCheckpoint(came))
        assert self.events.get(timeout=10.0) == CheckpointApplied(number, InLog(about))

    def settle(self) -> None:
        """Wait until all that was ordered is done."""
        done = queue.Queue[None]()
        self.store.call(lambda: done.put(None))
        done.get(timeout=10.0)

    def held(self, boundary: int, extent: int) -> list[int]:
        """The times of the window states a recovery would read."""
        log = self.store.logs["out"]
        places = read_extent(log, boundary, extent, whole_log=True).places()
        return sorted(time for time, _ in places)


def record(at: int, extent: int) -> RecoveryRecord:
    return RecoveryRecord(at, extent, (("in", at),), (("out", at + 10), ("other", at + 10)), extent)


def results(first: int) -> StreamFrame:
    times = pa.array(range(first, first + 10)).cast(TIME)
    numbers = pa.array(range(first, first + 10))
    frame = data_frame(Kind.STABLE, first, pa.record_batch([times, times, numbers], schema=SCHEMA))
    return StreamFrame(frame.header, Block(frame.batch))


def mark(next_id: int, stime: int) -> StreamFrame:
    return StreamFrame(Header(Kind.BOUNDARY, next_id, 0, stime, stime, stime))


def windows(next_id: int, at: int, count: int) -> StreamFrame:
    told = {"operator": "sum", "family": "window", "start": "0", "open_windows": str(count)}
    batch = pa.record_batch({"slot": pa.array(range(count)), "text": ["x" * 200] * count})
    rows = batch.replace_schema_metadata(told)
    return StreamFrame(Header(Kind.WINDOW_OPEN, next_id, count, at, at), Block(rows))


def test_a_copy_holds_what_the_log_of_the_other_has(tmp_path: Path) -> None:
    primary, spare = Copy(tmp_path / "primary"), Copy(tmp_path / "spare")
    assert primary.record is None
    for at in range(0, 100, 10):
        primary.compute(at, max(0, at - 30))
    whole = primary.store.piece("out", record(90, 60), None)
    spare.take(1, whole.logged, record(90, 60), 90)
    assert spare.held(90, 60) == [60, 70, 80, 90]
    # Then what came since, on top of it.
    primary.compute(100, 90)
    changes = primary.store.piece("out", record(100, 90), whole.end_lsn)
    assert len(changes.logged.frames) < len(whole.logged.frames)
    spare.take(2, changes.logged, record(100, 90), 100)
    assert spare.held(100, 90) == [90, 100]
    assert spare.store.logs["out"].next_id == 110
    primary.store.close()
    spare.store.close()
    # It starts from that after a crash, and knows nothing of another network's.
    again = Copy(tmp_path / "spare")
    assert again.record == record(100, 90)
    assert again.held(100, 90) == [90, 100]
    # It runs on its own, while the other had more: both have written, and all of it is true.
    again.compute(110, 90)
    again.take(3, changes.logged, record(120, 90), 100)
    assert again.held(120, 90) == [90, 100, 100, 110]
    again.store.close()
    with pytest.raises(StateError, match="another query"):
        Copy(tmp_path / "spare", "two")


def test_what_is_held_stays_usable_when_the_log_goes_on_after_a_gap(tmp_path: Path) -> None:
    primary, spare = Copy(tmp_path / "primary"), Copy(tmp_path / "spare")
    for at in range(0, 200, 10):
        primary.compute(at, max(0, at - 10))
    spare.compute(0, 0)
    piece = primary.store.piece("out", record(190, 180), None).logged
    assert piece.first_id > 10
    spare.take(1, piece, record(190, 180), 190)
    assert spare.held(190, 180) == [180, 190]
    # Until the driver says that nobody goes on from it, what it held before is there, too.
    assert spare.held(0, 0) == [0]
    found = spare.store.logged("out", complete=False)
    assert found.first_id == piece.first_id
    # An append from before the jump comes late: its record does not replace the newer one.
    late = Append(7, (("out", (results(10), windows(20, 10, 2))),), record(10, 0))
    spare.store.put(late)
    assert spare.events.get(timeout=10.0) == Appended(7)
    spare.store.close()
    primary.store.close()
    again = Copy(tmp_path / "spare")
    assert again.record == record(190, 180)
    again.store.close()


def test_a_piece_has_what_its_own_record_needs(tmp_path: Path) -> None:
    """The disk may be further: window states of an older record that is sent stay all the same."""
    primary = Copy(tmp_path)
    for at in range(0, 200, 10):
        primary.compute(at, max(0, at - 10))
        primary.store.put(TrimLog("out", at, windows_from=50))
    primary.settle()
    times = [
        frame.header.stime_min
        for frame in primary.store.piece("out", record(100, 60), None).logged.frames
        if frame.header.kind is Kind.WINDOW_OPEN
    ]
    assert times[:3] == [60, 70, 80]
    # What is gone is said, and not sent without it.
    primary.store.put(TrimLog("out", 190, windows_from=180))
    primary.settle()
    with pytest.raises(LogError, match="no window states of 60"):
        primary.store.piece("out", record(100, 60), None)
    primary.store.close()


def test_an_older_record_of_its_own_does_not_overwrite_a_newer_one_of_the_other(
    tmp_path: Path,
) -> None:
    """A primary that returns takes newer state back; its own older record, queued, comes after."""

    def packed(boundary: int, since: int | None = None) -> tuple[PackedState, ...]:
        return (PackedState(boundary, boundary, since, ()),)

    def not_needed() -> object:
        raise AssertionError("states stay packed here")

    workshop = Workshop(not_needed, tmp_path / "engine")  # type: ignore[arg-type]
    kept = PackedStates(tmp_path / "state", ["one"], workshop)
    kept.save(RecoveryRecord(10, 10, (), ()), packed(10))
    newer = Checkpoint(1, 1, None, RecoveryRecord(50, 50, (), ()), (), packed(50))
    kept.save_taken(ApplyCheckpoint(newer), kept.take(newer))
    kept.save(RecoveryRecord(20, 20, (), ()), packed(20, 10))
    assert kept.record is not None
    assert kept.record.boundary == 50
    kept.close()
    again = PackedStates(tmp_path / "state", ["one"], workshop)
    found = again.found()
    assert isinstance(found, tuple)
    assert [each.version for each in found] == [50]
    again.close()
