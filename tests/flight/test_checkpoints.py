"""Checkpoints come over the wire as they went in."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from holdfast.blocks import Block
from holdfast.core.frame import Header, Kind
from holdfast.core.messages import StreamFrame
from holdfast.core.records import Checkpoint, LoggedStream, RecoveryRecord
from holdfast.flight.wire import WireError
from holdfast.kept.packed_codec import PIECE_BYTES, decode_checkpoint, encode_checkpoint
from holdfast.packed import PackedPart, PackedState
from tests.network.test_intact import broken

RECORD = RecoveryRecord(100, 90, (("in", 7),), (("out", 3), ("other", 0)))


def frame(first_id: int, *values: int) -> StreamFrame:
    batch = pa.record_batch({"v": pa.array(values, pa.int64())})
    return StreamFrame(Header(Kind.STABLE, first_id, len(values), 1, 9, 9), Block(batch))


def mark(next_id: int) -> StreamFrame:
    return StreamFrame(Header(Kind.BOUNDARY, next_id, 0, 100, 100, 100))


def test_a_checkpoint_comes_back_the_same() -> None:
    rows = pa.table({"slot": [1, 2], "version": [5, 6]})
    chain = (
        PackedState(5, 90, None, [PackedPart("sum", "window", 0, rows.slice(0, 1))], 4),
        PackedState(6, 100, 5, [PackedPart("sum", "window", 1, rows)], 4),
    )
    queues = (
        LoggedStream("out", 1, (frame(1, 10), frame(2, 20, 30), mark(4))),
        LoggedStream("other", 0, (mark(0),)),
    )
    sent = Checkpoint(12, 3, 11, RECORD, queues, None, wanted=True, query="digest")
    found = decode_checkpoint(encode_checkpoint(sent, chain))
    assert (found.number, found.term, found.base, found.wanted) == (12, 3, 11, True)
    assert found.query == "digest"
    assert found.record == RECORD
    for had, has in zip(queues, found.queues, strict=True):
        assert (had.stream, had.first_id) == (has.stream, has.first_id)
        assert [one.header for one in had.frames] == [one.header for one in has.frames]
        for one, other in zip(had.frames, has.frames, strict=True):
            if isinstance(one.block, Block):
                assert isinstance(other.block, Block)
                assert one.block.batch().equals(other.block.batch())
    states = found.state
    assert isinstance(states, tuple)
    for packed, state in zip(chain, states, strict=True):
        assert (packed.version, packed.since, packed.boundary, packed.partitions) == (
            state.version,
            state.since,
            state.boundary,
            state.partitions,
        )
        for part, other_part in zip(packed.parts, state.parts, strict=True):
            assert part.operator == other_part.operator
            assert part.rows.equals(other_part.rows)


def test_a_checkpoint_that_was_cut_short_is_refused() -> None:
    queues = (LoggedStream("out", 1, (frame(1, 10), mark(2))),)
    sent = Checkpoint(12, 3, None, RECORD, queues, None)
    whole = list(encode_checkpoint(sent, ()))
    with pytest.raises(WireError, match="not a checkpoint"):
        decode_checkpoint(whole[:-1])
    with pytest.raises(WireError, match="not a checkpoint"):
        decode_checkpoint([])


def test_malformed_rows_are_no_checkpoint() -> None:
    rows = pa.Table.from_batches([broken(pa.array(["abc", "def"]), 1, 0, 5, 2)])
    chain = (PackedState(5, 90, None, [PackedPart("sum", "window", 0, rows)], 4),)
    sent = Checkpoint(12, 3, None, RECORD, (), None)
    with pytest.raises(WireError, match="not a checkpoint"):
        decode_checkpoint(encode_checkpoint(sent, chain))


def test_an_empty_batch_is_no_checkpoint() -> None:
    rows = pa.table({"slot": [1]})
    chain = (PackedState(5, 90, None, [PackedPart("sum", "window", 0, rows)], 4),)
    (first, about), (second, _) = encode_checkpoint(
        Checkpoint(12, 3, None, RECORD, (), None), chain
    )
    with pytest.raises(WireError, match="not a checkpoint"):
        decode_checkpoint([(first, about), (second.slice(0, 0), {})])


def test_a_large_table_goes_out_in_pieces() -> None:
    size = 3 * PIECE_BYTES + 5
    rows = pa.table({"v": pa.array([np.random.default_rng(7).bytes(size)], pa.large_binary())})
    chain = (PackedState(5, 90, None, [PackedPart("sum", "window", 0, rows)] * 2, 4),)
    sent = list(encode_checkpoint(Checkpoint(12, 3, None, RECORD, (), None), chain))
    assert len(sent) == 1 + 2 * 4
    assert max(batch.nbytes for batch, _ in sent) < PIECE_BYTES + 100
    states = decode_checkpoint(sent).state
    assert isinstance(states, tuple)
    (found,) = states
    assert [part.rows.equals(rows) for part in found.parts] == [True, True]
    with pytest.raises(WireError, match="not a checkpoint"):
        decode_checkpoint(sent[:-1])
