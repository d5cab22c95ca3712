"""From frames to payloads and back, without touching a row and without copying a column.

Writing: Arrow's IPC writer hands its sink the very buffers of the record batch; the sink keeps
them and the commit writes them with one vectored call, so the only copy is the one into the
operating system. Reading: the record batch points into the buffer that was read.

Tuples are written as one record batch message in the log's schema, which each segment stores
once: a stream that gains a column begins a segment. Two kinds of payload carry their schema with
them, as a small IPC stream: batches of a schema with dictionaries, because a dictionary may differ
from batch to batch and a block must be readable on its own; and window states, whose schema belongs
to the operator, not the stream.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from holdfast.core.frame import Kind
from holdfast.frames import Frame
from holdfast.gained import with_gained
from holdfast.log.block import Encoded, Format, LogBlock, encoded
from holdfast.log.direct import BlockPart
from holdfast.log.errors import SchemaMismatch


class _Sink:
    """A file to Arrow; to us, the list of the parts it was given."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[BlockPart] = []

    def write(self, part: BlockPart) -> int:
        self.parts.append(part)
        return len(part)

    def take(self) -> list[BlockPart]:
        """The parts so far, small neighbours joined: each one costs an entry in the write."""
        joined: list[BlockPart] = []
        small: list[bytes] = []
        for part in self.parts:
            if isinstance(part, bytes):
                small.append(part)
                continue
            if small:
                joined.append(b"".join(small))
                small = []
            joined.append(part)
        if small:
            joined.append(b"".join(small))
        self.parts = []
        return joined

    def flush(self) -> None:
        """Arrow calls this."""

    def close(self) -> None:
        """Arrow calls this."""


class Encoder:
    """Encodes frames of one schema; any thread may call it."""

    def __init__(self, schema: pa.Schema) -> None:
        check_stream_schema(schema)
        self.schema = schema
        self._one_message = not has_dictionaries(schema)
        self._lock = threading.Lock()
        if self._one_message:
            self._begin_messages()

    def _begin_messages(self) -> None:
        """A long-lived writer sends the schema once, with this first empty batch."""
        self._sink = _Sink()
        self._writer = pa.ipc.new_stream(self._sink, self.schema)
        nothing = [pa.nulls(0, field.type) for field in self.schema]
        self._writer.write_batch(pa.RecordBatch.from_arrays(nothing, schema=self.schema))
        self._sink.take()

    def encode(self, frame: Frame) -> Encoded:
        if frame.batch is None:
            return encoded(frame.header, Format.NOTHING, [])
        if not frame.kind.is_data:
            return encoded(frame.header, Format.STREAM, _stream(frame.batch))
        if not frame.batch.schema.equals(self.schema):
            raise SchemaMismatch(
                f"a {frame.kind.name} frame does not have the log's schema; "
                f"{difference(self.schema, frame.batch.schema)}; "
                f"a stream keeps its columns for ever: give the changed one another log"
            )
        if not self._one_message:
            return encoded(frame.header, Format.STREAM, _stream(frame.batch))
        with self._lock:
            try:
                self._writer.write_batch(frame.batch)
            except BaseException:
                self._begin_messages()  # rather than let half a message into the next one
                raise
            parts = self._sink.take()
        return encoded(frame.header, Format.MESSAGE, parts)


def decode(block: LogBlock, written: pa.Schema, schema: pa.Schema) -> Frame:
    """The frame of a block; its batch points into the block's payload.

    It was written in the schema ``written``; columns that the stream has gained since are null.
    """
    header = block.header()
    if block.format == Format.NOTHING:
        return Frame(header)
    if block.format == Format.MESSAGE:
        batch = pa.ipc.read_record_batch(block.payload, written)
    else:
        with pa.ipc.open_stream(block.payload) as stream:
            batch = stream.read_next_batch()
    same = written is schema or not header.kind.is_data
    return Frame(header, batch if same else with_gained(batch, schema))


def check_stream_schema(schema: pa.Schema) -> None:
    """Every stream carries its two times; see ``holdfast.frames``."""
    missing = [name for name in ("stime", "tmax") if schema.get_field_index(name) < 0]
    if missing:
        raise SchemaMismatch(
            f"a stream has the columns stime and tmax, made by holdfast.frames.stream_schema; "
            f"{' and '.join(missing)} is missing in {schema.names}"
        )


def has_dictionaries(schema: pa.Schema) -> bool:
    """Whether any column, however deep, is dictionary encoded."""
    return any(_has_dictionary(field.type) for field in schema)


def _has_dictionary(kind: pa.DataType) -> bool:
    if isinstance(kind, pa.BaseExtensionType):
        return _has_dictionary(kind.storage_type)
    if pa.types.is_dictionary(kind):
        return True
    if pa.types.is_run_end_encoded(kind):
        return _has_dictionary(kind.value_type)
    return any(_has_dictionary(kind.field(i).type) for i in range(kind.num_fields))


def _stream(batch: pa.RecordBatch) -> list[BlockPart]:
    sink = _Sink()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    return sink.take()


def difference(expected: pa.Schema, found: pa.Schema) -> str:
    """In what a schema that was found is not the one that was expected."""
    if expected.names != found.names:
        return f"expected the columns {expected.names}, found {found.names}"
    for ours, theirs in zip(expected, found, strict=True):
        if not ours.equals(theirs):
            return f"expected the column {_show(ours)}, found {_show(theirs)}"
    return "the columns differ in their metadata"


def _show(column: pa.Field) -> str:
    return f"{column.name}: {column.type}{'' if column.nullable else ' not null'}"


def is_window(kind: int) -> bool:
    """Whether a block holds window state, which concerns only the log's owner."""
    return kind in (Kind.WINDOW_OPEN, Kind.WINDOW_CHECK)
