"""A copy that is fed by the other's log holds what a recovery needs, whatever came before."""

from __future__ import annotations

import queue
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.blocks import Block
from holdfast.core.effects import Append, ApplyCheckpoint
from holdfast.core.events import Appended, CheckpointApplied, Event
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import StreamFrame
from holdfast.core.records import Checkpoint, LoggedStream, RecoveryRecord
from holdfast.errors import StateError
from holdfast.flight.checkpoints import decode_checkpoint, encode_checkpoint
from holdfast.frames import TIME, data_frame, stream_schema
from holdfast.log import LogOptions
from holdfast.runtime.keeper import OwnCheckpoint
from holdfast.runtime.log_copies import LogKeeper
from holdfast.spark.eventual import read_extent

SCHEMA = stream_schema(pa.schema([("number", pa.int64())]))
SMALL = LogOptions(segment_bytes=4096, preallocate_bytes=0)


class Copy:
    """The keeper of one copy, and what it reports."""

    def __init__(self, directory: Path, identity: str = "one") -> None:
        self.events: queue.Queue[Event] = queue.Queue()
        schemas = {"out": SCHEMA, "other": SCHEMA}
        self.keeper = LogKeeper(directory, schemas, SMALL, identity, self.events.put)
        self.found = self.keeper.found()
        self.keeper.start()

    def compute(self, at: int, extent: int) -> None:
        """Ten results and the states of two windows, up to a time, and their record."""
        first = at
        frames = (results(first), mark(first + 10, at), windows(first + 10, at, 2))
        append = Append(at, (("out", frames), ("other", (results(at),))), record(at, extent))
        self.keeper.keep(OwnCheckpoint(append, None, ()))
        assert self.events.get(timeout=10.0) == Appended(at)

    def take(self, number: int, piece: LoggedStream, about: RecoveryRecord, *frames: int) -> None:
        others = LoggedStream("other", frames[0], tuple(results(each) for each in frames))
        sent = Checkpoint(number, 0, None, about, (LoggedStream("out", 0, ()), others), None)
        came = decode_checkpoint(encode_checkpoint(sent, (), piece))
        self.keeper.apply(ApplyCheckpoint(came, came.queues))
        assert self.events.get(timeout=10.0) == CheckpointApplied(number, None)

    def held(self, boundary: int, extent: int) -> list[int]:
        """The times of the window states a recovery would read."""
        return sorted(time for time, _ in self.read(boundary, extent))

    def read(self, boundary: int, extent: int) -> list[tuple[int, int]]:
        return read_extent(self.keeper.log, boundary, extent, whole_log=True).places()


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
    assert primary.found is None
    for at in range(0, 100, 10):
        primary.compute(at, max(0, at - 30))
    whole, end = primary.keeper.piece(None)
    spare.take(1, whole, record(90, 60), 90)
    assert spare.held(90, 60) == [60, 70, 80, 90]
    # Then what came since, on top of it.
    primary.compute(100, 90)
    changes, _ = primary.keeper.piece(end)
    assert len(changes.frames) < len(whole.frames)
    spare.take(2, changes, record(100, 90), 100)
    assert spare.held(100, 90) == [90, 100]
    assert spare.keeper.log.stable_next_id == 110
    primary.keeper.close()
    spare.keeper.close()
    # It starts from that after a crash, and knows nothing of another network's.
    again = Copy(tmp_path / "spare")
    assert again.found is not None
    assert again.found.record == record(100, 90)
    assert again.held(100, 90) == [90, 100]
    # It runs on its own, while the other had more: both have written, and all of it is true.
    again.compute(110, 90)
    again.take(3, changes, record(120, 90), 100)
    assert again.held(120, 90) == [90, 100, 100, 110]
    again.keeper.close()
    with pytest.raises(StateError, match="another network"):
        Copy(tmp_path / "spare", "two")


def test_a_log_that_ends_too_early_is_replaced(tmp_path: Path) -> None:
    primary, spare = Copy(tmp_path / "primary"), Copy(tmp_path / "spare")
    for at in range(0, 200, 10):
        primary.compute(at, max(0, at - 10))
    spare.compute(0, 0)
    piece, _ = primary.keeper.piece(None)
    assert piece.first_id > 10
    spare.take(1, piece, record(190, 180), 190)
    assert spare.held(190, 180) == [180, 190]
    assert spare.keeper.log.first_id == piece.first_id
    # An append from before the jump comes late: its record would need what is gone.
    late = Append(7, (("out", (results(10), windows(20, 10, 2))),), record(10, 0))
    spare.keeper.keep(OwnCheckpoint(late, None, ()))
    assert spare.events.get(timeout=10.0) == Appended(7)
    spare.keeper.close()
    primary.keeper.close()
    again = Copy(tmp_path / "spare")
    assert again.found is not None
    assert again.found.record == record(190, 180)
    again.keeper.close()
