"""Frames of which a subscriber is sent only a part: the tuples of a shard's slots.

A frame keeps its header, with the ids and times of all its tuples, so that nothing that counts by
them notices. Its block has the subscriber's tuples, and behind their columns each one's position in
the frame, which tells its id. Blocks are the same for all shards of a fragment, and so are slots:
they are computed once for a block.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from holdfast.blocks import Block
from holdfast.core.frame import Header
from holdfast.core.messages import Part, StreamFrame
from holdfast.frames import SEQ
from holdfast.slots import chosen, slots_of

Slots = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]

_MARK = {b"holdfast.part": b"1"}
_POSITION = pa.field("position in frame", pa.int32(), nullable=False)

# The newest blocks and their slots: shards that keep up are sent the same ones at about one time.
_RECENT = 64
_recent: OrderedDict[tuple[int, tuple[str, ...]], tuple[weakref.ref[Block], Slots]] = OrderedDict()
_lock = threading.Lock()


def part_schema(schema: pa.Schema) -> pa.Schema:
    """The schema of parts of a stream."""
    return schema.append(_POSITION).with_metadata(_MARK)


def cut(run: list[StreamFrame], part: Part) -> pa.RecordBatch | None:
    """The tuples of a part, of frames that follow on each other; None of a mark."""
    found = []
    before = 0
    for frame in run:
        if isinstance(frame.block, Block):
            found.append(_cut_block(frame.header, frame.block, part, before))
        before += frame.header.count
    if len(found) < 2:
        return found[0] if found else None
    return pa.concat_batches(found)


def _cut_block(header: Header, block: Block, part: Part, before: int) -> pa.RecordBatch:
    batch = block.batch()
    at = np.flatnonzero(chosen(part, _slots(header, block, batch, part.columns)))
    mine = batch.take(pa.array(at))
    positions = pa.array((at + before).astype(np.int32))
    return pa.record_batch([*mine.columns, positions], schema=part_schema(batch.schema))


def _slots(header: Header, block: Block, batch: pa.RecordBatch, columns: tuple[str, ...]) -> Slots:
    place = (id(block), columns)
    with _lock:
        known = _recent.get(place)
    if known is not None and known[0]() is block:
        return known[1]
    slots = slots_of([_column(header, batch, name) for name in columns], batch.num_rows)
    with _lock:
        _recent[place] = (weakref.ref(block), slots)
        if len(_recent) > _RECENT:
            _recent.popitem(last=False)
    return slots


def _column(header: Header, batch: pa.RecordBatch, name: str) -> pa.Array:
    at = batch.schema.get_field_index(name)
    if at < 0 and name == SEQ.name:  # of a source: the tuple's id
        return pa.array(np.arange(header.first_id, header.first_id + batch.num_rows))
    return batch.column(at)


def is_part(batch: pa.RecordBatch) -> bool:
    """Whether tuples may have been left out of a block."""
    return bool(_MARK.items() <= (batch.schema.metadata or {}).items())


def without_positions(batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Positions]:
    """The tuples of a part, and their positions in the frame."""
    positions = batch.column(batch.num_columns - 1).to_numpy(zero_copy_only=False)
    return batch.select(list(range(batch.num_columns - 1))), positions.astype(np.int64)


def fits(header: Header, batch: pa.RecordBatch | None) -> bool:
    """Whether a block that came can be that of the header that came with it."""
    if batch is None or not header.kind.is_data:
        return not header.kind.is_data and (batch is None or not batch.num_rows)
    if not is_part(batch):
        return bool(batch.num_rows == header.count)
    if batch.schema.field(batch.num_columns - 1) != _POSITION:
        return False
    _, at = without_positions(batch)
    return not len(at) or bool(at[0] >= 0 and at[-1] < header.count and (np.diff(at) > 0).all())
