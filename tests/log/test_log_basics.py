"""Appending, reading back, opening again."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.frame import Header, Kind
from holdfast.frames import TIME, Frame, data_frame, stream_schema
from holdfast.log import (
    DamagedLog,
    Durability,
    LogClosed,
    LogError,
    LogLocked,
    LogOptions,
    OutOfOrder,
    SchemaMismatch,
    StreamLog,
    Trimmed,
    UnknownPosition,
)
from holdfast.log.files import Files
from tests.blocks_for_tests import boundary_frame
from tests.log.helpers import (
    SCHEMA,
    SMALL,
    Model,
    batch,
    seen,
    segment_count,
    stable,
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
        assert segment_count(log) > 3
        assert everything(log) == model.frames
    with StreamLog.open(tmp_path, options=options) as log:
        assert everything(log) == model.frames
        assert (log.first_id, log.next_id, log.next_lsn) == (0, 190, 38)
        assert log.last_boundary == 190
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
    with StreamLog.open(tmp_path, SCHEMA) as log:
        assert (log.first_id, log.next_id) == (0, 0)
        log.append([stable(0, 10)])
        tentative = data_frame(Kind.TENTATIVE, 10, batch([10]))
        undo = Frame(Header(Kind.UNDO, 10))
        for wrong in (stable(9), stable(11), boundary_frame(9, 0), tentative, undo):
            with pytest.raises(OutOfOrder):
                log.append([boundary_frame(10, 0), wrong])
        assert log.next_lsn == 1
        log.append([stable(10), boundary_frame(11, 6)])
        assert (log.last_boundary, log.next_id) == (6, 11)
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


def test_places_that_are_not_there(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append(stable(0))
        with pytest.raises(UnknownPosition, match="beyond the end, 1"):
            log.replay(from_lsn=2)
        with pytest.raises(Trimmed, match="starts at id 0"):
            log.replay(from_id=-1)
        with pytest.raises(TypeError, match="exactly one"):
            log.replay()
        with pytest.raises(TypeError, match="exactly one"):
            log.replay(from_id=0, from_lsn=0)
    with pytest.raises(LogClosed):
        log.replay(from_id=0)


def test_a_reader_ends_where_the_log_ended(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append(stable(0, 5))
        with log.replay(from_id=3) as reader, log.replay(from_id=7) as ahead:
            log.append([stable(5, 5)])
            assert values(entry.frame for entry in reader) == [("STABLE", i, i) for i in (3, 4)]
            assert ahead.read() == []
        closed = log.replay(from_id=0)
    assert closed.read() == []


def of_ten_frames(directory: Path) -> list[Frame]:
    frames = [stable(first, 2_000) for first in range(0, 20_000, 2_000)]
    with StreamLog.open(directory, SCHEMA) as log:
        for frame in frames:
            log.append([frame, boundary_frame(frame.header.next_id, frame.header.stime_max)])
    return frames


def flip(directory: Path, offset: int) -> None:
    (segment,) = directory.glob("*.seg")
    data = bytearray(segment.read_bytes())
    data[offset] ^= 1
    segment.write_bytes(data)


def test_headers_say_what_is_there(tmp_path: Path) -> None:
    frames = of_ten_frames(tmp_path)
    with StreamLog.open(tmp_path) as log:
        found = list(log.headers())
        assert [header for header, _ in found][::2] == [frame.header for frame in frames]
        assert found[0][1] > 3 * 8 * 2_000
        assert found[1][1] == 0


# Offsets in a block's header (block.py): magic, length, kind, padding, lsn, first_id, count.
@pytest.mark.parametrize("field", [0, 8, 12, 16, 24, 32])
@pytest.mark.parametrize("block", [0, 1, 18, 19])
def test_damage_to_headers_is_found_without_reading_tuples(
    tmp_path: Path, block: int, field: int
) -> None:
    of_ten_frames(tmp_path)
    (segment,) = tmp_path.glob("*.seg")
    at = [place for place in range(0, segment.stat().st_size, 64)
          if segment.read_bytes()[place : place + 4] == b"HFB1"]  # fmt: skip
    flip(tmp_path, at[block] + field)
    with StreamLog.open(tmp_path) as log, pytest.raises(DamagedLog):
        list(log.headers())


def test_damage_to_tuples_is_found_when_they_are_read(tmp_path: Path) -> None:
    """A restart reads the headers of what an index file vouches for, and no tuples."""
    of_ten_frames(tmp_path)
    (segment,) = tmp_path.glob("*.seg")
    flip(tmp_path, segment.stat().st_size // 2)
    with StreamLog.open(tmp_path) as log:
        assert len(list(log.headers())) == 20
        with pytest.raises(DamagedLog), log.replay(from_id=0) as reader:
            list(reader)
        with pytest.raises(DamagedLog):
            log.check()


def test_the_format_of_an_older_version_is_refused_by_name(tmp_path: Path) -> None:
    with StreamLog.open(tmp_path, SCHEMA) as log:
        log.append(stable(0))
    (segment,) = tmp_path.glob("*.seg")
    segment.write_bytes(b"HFS1" + segment.read_bytes()[4:])
    with pytest.raises(LogError, match=r"has format 1, this version of Holdfast reads 2"):
        StreamLog.open(tmp_path)
