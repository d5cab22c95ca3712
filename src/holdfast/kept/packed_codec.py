"""Checkpoints over the wire: one DoPut each, the tables as Arrow IPC, the rest as JSON.

The first batch carries only metadata: the checkpoint without its tables. After it come the tables,
compressed: the parts of the packed states in order, then for each output queue with tuples one
stream of record batches, a frame each. A table is as many batches as it takes: none is larger than
``PIECE_BYTES``, so that a sender sees whether it gets on. Nothing is ever unpickled.

With continuous checkpoints there is no packed state but a piece of the sender's log, which has
the window states between the results: after the queues, one table for each frame with rows.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from holdfast.blocks import Block
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import StreamFrame
from holdfast.core.records import Checkpoint, LoggedStream, RecoveryRecord
from holdfast.flight.wire import WireError
from holdfast.packed import Chain, PackedPart, PackedState

SCHEMA = pa.schema([("data", pa.large_binary())])
PIECE_BYTES = 1 << 20
# Rows of state share their slots, versions and window ends: half of their bytes say nothing new.
# One thread does it: the other processors are for jobs.
_COMPRESSED = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)

Json = dict[str, Any]


def encode_checkpoint(
    checkpoint: Checkpoint,
    chain: Chain,
    log: LoggedStream | None = None,
    breathe: Callable[[], None] = lambda: None,
) -> Iterator[tuple[pa.RecordBatch, Json]]:
    """The batches of a checkpoint whose state is ``chain``, or in ``log``, and their metadata.

    ``breathe`` is called before each piece of what takes long.
    """
    about = {
        "query": checkpoint.query,
        "number": checkpoint.number,
        "term": checkpoint.term,
        "base": checkpoint.base,
        "wanted": checkpoint.wanted,
        "answers": checkpoint.answers,
        "record": encode_record(checkpoint.record),
        "queues": [encode_queue(queue) for queue in checkpoint.queues],
        "log": None if log is None else encode_queue(log),
        "states": [
            {
                "version": packed.version,
                "boundary": packed.boundary,
                "since": packed.since,
                "partitions": packed.partitions,
                "parts": [[part.operator, part.family, part.partition] for part in packed.parts],
            }
            for packed in chain
        ],
    }
    yield _batch(None), about
    for packed in chain:
        for part in packed.parts:
            yield from _pieces(_ipc(part.rows.to_batches(), part.rows.schema, breathe))
    for queue in checkpoint.queues:
        batches = queue_batches(queue)
        if batches:
            yield from _pieces(_ipc(batches, batches[0].schema, breathe))
    for each in [] if log is None else queue_batches(log):
        yield from _pieces(_ipc([each], each.schema, breathe))


def decode_checkpoint(batches: Iterable[tuple[pa.RecordBatch, Json]]) -> Checkpoint:
    """The checkpoint; its state is a chain of packed states, or a piece of a log."""
    coming = iter(batches)
    try:
        _, about = next(coming)
        states = []
        for each in about["states"]:
            parts = [
                PackedPart(str(operator), str(family), int(partition), _table(coming))
                for operator, family, partition in each["parts"]
            ]
            since = None if each["since"] is None else int(each["since"])
            states.append(
                PackedState(
                    int(each["version"]), int(each["boundary"]), since, parts, each["partitions"]
                )
            )
        queues = []
        for found in about["queues"]:
            has_tuples = any(header[0] == Kind.STABLE for header in found["headers"])
            tuples = _table(coming).to_batches() if has_tuples else []
            queues.append(decode_queue(found, tuples))
        log = about["log"]
        state: object = tuple(states)
        if log is not None:
            rows = [header for header in log["headers"] if header[2]]
            state = decode_queue(log, [_rows(coming) for _ in rows])
        return Checkpoint(
            int(about["number"]),
            int(about["term"]),
            None if about["base"] is None else int(about["base"]),
            decode_record(about["record"]),
            tuple(queues),
            state,
            bool(about["wanted"]),
            None if about["answers"] is None else _pair(about["answers"]),
            str(about["query"]),
        )
    except (
        StopIteration,
        LookupError,
        ValueError,
        TypeError,
        AttributeError,
        pa.ArrowException,
    ) as error:
        raise WireError(f"not a checkpoint: {error!r}") from None


def _pair(found: Any) -> tuple[int, int]:
    incarnation, number = found
    return int(incarnation), int(number)


# Made known by one thread, at import: see flight/wire.py.
_KNOWN = msgspec.json.Decoder(RecoveryRecord)


def encode_record(record: RecoveryRecord) -> Json:
    found: Json = msgspec.to_builtins(record)
    return found


def decode_record(found: Json) -> RecoveryRecord:
    return msgspec.convert(found, RecoveryRecord)


def encode_queue(queue: LoggedStream) -> Json:
    """An output queue without its tuples."""
    headers = [
        [h.kind, h.first_id, h.count, h.stime_min, h.stime_max, h.tmax]
        for h in (frame.header for frame in queue.frames)
    ]
    return {"stream": queue.stream, "first_id": queue.first_id, "headers": headers}


def queue_batches(queue: LoggedStream) -> list[pa.RecordBatch]:
    """The tuples of an output queue, a batch for each frame that has some."""
    return [frame.block.batch() for frame in queue.frames if isinstance(frame.block, Block)]


def decode_queue(found: Json, batches: list[pa.RecordBatch]) -> LoggedStream:
    coming = iter(batches)
    frames = []
    for kind, *rest in found["headers"]:
        header = Header(Kind(kind), *(int(each) for each in rest))
        block = Block(next(coming)) if header.count else None
        if block is not None and block.batch().num_rows != header.count:
            raise ValueError(f"{header} came with {block.batch().num_rows} tuples")
        frames.append(StreamFrame(header, block))
    return LoggedStream(str(found["stream"]), int(found["first_id"]), tuple(frames))


def _batch(data: pa.Buffer | None) -> pa.RecordBatch:
    """A batch of one value, which is not copied: states are large, and jobs run meanwhile."""
    if data is None:
        return pa.RecordBatch.from_arrays([pa.array([], pa.large_binary())], schema=SCHEMA)
    offsets = pa.py_buffer(struct.pack("<qq", 0, data.size))
    value = pa.Array.from_buffers(pa.large_binary(), 1, [None, offsets, data])
    return pa.RecordBatch.from_arrays([value], schema=SCHEMA)


def _ipc(
    batches: list[pa.RecordBatch], schema: pa.Schema, breathe: Callable[[], None]
) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, schema, options=_COMPRESSED) as writer:
        for batch in batches:
            breathe()
            writer.write_batch(batch)
    return sink.getvalue()


def _pieces(data: pa.Buffer) -> Iterator[tuple[pa.RecordBatch, Json]]:
    for at in range(0, data.size, PIECE_BYTES):
        more = at + PIECE_BYTES < data.size
        yield (
            _batch(data.slice(at, min(PIECE_BYTES, data.size - at))),
            {"more": True} if more else {},
        )


def _put_together(coming: Iterator[tuple[pa.RecordBatch, Json]]) -> pa.Buffer:
    pieces, more = [], True
    while more:
        batch, about = next(coming)
        pieces.append(batch.column(0)[0].as_buffer())
        more = bool(about.get("more"))
    return pieces[0] if len(pieces) == 1 else pa.py_buffer(b"".join(pieces))


def _table(coming: Iterator[tuple[pa.RecordBatch, Json]]) -> pa.Table:
    table = pa.ipc.open_stream(_put_together(coming)).read_all()
    table.validate(full=True)
    return table


def _rows(coming: Iterator[tuple[pa.RecordBatch, Json]]) -> pa.RecordBatch:
    """The one batch of a frame, with what its schema says of it."""
    rows = pa.ipc.open_stream(_put_together(coming)).read_next_batch()
    rows.validate(full=True)
    return rows
