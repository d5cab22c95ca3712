"""A log whose stream gains columns that can be null: what was written before has nulls there."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from holdfast.core.frame import Kind
from holdfast.frames import Frame, data_frame, stream_schema
from holdfast.gained import gained_columns, with_gained
from holdfast.log import LogOptions, SchemaMismatch, StreamLog
from holdfast.log.inspection import stored_schema
from tests.log.helpers import SCHEMA, SMALL, Model, NoSync, batch, drain, seen, segment_count
from tests.log.power import PowerFiles

WORD = pa.field("word", pa.string())
WIDER = stream_schema(pa.schema([pa.field("v", pa.int64()), WORD]))
# A column may be gained in front of others, too, and a dictionary has its schema in each block.
WIDEST = stream_schema(
    pa.schema([pa.field("kind", pa.dictionary(pa.int32(), pa.string())), *list(WIDER)[2:]])
)


def wide(first_id: int, word: str, schema: pa.Schema) -> Frame:
    rows = with_gained(batch(range(first_id, first_id + 3)), schema)
    at = schema.get_field_index("word")
    return data_frame(Kind.STABLE, first_id, rows.set_column(at, WORD, pa.array([word] * 3)))


def as_now(frames: list[Frame], schema: pa.Schema) -> list[Frame]:
    """Frames as they are read once the stream has gained columns."""
    return [
        Frame(each.header, with_gained(each.batch, schema)) if each.kind.is_data else each
        for each in frames
    ]


def test_what_was_written_before_has_nulls_wherever_a_reader_begins(tmp_path: Path) -> None:
    model = Model()
    with StreamLog.open(tmp_path, SCHEMA, options=SMALL) as log:
        for count in range(1, 20):
            log.append(model.stable(count) + model.window() + model.boundary_mark(model.next_id))
        assert segment_count(log) > 2
    for schema in (WIDER, WIDEST):
        with StreamLog.open(tmp_path, schema, options=SMALL) as log:
            assert log.schema.equals(schema)
            assert (log.next_id, log.next_lsn) == (model.next_id, len(model.frames))
            added = wide(model.next_id, f"of {len(schema)}", schema)
            log.append(model.add([added]))
            log.append(model.boundary_mark(model.next_id))
            wanted = as_now(model.frames, schema)
            assert [frame for _, frame in seen(log.replay(from_lsn=0))] == wanted
            assert [each.frame for each in log.read_backwards()] == wanted[::-1]
            tuples = [each for each in drain(log.replay(from_id=0)) if each.kind.is_data]
            assert tuples == [each for each in wanted if each.kind.is_data]
    words = [word for each in tuples for word in each.batch.column("word").to_pylist()]  # type: ignore[union-attr]
    assert words == [None] * (model.next_id - 6) + ["of 4"] * 3 + ["of 5"] * 3
    assert stored_schema(tmp_path) == WIDEST
    # The old segments can go, and then nothing tells that there was another schema.
    with StreamLog.open(tmp_path, WIDEST, options=SMALL) as log:
        log.trim(model.next_id)
        assert segment_count(log) == 1
    with StreamLog.open(tmp_path, options=SMALL) as log:
        assert (log.schema, log.next_id) == (WIDEST, model.next_id)


@pytest.mark.parametrize(
    "changed",
    [
        pa.schema([pa.field("v", pa.int64()), WORD.with_nullable(False)]),
        pa.schema([pa.field("v", pa.int32()), WORD]),
        pa.schema([WORD]),
        pa.schema([pa.field("v", pa.int64(), nullable=False), WORD]),
    ],
    ids=["not null", "another type", "one fewer", "no longer null"],
)
def test_any_other_change_is_refused(tmp_path: Path, changed: pa.Schema) -> None:
    StreamLog.open(tmp_path, SCHEMA).close()
    assert gained_columns(SCHEMA, stream_schema(changed)) is None
    with pytest.raises(SchemaMismatch, match="may only gain some that can be null"):
        StreamLog.open(tmp_path, stream_schema(changed))
    with StreamLog.open(tmp_path, SCHEMA) as log:
        assert log.schema == SCHEMA


def test_a_column_that_was_gained_stays(tmp_path: Path) -> None:
    StreamLog.open(tmp_path, WIDER).close()
    with pytest.raises(SchemaMismatch):
        StreamLog.open(tmp_path, SCHEMA)
    with pytest.raises(SchemaMismatch, match="opened to be written"):
        StreamLog.open(tmp_path, WIDEST, read_only=True)


@pytest.mark.parametrize("begun", [0, 12])
def test_a_power_cut_at_every_step_of_gaining_a_column(memory_path: Path, begun: int) -> None:
    """With a last segment that has blocks, and with a log that has none at all."""
    model = Model()
    files = PowerFiles(lambda: None)
    options = LogOptions(segment_bytes=1500, index_bytes=256, preallocate_bytes=700)
    with StreamLog.open(memory_path / "log", SCHEMA, options=options, files=files) as log:
        for count in range(begun):
            log.append(model.stable(count + 1))
    files.history.clear()
    with StreamLog.open(memory_path / "log", WIDER, options=options, files=files) as log:
        log.append(model.add([wide(model.next_id, "new", WIDER)]))
    assert len(files.history) > 8
    rng = random.Random(begun)
    for disk, _ in files.history:
        for keep in (0.0, 0.5, 1.0):
            disk.after_a_cut(rng, keep, memory_path / "cut")
            with StreamLog.open(memory_path / "cut", WIDER, options=options, files=NoSync()) as log:
                found = [frame for _, frame in seen(log.replay(from_lsn=0))]
                assert found == as_now(model.frames, WIDER)[: len(found)]
                assert begun <= len(found) <= begun + 1
                assert log.next_id == (found[-1].header.next_id if found else 0)
