"""Appending, reading back, opening again."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.frame import Kind
from holdfast.frames import TIME, Frame, boundary_frame, data_frame, stream_schema, undo_frame
from holdfast.log import (
    Durability,
    LogClosed,
    LogError,
    LogLocked,
    LogOptions,
    OutOfOrder,
    SchemaMismatch,
    StreamLog,
    TakeBack,
    Trimmed,
    UnknownPosition,
)
from holdfast.log.files import Files
from tests.log.helpers import (
    SCHEMA,
    SMALL,
    Model,
    batch,
    drain,
    seen,
    stable,
    tentative,
    values,
    window_frame,
)


def everything(log: StreamLog) -> list[Frame]:
    return [entry.frame for entry in log.replay(from_lsn=log.first_lsn)]


@pytest.mark.parametrize("durability", list(Durability))
def test_frames_come_back_as_written_also_after_reopening(
    tmp_path: Path, durability: Durability
) -> None:
    options = LogOptions(durability=durability, segment_bytes=1500, preallocate_bytes=0)
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=options) as log:
        for count in range(1, 20):
            appended = log.append(model.stable(count) + model.boundary_mark(model.next_id))
            assert appended.next_id == model.next_id
            assert appended.next_lsn == len(model.frames)
        assert log.segment_count > 3
        assert everything(log) == model.frames
    with StreamLog.open(tmp_path, options=options) as log:
        assert everything(log) == model.frames
        assert (log.first_id, log.next_id, log.next_lsn) == (0, 190, 38)
        assert (log.last_stable_id, log.last_boundary) == (189, 190)
        assert log.durable_lsn == log.next_lsn
        assert log.cut is None
        log.append(model.stable(3))
        assert everything(log) == model.frames


def nested_schema() -> pa.Schema:
    return stream_schema(
        pa.schema(
            [
                ("city", pa.dictionary(pa.int8(), pa.string())),
                ("tags", pa.list_(pa.struct([("n", pa.int32()), ("s", pa.large_string())]))),
                ("deep", pa.struct([("d", pa.dictionary(pa.int32(), pa.string()))])),
                ("price", pa.decimal128(20, 4)),
                ("counts", pa.map_(pa.string(), pa.int64())),
            ]
        )
    )


def nested_batch(schema: pa.Schema, words: list[str]) -> pa.RecordBatch:
    count = len(words)
    times = pa.array(range(count), TIME)
    columns = [
        times,
        times,
        pa.array([word.upper() for word in words]).dictionary_encode().cast(schema.field(2).type),
        pa.array([[{"n": 1, "s": word}] if at % 2 else None for at, word in enumerate(words)]),
        pa.StructArray.from_arrays(
            [pa.array(words).dictionary_encode()], fields=schema.field(4).type.fields
        ),
        pa.array([Decimal(at) / 8 for at in range(count)], pa.decimal128(20, 4)),
        pa.array([[(word, at)] for at, word in enumerate(words)], schema.field(6).type),
    ]
    return pa.record_batch([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema)


def test_dictionaries_and_nested_types_survive_though_dictionaries_change(tmp_path: Path) -> None:
    schema = nested_schema()
    batches = [nested_batch(schema, words) for words in (["a", "b", "a"], ["c"], ["b", "d"])]
    first_ids = [0, 3, 4]
    frames = [data_frame(Kind.STABLE, i, b) for i, b in zip(first_ids, batches, strict=True)]
    with StreamLog.open(tmp_path, schema) as log:
        log.append(frames)
    with StreamLog.open(tmp_path) as log:
        assert log.schema.equals(schema)
        assert everything(log) == frames
        (only,) = log.replay(from_id=5)
        assert only.frame.batch == batches[2].slice(1)


def test_a_sliced_batch_is_stored_without_the_rest(tmp_path: Path) -> None:
    large = batch(range(100_000))
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append(data_frame(Kind.STABLE, 0, large.slice(500, 3)))
        assert log.size_bytes < 2000
        assert values(everything(log)) == [("STABLE", i, 500 + i) for i in range(3)]


def test_replayed_columns_point_into_the_piece_that_was_read(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append([stable(0, 1000), stable(1000, 1000)])
        before = pa.total_allocated_bytes()
        entries = list(log.replay(from_id=1500))
        (entry,) = entries
        assert entry.frame.header.first_id == 1500
        assert pa.total_allocated_bytes() - before < 60_000  # the one piece, nothing more


def test_another_schema_is_refused_and_named(tmp_path: Path) -> None:
    other = stream_schema(pa.schema([("v", pa.float64())]))
    times = pa.array([1], TIME)
    frame = data_frame(Kind.STABLE, 0, pa.record_batch([times, times, [1.0]], schema=other))
    with StreamLog.open(tmp_path, SCHEMA) as log:
        with pytest.raises(SchemaMismatch, match=r"v: int64, found v: double"):
            log.append(frame)
        log.append(stable(0))
    with pytest.raises(SchemaMismatch, match="another directory"):
        StreamLog.open(tmp_path, other)
    with pytest.raises(SchemaMismatch, match="stime and tmax"):
        StreamLog.open(tmp_path / "new", pa.schema([("v", pa.int64())]))
    with pytest.raises(LogError, match="needs a schema"):
        StreamLog.open(tmp_path / "newer")


def test_frames_that_do_not_continue_the_stream_are_refused(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA, first_id=7) as log:
        assert (log.first_id, log.next_id) == (7, 7)
        log.append([stable(7, 3), tentative(10, 5)])
        for wrong in (
            stable(15),  # tentative tuples stand before it
            tentative(14),
            tentative(16),
            undo_frame(9),  # stable
            undo_frame(16),
            boundary_frame(14, 0),
        ):
            with pytest.raises(OutOfOrder):
                log.append([boundary_frame(15, 0), wrong])
        assert log.next_lsn == 2
        log.append([undo_frame(12), boundary_frame(12, 5), tentative(12), undo_frame(10)])
        log.append([stable(10), boundary_frame(11, 6)])
        assert log.last_boundary == 6
        assert log.stable_next_id == 11


def test_append_next_numbers_the_frames(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA, first_id=5) as log:
        got = log.append_next([stable(0, 3), boundary_frame(0, 9), stable(0, 2)])
        assert (got.first_id, got.next_id, got.first_lsn, got.next_lsn) == (5, 10, 0, 3)
        assert [frame.header.first_id for frame in everything(log)] == [5, 8, 8]
        with pytest.raises(OutOfOrder, match="append_next"):
            log.append_next(undo_frame(5))
        assert log.append([]).next_lsn == 3


def test_one_writer_only(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        with pytest.raises(LogLocked, match="one writer"):
            StreamLog.open(tmp_path)
        log.append(stable(0))
        with StreamLog.open(tmp_path, read_only=True) as reading:
            assert everything(reading) == [stable(0)]
            with pytest.raises(LogError, match="read_only"):
                reading.append(stable(1))
    with pytest.raises(LogClosed):
        log.append(stable(1))
    log.close()
    StreamLog.open(tmp_path).close()


def test_a_reader_opens_while_the_writer_appends(tmp_path: Path) -> None:
    class Racing(Files):
        """Whatever is looked at, more has been written by the time of the next look."""

        appended = 0

        def read_into(self, fd: int, buffer: pa.Buffer, offset: int) -> int:
            found = super().read_into(fd, buffer, offset)
            if self.appended < 12:
                self.appended += 2
                log.append([stable(self.appended)])
                log.append([stable(self.appended + 1)])
            return found

    options = LogOptions(durability=Durability.ALWAYS, preallocate_bytes=1 << 16)
    with StreamLog.open(tmp_path, SCHEMA, options=options) as log:
        log.append([stable(0), stable(1)])
        files = Racing()
        with StreamLog.open(tmp_path, read_only=True, files=files) as reading:
            frames = everything(reading)
        assert files.appended == 12
        assert frames == [stable(number) for number in range(len(frames))]
        assert len(frames) >= 2


def test_window_states_have_a_schema_of_their_own(tmp_path: Path) -> None:
    frames = [stable(0), window_frame(1, "a"), boundary_frame(1, 3), window_frame(1, "b")]
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append(frames)
        assert everything(log) == frames
        assert [e.frame for e in log.replay(from_id=0)] == [frames[0], frames[2]]
        assert [e.frame for e in log.replay(from_id=0, windows=True)] == frames
        kinds = (Kind.WINDOW_CHECK,)
        assert [e.frame for e in log.read_backwards(kinds=kinds)] == [frames[3], frames[1]]


@pytest.mark.parametrize("chunk_bytes", [64, 700, 1 << 20])
def test_reading_backwards(tmp_path: Path, chunk_bytes: int) -> None:
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        for count in range(1, 30):
            log.append(model.stable(count % 7 + 1) + model.boundary_mark(count))
        expected = list(enumerate(model.frames))
        assert seen(log.read_backwards(chunk_bytes)) == expected[::-1]
        for before_lsn in (0, 1, 17, 40):
            got = seen(log.read_backwards(chunk_bytes, before_lsn=before_lsn))
            assert got == expected[:before_lsn][::-1]


def test_places_that_are_not_there(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA, first_id=10) as log:
        log.append(stable(10))
        with pytest.raises(UnknownPosition, match="beyond the end, 1"):
            log.follow(from_lsn=2)
        with pytest.raises(Trimmed, match="starts at id 10"):
            log.follow(from_id=9)
        with pytest.raises(TypeError, match="exactly one"):
            log.follow()
        with pytest.raises(TypeError, match="exactly one"):
            log.follow(from_id=10, from_lsn=0)


def test_a_subscriber_ahead_of_the_log_waits_for_its_id(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append(stable(0, 5))
        with log.follow(from_id=7) as reader:
            log.append([boundary_frame(5, 1), stable(5, 1)])
            assert reader.read(timeout_s=0) == []
            log.append([stable(6, 5), boundary_frame(11, 2)])
            frames = drain(reader)
            assert values(frames) == [("STABLE", i, i) for i in range(7, 11)]
            assert frames[-1].kind is Kind.BOUNDARY


def test_a_healed_failure_is_skipped_by_a_late_reader_and_told_to_a_live_one(
    tmp_path: Path,
) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append([stable(0, 2), tentative(2, 2, salt=100)])
        with log.follow(from_id=0) as live:
            before = [frame.kind for frame in drain(live)]
            log.append([undo_frame(2), stable(2, 3)])
            after = [frame.kind for frame in drain(live)]
        assert before == [Kind.STABLE, Kind.TENTATIVE]
        assert after == [Kind.UNDO, Kind.STABLE]
        late = [entry.frame for entry in log.replay(from_id=1)]
        assert values(late) == [("STABLE", i, i) for i in range(1, 5)]
        assert [f.kind for f in late] == [Kind.STABLE, Kind.STABLE]


def test_marks_after_tuples_that_were_taken_back_do_not_stand(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append([stable(0, 3), boundary_frame(3, 4), tentative(3, 3), boundary_frame(6, 9)])
        log.append([undo_frame(3), boundary_frame(3, 5)])
        marks = [entry.frame.header.stime_min for entry in log.replay(from_id=3)]
        assert marks == [4, 5]
        assert log.last_boundary == 5


@pytest.mark.parametrize("take_back", list(TakeBack))
def test_switching_over_with_tentative_tuples_from_another_replica(
    tmp_path: Path, take_back: TakeBack
) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append([stable(0, 4), tentative(4, 2)])
        # Has 0..2 stable and 3..7 tentative from elsewhere: this log has a stable 3.
        with log.follow(from_id=3, tentative_to=8, take_back=take_back) as reader:
            frames = drain(reader)
        assert [(f.kind, f.header.first_id) for f in frames] == [
            (Kind.UNDO, 3),
            (Kind.STABLE, 3),
            (Kind.TENTATIVE, 4),
        ]
        # Has 0..5 stable, 6..7 tentative: this log knows nothing better, for now.
        with log.follow(from_id=6, tentative_to=8, take_back=take_back) as reader:
            first = drain(reader)
            log.append([undo_frame(4), stable(4, 5)])
            then = drain(reader)
        at_once = take_back is TakeBack.AT_ONCE
        assert first == ([undo_frame(6)] if at_once else [])
        assert [f.kind for f in then] == [Kind.UNDO, Kind.STABLE][at_once:]
        assert values(then) == [("STABLE", i, i) for i in (6, 7, 8)]
        assert at_once or then[0].header.first_id == 6


def test_from_an_stime_with_disorder_and_a_correction(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append(data_frame(Kind.STABLE, 0, batch([0, 1, 2, 3], [10, 90, 20, 95])))
        log.append([boundary_frame(4, 20), boundary_frame(4, 30)])
        got = values(entry.frame for entry in log.replay(from_stime=50))
        assert [tuple_id for _, tuple_id, _ in got] == [1, 2, 3]
        with log.follow(from_stime=100) as reader:
            log.append([boundary_frame(4, 99), boundary_frame(4, 100)])
            log.append(data_frame(Kind.TENTATIVE, 4, batch([4, 5, 6], [98, 99, 110])))
            frames = drain(reader)
            assert [f.header.stime_min for f in frames] == [100, 110]
            log.append(undo_frame(4))
            log.append(data_frame(Kind.STABLE, 4, batch([4, 5, 6], [98, 101, 102])))
            frames = drain(reader)
            assert [f.kind for f in frames] == [Kind.UNDO, Kind.STABLE]
            assert values(frames) == [("STABLE", 5, 5), ("STABLE", 6, 6)]
